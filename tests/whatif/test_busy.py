"""A device that is busy nearly all the time: a faster one pays, unless the host takes over, which is proved."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from referee.graph.build import EdgeKind, build_graph
from referee.graph.work import work_by_device
from referee.testing import Simulation, Workload, simulate
from referee.trace.builder import TraceBuilder
from referee.trace.columns import Trace
from referee.trace.intervals import overlap_ns
from referee.trace.reader import read_trace
from referee.whatif import edits as make
from referee.whatif.doubts import BUSY_FRAC
from referee.whatif.replay import ask
from referee.whatif.tighten import tighten

from . import two_clocks

US = 1_000


def simulated(workload: Workload) -> Trace:
    simulation: Simulation = simulate(workload, seed=3)
    return simulation.trace


def window_ns(trace: Trace) -> int:
    return sum(work.window_ns for work in work_by_device(trace))


BUSY = {
    "a100_torchbench_no_kernels.json": "",
    "a100_triton_example.json.gz": "",
    "h100_timesformer.json.gz": "",
    "mi300_add_bandwidth.json": "",
    "mi300_compiled_triton.json.gz": "",
    "mi300_gemm_few_tiles.json": "",
    "mi300_vllm_decode_one_graph.json.gz": "",
    "rtx3060ti_train_step.json.gz": "",
    "synthetic/h2d_pageable.json": "",
    "synthetic/launch_queue_full.json": "",
    "synthetic/overlap_streams.json": "",
    "v100_ns_resolution_deep_queue.json.gz": "",
}
"""Traces at least 95 % busy that half the device's time brings to 0.6 of their window."""

COMPLETE = 1.0
"""Share of device rows whose launch is in the file, where none is missing."""


def linked_share(trace: Trace) -> float:
    return min(float(work.linked.mean()) for work in work_by_device(trace))


@pytest.mark.traces
@pytest.mark.parametrize("name", BUSY)
def test_a_busy_trace_answers_to_a_faster_device(traces_dir: Path, name: str) -> None:
    answer = ask(read_trace(traces_dir / name), [])
    assert answer.busy_frac is not None
    assert answer.busy_frac >= BUSY_FRAC
    assert not answer.findings
    assert answer.response.device_half <= 0.6


@pytest.mark.traces
def test_every_busy_trace_takes_no_more_than_its_host_does(traces_dir: Path, recorded: str) -> None:
    """At most 0.6 of the window in each with complete rows; in the others at most what the host's own time bounds."""
    trace = read_trace(traces_dir / recorded)
    works = work_by_device(trace)
    if len(works) != 1 or works[0].busy_ns < BUSY_FRAC * works[0].window_ns:
        return
    answer = ask(trace, [])
    codes = [finding.code for finding in answer.findings]
    if linked_share(trace) == COMPLETE or answer.response.device_half <= 0.6:
        assert answer.response.device_half <= 0.6
        assert not codes
    elif codes == ["replay-doubtful"]:
        # Rows are missing, and most of the chain is time in which nothing is recorded: it says so.
        pauses = answer.findings[0].evidence["pauses_frac"]
        assert isinstance(pauses, float)
        assert pauses > 0.5
    else:
        assert codes == ["host-takes-over"]
        assert answer.response.device_half <= 1.01 * two_clocks.taking_turns(trace)


@pytest.mark.traces
def test_a_host_that_waits_for_nothing_takes_this_long_whatever_the_device_does(traces_dir: Path) -> None:
    """A bound without replay for a host without a wait: its own time to each launch, then half of what follows."""
    trace = read_trace(traces_dir / "mi300_resnet_ddp_checkpoint.json.gz")
    assert linked_share(trace) < COMPLETE
    bound = two_clocks.never_waiting(trace)
    assert bound > 0.59
    assert bound <= ask(trace, []).response.device_half <= 1.01 * bound


@pytest.mark.parametrize("ops", [20, 100])
@pytest.mark.parametrize("op_us", [8, 14, 20])
def test_the_bounds_are_bounds_of_what_the_simulation_does(op_us: int, ops: int) -> None:
    workload = Workload(kernel_ns=20 * US, op_ns=op_us * US, steps=1, ops=ops)
    trace = simulated(workload)
    truth = window_ns(simulated(replace(workload, kernel_ns=10 * US))) / window_ns(trace)
    assert two_clocks.never_waiting(trace) <= 1.01 * truth
    assert two_clocks.never_waiting(trace) == pytest.approx(truth, rel=0.03)
    waiting = replace(workload, sync_every=10)
    trace = simulated(waiting)
    truth = window_ns(simulated(replace(waiting, kernel_ns=10 * US))) / window_ns(trace)
    assert two_clocks.taking_turns(trace) == pytest.approx(truth, rel=0.08)


@pytest.mark.traces
def test_waits_and_host_work_alone_keep_this_trace_above_its_half(traces_dir: Path) -> None:
    """A bound without replay: between waits that blocked, the longer of the host's own time and half the device's."""
    trace = read_trace(traces_dir / "v100_diff_test.json.gz")
    (work,) = work_by_device(trace)
    graph = build_graph(trace)
    waits = graph.kind == EdgeKind.WAIT
    let_go_ns = np.zeros(len(trace.rows), dtype=np.int64)
    np.maximum.at(let_go_ns, graph.owner[waits], graph.time_ns[graph.source[waits]])
    calls = np.unique(graph.owner[waits])
    begin_ns, end_ns = trace.rows.start_ns[calls], trace.rows.end_ns[calls]
    blocked_ns = np.maximum(np.minimum(let_go_ns[calls], end_ns) - begin_ns, 0)
    long = blocked_ns > 500 * US
    bounds = np.sort(np.concatenate(([work.begin_ns, work.finish_ns], end_ns[long])))
    bound_ns = 0.0
    for low, high in pairwise(bounds.tolist()):
        mine = (end_ns > low) & (end_ns <= high)
        device_ns = int(overlap_ns(np.array([low]), np.array([high]), within=work.busy)[0])
        bound_ns += max(high - low - int(blocked_ns[mine].sum()), device_ns / 2)
    assert bound_ns > 0.6 * work.window_ns
    assert bound_ns <= ask(trace, []).response.device_half * work.window_ns


