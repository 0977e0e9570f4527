"""Rows that recorded traces answer follow the trace: the property is planted in a synthetic one."""

from __future__ import annotations

from dataclasses import replace
from math import comb
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from referee.device.fake import FakeAsync
from referee.lab import recorded as recorded_traces
from referee.trace.builder import TraceBuilder

from .planted import laboratory, launches, of, row, simulated


@pytest.mark.parametrize(("kernel_ns", "outcome"), [(1_000, "differs"), (3_000, "holds"), (9_000, "differs")])
def test_the_length_of_a_kernel_is_read_off_the_trace(kernel_ns: int, outcome: str) -> None:
    found = row("E2", laboratory(recorded=(launches(kernel_ns=kernel_ns),)))
    assert (found.measured, found.outcome, found.basis, found.sources) == (kernel_ns, outcome, "recorded", ("made",))


@pytest.mark.parametrize(("launch_ns", "outcome"), [(1_000, "differs"), (3_000, "cannot-tell")])
def test_the_cost_of_a_launch_is_read_off_the_trace(launch_ns: int, outcome: str) -> None:
    """What a graph costs is a part of the claim: without one recorded the rest alone does not hold."""
    found = row("E7", laboratory(recorded=(launches(launch_ns=launch_ns),)))
    assert (found.measured, found.outcome) == (launch_ns, outcome)
    assert "Launching a whole graph, which the claim gives a figure for, could not be measured." in found.why


@pytest.mark.parametrize(("graph_ns", "outcome"), [(500, "differs"), (1_500, "holds"), (1_240_000, "differs")])
def test_the_cost_of_a_graph_counts(graph_ns: int, outcome: str) -> None:
    graphs = launches(launch_ns=graph_ns, call="cudaGraphLaunch")
    found = row("E7", laboratory(recorded=(launches(launch_ns=3_000), graphs)))
    assert (found.measured, found.outcome) == (3_000, outcome)
    assert ("Launching a whole graph: " in found.why) == (outcome == "differs")
    likely = (
        "likely: the profiler's part, which grows with what a graph launches (1 row each); and one trace has them all"
    )
    assert (likely in found.why) == (graph_ns > 2_000)


def test_a_graph_launch_is_no_kernel_launch() -> None:
    graphs = launches(launch_ns=40_000, call="cudaGraphLaunch")
    found = row("E7", laboratory(recorded=(launches(launch_ns=3_000), graphs)))
    assert found.measured == 3_000
    assert (
        "Launching a whole graph took 40.0 µs in the median, over 20 in the one trace that has any, made" in found.why
    )
    assert row("E7", laboratory(recorded=(graphs,))).outcome == "needs-device"


def test_another_vendors_launch_and_a_copy_are_no_answer() -> None:
    for call in ("hipLaunchKernel", "cudaMemcpyAsync"):
        assert row("E7", laboratory(recorded=(launches(call=call),))).outcome == "needs-device"


@pytest.mark.parametrize(
    ("workload", "outcome"),
    [({"op_ns": 20_000, "kernel_ns": 2_000}, "holds"), ({"op_ns": 2_000, "kernel_ns": 200_000}, "differs")],
)
def test_what_can_be_recovered_is_what_the_host_starves(workload: dict[str, int], outcome: str) -> None:
    found = row("E17", laboratory(recorded=(simulated(**workload),)))
    assert found.outcome == outcome
    assert "By loss: per-operator overhead " in found.why


