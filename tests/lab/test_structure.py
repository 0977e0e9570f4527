"""What torch is asked and counted: with an operator, a layer or a mode in its place that behaves otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from referee.device.registry import open_device  # noqa: E402
from referee.lab import dispatching, structure  # noqa: E402
from referee.lab.laboratory import Laboratory, Reading  # noqa: E402
from referee.units import format_ns, format_ratio  # noqa: E402

from .planted import PLAN, row  # noqa: E402

pytestmark = pytest.mark.torch


def lab(**instead: Any) -> Laboratory:
    names = SimpleNamespace(**{name: getattr(torch, name) for name in dir(torch) if not name.startswith("__")})
    for name, function in instead.items():
        setattr(names, name, function)
    return Laboratory(device=open_device("cpu"), plan=PLAN, operators=names)


class Layer(torch.nn.Module):
    """Stands for an encoder layer: so many operators forward, of which only some have a backward."""

    def __init__(self, *, forward: int, differentiable: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(64))
        self.forward_ops, self.differentiable = forward, differentiable

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            for _ in range(self.forward_ops - self.differentiable):
                x = x + 1
        for _ in range(self.differentiable):
            x = x * self.weight
        return x


def with_layer(**fields: int) -> Laboratory:
    return lab(nn=SimpleNamespace(TransformerEncoderLayer=lambda *_, **__: Layer(**fields)))


@pytest.fixture(autouse=True)
def some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a layer's step takes is planted: 32 of them are in the middle of what the course says."""
    ns = 25e6 / 32
    monkeypatch.setattr(structure, "step_time", lambda *_: Reading(value=ns, low=ns, high=ns, taken="400 blocks"))


@pytest.mark.parametrize(("ms", "outcome"), [(5, "differs"), (30, "holds"), (50, "differs")])
def test_the_time_of_a_step_counts(ms: float, outcome: str, monkeypatch: pytest.MonkeyPatch) -> None:
    each = ms * 1e6 / 32
    monkeypatch.setattr(structure, "step_time", lambda *_: Reading(value=each, low=each, high=each))
    found = row("E4", with_layer(forward=100, differentiable=5))
    assert found.outcome == outcome
    assert ("The time of 32 × one layer's step: " in found.why) == (outcome == "differs")


@pytest.mark.parametrize(("forward", "outcome"), [(20, "differs"), (100, "holds"), (300, "differs")])
def test_the_operators_of_a_layer_are_counted(forward: int, outcome: str) -> None:
    found = row("E4", with_layer(forward=forward, differentiable=5))
    assert (found.measured, found.outcome) == (forward, outcome)


def test_the_operators_of_a_whole_step_count() -> None:
    """Forward is within the claim, 32 layers with their backward are beyond it."""
    found = row("E4", with_layer(forward=100, differentiable=90))
    assert (found.measured, found.outcome) == (100, "differs")
    assert "32 × one layer's step: " in found.why
    assert "above the 5,000 operators that the claim allows" in found.why


@pytest.mark.parametrize("claim", ["E4", "E5"])
def test_what_other_experiments_left_in_the_laboratory_is_not_what_a_step_holds(claim: str) -> None:
    place = with_layer(forward=100, differentiable=50)
    place.kept["compiled"] = torch.compile(lambda x: x, backend="eager")
    assert row(claim, place).measured


@pytest.mark.parametrize("claim", ["E4", "E5"])
def test_a_step_that_could_not_be_watched_is_no_count_of_none(claim: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "observe", lambda *_: SimpleNamespace(basis="closure", n_ops=0, ops={}))
    found = row(claim, with_layer(forward=100, differentiable=5))
    assert (found.measured, found.outcome) == (None, "cannot-tell")
    assert "could not be watched" in found.why


def test_attention_is_spelled_out_where_there_is_one() -> None:
    found = row("E4", lab())
    assert found.figures is not None
    assert found.measured is not None
    assert found.measured > int(found.figures["fused"] or 0)
    assert int(found.figures["step"] or 0) > int(found.figures["fused_step"] or 0) > 0
    assert f"the layer's forward has {found.figures['fused']} operators, " in found.why
    assert f"32 × its step {found.figures['fused_step']:,}, " in found.why


