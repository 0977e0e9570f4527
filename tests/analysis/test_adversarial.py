"""Traces made to mislead, each with the answer that the rules give by construction."""

from __future__ import annotations

import pytest

from referee.analysis.diagnose import diagnose
from referee.analysis.trace_set import judge_set
from referee.records.trace_report import TraceReport
from referee.report.compose import compose
from referee.report.text import render_text
from referee.report.verdict import verdict_sentence
from referee.trace.builder import TraceBuilder

US = 1_000
MS = 1_000_000
WORKER = 77


def host_paced(
    kernels: int = 300, *, every_us: int = 20, kernel_us: int = 2, builder: TraceBuilder | None = None
) -> TraceBuilder:
    """The host is at work all the time and launches a kernel every ``every_us``."""
    builder = builder or TraceBuilder()
    for number in range(1, kernels + 1):
        at = number * every_us * US
        builder.op("aten::add", at, (every_us - 2) * US)
        builder.launch("cudaLaunchKernel", at + 3 * US, 5 * US, correlation=number)
        builder.kernel("k", at + 9 * US, kernel_us * US, correlation=number)
    return builder


def causes(report: TraceReport) -> int:
    idle = report.idle
    return idle.host_starved_ns + idle.synchronised_ns + idle.dependency_ns + idle.other_ns


def test_two_streams_without_an_idle_moment_leave_the_host_nothing_to_answer_for() -> None:
    """Kernels of 40 µs, one every 20 µs, on two streams in turn: nothing is queued, and nothing is ever idle.

    By the law of shares there is no loss. That the host paces it stands beside: the host's side of the law is as long
    as the window, and the queue holds little.
    """
    builder = TraceBuilder()
    for number in range(1, 301):
        at = number * 20 * US
        builder.op("aten::add", at, 18 * US)
        builder.launch("cudaLaunchKernel", at + 3 * US, 5 * US, correlation=number)
        builder.kernel("k", at + 9 * US, 40 * US, correlation=number, stream=7 + number % 2)
    report = diagnose(builder.build())
    assert report.verdict.regime == "compute-bound"
    assert report.totals.idle_ns == 0
    assert report.totals.sum_ns == pytest.approx(2 * report.totals.busy_ns, rel=0.01)
    assert report.utilisation.any_kernel_frac == 1
    assert report.law.host_ns == pytest.approx(report.totals.window_ns, rel=0.02)
    assert any("the queue holds little" in evidence.so for evidence in report.verdict.evidence)
    assert report.losses.per_op_overhead.high_ns == 0


def test_small_pageable_copies_do_not_hide_a_launch_bound_step() -> None:
    """Every tenth kernel comes after a copy of 6 µs that the host waits for: 3 % of the window, beside 87 % per-op."""
    builder = TraceBuilder()
    for number in range(1, 301):
        at = number * 20 * US
        builder.op("aten::add", at, 18 * US)
        if number % 10 == 0:
            builder.launch("cudaMemcpyAsync", at - 10 * US, 8 * US, correlation=1_000 + number)
            name = "Memcpy HtoD (Pageable -> Device)"
            builder.memcpy(at - 9 * US, 6 * US, name=name, correlation=1_000 + number, stream=14)
        builder.launch("cudaLaunchKernel", at + 3 * US, 5 * US, correlation=number)
        builder.kernel("k", at + 9 * US, 2 * US, correlation=number)
    report = diagnose(builder.build())
    assert report.verdict.regime == "launch-bound"
    assert report.timeline.exposed_copy_ns == 30 * 6 * US
    # A wait that explains a gap takes at most its own length of it.
    assert report.idle.synchronised_ns <= 30 * 8 * US
    assert causes(report) == report.totals.idle_ns


@pytest.mark.parametrize(("thread", "regime"), [(WORKER, "launch-bound"), (None, "input-bound")])
def test_a_loader_that_waits_in_a_worker_holds_nobody_up(thread: int | None, regime: str) -> None:
    """The same rows of the loader: on the thread that launches they take the window, in a worker they take nothing."""
    builder, number = TraceBuilder(), 0
    for step in range(10):
        begin = step * 1_500 * US
        where = {} if thread is None else {"thread": thread}
        builder.loader(begin, 1_280 * US, **where)
        for turn in range(75 if thread else 10):
            number += 1
            at = begin + (turn * 20 + (0 if thread else 1_290)) * US
            builder.op("aten::add", at, 18 * US)
            builder.launch("cudaLaunchKernel", at + 3 * US, 5 * US, correlation=number)
            builder.kernel("k", at + 9 * US, 2 * US, correlation=number)
    report = diagnose(builder.build())
    assert report.verdict.regime == regime
    assert (report.idle.host_starved.loader_ns == 0) is (thread is not None)


