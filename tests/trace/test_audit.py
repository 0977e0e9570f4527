"""What contradicts itself: trace and finding together."""

from __future__ import annotations

import pytest

from referee.records.finding import Finding
from referee.trace.builder import TraceBuilder

US = 1000


def finding(builder: TraceBuilder, code: str) -> Finding | None:
    found = [finding for finding in builder.build().findings if finding.code == code]
    assert len(found) <= 1
    return found[0] if found else None


def healthy() -> TraceBuilder:
    return (
        TraceBuilder()
        .launch("cudaLaunchKernel", 0, 5 * US, correlation=1)
        .launch("cudaLaunchKernel", 10 * US, 5 * US, correlation=2)
        .kernel("a", 20 * US, 50 * US, correlation=1)
        .kernel("b", 70 * US, 50 * US, correlation=2)
    )


def test_a_healthy_trace_contradicts_nothing():
    codes = {finding.code for finding in healthy().build().findings}
    assert codes == {"no-steps"}


def test_several_launches_of_one_id():
    builder = healthy().launch("cudaLaunchKernel", 18 * US, US, correlation=2)
    found = finding(builder, "duplicate-correlation")
    assert found is not None
    assert (found.evidence["ids"], found.evidence["launches"], found.evidence["device_rows"]) == (1, 2, 1)
    assert found.evidence["window_frac"] == 0.5


def test_a_call_that_launches_nothing_may_share_an_id():
    assert (
        finding(healthy().launch("cudaStreamIsCapturing", 18 * US, US, correlation=2), "duplicate-correlation") is None
    )


def test_a_row_before_its_launch():
    builder = healthy().launch("cudaLaunchKernel", 200 * US, US, correlation=3).kernel("c", 190 * US, US, correlation=3)
    found = finding(builder, "rows-before-launch")
    assert found is not None
    assert (found.evidence["rows"], found.evidence["linked_rows"], found.evidence["most_ns"]) == (1, 3, 10 * US)


def test_rounding_is_no_contradiction():
    builder = healthy().launch("cudaLaunchKernel", 200 * US, US, correlation=3)
    builder.kernel("c", 199 * US, 3 * US, correlation=3).kernel("d", 201 * US, 5 * US)
    assert finding(builder, "rows-before-launch") is None
    assert finding(builder, "stream-overlap") is None


def test_rows_of_one_stream_that_overlap():
    builder = healthy().kernel("c", 100 * US, 50 * US).kernel("elsewhere", 60 * US, 50 * US, stream=8)
    found = finding(builder, "stream-overlap")
    assert found is not None
    assert (found.evidence["rows"], found.evidence["most_ns"]) == (1, 20 * US)


def test_rows_without_a_duration():
    found = finding(healthy().kernel("c", 130 * US, 0), "zero-duration")
    assert found is not None
    assert found.evidence == {"rows": 1, "device_rows": 3}


def test_overhead_counts_where_it_touches_the_window():
    builder = healthy().overhead("Buffer Flush", 0, 30 * US).overhead("Buffer Flush", 500 * US, 900 * US)
    found = finding(builder, "profiler-overhead")
    assert found is not None
    assert found.evidence["window_frac"] == 0.1
    assert finding(healthy().overhead("Buffer Flush", 500 * US, US), "profiler-overhead") is None


@pytest.mark.parametrize(
    "name",
    ["Command Buffer Full", "Lazy Function Loading", "Runtime Triggered Module Loading", "Driver Compiler"],
)
def test_what_the_driver_does_is_no_overhead_of_the_profiler(name: str):
    builder = healthy().overhead(name, 30 * US, 40 * US)
    assert finding(builder, "profiler-overhead") is None
    full = finding(builder, "queue-full")
    assert (full is None) is (name != "Command Buffer Full")
    if full is not None:
        assert (full.evidence["rows"], full.evidence["total_ns"], full.evidence["window_frac"]) == (1, 40 * US, 0.4)
