"""What operators compute on the host while the device has nothing: no overhead, no pause, and no graph's gain."""

from __future__ import annotations

import pytest

from referee.analysis.diagnose import diagnose
from referee.analysis.host_work import find_host_work
from referee.trace.builder import TraceBuilder

US = 1_000


def offloaded(*, op_us: int, count: int, steps: int = 4) -> TraceBuilder:
    """Ten kernels of 100 µs, then an optimizer of ``count`` operators on the host, none of which launches anything."""
    builder, at, number = TraceBuilder(), 0, 0
    for step in range(steps):
        begin = at
        for turn in range(10):
            number += 1
            builder.op("aten::mm", at * US, 8 * US)
            builder.launch("cudaLaunchKernel", (at + 1) * US, 4 * US, correlation=number)
            builder.kernel("mm", (begin + 10 + turn * 100) * US, 100 * US, correlation=number)
            at += 9
        at = begin + 1_020
        for _ in range(count):
            builder.op("aten::addcdiv_", at * US, op_us * US)
            at += op_us + 1
        builder.step(step, begin * US, (at - begin) * US)
    return builder


@pytest.mark.parametrize(("op_us", "count"), [(120, 40), (5_000, 1)], ids=["many small ones", "one long one"])
def test_an_optimizer_on_the_host_is_no_launch_overhead(op_us: int, count: int) -> None:
    """A captured graph would take nothing of it away: its tensors have to move, or it has to run beside the device."""
    report = diagnose(offloaded(op_us=op_us, count=count).build())
    assert report.verdict.regime == "mixed"
    assert (report.verdict.undecided_because or "").startswith("computation on the host")
    assert any("aten::addcdiv_" in step.name for step in report.verdict.evidence)
    first = report.remedies[0]
    assert first.attacks == "computation on the host"
    assert "aten::addcdiv_" in first.how
    graph = report.losses.per_op_overhead
    computed_ns = (first.high_ns or 0) * len(report.steps)
    assert (graph.high_ns or 0) < 0.1 * computed_ns
    assert {step.regime for step in report.steps[1:]} == {"mixed"}


def test_short_operators_and_those_that_hold_others_or_call_the_driver_do_not_count() -> None:
    trace = (
        TraceBuilder()
        .step(0, 0, 5_000 * US)
        .op("aten::view", 0, 49 * US)
        .op("aten::linear", 100 * US, 300 * US)
        .op("aten::t", 100 * US, 3 * US)
        .op("aten::item", 500 * US, 300 * US)
        .sync(501 * US, 298 * US)
        .op("c10d::barrier", 900 * US, 300 * US)
        .op("aten::randn", 1_300 * US, 300 * US)
        .op("aten::randn", 1_300 * US, 300 * US, thread=99)
        .build()
    )
    found = find_host_work(trace)
    assert [(trace.name_of(row), trace.rows.start_ns[row]) for row in found.rows] == [("aten::randn", 1_300 * US)]


def test_a_launch_bound_trace_stays_one() -> None:
    builder = TraceBuilder()
    for number in range(200):
        at = number * 60
        builder.op("aten::add", at * US, 58 * US)
        builder.launch("cudaLaunchKernel", (at + 50) * US, 4 * US, correlation=number + 1)
        builder.kernel("add", (at + 56) * US, 3 * US, correlation=number + 1)
    report = diagnose(builder.build())
    assert report.verdict.regime == "launch-bound"
    assert report.remedies[0].attacks == "per-op CPU overhead"
