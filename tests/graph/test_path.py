"""The dependency graph: it replays what was recorded, and it responds when work takes another time."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from referee.analysis.critical import annotated, critical_path
from referee.graph.build import EdgeKind, Graph, build_graph
from referee.graph.path import longest_path, schedule
from referee.trace.builder import TraceBuilder
from referee.trace.reader import read_trace

from . import hand_made

US = 1_000


def scaled(graph: Graph, kinds: tuple[EdgeKind, ...], *, half: bool = True) -> float:
    """Length with the edges of these kinds at half their time, over the length as it is."""
    weight_ns = np.where(np.isin(graph.kind, kinds), graph.weight_ns // 2 if half else 0, graph.weight_ns)
    base = schedule(graph, anchored=False).length_ns
    return schedule(graph, weight_ns=weight_ns, anchored=False).length_ns / base


HOST = (EdgeKind.HOST, EdgeKind.GAP, EdgeKind.THREAD)
DEVICE = (EdgeKind.DEVICE, EdgeKind.STREAM)


def loop(count: int, *, every: int, kernel: int, wait: bool = False) -> TraceBuilder:
    """One operator every ``every`` µs, its kernel of ``kernel`` µs, and perhaps a synchronise after each."""
    builder, free, at = TraceBuilder(), 0, 0
    for number in range(1, count + 1):
        builder.op("aten::add", at * US, 10 * US)
        builder.launch("cudaLaunchKernel", (at + 2) * US, 5 * US, correlation=number)
        start = max(free, at + 8)
        builder.kernel("k", start * US, kernel * US, correlation=number)
        free = start + kernel
        if wait:
            builder.sync((at + 11) * US, (max(free + 1, at + 12) - at - 11) * US)
            at = max(free + 1, at + 12)
        at = max(at, (at // every + 1) * every) if not wait else at + 3
    return builder


@pytest.mark.parametrize(
    "builder", [loop(20, every=50, kernel=5), loop(20, every=15, kernel=100), loop(20, every=50, kernel=80, wait=True)]
)
def test_the_unchanged_graph_replays_the_record(builder: TraceBuilder) -> None:
    graph = build_graph(builder.build())
    assert schedule(graph).length_ns == graph.time_ns.max() - graph.time_ns.min()
    assert (schedule(graph).time_ns == graph.time_ns).all()


def test_everything_twice_as_fast_takes_half_as_long() -> None:
    graph = build_graph(loop(20, every=50, kernel=80, wait=True).build())
    assert scaled(graph, tuple(EdgeKind)) == pytest.approx(0.5, abs=1e-3)


def test_a_faster_device_helps_where_the_device_is_the_limit_and_nowhere_else() -> None:
    device_bound = build_graph(loop(20, every=15, kernel=100).build())
    host_bound = build_graph(loop(20, every=50, kernel=5).build())
    assert scaled(device_bound, DEVICE) == pytest.approx(0.5, abs=0.02)
    assert scaled(device_bound, HOST) == pytest.approx(1.0, abs=0.02)
    assert scaled(host_bound, DEVICE) == pytest.approx(1.0, abs=0.02)
    assert scaled(host_bound, HOST) == pytest.approx(0.5, abs=0.02)


def test_a_wait_is_no_duration_a_faster_device_shortens_it() -> None:
    """Each turn: 12 µs of host, then 80 µs of device, which the host awaits."""
    graph = build_graph(loop(20, every=50, kernel=80, wait=True).build())
    assert scaled(graph, DEVICE) == pytest.approx(1 - 40 / 92, abs=0.03)


def test_a_backward_on_another_thread_is_waited_for_by_the_caller() -> None:
    """The caller is silent for 1 ms while the engine's thread issues operators: half as fast there is half as long."""
    builder = TraceBuilder().op("aten::mm", 0, 20 * US).op("aten::step", 1_100 * US, 20 * US)
    builder.launch("cudaLaunchKernel", 5 * US, 5 * US, correlation=1).kernel("k", 12 * US, 5 * US, correlation=1)
    for number in range(10):
        at = 50 + number * 100
        builder.op("aten::mm_backward", at * US, 98 * US, thread=2)
        builder.launch("cudaLaunchKernel", (at + 50) * US, 5 * US, correlation=number + 2, thread=2)
        builder.kernel("b", (at + 56) * US, 5 * US, correlation=number + 2)
    graph = build_graph(builder.build())
    assert schedule(graph).length_ns == 1_120 * US
    assert scaled(graph, (EdgeKind.HOST,)) < 0.6


