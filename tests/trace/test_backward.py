"""Forward and backward operators find each other, both ways, and what finds nobody is counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from referee.analysis.diagnose import diagnose
from referee.trace.columns import NONE, Trace
from referee.trace.details import details_of, read_details
from referee.trace.reader import read_trace
from referee.trace.table import to_arrow


def op(name: str, ts: float, dur: float, *, tid: int = 1, **args: int) -> dict[str, Any]:
    stated = {key.replace("_", " "): value for key, value in args.items()}
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 5, "tid": tid, "ts": ts, "dur": dur, "args": stated}


def arrow(number: int, ph: str, ts: float, *, tid: int = 1) -> dict[str, Any]:
    return {"ph": ph, "cat": "fwdbwd", "name": "fwdbwd", "id": number, "pid": 5, "tid": tid, "ts": ts}


def forward_and_backward() -> list[dict[str, Any]]:
    """Two forwards on thread 1, their gradients in reverse on thread 2; outer operators carry the number as well."""
    return [
        op("aten::conv2d", 10, 50, Sequence_number=7, Fwd_thread_id=0),
        op("aten::convolution", 11, 48, Sequence_number=7, Fwd_thread_id=0),
        op("aten::_convolution", 11, 40),
        op("aten::relu", 70, 5, Sequence_number=8, Fwd_thread_id=0),
        op("engine: ReluBackward0", 100, 20, tid=2, Sequence_number=8, Fwd_thread_id=1),
        op("ReluBackward0", 101, 18, tid=2, Sequence_number=8, Fwd_thread_id=1),
        op("engine: ConvolutionBackward0", 130, 60, tid=2, Sequence_number=7, Fwd_thread_id=1),
        op("ConvolutionBackward0", 131.5, 58, tid=2, Sequence_number=7, Fwd_thread_id=1),
    ]


def read(tmp_path: Path, events: list[dict[str, Any]]) -> Trace:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return read_trace(path)


def named(trace: Trace, links: np.ndarray) -> dict[str, str]:
    return {trace.name_of(row): trace.name_of(int(links[row])) for row in np.flatnonzero(links != NONE)}


TRUTH = {"ReluBackward0": "aten::relu", "ConvolutionBackward0": "aten::convolution"}


def test_by_arrows(tmp_path: Path):
    arrows = [arrow(1, "f", 131.5, tid=2), arrow(1, "s", 11), arrow(2, "s", 70), arrow(2, "f", 101, tid=2)]
    trace = read(tmp_path, forward_and_backward() + arrows)
    links = read_details(trace).backward
    assert named(trace, links.forward_of) == TRUTH
    assert named(trace, links.backward_of) == {forward: backward for backward, forward in TRUTH.items()}
    assert (links.basis, links.matched, links.unmatched) == ("flows", 2, 0)
    # Two operators start at 11 µs: the arrow belongs to the one that has a number.
    assert links.sequence.tolist() == [7, 7, NONE, 8, 8, 8, 7, 7]
    assert links.forward_thread.tolist() == [0, 0, NONE, 0, 1, 1, 1, 1]


def test_by_sequence_numbers(tmp_path: Path):
    trace = read(tmp_path, forward_and_backward())
    links = read_details(trace).backward
    assert named(trace, links.forward_of) == TRUTH
    assert (links.basis, links.matched, links.unmatched) == ("sequence", 2, 0)


def test_what_finds_no_counterpart_is_counted(tmp_path: Path):
    arrows = [arrow(1, "f", 131.5, tid=2), arrow(2, "s", 70), arrow(3, "s", 71), arrow(3, "f", 101, tid=2)]
    links = read_details(read(tmp_path, forward_and_backward() + arrows)).backward
    # The first has no beginning, the second no end, the third begins where no operator does.
    assert (links.matched, links.unmatched) == (0, 3)
    alone = read(tmp_path, [*forward_and_backward()[4:], op("x", 300, 1)])
    (told,) = [finding for finding in diagnose(alone).findings if finding.code == "unmatched-backward"]
    assert told.evidence == {"unmatched": 2, "matched": 0, "basis": "sequence"}
    links = read_details(alone).backward
    assert (links.basis, links.matched, links.unmatched) == ("sequence", 0, 2)
    # One number on two threads: it cannot be told which of them is meant.
    other = op("aten::mul", 71, 2, tid=9, Sequence_number=8, Fwd_thread_id=0)
    links = read_details(read(tmp_path, [*forward_and_backward(), other])).backward
    assert (links.matched, links.unmatched) == (1, 1)


def test_a_trace_without_autograd(tmp_path: Path):
    links = read_details(read(tmp_path, [op("aten::add", 1, 2)])).backward
    assert (links.basis, links.matched, links.unmatched) == ("none", 0, 0)


def test_the_table_has_both_directions(tmp_path: Path):
    pytest.importorskip("pyarrow")
    trace = read(tmp_path, forward_and_backward())
    found = {row["name"]: row for row in to_arrow(trace).to_pylist()}
    conv, back = found["aten::convolution"], found["ConvolutionBackward0"]
    assert (back["forward"], conv["backward"], back["sequence"]) == (conv["row"], back["row"], 7)
    assert (conv["forward_thread"], back["forward_thread"], found["aten::_convolution"]["sequence"]) == (0, 1, None)
    assert details_of(trace) is details_of(trace)


@pytest.mark.traces
@pytest.mark.parametrize(
    ("file", "arrows"),
    [
        ("v100_ns_resolution_deep_queue.json.gz", 905),
        ("mi300_resnet_ddp_checkpoint.json.gz", 213),
        ("cpu_only_gloo_rank34.json.gz", 55),
        ("mi250_minitoy.json.gz", 4),
    ],
)
def test_recorded_arrows_all_meet_operators_of_one_number(file: str, arrows: int, traces_dir: Path):
    trace = read_trace(traces_dir / file)
    links = read_details(trace).backward
    assert (links.matched, links.unmatched) == (arrows, 0)
    backward = np.flatnonzero(links.forward_of != NONE)
    forward = links.forward_of[backward]
    # The numbers, which the arrows were not matched by, are the witness.
    assert np.array_equal(links.sequence[backward], links.sequence[forward])
    assert (links.forward_thread[forward] == 0).all()
    assert (links.forward_thread[backward] > 0).all()
    assert np.array_equal(links.backward_of[forward], backward)
