"""Patterns of timing loops on fakes that drop, defer or cache work: judged rightly, where T(2n)/T(n) would not be."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import count

import pytest

from referee.bench.measure import measure
from referee.bench.plan import Plan, Step
from referee.bench.proof import CALLS, Proof, proof_findings, prove, prove_window
from referee.bench.windows import REPEATS, Pairs, Window
from referee.device.fake import FakeAsync, FakeDevice, FakeLazy, FakeOutput, FakeSync
from referee.device.noise import AR1
from referee.device.protocol import Repeat
from referee.units import NS_PER_MS

HOST, DEVICE = 8_000, 1_200_000


class Patterns:
    """Twelve ways of running n calls on one device."""

    def __init__(self, device: FakeDevice) -> None:
        self.device = device
        self.number = 0
        self.kept: list[FakeOutput] = []
        self.cached = lru_cache(maxsize=None)(self._cached)

    def call(self, *, key: object = "same", reads: list[FakeOutput] | None = None) -> FakeOutput:
        return self.device.run(host_ns=HOST, device_ns=DEVICE, key=key, reads=reads or [])  # type: ignore[arg-type]

    def _cached(self, _: int) -> FakeOutput:
        return self.call()

    def fresh(self) -> Step:
        self.number += 1
        number = self.number
        return lambda: self.call(key=("fresh", number))

    def unsettled(self, n: int) -> None:
        for _ in range(n):
            self.call()

    def last_only(self, n: int) -> None:
        out = None
        for _ in range(n):
            out = self.call()
        self.device.settle(out)

    def last_only_scalar_varied(self, n: int) -> None:
        out = None
        for k in range(n):
            out = self.call(key=("scalar", k))
        self.device.settle(out)

    def last_only_inputs_rotated(self, n: int) -> None:
        out = None
        for k in range(n):
            out = self.call(key=("input", k % 4))
        self.device.settle(out)

    def chained(self, n: int) -> None:
        out = self.call()
        for _ in range(n - 1):
            out = self.call(reads=[out])
        self.device.settle(out)

    def all_kept(self, n: int) -> None:
        self.device.settle([self.call() for _ in range(n)])

    def each_settled(self, n: int) -> None:
        for _ in range(n):
            self.device.settle(self.call())

    def each_read(self, n: int) -> None:
        for _ in range(n):
            self.call().read()

    def kept_but_unsettled(self, n: int) -> object:
        return [self.call() for _ in range(n)]

    def cached_result(self, n: int) -> None:
        self.device.settle([self.cached(1) for _ in range(n)])

    def trivial_settled(self, n: int) -> None:
        """Settles something of its own instead of the candidate's outputs."""
        for _ in range(n):
            self.call()
        self.device.settle(self.device.run(host_ns=100, device_ns=100))

    def first_half_dropped(self, n: int) -> None:
        kept = []
        for k in range(n):
            out = self.call()
            if k % 4 == 0:
                kept.append(out)
        self.device.settle(kept)


