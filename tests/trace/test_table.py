"""The rows as a table: columns, exports, SQL, and the page that documents them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from referee.errors import OptionError, PackageMissing
from referee.trace import table
from referee.trace.builder import TraceBuilder
from referee.trace.columns import Trace

ROOT = Path(__file__).resolve().parents[2]


def trace() -> Trace:
    return (
        TraceBuilder(source="x.json")
        .step(3, 0, 100)
        .op("aten::add", 10, 50, external_id=4)
        .launch("cudaLaunchKernel", 20, 5, correlation=1, external_id=4)
        .kernel("k", 150, 30, correlation=1)
        .kernel("unlinked", 190, 30, stream=8)
        .build()
    )


def test_the_page_is_current():
    page = ROOT / "docs" / "trace-columns.md"
    assert page.read_text(encoding="utf-8") == table.columns_markdown()


def test_arrow():
    pytest.importorskip("pyarrow")
    found = table.to_arrow(trace()).to_pylist()
    assert found[-2] == {
        "row": 3,
        "start_ns": 150,
        "end_ns": 180,
        "duration_ns": 30,
        "name": "k",
        "category": "kernel",
        "kind": "kernel",
        "pid": "0",
        "tid": "7",
        "device": 0,
        "stream": 7,
        "correlation": 1,
        "external_id": None,
        "launch": 2,
        "is_launch": False,
        "operator": None,
        "step": "ProfilerStep#3",
        "forward": None,
        "backward": None,
        "sequence": None,
        "forward_thread": None,
    }
    assert [row["operator"] for row in found] == [None, None, 1, None, None]
    assert [row["step"] for row in found][-1] is None
    assert table.to_arrow(trace()).schema.metadata[b"base_ns"] == b"0"


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".feather"])
def test_exports(tmp_path: Path, suffix: str):
    pytest.importorskip("pyarrow")
    from pyarrow import feather, parquet

    path = tmp_path / f"rows{suffix}"
    table.export(trace(), path)
    back = parquet.read_table(path) if suffix == ".parquet" else feather.read_table(path)
    assert back.to_pylist() == table.to_arrow(trace()).to_pylist()
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_exports_that_cannot_be_written(tmp_path: Path):
    pytest.importorskip("pyarrow")
    with pytest.raises(OptionError, match="the suffix says"):
        table.export(trace(), tmp_path / "rows.csv")
    with pytest.raises(OptionError, match="cannot be written"):
        table.export(trace(), tmp_path / "none" / "rows.parquet")


def test_polars():
    pytest.importorskip("polars")
    frame = table.to_polars(trace())
    assert frame.filter(frame["kind"] == "kernel")["duration_ns"].to_list() == [30, 30]


def test_sql():
    pytest.importorskip("duckdb")
    pytest.importorskip("pyarrow")
    answer = table.query(
        trace(), "SELECT kind, count(*) AS n, sum(duration_ns) AS ns FROM rows GROUP BY kind ORDER BY kind"
    )
    assert answer.columns == ("kind", "n", "ns")
    assert answer.rows == (("kernel", 2, 60), ("operator", 1, 50), ("runtime", 1, 5), ("step", 1, 100))


def test_sql_that_is_refused(tmp_path: Path):
    pytest.importorskip("duckdb")
    pytest.importorskip("pyarrow")
    for sql in ("SELECT nothing FROM rows", "SELEC", f"COPY rows TO '{tmp_path}/x.csv'", "SELECT * FROM '/etc/passwd'"):
        with pytest.raises(table.QueryError, match="cannot be answered") as caught:
            table.query(trace(), sql)
        assert "\n" not in str(caught.value)
        assert caught.value.exit_status == 2
    assert not list(tmp_path.iterdir())


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch):
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(PackageMissing, match=r"pyarrow.*referee\[tables\]"):
        table.to_arrow(trace())


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "feather"])
def test_every_reader_takes_an_export(tmp_path: Path, suffix: str):
    pl = pytest.importorskip("polars")
    path = tmp_path / f"rows.{suffix}"
    table.export(trace(), path)
    read = pl.read_parquet(path) if suffix == "parquet" else pl.read_ipc(path)
    assert read["name"].to_list() == table.to_arrow(trace())["name"].to_pylist()
    assert read["step"].to_list() == table.to_arrow(trace())["step"].to_pylist()


def test_behind_a_missing_text_stands_a_valid_code():
    pytest.importorskip("pyarrow")
    (chunk,) = table.to_arrow(trace().__class__(**(vars(trace()) | {"steps": ()})))["step"].chunks
    assert chunk.null_count == len(chunk)
    (chunk,) = table.to_arrow(trace())["step"].chunks
    assert min(memoryview(chunk.indices.buffers()[1]).cast("i").tolist()) >= 0


def test_pandas_comes_with_no_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(PackageMissing, match=r"pip install pandas"):
        table.to_pandas(trace())
