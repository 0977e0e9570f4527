"""The whole measurement on fake devices, whose true times are known to the nanosecond."""

from __future__ import annotations

import gc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.bench.calibrate import Overhead
from referee.bench.guards import check_blocks
from referee.bench.loop import Block
from referee.bench.measure import measure
from referee.bench.plan import Plan, Progress
from referee.bench.raised import describe_error
from referee.bench.sampling import Sampled
from referee.device.fake import FakeAsync, FakeDevice, FakeLazy, FakeOutput, FakeSync
from referee.device.noise import AR1, Bimodal, Preemption, Slowdown, SlowFirst, VirtualClock
from referee.errors import OptionError
from referee.records.finding import Finding
from referee.records.measurement import Measurement
from referee.stats.summary import summarise
from referee.units import NS_PER_MS, NS_PER_S

US = 1_000
HOST, DEVICE = 5 * US, 20 * US

SHORT = Plan(budget_ns=60 * NS_PER_MS, min_ns=20 * NS_PER_MS)


def run(device: FakeDevice, *, host_ns: int = HOST, device_ns: int = DEVICE, plan: Plan = SHORT) -> Measurement:
    return measure(lambda: device.run(host_ns=host_ns, device_ns=device_ns), device=device, plan=plan)


def codes(measurement: Measurement) -> set[str]:
    return {finding.code for finding in measurement.findings}


times = st.integers(500, 80_000)
costs = st.sampled_from([0, 40, 300])


@given(host=times, device=times, read=costs, settle=st.sampled_from([0, 2_000]))
@settings(max_examples=15, deadline=None)
def test_synchronous_clocks_equal_the_truth(host: int, device: int, read: int, settle: int) -> None:
    found = run(FakeSync(read_ns=read, settle_ns=settle), host_ns=host, device_ns=device)
    assert found.median_ns == pytest.approx(host + device, abs=1e-6)
    assert found.clocks.settled_amortised_ns == found.median_ns == found.ci_low_ns == found.ci_high_ns
    assert found.clocks.settled_per_call_ns == pytest.approx(host + device, abs=1e-6)
    assert found.clocks.enqueue_ns is None
    assert found.clocks.device_ns is None
    assert found.naive_ns == pytest.approx(host + device, abs=1e-6)


@given(host=times, device=times, read=costs)
@settings(max_examples=15, deadline=None)
def test_asynchronous_clocks_equal_the_truth(host: int, device: int, read: int) -> None:
    found = run(FakeAsync(read_ns=read), host_ns=host, device_ns=device)
    calls = found.provenance.value("method.calls_per_block")
    assert isinstance(calls, int)
    # Whichever is slower sets the pace; the other is paid once, filling or draining the queue. The readings of the
    # clock pass while the device works, as long as it works for longer than they take.
    amortised = max(host, device) + min(host, device) / calls
    assert found.median_ns == pytest.approx(amortised, abs=1e-6)
    assert found.clocks.settled_per_call_ns == pytest.approx(host + device, abs=1e-6)
    assert found.clocks.enqueue_ns == pytest.approx(host, abs=1e-6)
    assert found.clocks.device_ns == pytest.approx(device, abs=1e-6)
    assert found.naive_ns == pytest.approx(host, abs=1e-6)


@given(host=times, device=times, read=costs)
@settings(max_examples=15, deadline=None)
def test_lazy_clocks_equal_the_truth(host: int, device: int, read: int) -> None:
    fake = FakeLazy(read_ns=read, compile_ns=3 * NS_PER_MS)
    found = run(fake, host_ns=host, device_ns=device)
    assert found.median_ns == pytest.approx(host + device, abs=1e-6)
    assert found.clocks.settled_per_call_ns == pytest.approx(host + device, abs=1e-6)
    assert found.clocks.enqueue_ns == pytest.approx(host, abs=1e-6)
    assert found.clocks.device_ns is None
    assert found.naive_ns == pytest.approx(host, abs=1e-6)
    assert fake.ops_dropped == 0, "every recorded call ran: none was timed without being run"
    assert "recompiled" not in codes(found), "the graph of a block is compiled before the clock counts"


