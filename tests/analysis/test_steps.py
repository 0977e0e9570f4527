"""What each step launched, and the device's idle ends inside its wall."""

from __future__ import annotations

import pytest

from referee.analysis.diagnose import diagnose
from referee.analysis.steps import lead_findings
from referee.analysis.study import Study
from referee.trace.builder import TraceBuilder

US = 1_000


def two_steps() -> TraceBuilder:
    """Step 0 (0-100) launches two kernels, of which the second runs in step 1 (100-200); step 1 launches one."""
    builder = TraceBuilder().step(0, 0, 100 * US).step(1, 100 * US, 100 * US)
    builder.op("aten::a", 10 * US, 20 * US).op("aten::b", 120 * US, 20 * US).op("aten::c", 150 * US, 1 * US)
    for number, (at, start, dur) in enumerate(((10, 30, 40), (20, 90, 60), (120, 160, 20)), start=1):
        builder.launch("cudaLaunchKernel", at * US, 5 * US, correlation=number)
        builder.kernel("k", start * US, dur * US, correlation=number)
    return builder


def test_device_work_belongs_to_the_step_that_launched_it() -> None:
    first, second = Study(two_steps().build()).steps
    assert (first.name, first.wall_ns, first.ops) == ("ProfilerStep#0", 100 * US, 1)
    assert (first.kernels, first.busy_ns) == (2, 100 * US)
    assert (second.kernels, second.busy_ns, second.ops) == (1, 20 * US, 2)


def test_busy_inside_the_wall_lead_and_tail() -> None:
    first, second = Study(two_steps().build()).steps
    assert (first.busy_in_step_ns, first.lead_idle_ns, first.tail_idle_ns) == (50 * US, 30 * US, 0)
    assert (second.busy_in_step_ns, second.lead_idle_ns, second.tail_idle_ns) == (70 * US, 0, 20 * US)


def test_a_step_without_device_work_is_all_lead() -> None:
    (step,) = Study(TraceBuilder().step(0, 0, 100 * US).kernel("k", 200 * US, 1 * US).build()).steps
    assert (step.kernels, step.busy_ns, step.lead_idle_ns, step.tail_idle_ns) == (0, 0, 100 * US, 0)


def test_a_long_lead_is_a_finding() -> None:
    study = Study(two_steps().build())
    (finding,) = lead_findings(study.trace, study.works, study.steps)
    assert finding.code == "long-lead"
    assert finding.evidence["lead_idle_ns"] == 30 * US


@pytest.mark.parametrize(("loader_us", "severity"), [(9_000, "warning"), (500, "info")])
def test_a_lead_before_the_window_is_no_share_of_it_and_is_named(loader_us: int, severity: str) -> None:
    """The workers of a loader start as an epoch begins: the device has nothing for longer than it then computes."""
    builder = TraceBuilder().loader(0, loader_us * US, workers=True)
    for step in range(4):
        begin = (loader_us + 1) * step // 4 if step == 0 else loader_us + 1 + step * 1_000
        launch = loader_us + 1 + step * 1_000
        builder.step(step, begin * US, (launch + 1_000 - begin) * US)
        builder.launch("cudaLaunchKernel", launch * US, 5 * US, correlation=step + 1)
        builder.kernel("mm", (launch + 8) * US, 950 * US, correlation=step + 1)
    report = diagnose(builder.build())
    assert report.verdict.regime == "compute-bound"
    (finding,) = [f for f in report.findings if f.code == "long-lead"]
    assert "of it in the data loader" in finding.message
    assert finding.severity == severity
    assert ("persistent_workers" in finding.hint) == (severity == "warning")


def test_unlinked_rows_belong_to_no_step() -> None:
    builder = two_steps().kernel("early", 0, 5 * US)
    steps = Study(builder.build()).steps
    assert [step.kernels for step in steps] == [2, 1]
    assert [step.busy_ns for step in steps] == [100 * US, 20 * US]
    assert steps[0].busy_in_step_ns == 55 * US
