from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

import pytest

from referee.bench.compare import Candidate, compare
from referee.bench.plan import Plan
from referee.device.fake import FakeAsync, FakeDevice, FakeLazy, FakeOutput, FakeSync
from referee.device.noise import AR1, Preemption, Slowdown, VirtualClock
from referee.errors import OptionError
from referee.records.compare import Comparison
from referee.records.finding import Finding
from referee.records.provenance import TensorSpec
from referee.records.schema import from_json, to_json
from referee.units import NS_PER_MS, NS_PER_S

US = 1_000
PLAN = Plan(budget_ns=150 * NS_PER_MS)


@dataclass(frozen=True)
class Observed:
    """What an observer saw, as far as a comparison wants to know."""

    dtype: str = "float32"
    shapes: Sequence[TensorSpec] = ()
    findings: tuple[Finding, ...] = field(default_factory=tuple)
    devices: tuple[str, ...] = ()


def candidate(device: FakeDevice, name: str, *, host_us: float = 5, device_us: float = 20, **more: object) -> Candidate:
    def step() -> FakeOutput:
        return device.run(host_ns=int(host_us * US), device_ns=int(device_us * US))

    return Candidate(name=name, step=step, **more)  # type: ignore[arg-type]


def codes(found: Comparison) -> list[str]:
    return [finding.code for finding in found.findings]


@pytest.mark.parametrize("make", [FakeSync, FakeAsync, FakeLazy])
def test_a_planted_slow_down_is_found_with_its_size(make: type[FakeDevice]) -> None:
    device = make(noise=[AR1(phi=0.5, sigma_ns=300, seed=2)])
    # Three percent of the device's part; on the asynchronous device that is the whole pace.
    slow = candidate(device, "b", device_us=20.6, host_us=5.15)
    found = compare([candidate(device, "a"), slow], device=device, plan=Plan(budget_ns=NS_PER_S))
    assert found.answer == "slower"
    assert found.ratio == pytest.approx(1.03, abs=0.006)
    assert found.ci_low is not None
    assert found.ci_high is not None
    assert 1 < found.ci_low <= found.ratio <= found.ci_high
    assert found.aa_ratio_low is not None
    assert found.aa_ratio_high is not None
    assert found.aa_ratio_low <= 1 <= found.aa_ratio_high


class Sleepy(FakeSync):
    """A device whose process knows how long it slept."""

    def __init__(self) -> None:
        super().__init__()
        self.slept_ns = 0

    def occupied_ns(self) -> int:
        return self.clock.now_ns - self.slept_ns

    def sleep(self, ns: int) -> None:
        self.clock.advance(ns)
        self.slept_ns += ns


@pytest.mark.parametrize("sleep_us", [100, 30_000_000])
def test_a_side_that_waits_without_computing_is_told_by_its_name(sleep_us: int) -> None:
    device = Sleepy()

    def waits() -> FakeOutput:
        device.sleep(sleep_us * US)
        return device.run(host_ns=5 * US)

    plan = Plan(budget_ns=max(150 * NS_PER_MS, 20 * sleep_us * US))
    found = compare([candidate(device, "a"), Candidate(name="b", step=waits)], device=device, plan=plan)
    assert found.answer == "slower"
    (finding,) = [each for each in found.findings if each.code == "host-waits"]
    assert finding.severity == "warning"
    assert finding.message.startswith("b: ")
    assert "The ratio is of the waiting" in finding.message
    assert finding.evidence["side"] == "b"
    assert finding.evidence["waited_frac"] == pytest.approx(sleep_us / (sleep_us + 5))


def test_sides_that_compute_are_not_said_to_wait() -> None:
    device = Sleepy()
    found = compare([candidate(device, "a"), candidate(device, "b")], device=device, plan=PLAN)
    assert "host-waits" not in codes(found)


@pytest.mark.parametrize("error", [StopIteration(), SystemExit(0)])
def test_a_side_that_raises_late_keeps_the_quads_that_were_complete(error: BaseException) -> None:
    device = FakeSync()
    left = iter(range(20_000))

    def ends() -> FakeOutput:
        if next(left, None) is None:
            raise error
        return device.run(host_ns=5 * US, device_ns=10 * US)

    plan = Plan(budget_ns=10 * NS_PER_S)
    found = compare([candidate(device, "a"), Candidate(name="b", step=ends)], device=device, plan=plan)
    assert (found.answer, found.stop_reason) == ("faster", "raised")
    assert found.ratio == pytest.approx(15 / 25)
    (finding,) = [each for each in found.findings if each.code == "step-raised"]
    assert finding.message.startswith(f"b: The step raised {type(error).__name__}")
    assert "The answer stands on" in finding.message


