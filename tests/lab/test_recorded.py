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
from referee.lab import over_traces, recorded_diagnosis
from referee.trace.builder import TraceBuilder

from .planted import laboratory, launches, of, row, simulated


@pytest.mark.parametrize(("kernel_ns", "outcome"), [(1_000, "differs"), (3_000, "holds"), (9_000, "differs")])
def test_the_length_of_a_kernel_is_read_off_the_trace(kernel_ns: int, outcome: str) -> None:
    found = row("E2", laboratory(recorded=(launches(kernel_ns=kernel_ns, multiprocessors=4),)))
    assert (found.measured, found.outcome, found.basis, found.sources) == (kernel_ns, outcome, "recorded", ("made",))


def test_a_small_kernel_has_no_more_blocks_than_there_are_multiprocessors() -> None:
    small = launches(kernel_ns=3_000, multiprocessors=4, blocks=4)
    large = launches(kernel_ns=90_000, multiprocessors=4, blocks=5)
    found = row("E2", laboratory(recorded=(small, large)))
    assert (found.measured, found.outcome, found.taken) == (3_000, "holds", "20 rows of one trace")
    assert "20 of 40 elementwise kernels are known to be small. Those of any size take 46.5 µs" in found.why
    assert row("E2", laboratory(recorded=(large,))).outcome == "needs-device"
    assert row("E2", laboratory(recorded=(launches(),))).outcome == "needs-device"


@pytest.mark.parametrize(("launch_ns", "outcome"), [(1_000, "differs"), (3_000, "cannot-tell")])
def test_the_cost_of_a_launch_is_read_off_the_trace(launch_ns: int, outcome: str) -> None:
    """What a graph costs is a part of the claim: without one recorded the rest alone does not hold."""
    found = row("E7", laboratory(recorded=(launches(launch_ns=launch_ns),)))
    assert (found.measured, found.outcome) == (launch_ns, outcome)
    assert "Launching a whole graph, which the claim gives a figure for, could not be measured." in found.why


@pytest.mark.parametrize(
    ("graph_ns", "outcome"), [(500, "differs"), (1_500, "cannot-tell"), (1_240_000, "cannot-tell")]
)
def test_what_was_recorded_is_the_most_that_a_graph_costs(graph_ns: int, outcome: str) -> None:
    """A profiler's part is in it: only less than the claim is refuted, and nothing confirmed."""
    graphs = launches(launch_ns=graph_ns, call="cudaGraphLaunch")
    found = row("E7", laboratory(recorded=(launches(launch_ns=3_000), graphs)))
    assert (found.measured, found.low, found.outcome) == (3_000, 0, outcome)
    (part,) = found.parts
    assert (part.measured, part.low, part.outcome) == (graph_ns, 0, outcome)
    assert (
        "so that the call itself took less and the interval begins at nothing. Launching a whole graph took"
        in found.why
    )
    assert "of 1 row each: a profiler's part grows with what a graph launches." in found.why


def test_a_graph_launch_is_no_kernel_launch() -> None:
    graphs = launches(launch_ns=40_000, call="cudaGraphLaunch")
    found = row("E7", laboratory(recorded=(launches(launch_ns=3_000), graphs)))
    assert found.measured == 3_000
    assert "Launching a whole graph took 40.0 µs, over 20 in the one trace that has any, made" in found.why
    assert row("E7", laboratory(recorded=(graphs,))).outcome == "needs-device"


def test_another_vendors_launch_and_a_copy_are_no_answer() -> None:
    for call in ("hipLaunchKernel", "cudaMemcpyAsync"):
        assert row("E7", laboratory(recorded=(launches(call=call),))).outcome == "needs-device"


def losing(*shares: float | None, name: str = "made") -> Any:
    """A trace that loses these shares of its window: per-operator overhead, memory traffic, allocator work."""
    made = simulated(op_ns=20_000, kernel_ns=2_000)
    window_ns, known = made.report.totals.window_ns, made.report.losses.allocator
    overhead, traffic, allocator = (
        replace(known, recoverable_ns=None if share is None else round(share * window_ns)) for share in shares
    )
    losses = replace(made.report.losses, per_op_overhead=overhead, memory_traffic=traffic, allocator=allocator)
    return replace(made, name=name, report=replace(made.report, losses=losses))