def test_one_compilation_in_the_middle_is_cold_and_the_rest_has_its_own_verdict() -> None:
    """80 ms of compute-bound steps around one operator that takes 100 ms once and 20 µs ever after."""
    builder, free, at = TraceBuilder(), 0, 0
    for number in range(1, 401):
        length = 100 * MS if number == 200 else 20 * US
        builder.op("aten::conv", at, length)
        builder.launch("cudaLaunchKernel", at + length - 10 * US, 5 * US, correlation=number)
        start = max(free, at + length - 4 * US)
        builder.kernel("conv", start, 200 * US, correlation=number)
        free, at = start + 200 * US, at + length + 2 * US
    report = diagnose(builder.build())
    assert report.verdict.regime == "cold"
    assert report.warm is not None
    assert report.warm.regime == "compute-bound"
    assert report.idle.host_starved.one_off_ns > 0.9 * report.totals.idle_ns


def test_the_profilers_own_rows_in_gaps_are_neither_work_nor_a_cause() -> None:
    """Overhead rows fill the gaps: they are no device work, they end no silence, and the reader is told of them."""
    plain = diagnose(host_paced().build())
    builder = TraceBuilder()
    for number in range(1, 301):
        builder.overhead("Buffer Flush", number * 20 * US + 12 * US, 10 * US)
    report = diagnose(host_paced(builder=builder).build())
    assert report.verdict.regime == plain.verdict.regime == "launch-bound"
    assert (report.totals.busy_ns, report.idle) == (plain.totals.busy_ns, plain.idle)
    (said,) = (finding for finding in report.findings if finding.code == "profiler-overhead")
    assert said.evidence["window_frac"] == pytest.approx(0.5, abs=0.02)


def saturated(batch: int, *, window_ms: int) -> TraceBuilder:
    """100 kernels, one after the other, queued long before they run."""
    builder = TraceBuilder(source=f"model_b{batch}.json")
    for number in range(1, 101):
        builder.op("aten::conv2d", number * 20 * US, 18 * US)
        builder.launch("cudaLaunchKernel", number * 20 * US + 3 * US, 5 * US, correlation=number)
        length = window_ms * MS // 100
        builder.kernel("conv", 40 * US + (number - 1) * length, length, correlation=number)
    return builder


def test_a_batch_twice_as_large_that_takes_twice_as_long_was_saturated_before() -> None:
    """0.46 s at 16 and 0.95 s at 32: the time per item is constant, the device the longer side, nothing gained."""
    traces = [saturated(16, window_ms=460).build(), saturated(32, window_ms=950).build()]
    reports = [diagnose(trace) for trace in traces]
    found = judge_set(traces, reports).null_experiment
    assert [report.verdict.regime for report in reports] == ["compute-bound"] * 2
    assert found is not None
    per_item = [point.window_ns / point.value for point in found.points]
    assert per_item[1] == pytest.approx(per_item[0], rel=0.05)
    assert found.knee_estimate is None
    assert "the device is the longer side everywhere" in found.so


@pytest.mark.parametrize("fetch_us", [2000, 6000])
def test_a_wait_does_not_hide_the_loader_behind_it(fetch_us: int) -> None:
    """Ten kernels of 300 µs, a wait for them, then a batch is fetched while the device has nothing to do.

    Without the wait, fetching and computing overlap; with a batch that is ready, nothing is fetched. What both would
    take off is given to the wait, and said of the loader as well.
    """
    builder, at, number = TraceBuilder(), 0, 0
    for step in range(5):
        begun, device = at, at + 10
        for _ in range(10):
            number += 1
            builder.op("aten::mm", at * US, 8 * US)
            builder.launch("cudaLaunchKernel", (at + 1) * US, 5 * US, correlation=number)
            builder.kernel("gemm", device * US, 300 * US, correlation=number)
            at, device = at + 10, device + 300
        builder.sync(at * US, (device - at) * US)
        waited_us = device - at
        builder.loader(device * US, fetch_us * US)
        at = device + fetch_us
        builder.step(step, begun * US, (at - begun) * US)
    report = diagnose(builder.build())
    both_us = min(waited_us, fetch_us)
    assert report.idle.synchronised_ns == pytest.approx(4 * both_us * US, rel=0.02)
    assert report.idle.host_starved.loader_ns == pytest.approx(4 * (fetch_us - both_us) * US, rel=0.02, abs=60 * US)
    behind = [step for step in report.verdict.evidence if step.name == "timeline: behind these waits, the data loader"]
    # Said where the waits lead, which is where it would be missed.
    shares = [pytest.approx(4 * both_us * US / report.totals.window_ns, rel=0.02)] if fetch_us < 2 * waited_us else []
    assert [step.value for step in behind] == shares
    (fetch,) = [remedy for remedy in report.remedies if remedy.attacks == "the data loader"]
    assert fetch.high_ns == pytest.approx(4 * fetch_us * US / 5, rel=0.02)


