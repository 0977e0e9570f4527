"""Steps whose own cost varies: what the headline is then, and what is said beside it."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from referee.bench.compare import Candidate, compare
from referee.bench.guards import check_budget
from referee.bench.measure import measure
from referee.bench.plan import Plan, Step
from referee.device.fake import FakeAsync, FakeDevice, FakeSync
from referee.device.noise import AR1, Bimodal, Preemption, VirtualClock
from referee.records.finding import Finding
from referee.records.measurement import Measurement
from referee.units import NS_PER_MS, NS_PER_S

US = 1_000
PLAN = Plan(budget_ns=200 * NS_PER_MS, min_ns=60 * NS_PER_MS)


def step_of(device: FakeDevice, cost_ns: Callable[[int], int]) -> Step:
    """A step whose n-th call costs ``cost_ns(n)``."""
    made = [0]

    def step() -> object:
        made[0] += 1
        return device.run(host_ns=cost_ns(made[0]), device_ns=0)

    return step


def drawn(low_us: float, high_us: float, *, seed: int) -> Callable[[int], int]:
    chance = random.Random(seed)
    return lambda _: int(chance.uniform(low_us, high_us) * US)


def named(found: Measurement, code: str) -> Finding | None:
    return next((finding for finding in found.findings if finding.code == code), None)


def test_the_median_of_a_bimodal_step_is_a_cost_that_calls_have() -> None:
    """Two costs, three in five calls at the higher: the mean of two calls is the cost of none."""
    chance = random.Random(3)
    device = FakeSync()
    found = measure(
        step_of(device, lambda _: (100 if chance.random() < 0.6 else 30) * US), device=device, plan=PLAN, name="bimodal"
    )
    assert found.median_ns == 100 * US
    assert found.p95_ns == 100 * US
    assert set(found.samples_ns) == {30 * US, 100 * US}
    disturbed = named(found, "disturbed")
    assert disturbed is not None
    assert disturbed.hint is not None
    assert "neither median nor floor" in disturbed.hint


def test_the_tail_of_a_random_step_is_that_of_its_calls() -> None:
    device = FakeSync()
    found = measure(step_of(device, drawn(20, 200, seed=5)), device=device, plan=PLAN)
    assert found.median_ns == pytest.approx(110 * US, rel=0.1)
    assert found.p95_ns == pytest.approx(191 * US, rel=0.05)


@pytest.mark.parametrize("make", [FakeSync, FakeAsync])
def test_a_steady_step_keeps_its_blocks_beside_noise_of_the_machine(make: type[FakeDevice]) -> None:
    clock = VirtualClock(preemptions=Preemption.every(2 * NS_PER_MS, length_ns=300 * US))
    device = make(clock=clock, noise=[AR1(phi=0.8, sigma_ns=300, seed=1)])
    found = measure(lambda: device.run(host_ns=5 * US, device_ns=10 * US), device=device, plan=PLAN)
    calls = found.provenance.value("method.calls_per_block")
    assert isinstance(calls, int)
    assert calls > 5
    assert f"each the mean of {calls} calls" in str(found.provenance.value("method.statistic"))
    assert named(found, "slow-calls") is None
    assert named(found, "drifting") is None


def test_short_calls_are_never_timed_one_by_one() -> None:
    device = FakeSync(noise=[Bimodal(host_ns=1 * US, slow_frac=0.5, seed=1)])
    found = measure(lambda: device.run(host_ns=1 * US, device_ns=0), device=device, plan=PLAN)
    assert found.provenance.value("method.calls_per_block") != 1


def test_rare_slow_calls_are_told_with_the_mean() -> None:
    """One call in a hundred takes 3 ms: sixty percent of the time, and nothing of the median."""
    device = FakeSync()
    found = measure(step_of(device, lambda n: 3 * NS_PER_MS if n % 100 == 0 else 20 * US), device=device, plan=PLAN)
    assert found.median_ns == 20 * US
    slow = named(found, "slow-calls")
    assert slow is not None
    mean, share = slow.evidence["mean_ns"], slow.evidence["share"]
    assert isinstance(mean, float)
    assert isinstance(share, float)
    assert mean == pytest.approx(49.8 * US, rel=0.15)
    assert share == pytest.approx(0.6, abs=0.1)


@pytest.mark.parametrize(("growth", "severity"), [(1.001, "fatal"), (1.00006, "warning")])
def test_a_cost_that_only_grows_has_no_headline(growth: float, severity: str) -> None:
    device = FakeSync()
    found = measure(step_of(device, lambda n: int(30 * US * growth**n)), device=device, plan=PLAN)
    drift = named(found, "drifting")
    assert drift is not None
    assert drift.severity == severity
    assert (found.median_ns is None) == (severity == "fatal")
    first, last = drift.evidence["first_ns"], drift.evidence["last_ns"]
    assert isinstance(first, float)
    assert isinstance(last, float)
    assert first < last


def test_taking_more_than_the_budget_is_told() -> None:
    device = FakeSync()
    found = measure(
        lambda: device.run(host_ns=700 * NS_PER_MS, device_ns=0), device=device, plan=Plan(budget_ns=NS_PER_S)
    )
    over = named(found, "over-budget")
    assert over is not None
    spent = over.evidence["spent_ns"]
    assert isinstance(spent, int)
    assert spent >= 4 * 700 * NS_PER_MS
    assert over.hint is not None
    assert "17s" in over.hint


def _compared(a: Callable[[int], int], b: Callable[[int], int]) -> tuple[str, float | None, list[str]]:
    device = FakeSync()
    found = compare(
        [Candidate(name="a", step=step_of(device, a)), Candidate(name="b", step=step_of(device, b))],
        device=device,
        plan=Plan(budget_ns=2 * NS_PER_S),
    )
    return found.answer, found.ratio, [finding.code for finding in found.findings]


@pytest.mark.parametrize("seed", range(6))
def test_steps_that_vary_alike_are_not_called_different(seed: int) -> None:
    answer, _, codes = _compared(drawn(20, 200, seed=seed), drawn(20, 200, seed=100 + seed))
    assert answer in ("same", "cannot-tell")
    assert codes.count("varying-calls") == 2


@pytest.mark.parametrize("seed", range(4))
def test_steps_that_vary_are_compared_by_their_medians(seed: int) -> None:
    """The lesser of two blocks would read the ratio of the lower ends: 1 here."""
    answer, ratio, _ = _compared(drawn(20, 100, seed=seed), drawn(20, 160, seed=100 + seed))
    assert answer == "slower"
    assert ratio == pytest.approx(90 / 60, rel=0.1)


def test_a_short_call_is_not_blamed_for_a_budget_that_others_used_up() -> None:
    (held_up,) = check_budget(400 * NS_PER_MS, budget_ns=250 * NS_PER_MS, call_ns=12_000)
    assert "held it up" in held_up.message
    assert "idle core" in (held_up.hint or "")
    (long,) = check_budget(400 * NS_PER_MS, budget_ns=250 * NS_PER_MS, call_ns=90 * NS_PER_MS)
    assert "one call takes 90.0 ms" in long.message
