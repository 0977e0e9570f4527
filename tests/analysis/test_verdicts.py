"""The verdict on every recorded trace, with its reason, and the reports' own consistency."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from referee.analysis.diagnose import diagnose
from referee.records.trace_report import TraceReport
from referee.trace.reader import read_trace

pytestmark = pytest.mark.traces

VERDICTS = {
    "h100_bert_small.json.gz": "launch-bound",
    "mi300_bert_small.json.gz": "launch-bound",
    "mi300_vit_classifier.json.gz": "launch-bound",
    "b200_eager.json.gz": "launch-bound",
    "h100_timesformer.json.gz": "compute-bound",
    "h100_qwen_0.5b_unlinked.json.gz": "compute-bound",
    "mi300_vllm_decode_one_graph.json.gz": "compute-bound",
    "mi300_resnet_ddp_checkpoint.json.gz": "communication-bound",
    "v100_resnet50_workers0.json.gz": "input-bound",
    "v100_resnet50_workers4.json.gz": "compute-bound",
    "v100_ns_resolution_deep_queue.json.gz": "compute-bound",
    "rtx3060ti_train_step.json.gz": "compute-bound",
    "batch_sweep/a100_particle_transformer_b2.json.gz": "launch-bound",
    "batch_sweep/a100_particle_transformer_b8.json.gz": "launch-bound",
    "batch_sweep/a100_particle_transformer_b32.json.gz": "launch-bound",
    "batch_sweep/a100_particle_transformer_b128.json.gz": "compute-bound",
    "mi300_gemm_few_tiles.json": "compute-bound",
    "mi300_add_bandwidth.json": "compute-bound",
    "mi210_gpu_rows_only.json.gz": "compute-bound",
    "synthetic/launch_bound.json": "launch-bound",
    "synthetic/sync_bound.json": "sync-bound",
    "synthetic/overlap_streams.json": "compute-bound",
    "synthetic/cuda_graph.json": "compute-bound",
    "synthetic/launch_queue_full.json": "compute-bound",
    "synthetic/h2d_pageable.json": "transfer-bound",
}

UNDECIDED = {
    "a100_kernels_missing.json.gz": "lost-device-rows",
    "a100_launches_without_kernels.json.gz": "lost-device-rows",
    "cpu_only_gloo_rank34.json.gz": "no-device-rows",
    "synthetic/cpu_only.json": "no-device-rows",
    "ibm_spyre_allreduce_tp4.json": "no-device-rows",
    "mtia_inference.json.gz": "no-kernel-rows",
    "a100_torchbench_no_kernels.json": "no-kernel-rows",
    "a100_triton_example.json.gz": "few-device-rows",
    "mi300_sglang_decode.json.gz": "unseen",
}


@cache
def _report(path: Path) -> TraceReport:
    return diagnose(read_trace(path))


@pytest.mark.parametrize("name", VERDICTS)
def test_the_regime_of_a_labelled_trace(traces_dir: Path, name: str) -> None:
    verdict = _report(traces_dir / name).verdict
    assert verdict.regime == VERDICTS[name], verdict
    assert verdict.undecided_because is None
    assert verdict.would_change


@pytest.mark.parametrize("name", UNDECIDED)
def test_no_verdict_without_evidence(traces_dir: Path, name: str) -> None:
    report = _report(traces_dir / name)
    assert report.verdict.regime == "cannot-tell"
    assert report.verdict.undecided_because == UNDECIDED[name]
    assert UNDECIDED[name] in {finding.code for finding in report.findings}


def _all(traces_dir: Path) -> list[str]:
    return [name for name in json.loads((traces_dir / "EXPECTED.json").read_text()) if (traces_dir / name).is_file()]


def test_every_report_adds_up(traces_dir: Path) -> None:
    """Causes sum to idle, host-starved parts to host-starved, the timeline to busy: exactly, on every file."""
    for name in _all(traces_dir):
        report = _report(traces_dir / name)
        idle, starved, totals = report.idle, report.idle.host_starved, report.totals
        causes = idle.host_starved_ns + idle.synchronised_ns + idle.dependency_ns + idle.other_ns
        assert causes == totals.idle_ns, name
        parts = (starved.per_op_ns, starved.loader_ns, starved.allocator_ns, starved.one_off_ns, starved.pause_ns)
        assert sum(parts) == idle.host_starved_ns, name
        assert min(*parts, idle.synchronised_ns, idle.dependency_ns, idle.other_ns) >= 0, name
        timeline = report.timeline
        busy = timeline.computation_ns + timeline.exposed_communication_ns + timeline.exposed_copy_ns
        assert busy == totals.busy_ns, name
        assert idle.unseen_ns <= idle.dependency_ns + idle.other_ns, name


def test_evidence_comes_in_the_five_steps(traces_dir: Path) -> None:
    evidence = _report(traces_dir / "h100_bert_small.json.gz").verdict.evidence
    beginnings = ["timeline", "timeline", "host against device", "kernels", "null experiment", "utilisation"]
    assert [e.name.startswith(b) for e, b in zip(evidence, beginnings, strict=True)] == [True] * 6
    busy, largest = evidence[:2]
    assert busy.value == pytest.approx(0.079, abs=0.001)
    assert "60.0 %" in busy.threshold
    assert "24.0 %" in largest.threshold


def test_kernels_per_step_are_counted_by_launch(traces_dir: Path) -> None:
    steps = _report(traces_dir / "v100_ns_resolution_deep_queue.json.gz").steps
    assert [step.kernels for step in steps] == [870] * 5


def test_rows_launched_before_the_recording_are_said_so(traces_dir: Path) -> None:
    report = _report(traces_dir / "h100_qwen_0.5b_unlinked.json.gz")
    (finding,) = [f for f in report.findings if f.code == "unlinked-rows"]
    assert finding.evidence["unlinked"] == 509
    assert sum(step.kernels for step in report.steps) == 1029
    assert report.queue.rows == 1198


def test_a_long_queue_and_a_graph_are_recognised(traces_dir: Path) -> None:
    assert _report(traces_dir / "h100_timesformer.json.gz").queue.median_ns == pytest.approx(63e6, rel=0.02)
    graph = _report(traces_dir / "mi300_vllm_decode_one_graph.json.gz")
    assert graph.totals.graph_launches == 1
    assert graph.idle.host_starved_ns < 0.1 * graph.totals.idle_ns


def test_a_fill_without_a_row_is_reported_by_name_and_is_no_loss(traces_dir: Path) -> None:
    findings = _report(traces_dir / "h100_bert_small.json.gz").findings
    (bare,) = [f for f in findings if f.code == "launch-without-rows"]
    assert bare.severity == "info"
    assert bare.evidence == {"cudaMemsetAsync": 22}
    assert "lost-device-rows" not in {f.code for f in findings}


def test_the_step_of_a_busy_window_may_be_mostly_lead(traces_dir: Path) -> None:
    """Shares are over the window: one compute-bound trace is 99 % busy over it and 41 % over its only step."""
    report = _report(traces_dir / "rtx3060ti_train_step.json.gz")
    timesformer = _report(traces_dir / "h100_timesformer.json.gz")
    assert report.totals.busy_ns > 0.99 * report.totals.window_ns
    leads = [s.lead_idle_ns / s.wall_ns for r in (report, timesformer) for s in r.steps]
    said = [any(f.code == "long-lead" for f in r.findings) for r in (report, timesformer)]
    assert said == [lead >= 0.2 for lead in leads]


def test_eight_ranks_of_one_job_give_three_regimes(traces_dir: Path) -> None:
    regimes = {_report(traces_dir / f"dlrm_8rank/v100_dlrm_rank{rank}.json.gz").verdict.regime for rank in range(8)}
    assert regimes == {"launch-bound", "communication-bound", "mixed"}


def test_remedies_follow_the_verdict_and_are_ranked(traces_dir: Path) -> None:
    first = {
        "v100_resnet50_workers0.json.gz": "the data loader",
        "h100_bert_small.json.gz": "per-op CPU overhead",
        "synthetic/sync_bound.json": "waits of the host",
        "synthetic/h2d_pageable.json": "pageable copies",
        "mi300_resnet_ddp_checkpoint.json.gz": "exposed communication",
        "rtx3060ti_train_step.json.gz": "device time",
        "mi250_minitoy.json.gz": "first-time costs",
    }
    for name, attacks in first.items():
        report = _report(traces_dir / name)
        assert report.remedies[0].attacks == attacks, name
        highs = [remedy.high_ns for remedy in report.remedies if remedy.high_ns is not None]
        assert highs == sorted(highs, reverse=True)
    assert _report(traces_dir / "a100_kernels_missing.json.gz").remedies == ()


def test_a_file_without_device_rows_lists_the_devices_that_it_names(traces_dir: Path) -> None:
    report = diagnose(read_trace(traces_dir / "a100_launches_without_kernels.json.gz"))
    assert report.verdict.regime == "cannot-tell"
    assert {device.name for device in report.devices} == {"NVIDIA A100-PG509-200"}
    assert [(d.device, d.device_rows, d.window_ns) for d in report.devices] == [(number, 0, 0) for number in range(8)]