def test_a_side_that_raises_before_two_quads_is_no_comparison() -> None:
    device = FakeSync()
    left = iter(range(30))

    def ends() -> FakeOutput:
        next(left)
        return device.run(host_ns=0, device_ns=NS_PER_S)

    plan = Plan(budget_ns=100 * NS_PER_S, warmup_ns=20 * NS_PER_S)
    with pytest.raises(StopIteration):
        compare([Candidate(name="a", step=ends), Candidate(name="b", step=ends)], device=device, plan=plan)


def test_too_few_quads_of_long_calls_are_told_with_the_budget_that_gives_enough() -> None:
    device = FakeSync()
    sides = [candidate(device, name, device_us=1_200_000) for name in ("a", "b")]
    found = compare(sides, device=device, plan=Plan(budget_ns=NS_PER_S))
    (finding,) = [each for each in found.findings if each.code == "few-samples"]
    seconds = int(finding.hint.removeprefix("Give --budget ").removesuffix("s."))
    enough = compare(sides, device=device, plan=Plan(budget_ns=seconds * NS_PER_S))
    assert enough.answer == "same"
    assert seconds < 4 * 2 * 1.3 * 8 * 1.5


def test_sides_whose_calls_a_recording_backend_merges_are_refused_though_no_inputs_are_fresh() -> None:
    """Merged, a side with more to do seemed ten times as fast."""
    device = FakeLazy(merge_identical=True)

    def side(name: str, device_us: int) -> Candidate:
        return Candidate(name=name, step=lambda: device.run(host_ns=5 * US, device_ns=device_us * US, key=name))

    found = compare([side("a", 200), side("b", 300)], device=device, plan=PLAN)
    assert (found.answer, found.ratio) == ("cannot-tell", None)
    refused = [(each.code, each.evidence["side"]) for each in found.findings if each.severity == "fatal"]
    assert refused == [("work-did-not-run", "a"), ("work-did-not-run", "b")]


def test_the_ratio_is_time_b_over_time_a() -> None:
    device = FakeSync()
    found = compare([candidate(device, "a"), candidate(device, "b", device_us=10)], device=device, plan=PLAN)
    assert found.answer == "faster"
    assert found.ratio == pytest.approx(15 / 25)


def test_the_same_code_is_the_same() -> None:
    device = FakeSync(noise=[AR1(phi=0.8, sigma_ns=400, seed=4)])
    found = compare([candidate(device, "a"), candidate(device, "b")], device=device, plan=PLAN)
    assert found.answer == "same"
    assert found.ratio == pytest.approx(1, abs=0.005)


def test_a_machine_that_slows_down_half_way_does_not_decide_the_answer() -> None:
    """Sequential arms would read B 40 % slower."""
    clock = VirtualClock(slowdowns=[Slowdown(start_ns=100 * NS_PER_MS, end_ns=10 * NS_PER_S, percent=140)])
    device = FakeSync(clock=clock)
    found = compare([candidate(device, "a"), candidate(device, "b")], device=device, plan=PLAN)
    assert found.answer == "same"


def test_preempted_blocks_do_not_enter() -> None:
    clock = VirtualClock(preemptions=Preemption.every(2 * NS_PER_MS, length_ns=NS_PER_MS))
    device = FakeSync(clock=clock)
    found = compare([candidate(device, "a"), candidate(device, "b")], device=device, plan=PLAN)
    assert found.answer == "same"
    assert found.ratio == 1
    assert found.sides[0].clean_blocks < found.sides[0].blocks


def test_more_than_two_candidates_are_each_held_against_the_first() -> None:
    device = FakeSync()
    sides = [candidate(device, "a"), candidate(device, "b", device_us=30), candidate(device, "c", device_us=15)]
    found = compare(sides, device=device, plan=PLAN)
    assert [(p.name, p.answer) for p in found.pairs] == [("b", "slower"), ("c", "faster")]
    assert found.pairs[1].ratio == pytest.approx(20 / 25)
    assert (found.ratio, found.answer) == (found.pairs[0].ratio, "slower")


def test_sides_in_different_grad_modes_are_not_comparable() -> None:
    device = FakeSync()
    ran: list[str] = []
    a = candidate(device, "eager", switches={"grad_mode": "no_grad"})
    b = candidate(device, "compiled", switches={"grad_mode": "grad", "compile": "inductor"})
    found = compare([a, b], device=device, plan=PLAN)
    assert found.answer == "cannot-tell"
    assert found.ratio is None
    finding = next(f for f in found.findings if f.code == "not-comparable")
    assert finding.severity == "fatal"
    assert "switches.grad_mode" in finding.message
    assert "no_grad" in finding.message
    assert [d.path for d in found.pairs[0].differences] == ["switches.grad_mode"]
    assert not ran


