"""One scaler for more than one optimizer, gradients asked for on the way, closures: where the scale goes astray."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from referee.precision.watch import Seen, watch  # noqa: E402

SCALE = 1024.0


class Pair:
    """Two networks, each with its optimizer, and one scaler."""

    def __init__(self, **given: Any) -> None:
        torch.manual_seed(0)
        self.models = [torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)]
        self.optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in self.models]
        self.scaler = torch.amp.GradScaler("cpu", **{"init_scale": SCALE, **given})
        self.inputs = torch.randn(8, 4)

    def loss(self) -> Any:
        with torch.autocast("cpu", dtype=torch.float16):
            return self.models[1](self.models[0](self.inputs)).float().square().mean()

    def zero(self, *, set_to_none: bool = True) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=set_to_none)


def seen_in(run: Callable[[Pair], None], steps: int = 3, **given: Any) -> Seen:
    pair = Pair(**given)
    with watch() as seen:
        for _ in range(steps):
            run(pair)
    return seen


def codes(run: Callable[[Pair], None], **given: Any) -> set[str]:
    return {finding.code for finding in seen_in(run, **given).findings} - {"steps-skipped"}


def test_an_update_after_each_optimizers_step_unscales_the_second_by_another_scale() -> None:
    def run(pair: Pair) -> None:
        pair.zero()
        pair.scaler.scale(pair.loss()).backward()
        for optimizer in pair.optimizers:
            pair.scaler.step(optimizer)
            pair.scaler.update()

    (found,) = seen_in(run).findings
    assert (found.code, found.evidence["times"], found.evidence["scale"]) == ("updated-between-steps", 3, SCALE)
    assert str(found.evidence["line"]).startswith("test_across_optimizers.py:")
    # What it says: with a scale that moves at every update the second network's update is another one.
    moved, kept = Pair(growth_interval=1), Pair()
    run(moved)
    kept.scaler.scale(kept.loss()).backward()
    for optimizer in kept.optimizers:
        kept.scaler.step(optimizer)
    assert torch.equal(moved.models[0].weight, kept.models[0].weight)
    assert not torch.allclose(moved.models[1].weight, kept.models[1].weight, rtol=1e-5)


def test_an_update_between_unscaling_and_backward_is_seen_where_gradients_are_unscaled() -> None:
    def run(pair: Pair) -> None:
        pair.zero()
        pair.scaler.scale(pair.loss()).backward()
        pair.scaler.step(pair.optimizers[0])
        pair.scaler.update()
        pair.scaler.unscale_(pair.optimizers[1])
        pair.scaler.step(pair.optimizers[1])
        pair.scaler.update()

    assert codes(run) == {"updated-between-steps"}


@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_that_the_other_networks_backward_left_behind_are_dropped_before_they_are_used(
    set_to_none: bool,
) -> None:
    def run(pair: Pair) -> None:
        for optimizer in pair.optimizers:  # each turn goes back through both networks, and steps one
            optimizer.zero_grad(set_to_none=set_to_none)
            pair.scaler.scale(pair.loss()).backward()
            pair.scaler.step(optimizer)
            pair.scaler.update()

    assert codes(run) == set()


def test_one_update_for_both() -> None:
    def run(pair: Pair) -> None:
        pair.zero()
        pair.scaler.scale(pair.loss()).backward()
        for optimizer in pair.optimizers:
            pair.scaler.step(optimizer)
        pair.scaler.update()

    assert codes(run) == set()


@pytest.mark.parametrize("keyword", [False, True])
@pytest.mark.parametrize(("unscaled", "expected"), [(0, {"clip-before-unscale"}), (1, set())])
def test_the_parameters_of_a_module_are_told_apart_where_those_of_another_are_unscaled(
    keyword: bool, unscaled: int, expected: set[str]
) -> None:
    def run(pair: Pair) -> None:
        pair.zero()
        pair.scaler.scale(pair.loss()).backward()
        pair.scaler.unscale_(pair.optimizers[unscaled])
        parameters = pair.models[1].parameters()
        if keyword:
            torch.nn.utils.clip_grad_norm_(parameters=parameters, max_norm=0.01)
        else:
            torch.nn.utils.clip_grad_norm_(parameters, 0.01)
        for optimizer in pair.optimizers:
            pair.scaler.step(optimizer)
        pair.scaler.update()

    assert codes(run) == expected


def test_an_empty_iterator_is_warned_of_as_torch_does() -> None:
    with watch(), pytest.warns(UserWarning, match="empty generator"):
        torch.nn.utils.clip_grad_norm_((p for p in list[Any]()), 1.0)


def penalised(pair: Pair, mend: Callable[[Any, Any], Any], total: Callable[[Any, Any, Any], Any]) -> None:
    pair.zero()
    inputs = pair.inputs.clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = pair.models[0](inputs).float().square().mean()
    (gradient,) = torch.autograd.grad(outputs=pair.scaler.scale(loss), inputs=inputs, create_graph=True)
    penalty = mend(gradient, pair.scaler.get_scale())
    total(pair.scaler, loss, penalty).backward()
    pair.scaler.step(pair.optimizers[0])
    pair.scaler.update()


TOTALS = [
    lambda scaler, loss, penalty: scaler.scale(loss + penalty),
    lambda scaler, loss, penalty: scaler.scale(loss) + scaler.scale(penalty),
]


@pytest.mark.parametrize("total", TOTALS)
def test_a_penalty_on_gradients_that_carry_the_scale(total: Any) -> None:
    seen = seen_in(lambda pair: penalised(pair, lambda g, scale: (g.norm() - 1) ** 2, total), steps=1)
    found = next(f for f in seen.findings if f.code == "penalty-of-scaled-gradients")
    assert found.evidence["scale"] == SCALE
    assert "get_scale()" in found.hint


@pytest.mark.parametrize("total", TOTALS)
@pytest.mark.parametrize(
    "mend",
    [
        lambda g, scale: (g / scale).norm(),
        lambda g, scale: (g * (1.0 / scale)).norm(),
        lambda g, scale: ((1.0 / scale) * g).norm(),
        lambda g, scale: torch._foreach_mul([g], 1.0 / scale)[0].norm(),
        lambda g, scale: g.norm() / scale,
        lambda g, scale: g.detach().norm(),
    ],
    ids=["divided", "multiplied", "from the left", "in a list", "its norm divided", "outside of the graph"],
)
def test_a_penalty_on_unscaled_gradients_is_left_in_peace(mend: Any, total: Any) -> None:
    assert codes(lambda pair: penalised(pair, mend, total)) == set()


def test_a_penalty_on_gradients_of_a_loss_that_was_not_scaled() -> None:
    def run(pair: Pair) -> None:
        pair.zero()
        inputs = pair.inputs.clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = pair.models[0](inputs).float().square().mean()
        (gradient,) = torch.autograd.grad(loss, inputs, create_graph=True)
        pair.scaler.scale(loss + gradient.norm()).backward()
        pair.scaler.step(pair.optimizers[0])
        pair.scaler.update()

    assert codes(run) == set()


@pytest.mark.parametrize("keyword", [False, True])
def test_a_closure_is_named_before_torch_refuses_it(keyword: bool) -> None:
    def run(pair: Pair) -> None:
        optimizer = torch.optim.LBFGS(pair.models[1].parameters())

        def closure() -> Any:
            loss = pair.loss()
            pair.scaler.scale(loss).backward()
            return loss

        args, kwargs = ((), {"closure": closure}) if keyword else ((closure,), {})
        with pytest.raises((RuntimeError, AssertionError)):
            pair.scaler.step(optimizer, *args, **kwargs)

    assert codes(run, init_scale=SCALE) == {"closure-with-scaler"}


def test_an_update_for_which_nothing_went_through_the_scaler_is_named_where_torch_refuses_it() -> None:
    def run(pair: Pair) -> None:
        pair.zero()
        pair.scaler.scale(pair.loss()).backward()
        for model in pair.models:
            for parameter in model.parameters():
                parameter.grad.mul_(1 / pair.scaler.get_scale())
        for optimizer in pair.optimizers:
            optimizer.step()
        with pytest.raises(AssertionError, match="inf checks"):
            pair.scaler.update()

    assert codes(run) == {"update-without-step"}


@pytest.mark.parametrize(("start", "words"), [(1.0, "is 1 from the start"), (0.5, "is 0.5 from the start")])
def test_a_scale_that_was_low_from_the_start_has_not_fallen(start: float, words: str) -> None:
    def run(pair: Pair) -> None:
        pair.zero()
        pair.scaler.scale(pair.loss()).backward()
        for optimizer in pair.optimizers:
            pair.scaler.step(optimizer)
        pair.scaler.update()

    found = next(f for f in seen_in(run, init_scale=start).findings if f.code == "scale-low")
    assert words in found.message
    assert "init_scale" in found.hint
