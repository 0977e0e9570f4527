"""Unusual traces, each with the rows that must come of it beside it."""

from __future__ import annotations

import json

from referee.trace.builder import TraceBuilder
from referee.trace.columns import NONE, Kind, Trace
from referee.trace.nesting import depth
from referee.trace.reader import parse_trace
from referee.trace.totals import kernels_per_step, totals


def spans(trace: Trace, *kinds: Kind) -> list[tuple[str, int, int]]:
    rows = trace.rows
    return [(trace.name_of(row), int(rows.start_ns[row]), int(rows.end_ns[row])) for row in rows.of(*kinds)]


def test_ten_thousand_nested_annotations():
    builder = TraceBuilder()
    for level in range(10_000):
        builder.annotation(f"level {level}", level, 30_000 - 2 * level)
    builder.op("aten::add", 15_000, 1).launch("cudaLaunchKernel", 15_000, 1, correlation=1)
    trace = parse_trace(builder.kernel("k", 40_000, 5, correlation=1).to_json())
    rows = trace.rows
    own = rows.of(Kind.ANNOTATION)
    assert depth(rows.thread[own], rows.start_ns[own], rows.end_ns[own]).tolist() == list(range(10_000))
    assert spans(trace, Kind.ANNOTATION)[-1] == ("level 9999", 9_999, 20_001)
    assert spans(trace, Kind.OPERATOR) == [("aten::add", 15_000, 15_001)]
    assert trace.name_of(trace.links.operator_of[rows.of(Kind.RUNTIME)[0]]) == "aten::add"
    assert trace.steps == ()


def test_two_hundred_streams():
    builder = TraceBuilder()
    for stream in range(200):
        builder.launch("cudaLaunchKernel", stream * 10, 5, correlation=stream + 1)
        builder.kernel(f"k{stream}", 3_000 + stream, 1_000, stream=stream, correlation=stream + 1)
    trace = parse_trace(builder.to_json())
    found = totals(trace)
    assert found.streams == 200
    # Each begins a nanosecond after the one before: together they cover 1,199 ns.
    assert (found.busy_ns, found.sum_ns, found.window_ns, found.idle_ns) == (1_199, 200_000, 1_199, 0)
    assert spans(trace, Kind.KERNEL)[:2] == [("k0", 3_000, 4_000), ("k1", 3_001, 4_001)]
    assert found.device_rows_without_launch == 0


def test_overlapping_steps():
    trace = parse_trace(
        TraceBuilder()
        .step(1, 0, 100)
        .step(2, 50, 100)
        .step(3, 50, 20)
        .launch("cudaLaunchKernel", 10, 5, correlation=1)
        .launch("cudaLaunchKernel", 55, 5, correlation=2)
        .launch("cudaLaunchKernel", 90, 5, correlation=3)
        .kernel("a", 20, 1, correlation=1)
        .kernel("b", 60, 1, correlation=2)
        .kernel("c", 160, 1, correlation=3)
        .to_json()
    )
    assert [(step.name, step.start_ns, step.end_ns) for step in trace.steps] == [
        ("ProfilerStep#1", 0, 100),
        ("ProfilerStep#2", 50, 150),
        ("ProfilerStep#3", 50, 70),
    ]
    # A launch belongs to the step that began last and is still open.
    assert kernels_per_step(trace) == (1, 1, 1)
    told = [finding for finding in trace.findings if finding.code == "overlapping-steps"]
    assert [finding.evidence["overlapping"] for finding in told] == [2]


def test_no_device_rows():
    trace = parse_trace(TraceBuilder().step(1, 0, 100).op("aten::add", 10, 30).op("aten::empty", 15, 5).to_json())
    found = totals(trace)
    assert (found.ops, found.ops_top, found.self_cpu_ns) == (2, 1, 30)
    assert (found.device_rows, found.busy_ns, found.window_ns, found.idle_ns, found.streams) == (0, 0, 0, 0, 0)
    assert (found.median_kernel_ns, found.self_device_ns) == (None, None)
    assert kernels_per_step(trace) == (0,)


def test_a_bare_list_with_times_as_text():
    events = [
        {"ph": "X", "cat": "Operator", "name": "aten::add", "pid": 5, "tid": "5", "ts": "1727743122.001", "dur": "9"},
        {"ph": "X", "cat": "Runtime", "name": "cudaLaunchKernel", "pid": 5, "tid": 5, "ts": "1727743123", "dur": "2",
         "args": {"correlation": "7"}},
        {"ph": "X", "cat": "Kernel", "name": "k", "pid": 0, "tid": "stream 7", "ts": "1727743127.5", "dur": "1e1",
         "args": {"correlation": 7}},
    ]  # fmt: skip
    trace = parse_trace(json.dumps(events).encode())
    assert trace.base_ns == 1_727_743_122_001
    assert spans(trace, *Kind) == [("aten::add", 0, 9_000), ("cudaLaunchKernel", 999, 2_999), ("k", 5_499, 15_499)]
    assert trace.links.launch_of.tolist() == [NONE, NONE, 1]
    assert trace.links.operator_of.tolist() == [NONE, 0, NONE]
    assert (trace.rows.device.tolist(), trace.rows.stream.tolist()) == ([NONE, NONE, 0], [NONE, NONE, 7])