@pytest.mark.parametrize(
    ("shares", "outcome"),
    [
        ((0.3, 0.1, 0.05), "holds"),
        ((0.3, 0.0, 0.05), "differs"),
        ((0.3, 0.1, 0.001), "differs"),
        ((0.0, 0.1, 0.05), "differs"),
        ((0.3, None, 0.05), "cannot-tell"),
    ],
)
def test_each_loss_is_judged_and_not_their_sum_alone(shares: tuple[float | None, ...], outcome: str) -> None:
    found = row("E17", laboratory(recorded=(losing(*shares),)))
    assert found.outcome == outcome
    assert [part.name for part in found.parts] == ["per-operator overhead", "memory traffic", "allocator work"]
    assert found.measured == pytest.approx(sum(share or 0 for share in shares), abs=1e-3)


def test_medians_that_need_not_add_and_what_is_not_priced_are_told() -> None:
    found = row("E17", laboratory(recorded=(losing(0.25, 0.1, 0.02), losing(0.05, None, 0.0, name="other"))))
    assert "need not add up: 15.0 % + 10.0 % + 1.0 % is not the number." in found.why
    assert "Not priced: memory traffic in 1 of 2 traces" in found.why
    assert "Such a trace enters the number with its other losses." in found.why
    assert "In 2 traces no allocation reached the driver, and requests that torch's cache served are not" in found.why
    whole = row("E17", laboratory(recorded=(losing(0.25, 0.1, 0.02),)))
    assert "Not priced: " not in whole.why


def test_what_the_host_starves_is_a_loss_and_a_busy_device_is_none() -> None:
    starved, busy = simulated(op_ns=20_000, kernel_ns=2_000), simulated(op_ns=2_000, kernel_ns=200_000)
    first, second = (row("E17", laboratory(recorded=(one,))).parts[0] for one in (starved, busy))
    assert (first.outcome, second.outcome) == ("holds", "differs")


def test_each_loss_is_told_by_itself_over_the_traces_that_price_it() -> None:
    found = row("E17", laboratory(recorded=(losing(0.25, None, 0.25), losing(0.05, None, 0.0, name="other"))))
    assert (
        "By loss: per-operator overhead at least 1.0 % in 2 of 2 traces, at most 25.0 % (made); memory traffic "
        "priced by "
        "none; allocator work at least 1.0 % in 1 of 2 traces, at most 25.0 % (made)." in found.why
    )
    settled = row("E17", laboratory(recorded=(losing(0.25, 0.1, 0.02),)))
    assert settled.teaches == (
        "Price each loss before you mend it: in the median of these traces per-operator overhead is the largest, "
        "25.0 % of "
        "the window."
    )


@pytest.mark.parametrize(("blocks", "outcome", "ratio"), [(4, "holds", 25.0), (100, "differs", 1.0)])
def test_any_kernel_against_every_multiprocessor(blocks: int, outcome: str, ratio: float) -> None:
    """Kernels of so many blocks on a hundred multiprocessors."""
    found = row("D1", laboratory(recorded=(launches(multiprocessors=100, blocks=blocks),)))
    assert (found.measured, found.outcome) == (pytest.approx(ratio), outcome)
    assert "None of these traces has a kernel in 90.0 % of its window. Any kernel " in found.why


def test_the_trace_that_reads_high_and_is_filled_least_is_named() -> None:
    empty, full = (
        replace(launches(kernel_ns=97_000, multiprocessors=100, blocks=blocks), name=f"{blocks} blocks")
        for blocks in (4, 100)
    )
    why = row("D1", laboratory(recorded=(empty, full))).why
    assert (
        "2 of these traces have a kernel in 90.0 % of the window or more; the one of them with the least weighted"
        in why
    )
    assert " (4 blocks). Any kernel " in why


def test_traces_with_many_short_kernels_are_told_with_both_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_diagnosis, "_THOUSANDS", 20)
    why = row("D1", laboratory(recorded=(launches(multiprocessors=100, blocks=4),))).why
    assert "in the median: made 3.2 % against 0.1 %." in why


