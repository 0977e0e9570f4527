"""Situations that people met, as small traces: the wrong answers they were given, and the right one."""

from __future__ import annotations

from pathlib import Path

import pytest

from referee.analysis.diagnose import diagnose
from referee.analysis.diff import diff_traces
from referee.records.trace_report import TraceReport
from referee.trace.builder import TraceBuilder
from referee.trace.reader import read_trace

US = 1_000
MS = 1_000_000


def reads(*, every: int, kernels: int = 100) -> TraceBuilder:
    """Kernels of 15 µs; after every ``every``-th the loss is read: the host waits, then needs 60 µs."""
    builder, at, free = TraceBuilder(), 0, 0
    for number in range(1, kernels + 1):
        builder.op("aten::add", at * US, 6 * US)
        builder.launch("cudaLaunchKernel", (at + 1) * US, 3 * US, correlation=number)
        free = max(free, at + 6) + 15
        builder.kernel("elementwise", (free - 15) * US, 15 * US, correlation=number)
        at += 7
        if number % every == 0:
            builder.python("loss.py(31): item", at * US, (free + 3 - at) * US)
            builder.op("aten::item", at * US, (free + 3 - at) * US)
            builder.sync((at + 1) * US, (free + 1 - at) * US, name="cudaStreamSynchronize")
            at = free + 60
    return builder


def test_hundreds_of_tiny_reads_are_waits_and_no_launch_problem() -> None:
    """An item() after every tenth kernel: sync-bound, with the line that reads and what it could give back."""
    report = diagnose(reads(every=10).build())
    assert report.verdict.regime == "sync-bound"
    site = report.sync_sites[0]
    assert (site.owner.python, site.owner.operator, site.count) == ("loss.py(31): item", "aten::item", 10)
    assert report.remedies[0].attacks == "waits of the host"
    assert report.remedies[0].high_ns == report.idle.synchronised_ns
    blockers = [(b.name, b.count) for b in report.graphable.blockers] if report.graphable else []
    assert blockers == [("cudaStreamSynchronize", 9)]


def test_indexing_with_a_mask_is_found_by_the_operator_that_waits() -> None:
    builder = TraceBuilder()
    for number in range(1, 6):
        at = number * 400
        builder.op("aten::index", at * US, 200 * US).op("aten::nonzero", (at + 2) * US, 190 * US)
        builder.launch("cudaLaunchKernel", (at + 5) * US, 5 * US, correlation=number)
        builder.kernel("count", (at + 12) * US, 150 * US, correlation=number)
        builder.sync((at + 15) * US, 149 * US, name="cudaStreamSynchronize")
    site = diagnose(builder.build()).sync_sites[0]
    assert site.owner.operator == "aten::nonzero"
    assert "torch.where" in next(r.how for r in diagnose(builder.build()).remedies if r.attacks == "waits of the host")


def steps_with_wait(where: str) -> TraceBuilder:
    """Three equal steps that wait once, either where the loss is logged or where the next batch is copied."""
    builder, number = TraceBuilder(), 0
    for step in range(4):
        begin = step * 1_000
        builder.step(step, begin * US, 1_000 * US)
        for turn in range(5):
            number += 1
            at = begin + 10 + turn * 20
            builder.op("aten::mm", at * US, 10 * US)
            builder.launch("cudaLaunchKernel", (at + 2) * US, 5 * US, correlation=number)
            builder.kernel("mm", (begin + 20 + turn * 150) * US, 150 * US, correlation=number)
        builder.python(where, (begin + 120) * US, 660 * US)
        builder.sync((begin + 125) * US, 650 * US, name="cudaStreamSynchronize")
    return builder


def test_a_wait_that_moved_gained_nothing() -> None:
    logging, copying = (steps_with_wait(where).build() for where in ("log.py(3): log", "data.py(9): to_device"))
    sites = [diagnose(trace).sync_sites for trace in (logging, copying)]
    before, after = ((len(s), s[0].count, s[0].idle_ns) for s in sites)
    assert before == after
    assert [s[0].owner.python for s in sites] == ["log.py(3): log", "data.py(9): to_device"]
    diff = diff_traces(logging, copying)
    assert (diff.answer, diff.change_ns) == ("same", 0)


def input_bound() -> TraceBuilder:
    builder = TraceBuilder()
    for number in range(1, 6):
        at = number * MS
        builder.loader(at, 800 * US).launch("cudaLaunchKernel", at + 820 * US, 5 * US, correlation=number)
        builder.kernel("k", at + 826 * US, 150 * US, correlation=number)
    return builder


@pytest.mark.traces
def test_three_causes_of_idle_time_have_three_names(traces_dir: Path) -> None:
    """Tools that call all of it "host wait" send the reader after the wrong thing."""
    folder = traces_dir / "synthetic"
    regimes = [
        diagnose(read_trace(folder / f"{name}.json")).verdict.regime
        for name in ("launch_bound", "sync_bound", "h2d_pageable")
    ]
    regimes.append(diagnose(input_bound().build()).verdict.regime)
    assert regimes == ["launch-bound", "sync-bound", "transfer-bound", "input-bound"]


@pytest.mark.traces
def test_a_gap_filled_by_a_copy_is_not_idle(traces_dir: Path) -> None:
    report = diagnose(read_trace(traces_dir / "synthetic" / "h2d_pageable.json"))
    assert report.timeline.exposed_copy_ns > 0.8 * report.totals.window_ns
    assert report.totals.idle_ns < 0.06 * report.totals.window_ns
    assert "pin_memory" in report.remedies[0].how


