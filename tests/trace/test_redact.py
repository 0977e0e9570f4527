"""What is taken out of a shared copy, and what stays."""

from __future__ import annotations

import gzip
import json
from dataclasses import asdict
from pathlib import Path

import pytest

from referee.errors import OptionError
from referee.trace.builder import TraceBuilder
from referee.trace.reader import parse_trace, read_trace
from referee.trace.redact import redact, redact_trace
from referee.trace.totals import totals

SECRETS = ("mallory", "gpu-box-17", "/data/", "secret_dir", "mallory@example.org", "10.1.2.3", "train_7f3")


def telling() -> TraceBuilder:
    return (
        TraceBuilder(base_ns=1_727_743_122_000_000_001)
        .metadata(
            host_name="gpu-box-17.lab.example",
            username="mallory",
            tw_job="train_7f3",
            traceName="/data/secret_dir/mallory/trace.json",
            INFO=[
                "wrote to /data/secret_dir/x.json on gpu-box-17.lab.example",
                "mail mallory@example.org",
                "10.1.2.3:80",
            ],
        )
        .python("/data/secret_dir/train.py(12): step", 0, 90_000)
        .python("C:\\data\\secret_dir\\loop.py(3): run", 10, 80_000)
        .op("aten::div", 1_000, 20_000, note="by Mallory")
        .launch("cudaLaunchKernel", 2_001, 5_003, correlation=11)
        .kernel("void f<a, b>(x*, y/2)", 9_007, 2_000, correlation=11, grid=[1, 2, 3])
    )


def test_names_and_paths_go_and_the_report_stays():
    data = telling().to_json()
    assert all(secret.encode() in data for secret in SECRETS if secret != "/data/")
    copy, count = redact(data)
    assert count >= 9
    for secret in SECRETS:
        assert secret.encode() not in copy.lower(), secret
    before, after = parse_trace(data), parse_trace(copy)
    assert asdict(totals(before)) == asdict(totals(after))
    assert (before.rows.start_ns == after.rows.start_ns).all()
    assert before.base_ns == after.base_ns
    assert after.names == (
        "train.py(12): step",
        "loop.py(3): run",
        "aten::div",
        "cudaLaunchKernel",
        "void f<a, b>(x*, y/2)",
    )
    assert json.loads(copy)["traceName"] == "trace.json"


def test_nothing_else_changes():
    data = TraceBuilder().op("aten::add", 0, 1, shape=[[1, 2]], types=["float", "a/b"]).to_json()
    assert redact(data) == (data, 0)


def test_files(tmp_path: Path):
    source, target = tmp_path / "a.json.gz", tmp_path / "b.json.gz"
    source.write_bytes(gzip.compress(telling().to_json()))
    assert redact_trace(source, target) >= 9
    assert read_trace(target).events == 5
    assert not list(tmp_path.glob("*.part*"))
    with pytest.raises(OptionError, match="the trace itself"):
        redact_trace(source, source)
    with pytest.raises(OptionError, match="cannot be written"):
        redact_trace(source, tmp_path / "no" / "folder.json")


def test_recorded_traces_give_the_same_totals_without_their_names(recorded: str, traces_dir: Path):
    if (traces_dir / recorded).stat().st_size > 400_000:
        pytest.skip("the small ones hold every layout")
    before = read_trace(traces_dir / recorded)
    with open(traces_dir / recorded, "rb") as file:
        data = file.read()
    copy, _ = redact(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    assert asdict(totals(parse_trace(copy))) == asdict(totals(before))
    for home in (b"home", b"root"):
        assert b'"/' + home + b"/" not in copy


def test_a_copy_is_packed_as_its_name_says(tmp_path: Path):
    source = tmp_path / "t.json"
    source.write_bytes(telling().to_json())
    for suffix, magic in ((".json.gz", b"\x1f\x8b"), (".json.zst", b"\x28\xb5\x2f\xfd"), (".json", b"{")):
        target = tmp_path / f"copy{suffix}"
        redact_trace(source, target)
        assert target.read_bytes().startswith(magic)
        assert read_trace(target).events == read_trace(source).events


@pytest.mark.parametrize("name", ["copy.zip", "copy.tar.gz", "copy.sqlite", "copy.parquet"])
def test_a_copy_is_no_archive(tmp_path: Path, name: str):
    source = tmp_path / "t.json"
    source.write_bytes(telling().to_json())
    with pytest.raises(OptionError, match=r"suffix says the format"):
        redact_trace(source, tmp_path / name)
    assert not (tmp_path / name).exists()


def test_a_database_is_not_copied_as_text(tmp_path: Path):
    source = tmp_path / "t.sqlite"
    source.write_bytes(b"SQLite format 3\0" + bytes(100))
    with pytest.raises(OptionError, match="is a database"):
        redact_trace(source, tmp_path / "copy.json")