def test_a_stream_waits_for_an_event_of_another() -> None:
    builder = TraceBuilder().launch("cudaLaunchKernel", 0, 5 * US, correlation=1)
    builder.kernel("first", 6 * US, 200 * US, stream=1, correlation=1)
    builder.launch("cudaStreamWaitEvent", 8 * US, 1 * US)
    builder.launch("cudaLaunchKernel", 10 * US, 5 * US, correlation=2)
    builder.kernel("second", 207 * US, 50 * US, stream=2, correlation=2)
    graph = build_graph(builder.build())
    assert EdgeKind.EVENT in graph.kind
    assert scaled(graph, DEVICE) == pytest.approx(0.5, abs=0.05)


def test_the_path_goes_through_the_longer_of_two_streams() -> None:
    builder = TraceBuilder().launch("cudaLaunchKernel", 0, 5 * US, correlation=1)
    builder.launch("cudaLaunchKernel", 6 * US, 5 * US, correlation=2)
    builder.kernel("short", 7 * US, 20 * US, stream=1, correlation=1)
    builder.kernel("long", 13 * US, 200 * US, stream=2, correlation=2)
    found = critical_path(builder.build())
    assert found is not None
    assert found.owners[0].name == "long"
    assert found.length_ns == 213 * US
    assert (found.device_ns, found.launch_ns) == (200 * US, 2 * US)
    parts = found.host_ns + found.gap_ns + found.launch_ns + found.device_ns + found.order_ns
    assert parts == found.length_ns


@settings(max_examples=60, deadline=None)
@given(scene=hand_made.plausible_scenes())
def test_plausible_records_replay_and_halve(scene: hand_made.Scene) -> None:
    graph = build_graph(scene.build(scale=2))
    if not len(graph):
        return
    recorded_ns = int(graph.time_ns.max() - graph.time_ns.min())
    assert abs(schedule(graph).length_ns - recorded_ns) <= 0.05 * recorded_ns + 10 * US
    base = schedule(graph, anchored=False).length_ns
    halved = schedule(graph, weight_ns=graph.weight_ns // 2, anchored=False).length_ns
    assert abs(2 * halved - base) <= 2 * len(graph)


@settings(max_examples=40, deadline=None)
@given(scene=hand_made.wild_scenes())
def test_any_record_is_answered(scene: hand_made.Scene) -> None:
    found = critical_path(scene.build())
    if found is not None:
        assert found.host_ns + found.gap_ns + found.launch_ns + found.device_ns + found.order_ns == found.length_ns


def test_the_longest_path_is_the_schedules_length() -> None:
    graph = build_graph(loop(20, every=15, kernel=100).build())
    assert longest_path(graph).length_ns == schedule(graph, anchored=False).length_ns


@pytest.mark.traces
def test_every_recorded_trace_replays(traces_dir: Path) -> None:
    for name, expected in json.loads((traces_dir / "EXPECTED.json").read_text()).items():
        if expected["events"] > 60_000:
            continue
        graph = build_graph(read_trace(traces_dir / name))
        if len(graph):
            recorded_ns = int(graph.time_ns.max() - graph.time_ns.min())
            assert schedule(graph).length_ns == pytest.approx(recorded_ns, rel=0.005), name


@pytest.mark.traces
def test_hta_critical_path_of_alexnet(traces_dir: Path) -> None:
    """HTA counts recorded rows only, so gaps between operators take no time: 159 events, 99.8 % of it on the host."""
    trace = read_trace(traces_dir / "a100_critical_path_simple_add.json.gz")
    stretch = annotated(trace, "[param|pytorch.model.alex_net|0|0|0|measure|forward]", instance=1)
    assert stretch is not None
    found = critical_path(trace, begin_ns=stretch[0], end_ns=stretch[1], count_gaps=False)
    assert found is not None
    assert found.rows == 159
    assert found.host_frac == pytest.approx(0.998, abs=5e-4)
    assert annotated(trace, "no such annotation") is None