@pytest.mark.traces
def test_use_never_exceeds_the_whole(traces_dir: Path) -> None:
    """Two streams: 3,760 µs of rows in 1,980 µs of busy time; communication is hidden altogether."""
    report = diagnose(read_trace(traces_dir / "synthetic" / "overlap_streams.json"))
    assert (report.totals.sum_ns, report.totals.busy_ns) == (3_760 * US, 1_980 * US)
    assert report.utilisation.any_kernel_frac is not None
    assert report.utilisation.any_kernel_frac <= 1
    assert report.timeline.exposed_communication_ns == 0


@pytest.mark.traces
def test_a_full_queue_is_no_launch_overhead(traces_dir: Path) -> None:
    """Launch calls of 190 µs because the queue is full: the device is the limit, host cost does not matter."""
    report = diagnose(read_trace(traces_dir / "synthetic" / "launch_queue_full.json"))
    assert report.verdict.regime == "compute-bound"
    assert report.losses.per_op_overhead.high_ns == 0
    assert report.queue.median_ns == pytest.approx(4e6, rel=0.2)


def optimizer_step() -> TraceReport:
    """300 tiny updates inside the optimizer's frame, after a forward of ten kernels."""
    builder, number = TraceBuilder(), 0
    for turn in range(10):
        number += 1
        builder.launch("cudaLaunchKernel", turn * 20 * US, 5 * US, correlation=number)
        builder.kernel("fwd", (turn * 20 + 6) * US, 14 * US, correlation=number)
    builder.annotation("Optimizer.step#AdamW.step", 200 * US, 300 * 20 * US)
    for turn in range(300):
        number += 1
        at = 200 + turn * 20
        builder.op("aten::addcdiv_", at * US, 18 * US)
        builder.launch("cudaLaunchKernel", (at + 10) * US, 5 * US, correlation=number)
        builder.kernel("tiny", (at + 16) * US, 2 * US, correlation=number)
    return diagnose(builder.build())


def test_hundreds_of_small_parameters_make_the_optimizer_the_step() -> None:
    report = optimizer_step()
    assert report.verdict.regime == "launch-bound"
    remedy = next(r for r in report.remedies if "optimizer" in r.attacks)
    assert "fused=True" in remedy.how
    assert remedy.high_ns is not None
    assert remedy.high_ns > 0.9 * report.idle.host_starved.per_op_ns


def test_an_eager_decode_could_gain_what_graphs_take_away() -> None:
    """700 short launches for a token, 71 % idle, no graph launch: 3.4 times at most, 2.6 with 1 µs a gap for replay."""
    builder = TraceBuilder()
    for number in range(1, 701):
        at = number * 10_000
        builder.op("aten::linear", at - 6_000, 5_900)
        builder.launch("cudaLaunchKernel", at - 3_000, 2_000, correlation=number)
        builder.kernel("k", at, 2_900, correlation=number)
    report = diagnose(builder.build())
    assert report.verdict.regime == "launch-bound"
    assert report.totals.graph_launches == 0
    assert report.totals.idle_ns / report.totals.window_ns == pytest.approx(0.71, abs=0.01)
    assert report.totals.window_ns / report.totals.busy_ns == pytest.approx(3.4, abs=0.1)
    loss = report.losses.per_op_overhead
    assert loss.high_ns is not None
    assert report.totals.window_ns / (report.totals.window_ns - loss.high_ns) == pytest.approx(2.6, abs=0.1)
    assert "graph" in report.remedies[0].name


def test_no_device_rows_although_a_device_was_asked_for_is_no_idle_device() -> None:
    """Launches without kernels: rows were lost. Neither launches nor rows: nothing was recorded."""
    builder = TraceBuilder().device_properties("NVIDIA A100-SXM4-40GB", sm_count=108)
    nothing = diagnose(builder.op("aten::mm", 0, 10 * US).build())
    assert (nothing.verdict.regime, nothing.verdict.undecided_because) == ("cannot-tell", "no-device-rows")
    lost = diagnose(builder.launch("cudaLaunchKernel", 2 * US, 5 * US, correlation=1).build())
    assert (lost.verdict.regime, lost.verdict.undecided_because) == ("cannot-tell", "lost-device-rows")
    assert lost.utilisation.any_kernel_frac is None


@pytest.mark.parametrize("name", ["cuLaunchKernelEx", "cudaLaunchKernelExC", "hipExtModuleLaunchKernel", "vendorGo"])
def test_a_launch_call_with_an_unknown_name_makes_no_orphans(name: str) -> None:
    def trace(call: str) -> TraceReport:
        builder = TraceBuilder()
        for number in range(1, 9):
            builder.launch(call, number * 50 * US, 5 * US, correlation=number)
            builder.kernel("k", (number * 50 + 6) * US, 5 * US, correlation=number)
        return diagnose(builder.build())

    report = trace(name)
    assert report.totals.device_rows_without_launch == 0
    assert report.verdict == trace("cudaLaunchKernel").verdict
    path, usual = report.critical_path, trace("cudaLaunchKernel").critical_path
    assert path is not None
    assert usual is not None
    assert (path.length_ns, path.host_ns, path.device_ns) == (usual.length_ns, usual.host_ns, usual.device_ns)


@pytest.mark.parametrize("category", ["devtools.timeline", "FEE", ""])
def test_a_trace_of_another_program_is_no_lost_recording(category: str) -> None:
    builder = TraceBuilder()
    for number in range(50):
        builder.row(category, "RunTask", number * 1000 * US, 50 * US)
    report = diagnose(builder.build())
    assert (report.verdict.regime, report.verdict.undecided_because) == ("cannot-tell", "no-device-rows")
    (finding,) = [finding for finding in report.findings if finding.code == "no-device-rows"]
    assert "50 rows without a known category" in finding.hint
    assert "on_trace_ready" not in finding.hint
