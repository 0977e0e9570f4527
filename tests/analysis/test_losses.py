"""The prices of the three losses."""

from __future__ import annotations

from referee.analysis.study import Study
from referee.trace.builder import TraceBuilder

US = 1_000


def issued(count: int = 5) -> TraceBuilder:
    """Kernels of 10 µs, 100 µs apart; each launch call of 5 µs ends 1 µs before its kernel; one operator between."""
    builder = TraceBuilder()
    for number in range(1, count + 1):
        at = number * 100
        builder.op("aten::add", (at - 20) * US, 19 * US)
        builder.launch("cudaLaunchKernel", (at - 6) * US, 5 * US, correlation=number)
        builder.kernel("k", at * US, 10 * US, correlation=number)
    return builder


def test_per_op_overhead_between_the_launch_calls_and_the_whole_gap() -> None:
    loss = Study(issued().build()).losses.per_op_overhead
    assert loss.low_ns == 4 * 5 * US
    assert loss.high_ns == 4 * (90 - 1) * US
    # One operator a gap, at 4 µs each, is what recording cost.
    assert loss.recoverable_ns == 4 * (90 - 1 - 4) * US


def test_nothing_to_recover_where_the_device_never_waited() -> None:
    loss = Study(TraceBuilder().kernel("a", 0, 10 * US).kernel("b", 10 * US, 10 * US).build()).losses
    assert loss.per_op_overhead.high_ns == 0
    assert loss.allocator.high_ns == 0


def test_the_allocator_is_priced_from_idle_to_all_the_time_inside_it() -> None:
    builder = issued().launch("cudaMalloc", 130 * US, 20 * US)
    builder.op("aten::empty", 125 * US, 30 * US)
    builder.launch("cudaMalloc", 304 * US, 4 * US).op("aten::empty", 303 * US, 6 * US)
    loss = Study(builder.build()).losses.allocator
    assert (loss.low_ns, loss.high_ns) == (20 * US, 24 * US)


def test_memory_traffic_without_shapes_is_null_with_the_reason() -> None:
    loss = Study(issued().build()).losses.memory_traffic
    assert (loss.recoverable_ns, loss.low_ns, loss.high_ns) == (None, None, None)
    assert "shapes" in loss.basis
