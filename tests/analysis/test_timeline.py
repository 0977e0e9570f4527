"""The timeline partition against the figures that peers print for the same files."""

from __future__ import annotations

from pathlib import Path

import pytest

from referee.analysis.diagnose import diagnose
from referee.analysis.study import Study
from referee.trace.builder import TraceBuilder
from referee.trace.reader import read_trace

US = 1_000


def test_computation_hides_communication_and_both_hide_copies() -> None:
    """Kernel 0-10, collective 5-20, copies 8-25 and 30-32: 10 computed, 10 exposed collective, 7 exposed copies."""
    trace = (
        TraceBuilder()
        .kernel("gemm", 0, 10 * US, stream=1)
        .kernel("ncclDevKernel_AllReduce_Sum", 5 * US, 15 * US, stream=2)
        .memcpy(8 * US, 17 * US, stream=3)
        .memcpy(30 * US, 2 * US, stream=3)
        .build()
    )
    timeline = Study(trace).timeline
    assert timeline.computation_ns == 10 * US
    assert timeline.exposed_communication_ns == 10 * US
    assert timeline.exposed_copy_ns == 7 * US


@pytest.mark.parametrize(
    ("name", "local"),
    [
        ("Memcpy DtoD (Device -> Device)", True),
        ("CopyDeviceToDevice", True),
        ("Memcpy PtoP (Device -> Device)", False),
        ("Memcpy HtoD (Pinned -> Device)", False),
        ("Memcpy DtoH (Device -> Pageable)", False),
    ],
)
def test_a_copy_within_a_device_is_its_own_work_and_no_transfer(name: str, local: bool) -> None:
    """A tensor made contiguous again and again is memory traffic: pinned memory changes nothing."""
    builder, free = TraceBuilder(), 0
    for number in range(1, 41):
        builder.op("aten::contiguous", number * 9 * US, 8 * US)
        builder.launch("cudaMemcpyAsync", (number * 9 + 1) * US, 3 * US, correlation=number)
        free = max(free, (number * 9 + 5) * US)
        if number % 2:
            builder.kernel("gemm", free, 40 * US, correlation=number)
            free += 40 * US
        else:
            builder.memcpy(free, 110 * US, name=name, correlation=number)
            free += 110 * US
    report = diagnose(builder.build())
    timeline = report.timeline
    assert timeline.exposed_copy_ns == 20 * 110 * US
    assert timeline.local_copy_ns == (timeline.exposed_copy_ns if local else 0)
    assert report.verdict.regime == ("compute-bound" if local else "transfer-bound")
    assert [r.attacks for r in report.remedies if "copies" in r.attacks][-1] == (
        "copies within the device" if local else "exposed copies"
    )


def test_a_fill_counts_as_computation_and_a_reduction_is_no_collective() -> None:
    trace = (
        TraceBuilder()
        .memset(0, 4 * US)
        .kernel("void at::native::reduce_kernel<512>", 10 * US, 4 * US)
        .kernel("void gather_kernel", 20 * US, 4 * US)
        .build()
    )
    timeline = Study(trace).timeline
    assert (timeline.computation_ns, timeline.exposed_communication_ns) == (12 * US, 0)


@pytest.mark.traces
@pytest.mark.parametrize(
    ("name", "computation", "communication", "copies", "idle"),
    [
        ("h100_bert_small.json.gz", 307.198, 0, 2.240, 3_598.387),
        ("h100_timesformer.json.gz", 154_969.031, 0, 3_464.142, 1_559.254),
        ("mi300_compiled_triton.json.gz", None, 0, None, 0.0112),
        ("mi300_sglang_decode.json.gz", 9_759.752, None, 13.177, None),
    ],
)
def test_gpu_timeline_of_tracelens(
    traces_dir: Path,
    name: str,
    computation: float | None,
    communication: float | None,
    copies: float | None,
    idle: float | None,
) -> None:
    """TraceLens: computation + exposed communication + exposed copies + idle = total, in floats of microseconds."""
    report = diagnose(read_trace(traces_dir / name))
    timeline = report.timeline
    for ours_ns, theirs_us in (
        (timeline.computation_ns, computation),
        (timeline.exposed_communication_ns, communication),
        (timeline.exposed_copy_ns, copies),
        (report.totals.idle_ns, idle),
    ):
        if theirs_us is not None:
            assert ours_ns / US == pytest.approx(theirs_us, abs=0.008)


@pytest.mark.traces
def test_busy_and_total_of_tracelens(traces_dir: Path) -> None:
    for name, busy_us, total_us in (
        ("mi300_vit_classifier.json.gz", 1_716.299, 6_868.849),
        ("mi210_gpu_rows_only.json.gz", 5_343.370, 5_979.503),
    ):
        totals = diagnose(read_trace(traces_dir / name)).totals
        # TraceLens adds floats of about 1e9 µs; it loses up to 0.06 µs over 562 rows.
        assert totals.busy_ns / US == pytest.approx(busy_us, abs=0.06)
        assert totals.window_ns / US == pytest.approx(total_us, abs=0.001)
