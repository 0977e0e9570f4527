"""The prices of the three losses."""

from __future__ import annotations

from pathlib import Path

from referee.analysis.diagnose import diagnose
from referee.analysis.study import Study
from referee.records.trace_report import Loss, Losses
from referee.trace.builder import TraceBuilder
from referee.trace.reader import read_trace

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


def test_what_recording_cost_may_be_measured() -> None:
    """Two steps of 250 µs as recorded, 200 µs without the profiler: 100 µs of 356 were the profiler's."""
    builder = issued().step(0, 50 * US, 250 * US).step(1, 300 * US, 250 * US)
    loss = price_with_step(builder, 200 * US)
    assert loss.recoverable_ns == 4 * (90 - 1) * US - 100 * US
    assert "measured" in loss.basis


def test_a_time_without_the_profiler_that_cannot_be_is_said_to_be_so() -> None:
    longer = price_with_step(issued().step(0, 50 * US, 250 * US).step(1, 300 * US, 250 * US), 900 * US)
    assert longer.recoverable_ns == longer.high_ns
    assert "said to take 900 µs unprofiled, and takes 250 µs here" in longer.basis
    assert "no whole step" in price_with_step(issued(), 200 * US).basis


def price_with_step(builder: TraceBuilder, step_ns: float) -> Loss:
    return Study(builder.build(), unprofiled_step_ns=step_ns).losses.per_op_overhead


def pointwise_chain(folder: Path, *, device: str = "NVIDIA A100-SXM4-80GB") -> Losses:
    """relu → add (two inputs) → mm → relu: of three pairs, two are pointwise, and one has a single input."""
    builder = TraceBuilder().device_properties(device)
    tensor, size = [[1024, 256]], 1024 * 256 * 4
    assert size == 1 << 20
    chain = (
        ("aten::relu", tensor, ["float"]),
        ("aten::add", [*tensor, *tensor, []], ["float", "float", "Scalar"]),
        ("aten::relu", tensor, ["float"]),
        ("aten::mm", [[1024, 256], [256, 256]], ["float", "float"]),
        ("aten::relu", tensor, ["float"]),
    )
    for number, (name, dims, types) in enumerate(chain, start=1):
        builder.op(name, number * 50 * US, 20 * US, **{"Input Dims": dims, "Input type": types})
        builder.launch("cudaLaunchKernel", (number * 50 + 5) * US, 5 * US, correlation=number)
        builder.kernel("k", (number * 50 + 12) * US, 10 * US, correlation=number)
    path = folder / "chain.json"
    path.write_bytes(builder.to_json())
    return diagnose(read_trace(path)).losses


def test_memory_traffic_of_adjacent_operators_whose_shapes_fit(tmp_path: Path) -> None:
    """relu → add and add → relu pass 1 MiB on, written and read once; only the last reader has no other input."""
    loss = pointwise_chain(tmp_path).memory_traffic
    rate = 2.039e12
    assert loss.high_ns == round(4 * (1 << 20) / rate * 1e9)
    assert loss.low_ns == round(2 * (1 << 20) / rate * 1e9)
    assert loss.basis.startswith("adjacency: 2 adjacent pairs")


def test_memory_traffic_on_an_unknown_device_is_null_with_the_reason(tmp_path: Path) -> None:
    loss = pointwise_chain(tmp_path, device="SomethingElse").memory_traffic
    assert loss.high_ns is None
    assert "memory rate" in loss.basis


def test_regions_that_a_graph_could_hold_and_what_ends_them() -> None:
    """Five launches; the host waits between the second and the third."""
    builder = issued().python("train.py(7): log", 205 * US, 12 * US)
    builder.sync(208 * US, 4 * US, name="cudaStreamSynchronize")
    found = diagnose(builder.build()).graphable
    assert found is not None
    assert (found.regions, found.launches, found.launches_inside, found.longest) == (2, 5, 5, 3)
    (blocker,) = found.blockers
    assert (blocker.kind, blocker.name, blocker.owner.python, blocker.count) == (
        "wait",
        "cudaStreamSynchronize",
        "train.py(7): log",
        1,
    )


def test_an_operator_whose_shapes_change_between_steps_is_a_blocker(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for step, length in enumerate((128, 128, 96)):
        begin = step * 1_000
        builder.step(step, begin * US, 900 * US)
        for place, (name, dims) in enumerate((("aten::embedding", [[50, 8], [length]]), ("aten::relu", [[4, 4]]))):
            at = begin + 10 + place * 100
            builder.op(name, at * US, 50 * US, **{"Input Dims": dims, "Input type": ["float"] * len(dims)})
            number = step * 2 + place + 1
            builder.launch("cudaLaunchKernel", (at + 10) * US, 5 * US, correlation=number)
            builder.kernel("k", (at + 20) * US, 10 * US, correlation=number)
    path = tmp_path / "shapes.json"
    path.write_bytes(builder.to_json())
    found = diagnose(read_trace(path)).graphable
    assert found is not None
    assert [(b.kind, b.name, b.count) for b in found.blockers] == [("shape", "aten::embedding", 1)]