def test_a_full_launch_queue_does_not_falsify_the_amortised_clock() -> None:
    fake = FakeAsync(queue_entries=16)
    found = run(fake)
    calls = found.provenance.value("method.calls_per_block")
    assert found.median_ns == pytest.approx(DEVICE + HOST / calls)  # type: ignore[operator]
    assert found.clocks.enqueue_ns == HOST


def test_a_step_that_waits_inside_blocks_the_enqueue_clock() -> None:
    fake = FakeAsync()

    def step() -> FakeOutput:
        out = fake.run(host_ns=HOST, device_ns=DEVICE)
        out.read()
        return out

    found = measure(step, device=fake, plan=SHORT)
    assert "enqueue-blocked" in codes(found)
    assert found.clocks.enqueue_ns == HOST + DEVICE


@pytest.mark.parametrize(("host", "device"), [(HOST, DEVICE), (DEVICE, HOST)])
def test_a_step_that_does_not_wait_is_not_said_to(host: int, device: int) -> None:
    assert "enqueue-blocked" not in codes(run(FakeAsync(), host_ns=host, device_ns=device))


def test_a_bimodal_step_gives_its_median_not_its_minimum() -> None:
    noise = Bimodal(host_ns=10 * US, slow_frac=0.7, seed=1)
    plan = Plan(budget_ns=60 * NS_PER_MS, min_ns=20 * NS_PER_MS, block_target_ns=1)
    found = run(FakeSync(noise=[noise]), plan=plan)
    assert found.median_ns == HOST + DEVICE + 10 * US
    assert min(found.samples_ns) == HOST + DEVICE
    assert "disturbed" in codes(found)


def test_correlated_noise_is_covered_at_the_stated_level() -> None:
    """AR(1) blocks: at least 93 % of nominal 95 % intervals hold the truth, of whole measurements."""
    hits, trials = 0, 120
    plan = Plan(budget_ns=12 * NS_PER_MS, min_ns=12 * NS_PER_MS, clocks=("settled_amortised",), block_target_ns=1)
    for seed in range(trials):
        noise = AR1(phi=0.8, sigma_ns=500, seed=seed)
        found = run(FakeSync(noise=[noise]), plan=plan)
        assert found.ci_low_ns is not None
        assert found.ci_high_ns is not None
        assert found.n_eff < found.n / 3
        hits += found.ci_low_ns <= HOST + DEVICE <= found.ci_high_ns
    assert hits / trials >= 0.93


def test_preempted_blocks_are_marked_and_left_out() -> None:
    clock = VirtualClock(preemptions=Preemption.every(NS_PER_MS, length_ns=3 * US * 100))
    found = run(FakeSync(clock=clock))
    assert found.median_ns == HOST + DEVICE
    assert not all(found.clean)
    assert found.blocks == len(found.samples_ns) == len(found.clean)
    assert found.n == sum(found.clean)
    assert max(found.samples_ns) > HOST + DEVICE, "the preempted blocks are kept in the record"
    dirty = [ns for ns, clean in zip(found.samples_ns, found.clean, strict=True) if not clean]
    assert min(dirty) > HOST + DEVICE


def test_no_clean_block_means_no_headline() -> None:
    """Every 25 µs call of the fake is preempted: as with more threads than idle cores."""
    clock = VirtualClock(preemptions=Preemption.every(12 * US, length_ns=8 * US))
    found = run(FakeSync(clock=clock))
    assert found.median_ns is None
    assert found.ci_low_ns is None
    assert found.floor_ns is None
    assert found.clocks.settled_amortised_ns is None
    assert [f.severity for f in found.findings if f.code == "no-clean-block"] == ["fatal"]
    assert found.samples_ns, "the samples are kept all the same"