@pytest.mark.parametrize(("fused_step", "place"), [(4_000, "within"), (9_600, "outside of")])
def test_a_fused_attention_counts_neither_for_the_claim_nor_against_it(
    fused_step: int, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The layer's 100 operators are within the claim either way, and its step is above it as single operators."""
    monkeypatch.setattr(structure, "_forward_and_backward", lambda *_: (fused_step // 32, 0))
    found = row("E4", with_layer(forward=100, differentiable=90))
    assert (
        f"has 100 operators, within the claim's 50 to 150, and 32 × its step {fused_step:,}, {place} the" in found.why
    )
    assert "the claim is of unfused layers, so that neither figure counts for it or against it." in found.why
    assert found.outcome == "differs"


def test_what_an_operator_of_a_step_takes_is_told_beside_a_smaller_step_and_the_add_of_e1() -> None:
    place = with_layer(forward=100, differentiable=5)
    found = row("E4", place)
    each = 25e6 / int((found.figures or {})["step"] or 1)
    assert f"which is {format_ns(each)} an operator. At batch 1 and length 1 it has 16 times fewer rows" in found.why
    assert "is not tested" not in found.why
    assert found.taken == "operators 1 (counted); the step's time 400 blocks"
    place.kept["hot and cold"] = (Reading(value=500.0, low=500, high=500), Reading(value=each / 2, low=1, high=2))
    assert "an operator of this step takes 2.00× that add is not tested: " in row("E4", place).why


@pytest.mark.parametrize(("differentiable", "outcome"), [(200, "differs"), (80, "holds"), (2, "differs")])
def test_the_operators_of_backward_are_counted(differentiable: int, outcome: str) -> None:
    """Backward needs about five for each multiplication: two products, a reduction, a sum of gradients, a view."""
    found = row("E5", with_layer(forward=200, differentiable=differentiable))
    figures = found.figures or {}
    assert found.measured == figures["backward"] / figures["forward"]
    assert found.outcome == outcome
    assert found.teaches == (
        f"A training step issues {format_ratio(1 + found.measured)} the operators of its forward in this layer."
    )


def test_backward_is_of_the_layer_that_e4_counts() -> None:
    """Attention as single operators: the forward has more of them than with today's fused one."""
    found = row("E5", lab())
    assert (found.figures or {})["forward"] == (row("E4", lab()).measured or 0) + 2  # and the mean of squares
    assert "; with a fused attention " in found.why


def without_autocast(*_: Any, **__: Any) -> Any:
    return nullcontext()


def bare(*shape: int, **_: Any) -> Any:
    with torch.inference_mode():
        return torch.rand(*shape)


@pytest.fixture
def cheap_dispatch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a dispatch costs is timed elsewhere; here it is planted."""
    monkeypatch.setattr(dispatching, "redispatch", lambda _: Reading(value=90.0, low=80.0, high=100.0))


def test_the_order_is_read_off_the_dispatcher() -> None:
    assert row("E9", lab()).outcome == "holds"
    found = row("E9", lab(autocast=without_autocast))
    assert (found.measured, found.outcome) == (pytest.approx(4 / 9), "differs")
    assert "Autocast" not in found.why
    assert "Came out otherwise: autocast above autograd, " in found.why
    one_side = lab(add=lambda a, b: torch.add(a, b) if a.requires_grad else torch.add(a, b).detach())
    assert row("E9", one_side).measured == pytest.approx(8 / 9)
    deaf = lab(mm=lambda a, b: torch.mm(a, b).requires_grad_())
    assert (row("E9", deaf).measured or 0) < 1
    interpreted = lab(compile=lambda *_, **__: lambda a, b: a)
    assert "Came out otherwise: a compiled matmul is cast by autocast." in row("E9", interpreted).why
    as_it_was = SimpleNamespace(functionalize=lambda function: function)
    assert "Came out otherwise: functionalisation turns" in row("E9", lab(func=as_it_was)).why


@pytest.mark.usefixtures("cheap_dispatch")
def test_the_kernels_on_the_way_are_counted() -> None:
    found = row("E10", lab())
    assert (found.measured, found.outcome) == (3, "differs")
    assert found.taken.startswith("kernels 1 (counted); one dispatch ")
    assert "The 90.0 ns of one dispatch more are a whole further layer: " in found.why
    assert (
        found.why.count("One dispatch: even the near end of the interval, 100 ns, is below the 200 ns that the claim ")
        == 1
    )
    assert found.why.count("200 ns") == 1
    alone = row("E10", lab(autocast=without_autocast, randn=bare))
    assert (alone.measured, alone.outcome) == (1, "differs")


@pytest.mark.parametrize(("ns", "side"), [(100.0, "below"), (300.0, "within"), (900.0, "above")])
def test_the_cost_of_a_dispatch_is_held_against_the_claim(
    ns: float, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatching, "redispatch", lambda _: Reading(value=ns, low=ns, high=ns))
    found = row("E10", lab())
    assert (f"is {side} the " in found.why) == (side != "within")
    assert found.outcome == ("holds" if side == "within" else "differs")


def test_nodes_per_operator_follow_the_operator() -> None:
    found = row("E11", lab())
    assert (found.measured, found.outcome) == (1, "holds")
    assert [(part.measured, part.outcome) for part in found.parts] == [(2, "holds")]
    squares = row("E11", lab(mul=lambda a, b: torch.exp(a)))
    assert [(part.measured, part.outcome) for part in squares.parts] == [(1, "differs")]
    assert squares.outcome == "differs"
    twice = lab(mul=lambda a, b: torch.mul(torch.mul(a, b), b))
    assert row("E11", twice).outcome == "differs"


def test_a_tape_is_read() -> None:
    assert row("E12", lab()).measured == 1
    keeps_nothing = lab(mm=lambda a, b: torch.mm(a.detach(), b.detach()))
    assert row("E12", keeps_nothing).outcome == "differs"
    keeps_all = lab(no_grad=torch.enable_grad)
    found = row("E12", keeps_all)
    assert (found.measured, found.outcome) == (pytest.approx(3 / 5), "differs")
    assert "hold 2.50 MiB at most with a tape, 2.50 MiB under no_grad" in found.why


class Copying:
    """A tensor whose in-place addition writes to a copy: no version moves, and backward has nothing to refuse."""

    _version = 0

    def __mul__(self, other: Any) -> Copying:
        return self

    def add_(self, other: Any) -> Copying:
        return Copying()

    def sum(self) -> Copying:
        return self

    def backward(self) -> None:
        pass


def test_a_mutation_is_seen_and_one_that_did_not_happen_is_not() -> None:
    assert row("E13", lab()).measured == 1
    assert row("E13", lab(randn=lambda *_, **__: Copying())).outcome == "differs"


@contextmanager
def nothing_special() -> Iterator[None]:
    yield


def test_inference_mode_is_tried_and_not_assumed() -> None:
    assert row("E15", lab()).outcome == "holds"
    found = row("E15", lab(inference_mode=nothing_special))
    assert (found.measured, found.outcome) == (pytest.approx(2 / 6), "differs")


def test_a_compiler_that_compiles_nothing_leaves_the_tape() -> None:
    found = row("E16", lab(compile=lambda function, **_: function))
    assert (found.measured, found.outcome) == (20, "differs")


@pytest.mark.slow
def test_a_graph_compiled_ahead_of_time_leaves_one_node() -> None:
    assert row("E16", lab()).outcome == "holds"
    torch._dynamo.reset()


def test_requests_follow_the_operator() -> None:
    def wasteful(a: Any, b: Any, *, out: Any = None) -> Any:
        return torch.add(a, b, out=out) if out is not None else torch.add(a.clone(), b)

    assert row("E18", lab()).measured == pytest.approx(1)
    assert row("E18", lab(add=wasteful)).outcome == "differs"
    unplanned = row("E18", lab(add=lambda a, b, *, out=None: torch.add(a, b)))
    assert (unplanned.measured, unplanned.outcome) == (1, "differs")
    assert "With memory planned ahead (out=): 10 requests is above" in unplanned.why
