"""What a step records and a recording device does not run is said beside its time, and whether it merges is tried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count

import pytest

from referee.bench import unrun
from referee.bench.measure import measure
from referee.bench.plan import Plan
from referee.bench.proof import Proof
from referee.bench.unrun import check_unrun
from referee.device.fake import FakeAsync, FakeLazy
from referee.device.redundancy import Redundancy, Repeated
from referee.records.provenance import TensorSpec
from referee.units import NS_PER_MS

DEVICE_NS = 200_000
_keys = count()


@dataclass(frozen=True)
class Seen:
    redundancy: Redundancy | None
    dtype: str = "float32"
    shapes: tuple[TensorSpec, ...] = ()


def again(device: FakeLazy, *, device_ns: int = DEVICE_NS) -> Callable[[], Callable[[], object]]:
    """A product of fresh inputs each time it is built: another computation to the compiler."""

    def build() -> Callable[[], object]:
        key = next(_keys)
        return lambda: device.run(host_ns=1_000, device_ns=device_ns, key=key)

    return build


def ten_products(build: Callable[[], Callable[[], object]] | None = None) -> Seen:
    repeated = Repeated(operator="mm", times=10, operators={"mm": 9}, work_frac=0.9, again=build)
    return Seen(Redundancy(dropped={}, dropped_frac=0.0, repeated=repeated, flop=9))


def codes(seen: Seen, device: FakeLazy | FakeAsync, **options: bool) -> list[str]:
    return [finding.code for finding in check_unrun(seen, device=device, **options)]


@pytest.mark.parametrize(("merges", "expected"), [(True, ["repeats-merged"]), (False, [])])
def test_whether_the_compiler_merges_is_tried(merges: bool, expected: list[str]) -> None:
    device = FakeLazy(merge_identical=merges)
    assert codes(ten_products(again(device)), device) == expected


def test_the_finding_says_how_many_are_one() -> None:
    device = FakeLazy(merge_identical=True)
    (found,) = check_unrun(ten_products(again(device)), device=device)
    assert "`mm` 10 times on the same inputs: 90.0 % of its work" in found.message
    assert "what is timed is one" in found.message
    assert found.evidence["recorded"] == 10
    assert float(found.evidence["slope_frac"] or 0) < 0.1


def test_what_cannot_be_tried_is_left_open() -> None:
    device = FakeLazy(merge_identical=True, settle_ns=20_000)
    tiny, unmade = ten_products(again(device, device_ns=0)), ten_products()
    assert codes(tiny, device) == codes(unmade, device) == ["repeats-recorded"]
    assert "too short for the clock" in check_unrun(replace(tiny), device=device)[0].message
    assert "cannot be made up" in check_unrun(unmade, device=device)[0].message
    assert codes(ten_products(again(device)), device, prove=False) == ["repeats-recorded"]


RAN = Proof(
    outcome="ran",
    slope_ns=200_000,
    one_ns=200_000,
    one_spread_ns=1_000,
    settle_ns=0,
    ratio=2.0,
    calls=4,
    steady=True,
    threshold_frac=0.5,
)
NOISY, MERGED = replace(RAN, ratio=3.0, steady=False), replace(RAN, outcome="did-not-run", slope_ns=0.0, ratio=1.0)


@pytest.mark.parametrize(
    ("proofs", "expected"),
    [
        ((RAN, RAN, RAN, RAN), []),
        ((RAN, MERGED), ["repeats-merged"]),
        ((RAN, RAN, RAN, NOISY), ["repeats-recorded"]),
        ((NOISY,), ["repeats-recorded"]),
        ((MERGED,), ["repeats-merged"]),
    ],
)
def test_noise_is_not_taken_for_work_that_ran(
    proofs: tuple[Proof, ...], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other work beside it makes windows longer, so that merged calls may seem to run: once, or unsteadily."""
    following = iter(proofs)
    monkeypatch.setattr(unrun, "prove_window", lambda *_, **__: next(following))
    device = FakeLazy(merge_identical=True)
    found = check_unrun(ten_products(again(device)), device=device)
    assert [finding.code for finding in found] == expected
    assert list(following) == []
    if proofs[-1] is NOISY:
        assert "cannot be told here: the time of several is too unsteady." in found[0].message


def test_inputs_that_an_operator_does_not_take_leave_it_open() -> None:
    def refusing() -> Callable[[], object]:
        raise RuntimeError("not a positive matrix")

    assert codes(ten_products(refusing), FakeLazy()) == ["repeats-recorded"]


def test_what_no_output_needs_is_not_in_the_time() -> None:
    seen = Seen(Redundancy(dropped={"mm": 9, "exp": 1, "add": 2, "neg": 3}, dropped_frac=0.9, repeated=None, flop=9))
    (found,) = check_unrun(seen, device=FakeLazy())
    assert found.code == "work-dropped"
    assert "No output needs 9 `mm`, 1 `exp`, 2 `add` and 3 other calls" in found.message


def test_a_trifle_and_a_device_that_runs_everything_are_passed_over() -> None:
    device = FakeLazy(merge_identical=True)
    seen = ten_products(again(device))
    assert seen.redundancy is not None
    assert seen.redundancy.repeated is not None
    trifle = replace(seen.redundancy, repeated=replace(seen.redundancy.repeated, work_frac=0.01), dropped_frac=0.01)
    assert codes(Seen(trifle), device) == codes(Seen(None), device) == codes(seen, FakeAsync()) == []


class HandingOver(FakeLazy):
    """Merges equal computations of one graph; each call is handed over by itself."""

    def hand_over(self, outputs: object) -> None:
        self.materialise(outputs)


def test_a_measurement_carries_the_finding_and_keeps_its_number() -> None:
    device = HandingOver(merge_identical=True)
    build = again(device)
    plan = Plan(budget_ns=60 * NS_PER_MS, min_ns=20 * NS_PER_MS)

    product = build()

    def step() -> list[object]:
        return [product() for _ in range(10)]

    found = measure(step, device=device, plan=plan, observation=ten_products(build))
    assert "repeats-merged" in [finding.code for finding in found.findings]
    assert found.median_ns is not None
    assert 0.9 * DEVICE_NS < found.median_ns < 2 * DEVICE_NS  # ten were recorded, and one was run
