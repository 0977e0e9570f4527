"""Reading beside a helper process gives what reading alone gives, also when the helper fails."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from referee.trace import crew, pieces
from referee.trace.builder import TraceBuilder
from referee.trace.columns import Rows, Trace
from referee.trace.reader import read_trace


def same(left: Trace, right: Trace) -> bool:
    columns = all(
        np.array_equal(getattr(left.rows, name), getattr(right.rows, name)) for name in Rows.__dataclass_fields__
    )
    rest = ("names", "categories", "threads", "events", "base_ns", "metadata", "findings")
    return columns and all(getattr(left, name) == getattr(right, name) for name in rest)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Some 300 KB, with texts that look like boundaries, names of every piece's own, and a tail."""
    builder = TraceBuilder()
    for index in range(2000):
        builder.op(f"aten::op{index // 3}", index * 1000, 700, thread=index % 3, external_id=index)
        builder.launch("cudaLaunchKernel", index * 1000 + 100, 300, correlation=index + 1)
        builder.kernel('k},\n  {"ph": "X"', index * 1000 + 900, 500, correlation=index + 1, shape=[{"ph": "X"}])
    path = tmp_path / "some.json"
    path.write_bytes(builder.to_json())
    return path


@pytest.fixture
def sharing(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(crew, "SHARE_FROM_BYTES", 0)
    monkeypatch.setattr(pieces, "PIECE_BYTES", 5000)
    monkeypatch.setattr(crew.os, "cpu_count", lambda: 2)
    return monkeypatch


@pytest.mark.parametrize("fork", [True, False])
def test_with_a_helper(file: Path, sharing: pytest.MonkeyPatch, fork: bool):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crew, "SHARE_FROM_BYTES", 1 << 60)
        expected = read_trace(file)
    sharing.setattr(crew, "may_fork", lambda: fork)
    assert same(read_trace(file), expected)
    assert expected.events == 6000


def test_a_helper_that_does_nothing_but_die(file: Path, sharing: pytest.MonkeyPatch):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crew, "SHARE_FROM_BYTES", 1 << 60)
        expected = read_trace(file)
    sharing.setattr(crew, "may_fork", lambda: False)
    sharing.setattr(crew.sys, "executable", "/bin/true")
    assert same(read_trace(file), expected)


def test_a_helper_that_dies_with_work_in_its_hands(file: Path, sharing: pytest.MonkeyPatch):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crew, "SHARE_FROM_BYTES", 1 << 60)
        expected = read_trace(file)

    def serve_a_little(job, answers):
        crew.claim(job.queue)
        crew.claim(job.queue)

    sharing.setattr(crew, "may_fork", lambda: True)
    sharing.setattr(crew, "serve", serve_a_little)
    assert same(read_trace(file), expected)


def test_no_process_to_spare(file: Path, sharing: pytest.MonkeyPatch):
    def refuse(job, *, unused=None):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    sharing.setattr(crew, "fork", refuse)
    sharing.setattr(crew, "_start", refuse)
    assert read_trace(file).events == 6000


def test_damage_in_the_middle(file: Path, sharing: pytest.MonkeyPatch):
    text = file.read_bytes()
    middle = text.index(b'"ts"', len(text) // 2)
    file.write_bytes(text[:middle] + b"[[[ " + text[middle:])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crew, "SHARE_FROM_BYTES", 1 << 60)
        expected = read_trace(file)
    found = read_trace(file)
    assert same(found, expected)
    assert found.events == 5999
    assert "skipped-events" in [finding.code for finding in found.findings]


def test_begin_and_end_events_reach_over_pieces(tmp_path: Path, sharing: pytest.MonkeyPatch):
    events = ['{"ph": "B", "cat": "cpu_op", "name": "all", "pid": 1, "tid": 1, "ts": 1}']
    for index in range(1000):
        events.append(f'{{"ph": "B", "cat": "cpu_op", "name": "n", "pid": 1, "tid": 1, "ts": {2 + 2 * index}}}')
        events.append(f'{{"ph": "E", "cat": "cpu_op", "name": "n", "pid": 1, "tid": 1, "ts": {3 + 2 * index}}}')
    events.append('{"ph": "E", "pid": 1, "tid": 1, "ts": 3000}')
    path = tmp_path / "halves.json"
    path.write_text("[" + ",\n".join(events) + "]")
    trace = read_trace(path)
    assert len(trace.rows) == 1001
    assert trace.rows.end_ns[0] == 2_999_000
    assert (trace.rows.end_ns[1:] - trace.rows.start_ns[1:] == 1000).all()


def test_what_is_done_meanwhile(file: Path, sharing: pytest.MonkeyPatch):
    done: list[str] = []
    assert read_trace(file, meanwhile=lambda: done.append("with a helper")).events == 6000
    assert done == ["with a helper"]
    read_trace(file, lean=True, meanwhile=lambda: done.append("alone"))
    assert done == ["with a helper"]