def stretched(rows: dict[str, str] | None = None, *, compiled: bool = False) -> TraceReport:
    """Five steps of ten small kernels; in each the host stands still for 10 ms, inside the given rows by kind."""
    builder, at, number = TraceBuilder(), 0, 0
    for step in range(5):
        begun = at
        for kind, name in (rows or {}).items():
            builder.row(kind, name, at * US, 10_000 * US)
        at += 10_000
        for _ in range(10):
            number += 1
            name = f"triton_poi_fused_{step}" if compiled else "aten::add"
            builder.op(name, at * US, 8 * US)
            builder.launch("cudaLaunchKernel", (at + 1) * US, 5 * US, correlation=number)
            builder.kernel("k", (at + 8) * US, 2 * US, correlation=number)
            at += 10
        builder.step(step, begun * US, (at - begun) * US)
    return diagnose(builder.build())


@pytest.mark.parametrize(
    ("rows", "where"),
    [
        ({"python_function": "queue.py(154): get", "user_annotation": "fetch"}, "queue.py(154): get"),
        ({"user_annotation": "fetch"}, "fetch"),
        ({}, None),
    ],
)
def test_a_pause_is_named_by_what_is_recorded_around_it(rows: dict[str, str], where: str | None) -> None:
    report = stretched(rows)
    assert report.verdict.regime == "mixed"
    assert report.idle.host_starved.pause_ns == pytest.approx(4 * 10_000 * US, rel=0.02)
    told = verdict_sentence(report.verdict, report)
    assert (f"The host stands still in {where}:" in told) is (where is not None)
    assert ("does not say why" in told) is (where is None)


def test_first_time_costs_in_every_step_are_no_warm_up() -> None:
    report = stretched(compiled=True)
    assert report.verdict.regime == "cold"
    assert any("no warm-up ends this" in step.so for step in report.verdict.evidence)
    assert [remedy.attacks for remedy in report.remedies if "first-time" in remedy.attacks] == [
        "first-time costs that recur"
    ]


def two_devices(*, told: bool, takes_turns: bool) -> TraceReport:
    """A host far ahead; layers of 2 ms on one device, then, after its event, layers of 2 ms on the other."""
    builder, at, device_us, number = TraceBuilder(), 0, 100, 0
    for _ in range(4):
        for device in (0, 1):
            if told:
                builder.launch("cudaStreamWaitEvent", at * US, 1 * US)
            for layer in range(10):
                number += 1
                builder.launch("cudaLaunchKernel", (at + 2) * US, 5 * US, correlation=number)
                begins = device_us + 5 + 200 * layer
                builder.kernel(
                    "gemm", begins * US, 199 * US, correlation=number, device=device, stream=7 + 100 * device
                )
                at += 8
            device_us += 2_010 if takes_turns else 1_500 if device == 0 else 2_600
    return diagnose(builder.build())


def test_devices_that_take_turns_are_seen_to_wait_for_one_another() -> None:
    report = two_devices(told=True, takes_turns=True)
    assert report.verdict.regime == "mixed"
    assert "Devices take turns" in verdict_sentence(report.verdict, report)
    assert report.idle.unseen_ns == 0
    # Each device waits three times for the four rounds of the other, 2 ms each.
    waited = pytest.approx(6 * 2_010 * US, rel=0.02)
    assert report.idle.dependency_ns == waited
    (remedy,) = [remedy for remedy in report.remedies if remedy.attacks == "devices that wait for one another"]
    assert remedy.high_ns == waited
    assert causes(report) == report.totals.idle_ns
    text = " ".join(render_text(compose(report), width=120, color=False).split())
    assert "added over 2 devices, = busy" in text


@pytest.mark.parametrize(("told", "takes_turns"), [(False, True), (True, False)])
def test_without_the_event_or_its_end_what_is_awaited_is_not_seen(*, told: bool, takes_turns: bool) -> None:
    report = two_devices(told=told, takes_turns=takes_turns)
    assert report.idle.unseen_ns > 0
    assert "Devices take turns" not in verdict_sentence(report.verdict, report)


