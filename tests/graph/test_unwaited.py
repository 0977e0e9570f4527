"""Replays without waits: exact where nothing is left out, right by construction where something is."""

from __future__ import annotations

import numpy as np
import pytest

from referee.graph.unwaited import Unwaited, removable, unwaited
from referee.graph.waits import find_waits
from referee.graph.work import work_by_device
from referee.testing import draw_workload, intervene, simulate
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


@pytest.mark.parametrize(
    "seed", [seed for seed in range(99) if draw_workload(seed).sync_every + draw_workload(seed).copy_ns]
)
def test_every_row_starts_as_in_the_run_without_waits(seed: int) -> None:
    workload = draw_workload(seed)
    recorded = simulate(workload, seed=seed).trace
    rerun = work_by_device(simulate(intervene(workload, synchronises=False), seed=seed).trace)[0]
    work, found = work_by_device(recorded)[0], run(recorded)
    mine, theirs = (np.lexsort((w.start_ns, w.launch_start_ns)) for w in (work, rerun))
    apart_ns = (found.start_ns[mine] - found.start_ns.min()) - (rerun.start_ns[theirs] - rerun.start_ns.min())
    assert np.abs(apart_ns).max() <= 100


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
    # Handed over at 20, 45 and 95: each starts as soon as the one before it has ended, the copy 5 µs behind it.
    assert starts(builder) == [10, 115, 175, 180]


def test_a_copy_is_called_still_and_keeps_the_rest_of_its_call() -> None:
    """The call holds the host for 20-180, its row ends at 175: without the wait, 5 µs of it are left."""
    builder = launched(TraceBuilder(), 0, (10, 5)).launch("cudaMemcpyAsync", 20 * US, 160 * US, correlation=90)
    builder.memcpy(25 * US, 150 * US, correlation=90, name="Memcpy HtoD (Pageable -> Device)")
    launched(builder, 400, (410, 5))
    assert starts(builder) == [10, 25, 410 - (175 - 20)]


def test_a_call_that_found_the_device_idle_is_not_made_either() -> None:
    builder = launched(launched(TraceBuilder(), 0, (10, 5)).sync(20 * US, 8 * US), 100, (110, 5))
    assert starts(builder) == [10, 102]


def test_streams_that_were_apart_by_the_hosts_doing_alone_may_work_side_by_side() -> None:
    builder = launched(TraceBuilder(), 0, (10, 100)).sync(20 * US, 90 * US)
    launched(builder, 155, (165, 50), stream=20)
    launched(builder, 255, (265, 5))
    assert starts(builder) == [10, 75, 175]


def test_streams_that_take_turns_keep_doing_so() -> None:
    """The last row was handed over at 225 and started when that of the other stream had ended."""
    builder = launched(TraceBuilder(), 0, (10, 100)).sync(20 * US, 90 * US)
    launched(builder, 155, (165, 150), stream=20)
    launched(builder, 220, (315, 5))
    assert starts(builder) == [10, 110, 260]


def test_streams_told_to_wait_for_an_event_keep_taking_turns() -> None:
    builder = launched(TraceBuilder(), 0, (10, 100)).sync(20 * US, 90 * US)
    builder.launch("cudaStreamWaitEvent", 130 * US, 2 * US)
    launched(builder, 155, (165, 50), stream=20)
    assert starts(builder) == [10, 110]


def test_what_follows_a_copy_for_which_the_host_waited_follows_it_still() -> None:
    builder = launched(TraceBuilder(), 0, (10, 5)).launch("cudaMemcpyAsync", 20 * US, 160 * US, correlation=90)
    builder.memcpy(25 * US, 150 * US, correlation=90, stream=14, name="Memcpy HtoD (Pageable -> Device)")
    launched(builder, 200, (210, 5))
    assert starts(builder) == [10, 25, 175]


def test_the_clock_of_a_thread_leaves_out_its_waits() -> None:
    """A wait of 20-110: what began at 10 began then, what lasted from 60 to 130 takes 20 of the 70, from 20 on."""
    builder = launched(TraceBuilder(), 0, (10, 100)).sync(20 * US, 90 * US)
    trace = launched(builder, 155, (165, 5)).build()
    clock = run(trace).clocks[int(trace.rows.thread[work_by_device(trace)[0].launch[0]])]
    moments_us = np.array([10, 20, 60, 110, 130, 200])
    assert (clock.at(moments_us * US) // US).tolist() == [10, 20, 20, 20, 40, 110]


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


@pytest.mark.parametrize("others", [0, 1])
def test_a_launch_whose_first_row_is_on_another_device_has_no_leader_here(others: int) -> None:
    builder = TraceBuilder()
    builder.launch("cudaGraphLaunch", 0, 5 * US, correlation=1)
    for device, start in ((0, 10), (1, 12), (1, 20)):
        builder.kernel("k", start * US, 5 * US, device=device, correlation=1)
    for number in range(others):
        builder.launch("cudaLaunchKernel", 30 * US, 5 * US, correlation=2 + number)
        builder.kernel("k", 40 * US, 5 * US, device=1, correlation=2 + number)
    trace = builder.build()
    work = work_by_device(trace)[1]
    waits = find_waits(trace, work)
    found = unwaited(trace, work, waits, without=removable(work, waits))
    assert np.array_equal(found.start_ns, work.start_ns)
