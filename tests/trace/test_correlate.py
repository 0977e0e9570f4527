"""Links: trace, question and expected rows together."""

from __future__ import annotations

from referee.trace.builder import TraceBuilder
from referee.trace.columns import NONE, Kind, Trace
from referee.trace.totals import totals


def launches(trace: Trace) -> dict[str, str | None]:
    """Device row name → name of its launch."""
    launch_of = trace.links.launch_of
    rows = trace.rows.of(Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)
    return {trace.name_of(row): None if launch_of[row] < 0 else trace.name_of(launch_of[row]) for row in rows}


def test_by_correlation_id_in_any_order():
    trace = (
        TraceBuilder()
        .kernel("second", 30, 5, correlation=2)
        .launch("cudaLaunchKernel", 0, 5, correlation=1)
        .kernel("first", 10, 5, correlation=1)
        .launch("cudaLaunchKernelExC", 6, 3, correlation=2)
        .build()
    )
    assert launches(trace) == {"first": "cudaLaunchKernel", "second": "cudaLaunchKernelExC"}


def test_id_zero_and_no_id_link_nothing():
    trace = (
        TraceBuilder()
        .launch("cudaLaunchKernel", 0, 5, correlation=0)
        .kernel("zero", 10, 5, correlation=0)
        .kernel("none", 20, 5)
        .build()
    )
    assert launches(trace) == {"zero": None, "none": None}
    assert totals(trace).device_rows_without_launch == 2
    assert totals(trace).launches_without_device_rows == 1


def test_of_several_calls_with_one_id_the_launch_named_then_the_earliest():
    trace = (
        TraceBuilder()
        .launch("cudaStreamIsCapturing", 0, 1, correlation=9)
        .launch("cudaLaunchKernel", 10, 5, correlation=9)
        .launch("cudaLaunchKernel", 20, 5, correlation=9)
        .kernel("k", 40, 5, correlation=9)
        .build()
    )
    row = trace.rows.of(Kind.KERNEL)[0]
    assert trace.rows.start_ns[trace.links.launch_of[row]] == 10


def test_a_driver_launch_alone_counts():
    trace = (
        TraceBuilder()
        .launch("cuLaunchKernel", 0, 5, correlation=1, driver=True)
        .kernel("k", 10, 5, correlation=1)
        .build()
    )
    assert launches(trace) == {"k": "cuLaunchKernel"}
    assert totals(trace).launches == 1


def test_of_nested_calls_the_outer_one_counts_once():
    trace = (
        TraceBuilder()
        .launch("cudaLaunchKernel", 0, 10, correlation=1)
        .launch("cuLaunchKernel", 2, 5, correlation=2, driver=True)
        .kernel("k", 20, 5, correlation=2)
        .build()
    )
    assert launches(trace) == {"k": "cudaLaunchKernel"}
    assert totals(trace).launches == 1
    assert totals(trace).launches_without_device_rows == 0


def test_a_driver_call_on_another_thread_is_not_nested():
    trace = (
        TraceBuilder()
        .launch("cudaLaunchKernel", 0, 10, correlation=1)
        .launch("cuLaunchKernel", 2, 5, correlation=2, driver=True, thread=2)
        .kernel("k", 20, 5, correlation=2)
        .build()
    )
    assert launches(trace) == {"k": "cuLaunchKernel"}
    assert totals(trace).launches == 2
    assert totals(trace).launches_without_device_rows == 1


def test_a_graph_launch_has_many_rows_of_which_one_is_first():
    builder = TraceBuilder().launch("cudaGraphLaunch", 0, 10, correlation=5)
    for index in range(100):
        builder.kernel(f"k{99 - index}", 1000 - 10 * index, 5, correlation=5)
    trace = builder.build()
    assert totals(trace).launches == totals(trace).graph_launches == 1
    first = [trace.name_of(row) for row in trace.rows.of(Kind.KERNEL) if trace.links.first_of[row]]
    assert first == ["k0"]


def test_a_fill_without_a_row_is_no_launch_but_a_kernel_launch_is():
    trace = (
        TraceBuilder()
        .launch("cudaMemsetAsync", 0, 5, correlation=1)
        .launch("cudaMemsetAsync", 10, 5, correlation=2)
        .launch("hipExtModuleLaunchKernel", 20, 5, correlation=3)
        .memset(30, 5, correlation=2)
        .build()
    )
    found = totals(trace)
    assert (found.launches, found.launches_without_device_rows) == (2, 1)


def test_the_operator_of_a_call_is_the_innermost_around_it():
    trace = (
        TraceBuilder()
        .op("aten::linear", 0, 100)
        .op("aten::addmm", 10, 50)
        .launch("cudaLaunchKernel", 20, 5, correlation=1)
        .launch("cudaLaunchKernel", 70, 5, correlation=2)
        .launch("cudaLaunchKernel", 100, 5, correlation=3)
        .launch("cudaLaunchKernel", 20, 5, correlation=4, thread=2)
        .build()
    )
    calls = trace.rows.of(Kind.RUNTIME)
    operators = {
        int(trace.rows.correlation[row]): trace.name_of(trace.links.operator_of[row])
        for row in calls
        if trace.links.operator_of[row] != NONE
    }
    assert operators == {1: "aten::addmm", 2: "aten::linear"}


def test_a_call_under_another_thread_id_finds_its_operator_by_external_id():
    trace = (
        TraceBuilder()
        .op("aten::add", 0, 100, external_id=12)
        .launch("cudaLaunchKernel", 20, 5, correlation=1, thread=7, external_id=12)
        .build()
    )
    assert trace.name_of(trace.links.operator_of[trace.rows.of(Kind.RUNTIME)[0]]) == "aten::add"