LAZY = {
    "unsettled": False,
    "last_only": False,
    "last_only_scalar_varied": False,
    "last_only_inputs_rotated": False,
    "chained": True,
    "all_kept": True,
    "each_settled": True,
    "each_read": True,
    "kept_but_unsettled": False,
    "cached_result": False,
    "trivial_settled": False,
    "first_half_dropped": False,
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("pattern", LAZY)
def test_patterns_on_a_lazy_device(pattern: str, seed: int) -> None:
    patterns = Patterns(
        FakeLazy(compile_ns=NS_PER_MS, settle_ns=20_000, noise=[AR1(phi=0.5, sigma_ns=2_000, seed=seed)])
    )
    window: Window = getattr(patterns, pattern)
    found = prove_window(window, device=patterns.device, fresh=patterns.fresh)
    assert found.outcome == ("ran" if LAZY[pattern] else "did-not-run")


def test_a_round_that_others_lengthen_unseen_does_not_prove_that_work_ran() -> None:
    """A backend's own threads lose the core without a switch of ours: the longer windows of one round all read more."""
    patterns, longer = Patterns(FakeLazy(settle_ns=20_000)), count()

    def window(n: int) -> None:
        patterns.last_only(n)
        if n == 2 * CALLS and next(longer) <= REPEATS:
            patterns.device.clock.advance(4 * CALLS * DEVICE)

    found = prove_window(window, device=patterns.device, fresh=patterns.fresh)
    assert found.outcome == "did-not-run"
    assert next(longer) > 2 * REPEATS, "more readings were taken"


def test_doubling_alone_would_have_accepted_what_never_ran() -> None:
    """T(2n)/T(n) is 2 for recording and for a cache as well."""
    for pattern in ("unsettled", "cached_result"):
        patterns = Patterns(FakeLazy())
        found = prove_window(getattr(patterns, pattern), device=patterns.device, fresh=patterns.fresh)
        assert found.outcome == "did-not-run"
        if pattern == "unsettled":
            assert found.ratio == pytest.approx(2, abs=0.1)


ASYNCHRONOUS = {
    "unsettled": False,
    "last_only": True,
    "chained": True,
    "all_kept": True,
    "each_settled": True,
    "kept_but_unsettled": False,
    "cached_result": False,
}


@pytest.mark.parametrize("pattern", ASYNCHRONOUS)
def test_patterns_on_an_asynchronous_device(pattern: str) -> None:
    patterns = Patterns(FakeAsync())
    found = prove_window(getattr(patterns, pattern), device=patterns.device, fresh=patterns.fresh)
    assert found.outcome == ("ran" if ASYNCHRONOUS[pattern] else "did-not-run")


@pytest.mark.parametrize(("pattern", "ran"), [("unsettled", True), ("last_only", True), ("cached_result", False)])
def test_patterns_on_a_synchronous_device(pattern: str, ran: bool) -> None:
    patterns = Patterns(FakeSync())
    found = prove_window(getattr(patterns, pattern), device=patterns.device, fresh=patterns.fresh)
    assert found.outcome == ("ran" if ran else "did-not-run")


def test_a_call_that_cannot_be_told_from_settling_proves_nothing() -> None:
    device = FakeLazy(settle_ns=500_000, noise=[AR1(phi=0.0, sigma_ns=400, seed=1)])

    def fresh() -> Step:
        return lambda: device.run(host_ns=300, device_ns=100)

    found = prove(fresh(), device=device, fresh=fresh)
    assert found.outcome == "cannot-prove"


@pytest.mark.parametrize("make", [FakeSync, FakeAsync, FakeLazy])
def test_the_own_timing_loop_runs_the_work(make: Callable[[], FakeDevice]) -> None:
    patterns = Patterns(make())
    found = prove(patterns.call, device=patterns.device, fresh=patterns.fresh)
    assert found.outcome == "ran"
    assert found.steady


def test_a_measurement_of_a_cached_result_has_no_headline() -> None:
    patterns = Patterns(FakeLazy())
    plan = Plan(budget_ns=100 * NS_PER_MS, min_ns=20 * NS_PER_MS)
    honest = measure(patterns.call, device=patterns.device, plan=plan, fresh=patterns.fresh)
    assert honest.median_ns == HOST + DEVICE

    def step() -> FakeOutput:
        patterns.device.clock.advance(5_000)
        return patterns.cached(1)

    cached = measure(step, device=patterns.device, plan=plan, fresh=patterns.fresh)
    assert cached.median_ns is None
    finding = next(f for f in cached.findings if f.code == "work-did-not-run")
    assert finding.severity == "fatal"
    assert finding.evidence["slope_frac"] == pytest.approx(0, abs=0.02)


def test_on_a_synchronous_device_it_is_called_a_cached_result() -> None:
    patterns = Patterns(FakeSync())
    plan = Plan(budget_ns=100 * NS_PER_MS, min_ns=20 * NS_PER_MS, max_blocks=100)

    def step() -> FakeOutput:
        patterns.device.clock.advance(5_000)
        return patterns.cached(1)

    found = measure(step, device=patterns.device, plan=plan, fresh=patterns.fresh)
    assert [f.code for f in found.findings if f.severity == "fatal"] == ["cached-result"]


class Seeing(FakeSync):
    """A synchronous device that sees what a repeated call does."""

    def __init__(self, seen: Repeat | None) -> None:
        super().__init__()
        self.seen = seen

    def see_repeat(self, step: Step, fresh: Callable[[], Step]) -> Repeat | None:
        return self.seen


@pytest.mark.parametrize(
    ("seen", "again_ns", "code", "severity"),
    [
        (Repeat(again="all", first_ops=2, again_ops=2), 5_000, None, None),
        (Repeat(again="part", first_ops=3, again_ops=1), 5_000, "part-kept", "warning"),
        (Repeat(again="none", first_ops=3, again_ops=0), 5_000, "cached-result", "fatal"),
        # Nothing was seen: 1/240 of a first call may be what new memory costs, 1/2,400 is not.
        (None, 5_000, None, None),
        (None, 500, "cached-result", "fatal"),
        # No operator in the first call either: it was answered too where others on new inputs take 240 times as long,
        # and what computes nothing at all is no hundred times dearer at first.
        (Repeat(again="none", first_ops=0, again_ops=0), 5_000, "cached-result", "fatal"),
        (Repeat(again="none", first_ops=0, again_ops=0), 60_000, None, None),
    ],
)
def test_what_a_device_sees_decides_where_a_first_call_is_slow(
    seen: Repeat | None, again_ns: int, code: str | None, severity: str | None
) -> None:
    patterns = Patterns(Seeing(seen))
    plan = Plan(budget_ns=100 * NS_PER_MS, min_ns=20 * NS_PER_MS, max_blocks=100)

    def step() -> FakeOutput:
        patterns.device.clock.advance(again_ns)
        return patterns.cached(1)

    found = measure(step, device=patterns.device, plan=plan, fresh=patterns.fresh)
    assert [(f.code, f.severity) for f in found.findings if f.code in ("part-kept", "cached-result")] == (
        [] if code is None else [(code, severity)]
    )
    assert (found.median_ns is None) == (severity == "fatal")


def test_a_repeated_call_of_nanoseconds_is_read_in_windows_that_cold_caches_do_not_decide() -> None:
    """The window that follows calls on fresh inputs is cold; four calls of 15 ns seemed to take time away."""
    device = Seeing(None)
    cold = [False]

    def step() -> None:
        device.clock.advance(415 if cold.pop() else 15)
        cold.append(False)

    def fresh() -> Step:
        cold[0] = True
        return lambda: device.clock.advance(550)

    found = prove(step, device=device, fresh=fresh)
    assert found.outcome == "cannot-prove"
    assert found.slope_ns == pytest.approx(15)


class Busy(FakeLazy):
    """Others take the processor whenever a call is settled alone, for ``lost_ns`` at least."""

    lost_ns = 0
    switches = 0

    def involuntary_switches(self) -> int:
        return self.switches

    def take(self) -> None:
        self.clock.advance(self.lost_ns)
        self.switches += 1


@pytest.mark.parametrize(("share", "outcome"), [(1.0, "cannot-prove"), (0.02, "did-not-run")])
def test_single_calls_that_others_lengthened_are_no_proof_that_work_did_not_run(share: float, outcome: str) -> None:
    device = Busy()
    device.lost_ns = 3 * DEVICE

    def alone() -> FakeOutput:
        device.take()
        return device.run(host_ns=HOST, device_ns=DEVICE)

    found = prove(lambda: device.run(host_ns=0, device_ns=int(share * DEVICE)), device=device, fresh=lambda: alone)
    assert found.outcome == outcome
    if outcome == "cannot-prove":
        (finding,) = proof_findings(found, device=device)
        assert finding.code == "work-not-proved"
        assert finding.message.startswith("Hardly a reading was free of preemption")


@pytest.mark.parametrize(
    ("taken", "ran", "outcome"),
    [(REPEATS, True, "ran"), (10**6, True, "cannot-prove"), (10**6, False, "did-not-run")],
)
def test_shorter_windows_that_others_lengthened_are_no_proof_that_work_did_not_run(
    taken: int, ran: bool, outcome: str
) -> None:
    """All of n calls lose the core for as long as n calls take, those of 2n calls for an instant."""
    device, shorter = Busy(), count()
    patterns = Patterns(device)

    def window(n: int) -> None:
        (patterns.each_settled if ran else patterns.last_only)(n)
        device.lost_ns = CALLS * DEVICE if n == CALLS and ran else HOST
        if next(shorter) < 2 + 2 * taken:
            device.take()

    found = prove_window(window, device=device, fresh=patterns.fresh)
    assert found.outcome == outcome
    assert found.disturbed is (outcome == "cannot-prove")


class ReadsBack:
    """What was observed of a step that returns numbers alone."""

    dtype = "float32"
    shapes = ()
    outputs: tuple[object, ...] = ()
    ops = {"aten::sum": 1, "aten::_local_scalar_dense": 1}  # noqa: RUF012 - never written


class Multiplies(ReadsBack):
    ops = {"aten::mm": 1}  # noqa: RUF012 - never written


@pytest.mark.parametrize(
    ("seen", "share", "outcome"),
    [(ReadsBack, 0.25, "cannot-prove"), (Multiplies, 0.25, "did-not-run"), (ReadsBack, 0.01, "did-not-run")],
)
def test_a_number_that_is_read_back_was_computed_however_dear_new_inputs_are(
    seen: type[ReadsBack], share: float, outcome: str
) -> None:
    device = FakeLazy()
    found = prove(
        lambda: device.run(host_ns=0, device_ns=int(share * DEVICE)).read(),
        device=device,
        fresh=lambda: lambda: device.run(host_ns=0, device_ns=DEVICE).read(),
        seen=seen(),
    )
    assert found.outcome == outcome


@pytest.mark.parametrize(("spread", "words"), [(0.1, "reads a value back"), (0.9, "cannot be told from settling")])
def test_why_nothing_is_proved_is_said_in_its_own_words(spread: float, words: str) -> None:
    proof = Proof(
        outcome="cannot-prove",
        slope_ns=30.0,
        one_ns=110.0,
        one_spread_ns=100 * spread,
        settle_ns=10.0,
        ratio=1.4,
        calls=4,
        steady=False,
        threshold_frac=0.5,
    )
    (finding,) = proof_findings(proof, device=FakeLazy())
    assert finding.severity == "info"
    assert words in finding.message


def test_pairs_of_windows_give_what_each_further_call_adds() -> None:
    device, order = FakeSync(), list[object]()

    def window(count: int) -> None:
        order.append(count)
        device.clock.advance(1_000 + 250 * count)

    pairs = Pairs(window, 4, device=device)
    pairs.read(beside=lambda: order.append("one"))
    assert order == ["one", 4, 8] * REPEATS
    assert (pairs.slope_ns, pairs.ratio) == (250.0, 1.5)
    pairs.read()
    assert order[3 * REPEATS :] == [4, 8] * REPEATS
