"""The step partition by priority, on hand-made steps and against the figures of Kineto's TensorBoard plugin."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings

from referee.analysis.diagnose import diagnose
from referee.analysis.partition import PRIORITY, partition_steps
from referee.analysis.study import Study
from referee.trace.builder import TraceBuilder
from referee.trace.reader import read_trace

from ..graph import hand_made  # noqa: TID252 - the strategies of the graph tests

US = 1_000


def test_every_moment_counts_once_and_the_step_reaches_to_its_last_device_row() -> None:
    builder = TraceBuilder().step(0, 0, 100 * US).loader(0, 30 * US).op("aten::add", 25 * US, 40 * US)
    builder.launch("cudaLaunchKernel", 50 * US, 10 * US, correlation=1)
    builder.kernel("k", 55 * US, 25 * US, correlation=1)
    builder.launch("cudaMemcpyAsync", 90 * US, 5 * US, correlation=2).memcpy(95 * US, 20 * US, correlation=2)
    trace = builder.build()
    (step,) = partition_steps(trace, Study(trace).works)
    assert step.length_ns == 115 * US
    assert (step.kernel_ns, step.memcpy_ns, step.memset_ns, step.communication_ns) == (25 * US, 20 * US, 0, 0)
    # Calls 50-55 and 90-95, loader 0-30, operators 30-50, nobody 80-90.
    assert (step.runtime_ns, step.loader_ns, step.cpu_ns, step.other_ns) == (10 * US, 30 * US, 20 * US, 10 * US)


@settings(max_examples=60, deadline=None)
@given(scene=hand_made.wild_scenes())
def test_the_parts_sum_to_the_step(scene: hand_made.Scene) -> None:
    trace = scene.build()
    for step in partition_steps(trace, Study(trace).works):
        parts = [getattr(step, f"{name}_ns") for name in (*PRIORITY, "other")]
        assert min(parts) >= 0
        assert sum(parts) == step.length_ns


@pytest.mark.traces
@pytest.mark.parametrize(
    ("name", "averages_us", "kernel_share", "sm_weighted", "occupancy"),
    [
        (
            "v100_resnet50_workers0.json.gz",
            (177_592, 98_589, 1_915, 89, 0, 2_908, 59_262, 13_674, 1_156),
            0.5551,
            0.5468,
            0.4913,
        ),
        (
            "v100_resnet50_workers4.json.gz",
            (141_068, 99_145, 3_160, 98, 0, 10_564, 1_186, 22_665, 4_251),
            0.7027,
            0.6922,
            0.4891,
        ),
    ],
)
def test_kinetos_tensorboard_plugin(
    traces_dir: Path,
    name: str,
    averages_us: tuple[int, ...],
    kernel_share: float,
    sm_weighted: float,
    occupancy: float,
) -> None:
    """Step averages by priority in µs; GPU utilisation, estimated SM efficiency and occupancy over all steps."""
    report = diagnose(read_trace(traces_dir / name))
    fields = ("length", *PRIORITY, "other")
    for field, average_us in zip(fields, averages_us, strict=True):
        ours = sum(getattr(step, f"{field}_ns") for step in report.partition) / len(report.partition)
        assert ours / US == pytest.approx(average_us, abs=0.51), field
    length_ns = sum(step.length_ns for step in report.partition)
    assert sum(step.kernel_ns for step in report.partition) / length_ns == pytest.approx(kernel_share, abs=2e-4)
    figures = report.utilisation
    assert figures.sm_weighted_frac is not None
    assert figures.sm_weighted_frac * report.totals.window_ns / length_ns == pytest.approx(sm_weighted, abs=2e-4)
    assert figures.occupancy_frac == pytest.approx(occupancy, abs=6e-5)


@pytest.mark.traces
def test_kernels_of_the_tensorboard_plugin(traces_dir: Path) -> None:
    """Kernels, distinct names, total time in µs."""
    for name, count, distinct, total_us in (
        ("v100_resnet50_workers0.json.gz", 8_772, 67, 591_532),
        ("v100_resnet50_workers4.json.gz", 8_868, 62, 594_868),
    ):
        report = diagnose(read_trace(traces_dir / name))
        kernels = [k for k in report.top_kernels if not k.name.startswith(("Memcpy", "Memset"))]
        assert report.totals.kernels == count
        assert sum(k.sum_ns for k in report.top_kernels) == report.totals.sum_ns
        assert len(kernels) == distinct
        assert sum(k.sum_ns for k in kernels) == total_us * US
