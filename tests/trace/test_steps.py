"""Steps, totals by hand, and narrowing."""

from __future__ import annotations

import pytest

from referee.errors import OptionError
from referee.trace.builder import TraceBuilder
from referee.trace.columns import Kind, Trace
from referee.trace.select import select
from referee.trace.steps import believe_record
from referee.trace.totals import device_totals, kernels_per_step, totals


def codes(trace: Trace) -> list[str]:
    return [finding.code for finding in trace.findings]


def two_steps() -> TraceBuilder:
    """Device work of the first step runs in the second; an unlinked kernel, and a device that only copies."""
    return (
        TraceBuilder()
        .step(4, 0, 100)
        .step(5, 100, 100)
        .op("aten::linear", 10, 40)
        .op("aten::addmm", 15, 20)
        .op("aten::relu", 110, 10)
        .launch("cudaLaunchKernel", 20, 5, correlation=1)
        .launch("cudaLaunchKernel", 112, 5, correlation=2)
        .launch("cudaMemcpyAsync", 120, 5, correlation=3)
        .kernel("gemm", 90, 60, correlation=1)
        .kernel("relu", 150, 10, correlation=2, stream=8)
        .kernel("before", 0, 20, correlation=99)
        .memcpy(130, 40, correlation=3, device=1)
    )


def test_kernels_belong_to_the_step_that_launched_them():
    assert kernels_per_step(two_steps().build()) == (1, 1)


def test_totals_by_hand():
    found = totals(two_steps().build())
    assert (found.ops, found.ops_top, found.ops_aten_top) == (3, 2, 2)
    assert (found.runtime_calls, found.launches, found.launches_without_device_rows) == (3, 3, 0)
    assert (found.kernels, found.device_rows, found.device_rows_without_launch, found.streams) == (3, 4, 1, 3)
    # Device 0: [0, 20) and [90, 160); device 1: [130, 170).
    assert (found.busy_ns, found.sum_ns, found.window_ns, found.idle_ns) == (90 + 40, 130, 160 + 40, 70)
    assert (found.median_kernel_ns, found.self_cpu_ns, found.self_device_ns) == (20.0, 50, 130)


def test_totals_of_each_device():
    first, second = device_totals(two_steps().device_properties("A", ordinal=1).build())
    assert (first.device, first.name, first.busy_ns, first.window_ns, first.streams) == (0, None, 90, 160, 2)
    assert (second.device, second.name, second.busy_ns, second.window_ns, second.kernels) == (1, "A", 40, 40, 0)


def test_no_steps():
    trace = TraceBuilder().op("aten::add", 0, 5).build()
    assert (trace.steps, trace.steps_from) == ((), "none")
    assert "no-steps" in codes(trace)


def test_annotations_that_read_like_steps_and_repeat():
    builder = TraceBuilder()
    for index in range(4):
        builder.annotation(f"train step {index}", 100 * index, 90)
        builder.annotation("Optimizer.step#SGD.step", 100 * index + 50, 20)
        builder.annotation("forward", 100 * index, 40)
    trace = builder.build()
    assert trace.steps_from == "annotations"
    assert [step.name for step in trace.steps] == [f"train step {index}" for index in range(4)]


@pytest.mark.parametrize(
    "name",
    ["execute_context_{0}({0}8_788)_generation_{1}({1})", "execute_{0}_context_0(sq0sk0)_generation_{1}(sq{1}sk5)"],
)
def test_passes_of_an_inference_server_are_steps(name: str):
    builder = TraceBuilder()
    for index in range(3):
        builder.annotation(name.format(index, 32 + index), 100 * index, 90).annotation("sample", 100 * index + 50, 20)
    trace = builder.build()
    assert (trace.steps_from, len(trace.steps)) == ("annotations", 3)


def test_one_annotation_alone_is_no_step():
    assert TraceBuilder().annotation("step[DECODE bs=32]", 0, 50).build().steps_from == "none"