@pytest.mark.parametrize(
    ("path", "switches"),
    [
        (
            "switches.float32_matmul_precision",
            ({"float32_matmul_precision": "highest"}, {"float32_matmul_precision": "high"}),
        ),
        ("switches.autocast", ({"autocast": "off"}, {"autocast": "cpu bfloat16"})),
        ("switches.autocast_site", ({"autocast_site": "inside the step"}, {"autocast_site": "around the step"})),
        ("switches.tf32_matmul", ({"tf32_matmul": False}, {"tf32_matmul": True})),
    ],
)
def test_switches_that_change_speed_must_agree(path: str, switches: tuple[dict[str, str], dict[str, str]]) -> None:
    device = FakeSync()
    sides = [candidate(device, n, switches=s) for n, s in zip("ab", switches, strict=True)]
    refused = compare(sides, device=device, plan=PLAN)
    assert (refused.answer, codes(refused)) == ("cannot-tell", ["not-comparable"])
    allowed = compare(sides, device=device, plan=PLAN, ignoring=[path])
    assert allowed.answer == "same"


def test_a_difference_in_dtype_must_be_declared() -> None:
    device = FakeSync()
    a = candidate(device, "fp32", observation=Observed())
    b = candidate(device, "bf16", observation=Observed(dtype="bfloat16"))
    assert compare([a, b], device=device, plan=PLAN).answer == "cannot-tell"
    assert compare([a, b], device=device, plan=PLAN, ignoring=["dtype"]).answer == "same"


def test_a_recompilation_in_the_window_forbids_the_answer() -> None:
    device = FakeLazy()
    width = iter(range(1_000_000))
    b = Candidate(name="b", step=lambda: device.run(host_ns=5 * US, device_ns=20 * US, key=next(width)))
    found = compare([candidate(device, "a"), b], device=device, plan=PLAN)
    assert found.answer == "cannot-tell"
    assert "recompiled" in codes(found)


def test_a_fatal_finding_of_one_side_forbids_the_answer() -> None:
    device = FakeSync()
    zeros = Finding(code="zero-inputs", severity="fatal", message="Every input is zero.")
    found = compare([candidate(device, "a"), candidate(device, "b", findings=(zeros,))], device=device, plan=PLAN)
    assert found.answer == "cannot-tell"
    assert found.why == "b: Every input is zero."


def test_too_short_a_budget_cannot_tell_and_says_what_would_mend_it() -> None:
    device = FakeSync()
    found = compare(
        [candidate(device, "a"), candidate(device, "b", device_us=40)],
        device=device,
        plan=Plan(budget_ns=5 * NS_PER_MS),
    )
    assert found.answer == "cannot-tell"
    assert "few-samples" in codes(found)


def test_long_steps_need_fewer_quads() -> None:
    device = FakeSync()
    sides = [candidate(device, "a", device_us=20_000), candidate(device, "b", device_us=21_000)]
    found = compare(sides, device=device, plan=Plan(budget_ns=NS_PER_S))
    assert found.answer == "slower"
    assert found.pairs[0].clean_quads < 30


class Accounted(FakeSync):
    """A fake whose kernel keeps account: preemptions of one length, the rest computed."""

    def __init__(self, *, period_ns: int, length_ns: int) -> None:
        super().__init__(clock=VirtualClock(preemptions=Preemption.every(period_ns, length_ns=length_ns)))
        self.length_ns = length_ns

    def processor_times(self) -> tuple[int, int]:
        waited = self.clock.switches * self.length_ns
        return self.clock.now_ns - waited, waited


def test_long_steps_beside_busy_processes_are_told_less_what_those_had() -> None:
    """Calls of 12 ms that lose 4 ms in every 7: no call is left in peace, and the difference is found all the same."""
    device = Accounted(period_ns=7 * NS_PER_MS, length_ns=4 * NS_PER_MS)
    sides = [candidate(device, "a", device_us=12_000), candidate(device, "b", device_us=12_360)]
    found = compare(sides, device=device, plan=Plan(budget_ns=3 * NS_PER_S))
    assert found.answer == "slower"
    assert found.ratio == pytest.approx(1.03, abs=0.001)
    assert next(f for f in found.findings if f.code == "disturbed").evidence["subtracted"] is True
    kept = compare(sides, device=device, plan=Plan(budget_ns=3 * NS_PER_S, subtract_stolen=False))
    assert kept.answer == "cannot-tell"
    assert "few-samples" in codes(kept)