def test_a_host_that_takes_over_is_told_from_time_that_nothing_explains() -> None:
    busy = Workload(kernel_ns=20 * US, op_ns=14 * US, steps=3, ops=100)
    (finding,) = ask(simulated(busy), []).findings
    assert finding.code == "host-takes-over"
    assert finding.evidence["device_gone"] == pytest.approx(0.9, abs=0.05)
    build = TraceBuilder()
    for number in range(20):
        begin = number * 4_000 * US
        build.launch("cudaLaunchKernel", begin, 5 * US, correlation=number + 1)
        build.kernel("gemm", begin + 10 * US, 3_900 * US, stream=7, correlation=number + 1)
    (finding,) = ask(build.build(), []).findings
    assert finding.code == "replay-doubtful"
    assert "no host row is recorded" in finding.message


def two_copies(scale: int) -> Trace:
    """Steps of two copies on streams of their own, the second one longer, and a wait for both."""
    build = TraceBuilder()
    for number in range(10):
        begin = number * (3_000 // scale + 40) * US
        build.launch("cudaMemcpyAsync", begin, 5 * US, correlation=2 * number + 1)
        build.memcpy(begin + 10 * US, 1_600 // scale * US, stream=20, correlation=2 * number + 1)
        build.launch("cudaMemcpyAsync", begin + 6 * US, 5 * US, correlation=2 * number + 2)
        build.memcpy(begin + 16 * US, 3_000 // scale * US, stream=22, correlation=2 * number + 2)
        build.sync(begin + 12 * US, (3_000 // scale + 9) * US)
    return build.build()


def test_a_wait_for_two_streams_keeps_what_remains_after_the_last_of_them() -> None:
    """What remained of the wait when the shorter copy had ended was the longer copy, no time of the host's own."""
    answer = ask(two_copies(1), [])
    assert answer.replay_error_frac == 0
    assert answer.response.device_half == pytest.approx(window_ns(two_copies(2)) / answer.recorded_ns, rel=0.01)
    assert answer.response.device_gone == pytest.approx(0.013, abs=0.003)


def crowded(scale: int) -> Trace:
    """A long kernel fills the device; a short one of another stream gets in near its end, and the host waits for it."""
    build = TraceBuilder()
    at = 0
    for number in range(10):
        build.launch("cudaLaunchKernel", at, 5 * US, correlation=2 * number + 1)
        build.kernel("full", at + 6 * US, 4_000 // scale * US, stream=7, correlation=2 * number + 1)
        build.launch("cudaLaunchKernel", at + 10 * US, 5 * US, correlation=2 * number + 2)
        start = at + 6 * US + 3_900 // scale * US
        build.kernel("small", start, 20 // scale * US, stream=20, correlation=2 * number + 2)
        end = start + 20 // scale * US
        build.sync(at + 20 * US, end + 2 * US - at - 20 * US, name="cudaStreamSynchronize")
        at = end + 202 * US
    return build.build()


def test_a_row_that_waits_for_room_on_a_full_device_waits_for_the_row_that_fills_it() -> None:
    trace = crowded(1)
    graph = tighten(build_graph(trace), trace)
    assert (graph.kind == EdgeKind.ROOM).sum() == 10
    answer = ask(trace, [make.device_speed(2.0), make.device_speed(8.0)])
    assert answer.replay_error_frac == pytest.approx(0, abs=1e-3)
    assert answer.response.all_half == pytest.approx(0.5, abs=0.001)
    for edit, scale in zip(answer.edits, (2, 8), strict=True):
        assert edit.low_ns == pytest.approx(window_ns(crowded(scale)), rel=0.01)


def test_an_event_that_came_long_before_the_row_started_is_not_what_it_waited_for() -> None:
    """After the event another 4 ms pass in which a long kernel runs: the replay keeps them, as that kernel's."""
    build = TraceBuilder()
    build.launch("cudaLaunchKernel", 0, 5 * US, correlation=1)
    build.kernel("first", 10 * US, 1_000 * US, stream=21, correlation=1)
    build.launch("cudaLaunchKernel", 6 * US, 5 * US, correlation=2)
    build.kernel("full", 20 * US, 5_000 * US, stream=7, correlation=2)
    build.launch("cudaLaunchKernel", 12 * US, 5 * US, correlation=3)
    build.kernel("own", 30 * US, 10 * US, stream=20, correlation=3)
    build.sync(18 * US, 1 * US, name="cudaStreamWaitEvent")
    build.launch("cudaLaunchKernel", 20 * US, 5 * US, correlation=4)
    build.kernel("late", 4_900 * US, 2_000 * US, stream=20, correlation=4)
    answer = ask(build.build(), [])
    assert answer.replay_error_frac == 0
    assert answer.response.device_half == pytest.approx(0.5, abs=0.01)