def test_overlapping_steps_are_said_and_the_last_to_begin_has_the_work():
    trace = (
        TraceBuilder()
        .step(1, 0, 100)
        .step(2, 60, 100)
        .launch("cudaLaunchKernel", 70, 5, correlation=1)
        .kernel("k", 80, 5, correlation=1)
        .build()
    )
    assert "overlapping-steps" in codes(trace)
    assert kernels_per_step(trace) == (0, 1)


def test_a_short_last_step_is_cut():
    builder = TraceBuilder()
    for index in range(3):
        builder.step(index, 100 * index, 100)
    trace = builder.step(3, 300, 20).build()
    assert [step.cut for step in trace.steps] == [False, False, False, True]
    assert "cut-step" in codes(trace)


def test_a_short_step_that_its_capture_saw_complete_is_whole():
    builder = TraceBuilder()
    for index in range(3):
        builder.step(index, 100 * index, 100)
    trace = builder.step(3, 300, 20).build()
    whole = believe_record(trace, (0, 1, 2, 3))
    assert [step.cut for step in whole.steps] == [False] * 4
    assert "cut-step" not in codes(whole)
    assert believe_record(trace, (0, 1, 2)) is trace


@pytest.mark.parametrize("wanted", ["4", "ProfilerStep#4"])
def test_one_step_keeps_its_device_work_and_no_other(wanted: str):
    trace = select(two_steps().build(), step=wanted)
    assert [trace.name_of(row) for row in trace.rows.of(Kind.KERNEL)] == ["gemm"]
    assert [trace.name_of(row) for row in trace.rows.of(Kind.OPERATOR)] == ["aten::linear", "aten::addmm"]
    kernel = trace.rows.of(Kind.KERNEL)[0]
    assert trace.name_of(trace.links.launch_of[kernel]) == "cudaLaunchKernel"
    assert [step.name for step in trace.steps] == ["ProfilerStep#4"]
    assert trace.name_of(trace.steps[0].row) == "ProfilerStep#4"
    assert trace.steps_from == "named"


def test_an_annotation_can_be_named():
    trace = select(two_steps().annotation("forward", 105, 10).build(), step="forward")
    assert [trace.name_of(row) for row in trace.rows.of(Kind.KERNEL)] == ["relu"]


def test_a_stretch_keeps_what_touches_it_and_the_launches_of_that():
    trace = select(two_steps().build(), range_ns=(145, 155))
    assert sorted(trace.name_of(row) for row in trace.rows.of(Kind.KERNEL)) == ["gemm", "relu"]
    assert totals(trace).device_rows_without_launch == 0


def test_a_stretch_has_not_lost_what_runs_later():
    builder = TraceBuilder()
    for number in range(1, 5):
        builder.launch("cudaLaunchKernel", 100 * number, 50, correlation=number)
        builder.kernel("k", 1000 + 100 * number, 80, correlation=number)
    builder.launch("cudaLaunchKernel", 600, 50, correlation=9)
    found = totals(select(builder.build(), range_ns=(0, 1050)))
    # Three of the calls launched what runs behind the stretch; one has no row anywhere.
    assert (found.runtime_calls, found.launches, found.launches_without_device_rows) == (5, 2, 1)


def test_a_device_keeps_its_rows_and_drops_launches_for_others():
    trace = select(two_steps().build(), device=1)
    assert [trace.name_of(row) for row in trace.rows.of(Kind.RUNTIME)] == ["cudaMemcpyAsync"]
    assert totals(trace).device_rows == 1
    assert totals(trace).ops == 3


def test_what_is_not_there():
    trace = two_steps().build()
    with pytest.raises(OptionError, match="ProfilerStep#4, ProfilerStep#5"):
        select(trace, step="7")
    with pytest.raises(OptionError, match="devices are: 0, 1"):
        select(trace, device=2)
    with pytest.raises(OptionError, match="no row between"):
        select(trace, range_ns=(1000, 2000))