def test_a_block_after_the_other_sides_is_preceded_by_an_untimed_call() -> None:
    device = FakeSync()
    calls: list[str] = []

    def side(name: str) -> Candidate:
        def step() -> FakeOutput:
            calls.append(name)
            return device.run(host_ns=400 * US)

        return Candidate(name=name, step=step)

    found = compare([side("a"), side("b")], device=device, plan=PLAN)
    # A block is one call. A B B A then comes as A, b B B, a A, where small letters are not timed.
    assert [side.calls_per_block for side in found.sides] == [1, 1]
    taken = "".join(calls)
    runs = ["".join(run) for _, run in groupby(taken[taken.rindex("a" * 5) :])]
    assert all(len(run) > 1 for run in runs[1:-1])
    assert "bbb" in runs


def test_an_interrupt_keeps_the_quads_that_were_complete() -> None:
    device = FakeSync()
    calls = iter(range(10**6))

    def step() -> FakeOutput:
        if next(calls) == 6_000:
            raise KeyboardInterrupt
        return device.run(host_ns=5 * US, device_ns=20 * US)

    found = compare(
        [candidate(device, "a"), Candidate(name="b", step=step)], device=device, plan=Plan(budget_ns=NS_PER_S)
    )
    assert found.stop_reason == "interrupted"
    assert found.answer == "same"


def test_one_candidate_or_two_of_one_name_are_refused() -> None:
    device = FakeSync()
    with pytest.raises(OptionError, match="two candidates"):
        compare([candidate(device, "a")], device=device)
    with pytest.raises(OptionError, match="name"):
        compare([candidate(device, "a"), candidate(device, "a")], device=device)


def test_a_comparison_survives_saving_and_loading() -> None:
    device = FakeSync()
    found = compare([candidate(device, "a"), candidate(device, "b")], device=device, plan=PLAN)
    assert from_json(to_json(found)) == found


@pytest.mark.parametrize("call_us", [20, 300, 2_000])
def test_twins_that_push_each_other_out_of_the_cache_are_the_same(call_us: int) -> None:
    """A call after the other side's costs 5 % more, as with weights that just fit the cache: neither side is slower."""
    device = FakeSync(noise=[AR1(phi=0.3, sigma_ns=200, seed=5)])
    last = ""

    def twin(name: str) -> Candidate:
        def step() -> FakeOutput:
            nonlocal last
            cold, last = last != name, name
            return device.run(host_ns=call_us * US * (105 if cold else 100) // 100)

        return Candidate(name=name, step=step)

    found = compare([twin("a"), twin("b")], device=device, plan=Plan(budget_ns=NS_PER_S))
    assert found.answer == "same"
    assert found.ratio == pytest.approx(1, abs=0.003)


def test_the_order_of_quads_is_its_own_mirror_image() -> None:
    """Exchanging the sides gives the same sequence of blocks, half a turn later."""
    device = FakeSync()
    calls: list[str] = []

    def side(name: str) -> Candidate:
        def step() -> FakeOutput:
            calls.append(name)
            return device.run(host_ns=6_000 * US)  # longer than a slice: no call but the timed ones

        return Candidate(name=name, step=step)

    compare([side("a"), side("b")], device=device, plan=Plan(budget_ns=NS_PER_S))
    start = "".join(calls).rindex("abbabaabaaaabaababbabbbb")
    turn = "".join(calls[start : start + 24])
    mirrored = turn.translate(str.maketrans("ab", "ba"))
    assert turn[12:] + turn[:12] == mirrored


def test_each_side_is_awaited_on_its_own_device_and_states_it() -> None:
    clock = VirtualClock()
    cpu, away = FakeSync(clock=clock), FakeAsync(clock=clock)
    sides = [candidate(cpu, "here"), replace(candidate(away, "away"), device=away)]
    refused = compare(sides, device=cpu, plan=PLAN)
    assert refused.answer == "cannot-tell"
    assert "accelerator.name: none, the CPU alone against virtual asynchronous device" in refused.why
    assert [side.provenance.accelerator is None for side in refused.sides] == [True, False]
    allowed = compare(sides, device=cpu, plan=PLAN, ignoring=["accelerator", "method.settle"])
    assert allowed.answer == "faster"
    assert allowed.ratio == pytest.approx(20 / 25, rel=0.05)


def test_a_device_that_takes_no_part_in_a_side_is_not_stated_of_it() -> None:
    device = FakeAsync(name="fake-async")
    sides = [
        candidate(device, "on it", observation=Observed(devices=("fake-async",))),
        candidate(device, "not on it", observation=Observed(devices=("cpu",))),
    ]
    found = compare(sides, device=device, plan=PLAN)
    assert [d.path for d in found.pairs[0].differences] == ["accelerator.name"]
    assert found.sides[1].provenance.accelerator is None