@pytest.mark.parametrize("frames", [False, True])
def test_what_python_does_for_long_is_a_pause_whether_its_frames_are_recorded_or_not(*, frames: bool) -> None:
    """Five steps that prepare for 9 ms in plain Python and then launch twenty kernels of 100 µs within 200 µs."""
    builder, at, number, device = TraceBuilder(), 0, 0, 0
    for step in range(5):
        begun = at
        for _ in range(300):
            if frames:
                builder.python("tokenizers.py(10): encode", at * US, 29 * US)
            at += 30
        for _ in range(20):
            number += 1
            builder.op("aten::mm", at * US, 9 * US)
            builder.launch("cudaLaunchKernel", (at + 1) * US, 5 * US, correlation=number)
            device = max(device, at + 8) + 100
            builder.kernel("gemm", (device - 100) * US, 100 * US, correlation=number)
            at += 10
        builder.step(step, begun * US, (at - begun) * US)
    report = diagnose(builder.build())
    assert report.verdict.regime == "mixed"
    assert report.idle.host_starved.pause_ns == pytest.approx(4 * (9_200 - 2_000) * US, rel=0.02)
    assert ("stands still in tokenizers.py" in verdict_sentence(report.verdict, report)) is frames


def test_a_pause_behind_a_wait_that_costs_the_hosts_lead_is_said() -> None:
    """A checkpoint: the host is 18 ms ahead, waits for 30 copies to pageable memory, and then stands still for 40 ms.

    The gap is the pause's by its last copy, which took 300 µs. Without the waits the host would have stood still while
    the device worked, so that they are charged with most of it: that, too, the pause would take off alone.
    """
    builder, at, number, device = TraceBuilder(), 0, 0, 0
    for step in range(6):
        begun = at
        for _ in range(60):
            number += 1
            builder.op("aten::mm", at * US, 8 * US)
            builder.launch("cudaLaunchKernel", (at + 1) * US, 5 * US, correlation=number)
            device = max(device, at + 8) + 100
            builder.kernel("gemm", (device - 100) * US, 100 * US, correlation=number)
            at += 9
        for _ in range(30 if step == 2 else 0):
            number += 1
            begins = max(device, at + 4)
            device = begins + 300
            builder.launch("cudaMemcpyAsync", at * US, (device + 2 - at) * US, correlation=number)
            builder.memcpy(begins * US, 300 * US, name="Memcpy DtoH (Device -> Pageable)", correlation=number)
            at = device + 5
        at += 40_000 if step == 2 else 0
        builder.step(step, begun * US, (at - begun) * US)
    report = diagnose(builder.build())
    assert report.verdict.regime == "sync-bound"
    assert report.idle.synchronised_ns < 0.02 * report.totals.window_ns
    (behind,) = [step for step in report.verdict.evidence if step.name == "timeline: behind these waits, pauses"]
    (largest,) = [step for step in report.verdict.evidence if step.name == "timeline: largest loss, synchronised"]
    assert behind.value == pytest.approx(largest.value, rel=0.05)


@pytest.mark.parametrize(
    ("name", "regime"),
    [
        ("[pl][profile][_TrainingEpochLoop].train_dataloader_next", "input-bound"),
        ("[pl][profile][_EvaluationLoop].val_next", "input-bound"),
        ("[pl][profile]get_train_batch", "input-bound"),
        ("[pl][profile][Strategy]SingleDeviceStrategy.batch_to_device", "mixed"),
    ],
)
def test_a_trainer_waits_for_batches_of_any_loader(name: str, regime: str) -> None:
    """Lightning's own frame stands around loaders that are not torch's, too."""
    report = stretched({"user_annotation": name})
    assert report.verdict.regime == regime
    starved = report.idle.host_starved
    assert (starved.loader_ns if regime == "input-bound" else starved.pause_ns) == pytest.approx(
        4 * 10_000 * US, rel=0.02
    )


@pytest.mark.parametrize("blocking", [True, False])
def test_launches_that_wait_for_their_own_kernels_were_told_to(*, blocking: bool) -> None:
    """A hundred kernels of 60 µs; with blocking launches the call lasts until its kernel has ended."""
    builder, at, device = TraceBuilder(), 0, 0
    for number in range(1, 101):
        begins = max(device, at + 6)
        device = begins + 60
        call_us = device + 2 - at if blocking else 5
        builder.op("aten::mm", at * US, (call_us + 3) * US)
        builder.launch("cudaLaunchKernel", (at + 1) * US, call_us * US, correlation=number)
        builder.kernel("gemm", begins * US, 60 * US, correlation=number)
        at += call_us + 20
    report = diagnose(builder.build())
    assert ("launch-blocking" in {finding.code for finding in report.findings}) is blocking
    assert report.verdict.regime == ("sync-bound" if blocking else "compute-bound")