def test_each_loss_is_told_by_itself_over_the_traces_that_price_it() -> None:
    """Of two windows the host starves one; memory traffic is priced in neither of them or in both."""
    made = simulated(op_ns=20_000, kernel_ns=2_000)
    window_ns = made.report.totals.window_ns
    known = replace(made.report.losses.allocator, recoverable_ns=window_ns // 4)
    none = replace(known, recoverable_ns=None)
    traces = []
    for allocator in (known, none):
        losses = replace(made.report.losses, per_op_overhead=known, memory_traffic=none, allocator=allocator)
        traces.append(replace(made, report=replace(made.report, losses=losses)))
    assert (
        "By loss: per-operator overhead 25.0 % (median of 2 traces), memory traffic priced by none, allocator work "
        "25.0 % (median of 1 trace)." in row("E17", laboratory(recorded=tuple(traces))).why
    )


@pytest.mark.parametrize(("blocks", "outcome", "ratio"), [(4, "holds", 25.0), (100, "differs", 1.0)])
def test_any_kernel_against_every_multiprocessor(blocks: int, outcome: str, ratio: float) -> None:
    """Kernels of so many blocks on a hundred multiprocessors."""
    found = row("D1", laboratory(recorded=(launches(multiprocessors=100, blocks=blocks),)))
    assert (found.measured, found.outcome) == (pytest.approx(ratio), outcome)


def test_the_five_questions_are_answered_by_what_was_recorded() -> None:
    """Kernels alone answer one; steps and operators two more; and the fourth where occupancy was recorded."""
    alone = row("D2", laboratory(recorded=(launches(),)))
    assert (alone.measured, alone.outcome) == (0.25, "differs")
    stepped = simulated(op_ns=20_000, kernel_ns=2_000)
    pair = row("D2", laboratory(recorded=(stepped, stepped)))
    assert (pair.measured, pair.outcome) == (0.75, "differs")
    assert "Answered, of 2: a device window in 2, self totals of both sides in 2, kernels in a step in 2, " in pair.why
    assert "occupancy in 0." in pair.why
    use = replace(stepped.report.utilisation, occupancy_frac=0.4)
    whole = replace(stepped, report=replace(stepped.report, utilisation=use))
    found = row("D2", laboratory(recorded=(whole,)))
    assert (found.measured, found.outcome) == (1.0, "holds")
    mixed = row("D2", laboratory(recorded=(whole, stepped)))
    assert mixed.outcome == "cannot-tell"
    assert "begins at 75.0 %, below the least that the claim allows, and only reaches that, 100.0 %." in mixed.why


@pytest.mark.parametrize(("op_ns", "outcome"), [(3_000, "holds"), (40_000, "differs")])
def test_the_gaps_are_those_between_the_launches(op_ns: int, outcome: str) -> None:
    """An operator and its launch of 4 µs against a kernel of 2 µs: the device waits for the rest."""
    found = row("D3", laboratory(recorded=(simulated(op_ns=op_ns, kernel_ns=2_000),)))
    assert (found.measured, found.outcome) == (pytest.approx(op_ns + 4_000 - 2_000, rel=0.1), outcome)


@pytest.mark.parametrize(("kernel_ns", "outcome"), [(500, "differs"), (2_000, "holds")])
def test_the_median_kernel_of_launch_bound_traces_counts(kernel_ns: int, outcome: str) -> None:
    found = row("D3", laboratory(recorded=(simulated(op_ns=4_000, kernel_ns=kernel_ns),)))
    assert found.outcome == outcome
    assert ("The median kernel of launch-bound traces: 500 ns is below" in found.why) == (outcome == "differs")


def test_a_window_that_is_not_launch_bound_has_no_gaps_to_tell_of() -> None:
    found = row("D3", laboratory(recorded=(simulated(op_ns=2_000, kernel_ns=100_000),)))
    assert (found.outcome, found.measured) == ("needs-device", None)


def test_totals_mislead_where_a_host_runs_ahead() -> None:
    starved = simulated("starved", op_ns=20_000, kernel_ns=2_000)
    assert row("D4", laboratory(recorded=(starved,))).outcome == "holds"
    builder = TraceBuilder(source="ahead")
    for number in range(20):
        at_ns = number * 100_000
        builder.op("aten::work", at_ns, 99_000)
        builder.op("aten::work", at_ns, 99_000, thread=2)
        builder.launch("cudaLaunchKernel", at_ns, 5_000, correlation=number + 1)
        builder.kernel("gemm", at_ns + 6_000, 99_500, correlation=number + 1)
    found = row("D4", laboratory(recorded=(starved, of(builder.build(), "ahead"))))
    assert (found.measured, found.outcome) == (0.5, "differs")
    assert "1 of 2 are not compute-bound. Compute-bound all the same: ahead." in found.why


def test_a_device_that_is_here_wants_a_trace() -> None:
    assert "referee profile" in row("E7", laboratory(open=lambda _: FakeAsync())).why


def test_without_a_device_and_without_traces_the_row_says_what_it_needs() -> None:
    found = row("E7", laboratory())
    assert (found.outcome, found.measured) == ("needs-device", None)
    assert "--trace" in found.why


def test_a_trace_that_cannot_answer_is_no_answer() -> None:
    empty = of(TraceBuilder().op("aten::add", 0, 10).build(), "host only")
    assert row("E7", laboratory(recorded=(empty,))).outcome == "needs-device"


@given(st.lists(st.integers(0, 10**9), min_size=6, max_size=60, unique=True))
def test_the_interval_over_traces_leaves_out_less_than_it_may(numbers: list[int]) -> None:
    ordered = np.sort(np.array(numbers, dtype=np.float64))
    low, high = recorded_traces._order_interval(ordered)
    inside = int(((ordered >= low) & (ordered <= high)).sum())
    below = (len(numbers) - inside) // 2
    missed = sum(comb(len(numbers), k) for k in range(below + 1)) / 2 ** len(numbers)
    assert low <= np.median(ordered) <= high
    assert missed <= 0.025 or below == 0


@pytest.mark.traces
def test_a_real_trace_answers_and_is_named(traces_dir: Path) -> None:
    from referee.trace.reader import read_trace

    name = "b200_eager.json.gz"
    lab = laboratory(recorded=(of(read_trace(traces_dir / name), name),), operators=SimpleNamespace())
    rows: dict[str, Any] = {claim: row(claim, lab) for claim in ("M2", "M6", "E2", "E7", "E17", "D3")}
    assert {found.sources for found in rows.values()} == {(name,)}
    assert all(found.basis == "recorded" and found.low <= found.measured <= found.high for found in rows.values())
