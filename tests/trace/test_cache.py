"""Columns kept on disk: never another answer than the file's own, whatever became of the entry."""

from __future__ import annotations

import gzip
import io
import json
import sqlite3
from contextlib import closing
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import referee
from referee.analysis.diagnose import diagnose
from referee.cli.main import main
from referee.errors import UserError
from referee.records.schema import to_json
from referee.testing import Workload, simulate
from referee.trace import cache, reader
from referee.trace.builder import TraceBuilder
from referee.trace.columns import Links, Rows, Trace
from referee.trace.reader import read_trace


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "kept"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.json"
    path.write_bytes(simulate(Workload(ops=40, steps=2, sync_every=9, copy_ns=30_000)).file)
    return path


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sources that were decoded rather than found."""
    seen: list[str] = []
    gather = reader.gather

    def noted(text, **options):
        seen.append(Path(options["source"]).name)
        return gather(text, **options)

    monkeypatch.setattr(reader, "gather", noted)
    return seen


def assert_same(found: Trace, expected: Trace) -> None:
    for kind, one, other in ((Rows, found.rows, expected.rows), (Links, found.links, expected.links)):
        for field in fields(kind):
            mine, theirs = getattr(one, field.name), getattr(other, field.name)
            assert mine.dtype == theirs.dtype, field.name
            assert np.array_equal(mine, theirs), field.name
    rest = [field.name for field in fields(Trace) if field.name not in ("rows", "links")]
    assert {name: getattr(found, name) for name in rest} == {name: getattr(expected, name) for name in rest}


def test_recorded_traces_are_the_same(recorded: str, traces_dir: Path, folder: Path):
    path = traces_dir / recorded
    plain = read_trace(path)
    assert_same(read_trace(path, cache=folder), plain)
    kept = read_trace(path, cache=folder)
    assert_same(kept, plain)
    assert to_json(diagnose(kept)) == to_json(diagnose(plain))


def test_the_second_read_decodes_nothing(file: Path, folder: Path, decoded: list[str]):
    for _ in range(3):
        read_trace(file, cache=folder)
    assert decoded == ["a.json"]
    read_trace(file)
    assert decoded == ["a.json"] * 2  # off unless asked for


def test_the_same_bytes_under_another_name_are_found(file: Path, folder: Path, decoded: list[str]):
    read_trace(file, cache=folder)
    other = file.with_name("b.json")
    other.write_bytes(file.read_bytes())
    assert read_trace(other, cache=folder).source == str(other)
    assert decoded == ["a.json"]


def test_two_files_of_one_name_are_told_apart(file: Path, folder: Path):
    """The same path, first with one trace and then with another of the same length."""
    for duration in (111, 222):
        file.write_bytes(TraceBuilder().op("aten::add", 0, duration).to_json())
        trace = read_trace(file, cache=folder)
        assert trace.rows.end_ns.tolist() == [duration]


def test_provenance_belongs_to_the_file_not_to_its_bytes(file: Path, folder: Path):
    read_trace(file, cache=folder)
    beside = file.with_name("a.json.provenance.json")
    beside.write_text("{}")
    with pytest.raises(UserError, match="is not a provenance"):
        read_trace(file, cache=folder)


@pytest.mark.parametrize("lean", [False, True])
def test_each_option_has_an_entry_of_its_own(file: Path, folder: Path, lean: bool):
    read_trace(file, cache=folder, lean=not lean)
    read_trace(file, cache=folder, lean=lean)
    assert_same(read_trace(file, cache=folder, lean=lean), read_trace(file, lean=lean))
    assert len(list(folder.iterdir())) == 2


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]


DAMAGE = {
    "empty": lambda data: b"",
    "only a digest": lambda data: data[:32],
    "cut": lambda data: data[:-1],
    "longer": lambda data: data + b"\0",
    "zeros": lambda data: bytes(len(data)),
    "another digest": lambda data: _flipped(data, 0),
    "another header": lambda data: _flipped(data, 60),
    "another time": lambda data: _flipped(data, len(data) // 2),
    "another end": lambda data: _flipped(data, len(data) - 1),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_entry_is_read_again_and_replaced(file: Path, folder: Path, decoded: list[str], damage: str):
    expected = read_trace(file, cache=folder)
    (entry,) = folder.iterdir()
    whole = entry.read_bytes()
    entry.write_bytes(DAMAGE[damage](whole))
    assert_same(read_trace(file, cache=folder), expected)
    assert entry.read_bytes() == whole
    assert len(decoded) == 2


def test_an_entry_under_another_name_does_not_answer(file: Path, folder: Path, tmp_path: Path):
    read_trace(file, cache=folder)
    (entry,) = folder.iterdir()
    file.write_bytes(TraceBuilder().op("aten::add", 0, 5).to_json())
    read_trace(file, cache=folder)
    (new,) = set(folder.iterdir()) - {entry}
    new.write_bytes(entry.read_bytes())
    assert read_trace(file, cache=folder).events == 1


@pytest.mark.parametrize("what", ["release", "source code"])
def test_another_version_reads_again(
    file: Path, folder: Path, decoded: list[str], monkeypatch: pytest.MonkeyPatch, what: str, tmp_path: Path
):
    read_trace(file, cache=folder)
    if what == "release":
        monkeypatch.setattr(referee, "__version__", "99.0")
    else:
        changed = tmp_path / "trace"
        changed.mkdir()
        (changed / "cache.py").write_text("# changed")
        monkeypatch.setattr(cache, "__file__", str(changed / "cache.py"))
    read_trace(file, cache=folder)
    assert len(decoded) == 2


def test_a_file_that_changes_while_it_is_read_is_not_kept(file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch):
    gather = reader.gather

    def written_meanwhile(text, **options):
        file.write_bytes(TraceBuilder().op("aten::add", 0, 5).to_json())
        return gather(text, **options)

    monkeypatch.setattr(reader, "gather", written_meanwhile)
    read_trace(file, cache=folder)
    assert list(folder.iterdir()) == []


def test_packed_files_members_and_databases_are_kept(tmp_path: Path, folder: Path, file: Path):
    packed = tmp_path / "a.json.gz"
    packed.write_bytes(gzip.compress(file.read_bytes())[:-40])  # cut: with a finding
    database = tmp_path / "report.sqlite"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, globalTid INT)")
        connection.execute("INSERT INTO NVTX_EVENTS VALUES (10, 20, 59, 'a range', 5)")
        connection.commit()
    for path in (packed, database):
        expected = read_trace(path, cache=folder)
        assert_same(read_trace(path, cache=folder), expected)
    assert len(list(folder.iterdir())) == 2


def test_standard_input_is_found_by_its_bytes(
    file: Path, folder: Path, decoded: list[str], monkeypatch: pytest.MonkeyPatch
):
    expected = read_trace(file, cache=folder)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(file.read_bytes())))
    found = read_trace("-", cache=folder)
    assert found.rows.start_ns.tolist() == expected.rows.start_ns.tolist()
    assert decoded == ["a.json"]


def test_numbers_and_texts_that_json_finds_hard_come_back(tmp_path: Path, folder: Path):
    path = tmp_path / "a.json"
    event = {"ph": "X", "cat": "cpu_op", "name": "é\u2028核\0", "pid": 1, "tid": "a", "ts": 1 << 70, "dur": 1}
    path.write_text(json.dumps({"traceEvents": [event], "x": {"big": 1 << 62, "real": 0.1, "none": None}}))
    assert_same(read_trace(path, cache=folder), read_trace(path))
    assert_same(read_trace(path, cache=folder), read_trace(path))


def test_a_cache_that_cannot_be_written_is_said(file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.np.lib.format, "write_array", full)
    trace = read_trace(file, cache=folder)
    assert [finding.code for finding in trace.findings if finding.code == "not-cached"] == ["not-cached"]
    assert "No space left on device" in trace.findings[-1].message
    assert list(folder.iterdir()) == []


def test_a_cache_that_is_a_file_is_one_sentence(file: Path):
    with pytest.raises(UserError, match="cannot be a directory of kept traces"):
        read_trace(file, cache=file)


def test_the_command_line_asks_for_it(
    file: Path, folder: Path, decoded: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    answers = []
    for index, options in enumerate(([], ["--cache", str(folder)], ["--cache", str(folder)])):
        out = tmp_path / f"{index}.json"
        assert main(["trace", str(file), "--json", str(out), *options]) == 0
        answers.append(json.loads(out.read_bytes()))
    assert decoded == ["a.json"] * 2
    assert answers[0] == answers[1] == answers[2]
    monkeypatch.setenv("REFEREE_CACHE", str(folder))
    assert main(["trace", str(file), "--json", str(tmp_path / "3.json")]) == 0
    assert len(decoded) == 2