def test_a_long_step_may_be_preempted_now_and_then() -> None:
    """A step of two seconds is never without an involuntary switch: that alone does not forbid the number."""
    clock = VirtualClock(preemptions=Preemption.every(NS_PER_S // 2, length_ns=50 * US))
    found = run(FakeSync(clock=clock), device_ns=2 * NS_PER_S)
    assert found.median_ns == pytest.approx(2 * NS_PER_S, rel=1e-3)
    assert not any(found.clean)
    assert {"few-samples", "disturbed"} <= codes(found)


def test_an_episode_of_slowness_without_a_switch_is_called_disturbed() -> None:
    slow = Slowdown(start_ns=20 * NS_PER_MS, end_ns=90 * NS_PER_MS, percent=130)
    found = run(FakeSync(clock=VirtualClock(slowdowns=[slow])))
    assert "disturbed" in codes(found)
    assert found.floor_ns == HOST + DEVICE


@pytest.mark.parametrize(("percent", "told"), [(105, True), (102, False)])
def test_an_episode_that_spares_a_few_of_many_blocks_is_called_disturbed(percent: int, told: bool) -> None:
    """Blocks of 150 us for half a second; the last 94 % of it are slow, so that the low decile is slow as well."""
    slow = Slowdown(start_ns=65 * NS_PER_MS, end_ns=5 * NS_PER_S, percent=percent)
    found = run(FakeSync(clock=VirtualClock(slowdowns=[slow])), plan=Plan())
    clean = sorted(ns for ns, counts in zip(found.samples_ns, found.clean, strict=True) if counts)
    assert clean[len(clean) // 10] > HOST + DEVICE, "the low decile shows nothing"
    assert ("disturbed" in codes(found)) is told
    if told:
        evidence = next(f for f in found.findings if f.code == "disturbed").evidence
        assert evidence["p5_ns"] == HOST + DEVICE
        assert evidence["ratio"] == pytest.approx(1.05, abs=0.005)


def test_a_slow_first_call_changes_neither_the_blocks_nor_the_number() -> None:
    slow = SlowFirst(host_ns=NS_PER_S)
    found = run(FakeSync(noise=[slow]))
    assert found.median_ns == HOST + DEVICE
    assert found.warmup.first_call_ns == NS_PER_S + HOST + DEVICE
    assert found.warmup.steady_after == 1
    assert found.provenance.value("method.calls_per_block") == run(FakeSync()).provenance.value(
        "method.calls_per_block"
    )
    assert found.blocks > 100, "the first call is not taken from the budget"


@pytest.mark.parametrize("second_ns", [NS_PER_MS, 10 * NS_PER_MS])
def test_the_second_identical_call_may_be_slow_as_well_and_the_third_is_the_step(second_ns: int) -> None:
    """CUDA graphs: compile, record, then the step. No fixed count of warm-up calls says where it begins."""
    found = run(FakeSync(noise=[SlowFirst(host_ns=NS_PER_S), SlowFirst(host_ns=second_ns, calls=2)]))
    assert found.median_ns == HOST + DEVICE
    assert found.warmup.steady
    assert found.warmup.steady_after == 2


def test_compilation_is_apart_from_the_first_call_and_the_steady_state() -> None:
    fake = FakeLazy(compile_ns=80 * NS_PER_MS)
    found = run(fake)
    assert found.warmup.compiles == 1
    assert found.warmup.compile_ns == 80 * NS_PER_MS
    assert found.warmup.first_call_ns == 80 * NS_PER_MS + HOST + DEVICE
    assert found.median_ns == HOST + DEVICE


def test_a_recompilation_in_the_window_forbids_the_number_and_is_named() -> None:
    fake = FakeLazy(compile_ns=US)
    width = iter(range(1_000_000))

    def changing() -> FakeOutput:
        return fake.run(host_ns=HOST, device_ns=DEVICE, key=next(width))

    found = measure(changing, device=fake, plan=SHORT)
    assert found.median_ns is None
    finding = next(f for f in found.findings if f.code == "recompiled")
    assert finding.severity == "fatal"
    assert finding.evidence["counter"] == "UncachedCompile"
    assert isinstance(finding.evidence["by"], int)


def test_another_counter_that_moves_is_a_warning() -> None:
    fake = FakeSync()

    def step() -> FakeOutput:
        fake.bump("cuda.device_allocs")
        return fake.run(host_ns=HOST)

    found = measure(step, device=fake, plan=SHORT)
    assert found.median_ns == HOST
    assert [f.severity for f in found.findings if f.code == "counter-moved"] == ["warning"]


def test_a_drifting_step_is_not_steady() -> None:
    fake = FakeSync()
    cost = iter(range(100 * US, 10**9, 20 * US))
    found = measure(lambda: fake.run(host_ns=next(cost)), device=fake, plan=SHORT)
    assert not found.warmup.steady
    assert "not-steady" in codes(found)


@pytest.mark.parametrize("make", [FakeSync, FakeAsync, FakeLazy])
@pytest.mark.parametrize("budget_ms", [20, 200])
def test_the_budget_is_kept(make: type[FakeDevice], budget_ms: int) -> None:
    fake = make(noise=[AR1(phi=0.5, sigma_ns=2_000, seed=3)])
    plan = Plan(budget_ns=budget_ms * NS_PER_MS, min_ns=budget_ms * NS_PER_MS, precision_frac=1e-9)
    found = run(fake, plan=plan)
    assert found.stop_reason == "budget"
    assert fake.clock.now_ns <= budget_ms * NS_PER_MS * 1.1 + 4 * fake.block_target_ns


def test_a_precise_measurement_ends_early_and_says_so() -> None:
    fake = FakeSync()
    found = run(fake, plan=Plan(budget_ns=NS_PER_S, min_ns=30 * NS_PER_MS))
    assert found.stop_reason == "precise"
    assert fake.clock.now_ns < NS_PER_S / 2


def test_the_number_of_blocks_can_be_limited() -> None:
    found = run(FakeSync(), plan=Plan(max_blocks=7))
    assert (found.stop_reason, found.blocks) == ("blocks", 7)


def test_a_long_step_gets_three_blocks_whatever_the_budget() -> None:
    found = run(FakeSync(), device_ns=3 * NS_PER_S)
    assert found.blocks == 3
    assert found.median_ns == 3 * NS_PER_S + HOST
    assert found.clocks.settled_per_call_ns == found.median_ns
    assert "few-samples" in codes(found)


def test_an_interrupt_keeps_what_was_measured() -> None:
    fake = FakeSync()
    calls = iter(range(3_000))

    def step() -> FakeOutput:
        if next(calls) == 2_500:
            raise KeyboardInterrupt
        return fake.run(host_ns=HOST, device_ns=DEVICE)

    found = measure(step, device=fake)
    assert found.stop_reason == "interrupted"
    assert found.median_ns == HOST + DEVICE
    assert "interrupted" in codes(found)


@pytest.mark.parametrize("ended", [KeyboardInterrupt(), ValueError("no more")])
def test_what_is_cut_short_claims_no_block_that_does_not_count(ended: BaseException) -> None:
    """The number stands on the blocks that nothing preempted."""
    first_ns = 100 * NS_PER_MS
    fake = FakeSync(clock=VirtualClock(preemptions=Preemption.every(3 * first_ns, length_ns=4 * NS_PER_MS)))
    left = iter(range(30))

    def step() -> FakeOutput:
        if next(left, None) is None:
            raise ended
        return fake.run(host_ns=first_ns)

    found = measure(step, device=fake, plan=Plan(budget_ns=100 * NS_PER_S, min_ns=NS_PER_S, warmup_max_calls=10))
    said = {finding.code: finding for finding in found.findings}
    cut = said.get("interrupted") or said["step-raised"]
    assert 0 < found.n < found.blocks
    assert f"stands on what counts of the {found.blocks}" in cut.message or "what counts of those" in cut.message
    assert said["few-samples"].message == f"The number stands on {found.n} blocks."
    assert said["few-samples"].hint == "Let it run to its end."


def test_an_interrupt_before_the_first_block_is_passed_on() -> None:
    def step() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(step, device=FakeSync())


def test_the_garbage_collector_is_left_as_it_was() -> None:
    seen: set[bool] = set()
    fake = FakeSync()

    def step() -> FakeOutput:
        seen.add(gc.isenabled())
        return fake.run(host_ns=HOST)

    assert gc.isenabled()
    found = measure(step, device=fake, plan=SHORT)
    assert gc.isenabled()
    assert seen == {False}
    assert "disabled" in str(found.provenance.value("method.gc"))


def test_what_the_step_raises_passes_through_and_the_collector_recovers() -> None:
    def step() -> None:
        raise ZeroDivisionError("in the step")

    with pytest.raises(ZeroDivisionError):
        measure(step, device=FakeSync())
    assert gc.isenabled()


def test_a_fatal_finding_given_by_the_caller_forbids_the_headline() -> None:
    given_finding = Finding(code="zero-inputs", severity="fatal", message="Every input is zero.")
    fake = FakeSync()
    found = measure(lambda: fake.run(host_ns=HOST), device=fake, plan=SHORT, findings=[given_finding])
    assert found.findings[0] is given_finding
    assert found.median_ns is None


def test_outputs_of_a_lazy_block_are_kept_until_settled_and_no_longer() -> None:
    fake = FakeLazy()
    run(fake)
    assert fake.ops_pending == 0
    assert fake.ops_executed == fake.ops_recorded


def test_progress_is_reported_and_never_runs_backwards_within_a_stage() -> None:
    seen: list[Progress] = []
    fake = FakeSync()
    plan = Plan(budget_ns=500 * NS_PER_MS, min_ns=500 * NS_PER_MS)
    measure(lambda: fake.run(host_ns=HOST), device=fake, plan=plan, progress=seen.append)
    assert {p.stage for p in seen} >= {"warm-up", "calibrating", "measuring"}
    fracs = [p.frac for p in seen if p.stage == "measuring"]
    assert fracs == sorted(fracs)
    assert all(0 <= p.frac <= 1 for p in seen)


@pytest.mark.parametrize(
    "options",
    [
        {"budget_ns": 0},
        {"level": 1.0},
        {"precision_frac": 0.0},
        {"block_target_ns": 0},
        {"max_blocks": 1},
        {"clocks": ("wrong",)},
    ],
)
def test_plans_that_make_no_sense_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        Plan(**options)  # type: ignore[arg-type]


def test_what_prepares_each_call_is_not_in_its_time() -> None:
    fake = FakeSync()
    prepared = 0

    def flush() -> None:
        nonlocal prepared
        prepared += 1
        fake.clock.advance(100 * US)

    found = measure(
        lambda: fake.run(host_ns=HOST), device=fake, plan=SHORT, prepare=flush, method={"cache_state": "flushed"}
    )
    assert found.median_ns == HOST
    assert prepared == found.blocks
    assert found.provenance.value("method.calls_per_block") == 1
    assert found.provenance.value("method.cache_state") == "flushed"


def test_a_measurement_reads_as_one_line_without_its_samples() -> None:
    words = repr(run(FakeSync()))
    assert "25.0 µs" in words
    assert "blocks" in words
    assert len(words) < 400


def test_an_interrupt_during_the_other_clocks_keeps_the_headline() -> None:
    fake = FakeSync()
    plan = Plan(budget_ns=60 * NS_PER_MS, min_ns=20 * NS_PER_MS)
    calls, total = 0, 10**9

    def step() -> FakeOutput:
        nonlocal calls
        calls += 1
        if calls >= total:
            raise KeyboardInterrupt
        return fake.run(host_ns=HOST, device_ns=DEVICE)

    measure(step, device=fake, plan=replace(plan, clocks=("settled_amortised",)))
    alone, calls, total = calls, 0, calls + 1
    fake.clock = VirtualClock()
    found = measure(step, device=fake, plan=plan)
    assert alone < total
    assert found.stop_reason == "interrupted"
    assert found.median_ns == HOST + DEVICE
    assert found.clocks.settled_per_call_ns is None


class Accounted(FakeSync):
    """A fake whose kernel keeps account: preemptions of one length, the rest computed."""

    def __init__(self, *, period_ns: int, length_ns: int) -> None:
        super().__init__(clock=VirtualClock(preemptions=Preemption.every(period_ns, length_ns=length_ns)))
        self.length_ns = length_ns

    def processor_times(self) -> tuple[int, int]:
        waited = self.clock.switches * self.length_ns
        return self.clock.now_ns - waited, waited


def test_a_long_step_that_is_always_preempted_is_told_less_what_others_had() -> None:
    """20 ms of work beside a busy process: 4 ms lost in every 8 ms, so that a clock on the wall reads 40 ms."""
    fake = Accounted(period_ns=8 * NS_PER_MS, length_ns=4 * NS_PER_MS)
    found = run(fake, host_ns=0, device_ns=20 * NS_PER_MS, plan=Plan())
    assert not any(found.clean)
    assert found.median_ns == 20 * NS_PER_MS
    finding = next(f for f in found.findings if f.code == "disturbed")
    assert finding.evidence["subtracted"] is True
    assert finding.evidence["stolen_frac"] == pytest.approx(0.5, abs=0.1)
    assert "less what other processes had" in str(found.provenance.value("method.statistic"))


def test_where_others_had_nearly_everything_there_is_no_headline() -> None:
    fake = Accounted(period_ns=8 * NS_PER_MS, length_ns=7 * NS_PER_MS)
    found = run(fake, host_ns=0, device_ns=20 * NS_PER_MS, plan=Plan())
    assert found.median_ns is None
    assert "no-clean-block" in codes(found)


def test_a_step_that_sleeps_is_not_taken_for_one_that_was_preempted() -> None:
    """The wall runs on while it sleeps: that is its time, whatever the processor did."""
    fake = Accounted(period_ns=3 * NS_PER_MS, length_ns=US)

    def step() -> FakeOutput:
        fake.clock.wait_until(fake.clock.now_ns + 10 * NS_PER_MS)
        return fake.run(host_ns=10 * NS_PER_MS)

    found = measure(step, device=fake, plan=Plan())
    assert found.median_ns == pytest.approx(20 * NS_PER_MS, rel=0.001)


def test_what_the_wall_clock_says_can_be_kept() -> None:
    fake = Accounted(period_ns=8 * NS_PER_MS, length_ns=4 * NS_PER_MS)
    found = run(fake, host_ns=0, device_ns=20 * NS_PER_MS, plan=Plan(subtract_stolen=False))
    assert min(found.samples_ns) >= 36 * NS_PER_MS
    assert found.median_ns is None


@pytest.mark.parametrize("error", [StopIteration(), SystemExit(0)])
def test_a_step_that_raises_late_keeps_what_was_measured(error: BaseException) -> None:
    device = FakeSync()
    left = iter(range(20_000))

    def step() -> FakeOutput:
        if next(left, None) is None:
            raise error
        return device.run(host_ns=HOST)

    found = measure(step, device=device, plan=replace(SHORT, budget_ns=NS_PER_S, min_ns=NS_PER_S))
    assert found.stop_reason == "raised"
    assert found.median_ns == HOST
    raised = next(f for f in found.findings if f.code == "step-raised")
    assert raised.evidence == {"blocks": found.blocks, "error": describe_error(error)}


def test_a_step_that_raises_before_three_blocks_is_no_measurement() -> None:
    device = FakeSync()
    left = iter(range(3))

    def step() -> FakeOutput:
        next(left)
        return device.run(host_ns=HOST)

    with pytest.raises(StopIteration):
        measure(step, device=device, plan=SHORT)


def test_an_interrupted_warm_up_says_what_is_known() -> None:
    device = FakeSync()
    left = iter(range(2))

    def step() -> FakeOutput:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return device.run(host_ns=NS_PER_S)

    with pytest.raises(KeyboardInterrupt, match=r"after 2 calls \(the first took 1\.00 s, the last 1\.00 s\)"):
        measure(step, device=device, plan=SHORT)


def test_what_a_step_raises_in_the_warm_up_says_how_far_it_had_come() -> None:
    device = FakeSync()
    left = iter(range(2))

    def step() -> FakeOutput:
        next(left)
        return device.run(host_ns=NS_PER_S)

    with pytest.raises(StopIteration) as raised:
        measure(step, device=device, plan=SHORT)
    assert "in the warm-up after 2 calls (the first took 1.00 s, the last 1.00 s)" in raised.value.__notes__[0]


class Occupied(FakeSync):
    """A device whose process is occupied for a share of the time that passes, and sleeps for the rest."""

    occupied_frac = 1.0

    def occupied_ns(self) -> int:
        return int(self.clock.now_ns * self.occupied_frac)


@pytest.mark.parametrize(("occupied", "told"), [(1.0, False), (0.9, False), (0.5, True), (0.02, True)])
def test_a_step_that_waits_without_computing_is_told(occupied: float, told: bool) -> None:
    device = Occupied()
    device.occupied_frac = occupied
    waits = [f for f in run(device).findings if f.code == "host-waits"]
    assert len(waits) == told
    for finding in waits:
        assert finding.evidence["waited_frac"] == pytest.approx(1 - occupied, abs=0.01)


def test_calls_that_a_recording_backend_merges_have_no_headline_though_no_inputs_are_fresh() -> None:
    device = FakeLazy(merge_identical=True)
    found = measure(lambda: device.run(host_ns=HOST, device_ns=200_000, key="same"), device=device, plan=SHORT)
    (finding,) = [f for f in found.findings if f.severity == "fatal"]
    assert (finding.code, found.median_ns) == ("work-did-not-run", None)
    assert "of one call that is settled alone" in finding.message
    assert "equal calls that are recorded together may be merged" in finding.hint
    assert found.clocks.settled_per_call_ns == pytest.approx(HOST + 200_000, rel=0.01)


def test_calls_that_a_recording_backend_runs_keep_their_headline_though_no_inputs_are_fresh() -> None:
    device = FakeLazy()
    found = measure(lambda: device.run(host_ns=HOST, device_ns=200_000, key="same"), device=device, plan=SHORT)
    assert [f.code for f in found.findings if f.severity == "fatal"] == []


@pytest.mark.parametrize(
    ("clean", "words"),
    [(0, "None of 8 blocks was free"), (1, "Only 1 of 8 blocks was free"), (2, "Only 2 of 8 blocks were free")],
)
def test_how_few_blocks_were_in_peace_is_said_as_one_says_it(clean: int, words: str) -> None:
    blocks = tuple(Block(1, 10**9, 10**9, int(index >= clean)) for index in range(8))
    sampled = Sampled(blocks=blocks, stop_reason="budget", overhead=Overhead(read_ns=0, loop_ns=0.0))
    findings = check_blocks(sampled, summary=summarise(np.full(8, 1e9)))
    assert next(f for f in findings if f.code == "disturbed").message.startswith(words)