def test_the_four_questions_are_answered_by_what_was_recorded() -> None:
    """Kernels alone answer one; steps and operators two more; and the fourth where occupancy was recorded."""
    alone = row("D2", laboratory(recorded=(launches(),)))
    assert (alone.measured, alone.outcome) == (0, "cannot-tell")
    assert (
        "What is lacking: pair of self totals in 1, kernel in a step in 1, occupancy in 1; 1 trace lacks something, 1 "
        "of them more than one thing." in alone.why
    )
    stepped = simulated(op_ns=20_000, kernel_ns=2_000)
    pair = row("D2", laboratory(recorded=(stepped, stepped)))
    assert (pair.measured, pair.outcome) == (0, "cannot-tell")
    assert "0 of 2 traces answer all four. What is lacking: occupancy in 2." in pair.why
    assert pair.teaches.startswith("Nothing yet: it is not settled here.")
    use = replace(stepped.report.utilisation, occupancy_frac=0.4)
    whole = replace(stepped, report=replace(stepped.report, utilisation=use))
    found = row("D2", laboratory(recorded=(whole,)))
    assert (found.measured, found.outcome, found.untested_parts) == (
        1.0,
        "cannot-tell",
        ("the order", "the null experiment"),
    )
    assert "Nothing is lacking." in found.why
    mixed = row("D2", laboratory(recorded=(whole, stepped)))
    assert (mixed.measured, mixed.outcome, mixed.taken) == (0.5, "cannot-tell", "2 traces (counted)")
    host_alone = of(TraceBuilder().op("aten::add", 0, 10).build(), "host only")
    assert row("D2", laboratory(recorded=(whole, host_alone))).measured == 1


@pytest.mark.parametrize(("op_ns", "outcome"), [(3_000, "holds"), (40_000, "differs")])
def test_the_gaps_are_those_between_the_launches(op_ns: int, outcome: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator and its launch of 4 µs against a kernel of 2 µs: the device waits for the rest."""
    monkeypatch.setattr(recorded_diagnosis, "_THOUSANDS", 1)
    found = row("D3", laboratory(recorded=(simulated(op_ns=op_ns, kernel_ns=2_000),)))
    assert (found.measured, found.outcome) == (pytest.approx(op_ns + 4_000 - 2_000, rel=0.1), outcome)


@pytest.mark.parametrize(("kernel_ns", "outcome"), [(500, "differs"), (2_000, "holds")])
def test_the_median_kernel_of_launch_bound_traces_counts(
    kernel_ns: int, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded_diagnosis, "_THOUSANDS", 1)
    found = row("D3", laboratory(recorded=(simulated(op_ns=4_000, kernel_ns=kernel_ns),)))
    assert found.outcome == outcome
    assert ("The median kernel of launch-bound traces: 500 ns is below" in found.why) == (outcome == "differs")


def test_marks_that_other_traces_show_too_are_no_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two traces with gaps and kernels of a few µs one is compute-bound: its kernels follow one another closely."""
    monkeypatch.setattr(recorded_diagnosis, "_THOUSANDS", 20)
    bound = simulated("bound", op_ns=4_000, kernel_ns=2_000)
    builder = TraceBuilder(source="busy")
    for number in range(40):
        builder.launch("cudaLaunchKernel", number * 500, 400, correlation=number + 1)
        builder.kernel("gemm", 40_000 + number * 10_000, 8_500, correlation=number + 1)
    busy = of(builder.build(), "busy")
    assert busy.report.verdict.regime == "compute-bound"
    alone, both = (row("D3", laboratory(recorded=traces)) for traces in ((bound,), (bound, busy)))
    assert [(part.measured, part.counted) for part in alone.parts[1:]] == [(1, True)] * 2
    assert [(part.measured, part.outcome) for part in both.parts[1:]] == [(0.5, "differs")] * 2
    assert (
        "2 of all traces with a known regime have a median gap of 1 to 10 µs: 1 launch-bound, 1 compute-bound"
        in both.why
    )


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
    assert "The host limits 1 of 2. 0 more, mixed or not to be told, are left out. Not so: ahead is compute-bound" in (
        found.why
    )
    assert (
        "though its host total is 1.99× the device's: it is spread over 2 threads, with the device's busy" in found.why
    )
    assert "threads with one another or with the device being at work at once" in found.why


def test_a_device_that_communicates_is_not_limited_by_the_host() -> None:
    starved = simulated("starved", op_ns=20_000, kernel_ns=2_000)
    verdict = replace(starved.report.verdict, regime="communication-bound")
    other = replace(starved, name="talks", report=replace(starved.report, verdict=verdict))
    found = row("D4", laboratory(recorded=(starved, other)))
    assert (found.measured, found.outcome) == (0.5, "differs")
    undecided = replace(other, report=replace(starved.report, verdict=replace(verdict, regime="mixed")))
    left = row("D4", laboratory(recorded=(starved, undecided)))
    assert (left.measured, left.outcome) == (1, "holds")
    assert "1 more, mixed or not to be told, are left out." in left.why


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
    low, high = over_traces._order_interval(ordered)
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
