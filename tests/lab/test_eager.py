"""The timed claims about one operator return what was planted, exactly, on a virtual clock."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from referee.anatomy.mix import Mix
from referee.anatomy.stages import ALLOCATION, DISPATCH
from referee.device.fake import FakeSync
from referee.lab.claims.operators import REFERENCES
from referee.lab.eager import redispatch

from .planted import laboratory, planted, planted_models, row


@pytest.mark.parametrize(("each_ns", "outcome"), [(1_000, "differs"), (5_000, "holds"), (20_000, "differs")])
def test_an_operator_amid_others_costs_what_was_planted(each_ns: int, outcome: str) -> None:
    device = FakeSync()
    found = row("E1", laboratory(device, operators=planted(device, add=each_ns)))
    assert (found.measured, found.outcome) == (pytest.approx(each_ns, rel=0.01), outcome)


def test_the_stages_are_those_of_the_anatomy() -> None:
    device = FakeSync()
    stages = (
        SimpleNamespace(name="dispatch: keys", layer=DISPATCH, ns=40.0),
        SimpleNamespace(name="dispatch: CPU", layer=DISPATCH, ns=60.0),
        SimpleNamespace(name="allocation", layer=ALLOCATION, ns=700.0),
    )
    anatomy = SimpleNamespace(stages=stages, per_tensor_ns=None, variants=())
    found = row("E1", laboratory(device, operators=planted(device, add=5_000), take_apart=lambda *_, **__: anatomy))
    assert "keys and jump 100 ns (claimed 0.2 to 0.5 µs)" in found.why
    assert (found.figures or {})["allocator hit (ns)"] == 700


@pytest.mark.parametrize(("chill_ns", "outcome"), [(2_000, "holds"), (0, "differs")])
def test_cold_is_what_others_leave_behind(chill_ns: int, outcome: str) -> None:
    """Each operator of the mix makes the next add dearer by what was planted."""
    device = FakeSync()
    chilled = [False]

    def chill() -> None:
        chilled[0] = True

    def add(*_: Any) -> Any:
        more, chilled[0] = chill_ns * chilled[0], False
        return device.run(host_ns=1_000 + more)

    names = SimpleNamespace(randn=lambda *_, **__: None, add=add)
    mix = Mix(groups=(("chill()",),), names={"chill": chill})
    found = row("E19", laboratory(device, operators=names, mix=lambda: mix))
    assert (found.measured, found.outcome) == (pytest.approx(1 + chill_ns / 1_000, rel=0.01), outcome)


@pytest.mark.parametrize(("each_ns", "outcome"), [(1_000, "differs"), (8_000, "holds"), (15_000, "differs")])
def test_a_thousand_operators_cost_what_was_planted(each_ns: int, outcome: str) -> None:
    device = FakeSync()
    found = row("E3", laboratory(device, operators=planted(device, add=each_ns)))
    assert found.measured == pytest.approx(1_000 * each_ns, rel=0.01)
    assert found.outcome == outcome


@pytest.mark.parametrize(("tape_ns", "outcome"), [(0, "differs"), (2_000, "holds"), (5_000, "differs")])
def test_what_a_tape_costs_is_what_was_planted(tape_ns: int, outcome: str) -> None:
    device = FakeSync()
    found = row("E14", laboratory(device, operators=planted_models(device, lambda _: 10_000, tape=tape_ns)))
    assert (found.measured, found.outcome) == (pytest.approx(tape_ns / 10_000, abs=1e-3), outcome)


@pytest.mark.parametrize(("three_ns", "outcome"), [(1_400, "holds"), (1_000, "differs"), (600, "differs")])
def test_what_an_argument_costs_is_what_was_planted(three_ns: int, outcome: str) -> None:
    device = FakeSync()
    found = row("E20", laboratory(device, operators=planted(device, neg=1_000, addcmul=three_ns)))
    assert found.measured == pytest.approx((three_ns - 1_000) / 2, abs=1)
    assert found.outcome == outcome


@pytest.mark.parametrize(("saving_ns", "outcome"), [(0, "differs"), (80, "holds")])
def test_what_saving_costs_is_beyond_the_tape_alone(saving_ns: int, outcome: str) -> None:
    device = FakeSync()
    names = planted(device, mul=900, add=700, tapes={"mul": 300 + saving_ns, "add": 300})
    found = row("E21", laboratory(device, operators=names))
    assert (found.measured, found.outcome) == (pytest.approx(saving_ns, abs=1), outcome)


def test_references_from_several_threads_are_those_of_the_anatomy() -> None:
    device = FakeSync()
    variants = (SimpleNamespace(group=REFERENCES, name="two threads, one tensor", ns=31.0),)
    anatomy = SimpleNamespace(stages=(), per_tensor_ns=12.0, variants=variants)
    lab = laboratory(
        device, operators=planted(device, mul=900, add=700, neg=900, addcmul=950), take_apart=lambda *_, **__: anatomy
    )
    assert "31.0 ns from two threads, one tensor" in row("E21", lab).why
    assert "12.0 ns for the key set alone" in row("E20", lab).why


def test_one_dispatch_is_what_inference_mode_leaves_out() -> None:
    device = FakeSync()
    found = redispatch(laboratory(device, operators=planted(device, neg=1_000, tape=350)))
    assert found.value == pytest.approx(350, abs=1)
