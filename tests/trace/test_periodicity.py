"""Steps from the repetition of kernels: rounds that the host marks count, layers do not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from referee.trace.builder import TraceBuilder
from referee.trace.columns import Trace
from referee.trace.periodicity import periodic_steps
from referee.trace.reader import read_trace
from referee.trace.totals import kernels_per_step


def sequence(names: str, *, copies: str = "^") -> TraceBuilder:
    """A kernel for each letter, one launch each 10 ns; a copy before each letter of ``copies``."""
    builder = TraceBuilder()
    for index, name in enumerate(names):
        if name in copies:
            builder.launch("cudaMemcpyAsync", index * 10 - 4, 2, correlation=1000 + index)
            builder.memcpy(index * 10 - 1, 1, correlation=1000 + index, stream=14)
        builder.launch("cudaLaunchKernel", index * 10, 5, correlation=index + 1)
        builder.kernel(name, index * 10 + 7, 5, correlation=index + 1)
    return builder


def test_rounds_with_a_copy_each():
    trace = sequence("abcdef" * 4, copies="a").build()
    assert trace.steps_from == "periodicity"
    assert [step.name for step in trace.steps] == ["round 0", "round 1", "round 2", "round 3"]
    assert kernels_per_step(trace) == (6, 6, 6, 6)
    assert not any(step.cut for step in trace.steps)


def test_the_last_round_may_be_cut():
    trace = sequence("abcdef" * 4 + "abc", copies="a").build()
    assert [step.cut for step in trace.steps] == [False] * 4 + [True]
    assert kernels_per_step(trace) == (6, 6, 6, 6, 3)


@pytest.mark.parametrize(
    ("names", "copies"),
    [
        ("abcdef" * 4, "^"),  # nothing marks a round
        ("xyz" + "abcdef" * 4 + "uvw", "a"),  # layers between an embedding and a head
        ("ab" * 12, "a"),  # too short to be a step
        ("abcdef" * 2, "a"),  # twice is no repetition
        ("abcdefghijklmnopqrstuvwxyz", "a"),
    ],
)
def test_what_is_no_step(names: str, copies: str):
    assert sequence(names, copies=copies).build().steps == ()


def test_marked_steps_win():
    assert sequence("abcdef" * 4, copies="a").step(1, 0, 500).build().steps_from == "profiler-steps"


def test_rounds_of_recorded_traces_are_their_steps(recorded: str, traces_dir: Path):
    trace = read_trace(traces_dir / recorded)
    found = periodic_steps(trace.rows, trace.links, names=trace.names)
    if found:
        assert kernels_per_step(replace_steps(trace, found)) == kernels_per_step(trace)
        assert len(found) == len(trace.steps)


def replace_steps(trace: Trace, steps) -> Trace:
    return replace(trace, steps=steps)
