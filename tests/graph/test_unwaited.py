"""Replays without waits: exact where nothing is left out, right by construction where something is."""

from __future__ import annotations

import numpy as np
import pytest

from referee.graph.unwaited import Unwaited, removable, unwaited
from referee.graph.waits import find_waits
from referee.graph.work import work_by_device
from referee.testing import draw_workload, intervene, simulate, truth_of
from referee.trace.builder import MAIN_THREAD, TraceBuilder
from referee.trace.columns import Trace

US = 1_000


def run(trace: Trace, *, nothing: bool = False) -> Unwaited:
    """The first device's rows without the waits that can be left out, or with all of them."""
    work = work_by_device(trace)[0]
    waits = find_waits(trace, work)
    without = removable(work, waits)
    return unwaited(trace, work, waits, without=without & (not nothing))


@pytest.mark.parametrize("seed", range(33))
def test_with_every_wait_left_in_each_row_starts_as_recorded(seed: int) -> None:
    trace = simulate(draw_workload(seed), seed=seed).trace
    work = work_by_device(trace)[0]
    assert np.array_equal(run(trace, nothing=True).start_ns, work.start_ns)


@pytest.mark.parametrize("seed", [6, 7, 10, 17, 18, 21, 28, 29, 32, 43, 54])
def test_the_window_without_waits_is_that_of_the_run_without_them(seed: int) -> None:
    workload = draw_workload(seed)
    assert workload.sync_every
    simulation = simulate(workload, seed=seed)
    found = run(simulation.trace)
    unsynced = truth_of(intervene(workload, synchronises=False), seed=seed)
    window_ns = int(found.end_ns.max() - found.start_ns.min())
    assert window_ns == pytest.approx(unsynced.window_ns, rel=0.03, abs=15_000)


def launched(
    builder: TraceBuilder, at: int, row: tuple[int, int], *, stream: int = 7, thread: int = MAIN_THREAD
) -> TraceBuilder:
    """One kernel and its launch of 5 µs; times in microseconds."""
    number = len(builder.build().rows) + 1
    builder.launch("cudaLaunchKernel", at * US, 5 * US, correlation=number, thread=thread)
    return builder.kernel("k", row[0] * US, row[1] * US, stream=stream, correlation=number)


def starts(builder: TraceBuilder) -> list[int]:
    """Starts without waits, in microseconds."""
    return [int(ns) // US for ns in run(builder.build()).start_ns]


def test_the_lead_that_a_wait_took_is_missing_at_every_later_launch() -> None:
    """Busy 10-110; the host waits 20-110 and then needs 50 µs for each of three launches of 5 µs."""
    builder = launched(TraceBuilder(), 0, (10, 100)).sync(20 * US, 90 * US)
    for number in range(3):
        launched(builder, 155 + 50 * number, (165 + 50 * number, 5))
    # 90 µs earlier: at 75, 125 and 175; the first is queued behind the long kernel.
    assert starts(builder) == [10, 110, 125, 175]


def test_a_wait_that_stays_keeps_the_host_until_what_it_waits_for_has_ended() -> None:
    """Giving memory back is no wait that could be left out."""
    builder = launched(TraceBuilder(), 0, (10, 100)).sync(20 * US, 90 * US)
    launched(builder, 115, (125, 50)).launch("cudaFree", 121 * US, 56 * US)
    launched(builder, 200, (210, 5))
    # The second kernel comes 15 µs earlier, right behind the first; the host behind it as much, and no more.
    assert starts(builder) == [10, 110, 195]


def test_a_copy_that_kept_the_host_waiting_does_so_no_more() -> None:
    builder = launched(TraceBuilder(), 0, (10, 100))
    builder.launch("cudaMemcpyAsync", 20 * US, 160 * US, correlation=90)
    builder.memcpy(115 * US, 60 * US, correlation=90, name="Memcpy HtoD (Pageable -> Device)")
    launched(launched(builder, 200, (210, 5)), 250, (260, 5))
    # Handed over at 20, 40 and 90: each starts as soon as the one before it has ended, the copy 5 µs behind it.
    assert starts(builder) == [10, 115, 175, 180]


def test_streams_that_never_worked_side_by_side_take_turns() -> None:
    builder = launched(TraceBuilder(), 0, (10, 100)).sync(20 * US, 90 * US)
    launched(builder, 155, (165, 50), stream=20)
    launched(builder, 255, (265, 5))
    assert starts(builder) == [10, 110, 175]
    # Where they did, they may.
    builder = launched(TraceBuilder(), 0, (10, 100))
    launched(builder, 6, (12, 5), stream=20).sync(20 * US, 90 * US)
    launched(builder, 155, (165, 50), stream=20)
    assert starts(builder) == [10, 12, 75]


def test_a_thread_that_launches_meanwhile_goes_its_own_way() -> None:
    builder = launched(TraceBuilder(), 0, (10, 100)).sync(20 * US, 90 * US)
    launched(builder, 50, (58, 5), stream=9, thread=MAIN_THREAD + 1)
    launched(builder, 155, (165, 5), stream=9, thread=MAIN_THREAD + 1)
    launched(builder, 255, (265, 5))
    assert starts(builder) == [10, 58, 165, 175]


def test_the_host_runs_no_further_ahead_than_the_queue_is_long() -> None:
    """Busy 10-100,010; the host waits for it and then launches every 10 µs: 1,024 of those fit into the queue."""
    builder = launched(TraceBuilder(), 0, (10, 100_000)).sync(20 * US, 99_990 * US)
    for number in range(1_200):
        builder.launch("cudaLaunchKernel", (100_020 + 10 * number) * US, 5 * US, correlation=5_000 + number)
        builder.kernel("k", (100_030 + 10 * number) * US, 1 * US, correlation=5_000 + number)
    found = starts(builder)
    assert found[1:1_024] == [100_010 + number for number in range(1_023)]
    # The host stood before a full queue until the long kernel had ended at 100,010; from there it issues one every
    # 10 µs, and 1,023 are queued. After 113 more the queue is empty.
    assert found[1_200] == 100_010 + 10 * 175 + 10


def test_a_replayed_graph_on_two_streams_comes_earlier_as_a_whole() -> None:
    """The second stream's first row has no row before it, and no launch of its own."""
    builder = launched(TraceBuilder(), 0, (10, 100)).sync(20 * US, 90 * US)
    builder.launch("cudaGraphLaunch", 155 * US, 5 * US, correlation=90)
    builder.kernel("a", 165 * US, 10 * US, correlation=90).kernel("b", 168 * US, 10 * US, correlation=90, stream=9)
    builder.kernel("c", 180 * US, 10 * US, correlation=90)
    launched(builder, 300, (310, 5))
    assert starts(builder) == [10, 110, 110, 122, 220]
    work = work_by_device(builder.build())[0]
    assert np.array_equal(run(builder.build(), nothing=True).start_ns, work.start_ns)
