"""What else is done to gradients that carry a loss scale: limits that carry it too, unscaling by hand, mixed sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn.utils import clip_grad_norm_, clip_grad_value_  # noqa: E402

from referee.precision.watch import watch  # noqa: E402

SCALE = 1024.0


class Loop:
    """A model with what trains it, and an fp16 loss."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=SCALE)
        self.inputs = torch.randn(8, 4)

    @property
    def gradients(self) -> list[Any]:
        return [p.grad for p in self.model.parameters()]

    def loss(self) -> Any:
        with torch.autocast("cpu", dtype=torch.float16):
            return self.model(self.inputs).float().square().mean()

    def scaled_backward(self) -> None:
        self.scaler.scale(self.loss()).backward()

    def step(self) -> None:
        self.scaler.step(self.optimizer)
        self.scaler.update()


def codes(run: Callable[[Loop], None], steps: int = 2) -> set[str]:
    """The codes seen in some steps of ``run``; what torch raises ends them."""
    loop = Loop()
    with watch() as seen:
        for _ in range(steps):
            loop.optimizer.zero_grad()
            try:
                run(loop)
            except (ValueError, RuntimeError, AssertionError):
                break
    return {finding.code for finding in seen.findings} - {"steps-skipped"}


@pytest.mark.parametrize("limit", [0.5, 1.0, 2.5, 40.0])
@pytest.mark.parametrize("clip", [clip_grad_norm_, clip_grad_value_, "clamp"])
def test_a_limit_times_the_scale_clips_what_the_plain_one_would(limit: float, clip: Any) -> None:
    def run(loop: Loop, by: float) -> None:
        loop.scaled_backward()
        if clip == "clamp":
            for gradient in loop.gradients:
                gradient.clamp_(min=-limit * by, max=limit * by)
        else:
            clip(list(loop.model.parameters()), limit * by)
        loop.step()

    assert codes(lambda loop: run(loop, loop.scaler.get_scale())) == set()
    assert codes(lambda loop: run(loop, 1.0)) == {"clip-before-unscale"}


def test_a_limit_times_a_scale_that_is_no_power_of_two() -> None:
    def run(loop: Loop) -> None:
        loop.scaled_backward()
        clip_grad_norm_(loop.model.parameters(), 0.1 * loop.scaler.get_scale())
        loop.step()
        loop.scaler.update(new_scale=3000.0)

    assert codes(run) == set()


def squares(gradients: list[Any]) -> Any:
    return sum(g.pow(2).sum().item() for g in gradients) ** 0.5


def squares_by_operator(gradients: list[Any]) -> Any:
    return torch.sqrt(sum((g.data**2).sum() for g in gradients))


def gathered(gradients: list[Any]) -> Any:
    return torch.cat([g.flatten() for g in gradients]).norm()


@pytest.mark.parametrize("norm", [squares, squares_by_operator, gathered])
@pytest.mark.parametrize("unscale", [False, True])
def test_a_norm_by_hand_and_a_product(norm: Callable[[list[Any]], Any], unscale: bool) -> None:
    def run(loop: Loop) -> None:
        loop.scaled_backward()
        if unscale:
            loop.scaler.unscale_(loop.optimizer)
        factor = 0.1 / (norm(loop.gradients) + 1e-6)
        for gradient in loop.gradients:
            gradient *= factor
        loop.step()

    assert codes(run) == (set() if unscale else {"clip-before-unscale"})


def divide(gradients: list[Any]) -> None:
    for gradient in gradients:
        gradient.div_(SCALE)


def multiply(gradients: list[Any]) -> None:
    for gradient in gradients:
        gradient *= 1 / SCALE


def divide_together(gradients: list[Any]) -> None:
    torch._foreach_div_(gradients, SCALE)


@pytest.mark.parametrize("unscale", [divide, multiply, divide_together])
def test_unscaling_by_hand_counts_once(unscale: Callable[[list[Any]], None]) -> None:
    def once(loop: Loop) -> None:
        loop.scaled_backward()
        unscale(loop.gradients)
        clip_grad_norm_(loop.model.parameters(), 0.1)
        loop.optimizer.step()

    def twice(loop: Loop) -> None:
        loop.scaled_backward()
        unscale(loop.gradients)
        loop.step()

    assert codes(once) == set()
    assert codes(twice) == {"unscaled-twice"}


def test_a_look_at_unscaled_gradients_leaves_them_scaled() -> None:
    def run(loop: Loop) -> None:
        loop.scaled_backward()
        assert sum(float((g / SCALE).sum()) for g in loop.gradients) != 0
        loop.step()

    assert codes(run) == set()


@pytest.mark.parametrize("first", [False, True])
def test_a_loss_with_the_scale_and_one_without_in_one_step(first: bool) -> None:
    def run(loop: Loop) -> None:
        for scaled in (first, not first):
            if scaled:
                loop.scaled_backward()
            else:
                loop.loss().backward()
        loop.step()

    assert codes(run) == {"loss-not-scaled"}


@pytest.mark.parametrize("to_none", [False, True])
def test_gradients_that_were_dropped_are_not_added_to(to_none: bool) -> None:
    def run(loop: Loop) -> None:
        loop.loss().backward()  # only looked at
        loop.optimizer.zero_grad(set_to_none=to_none)
        loop.scaled_backward()
        loop.step()

    assert codes(run) == set()


def test_a_backward_after_unscaling() -> None:
    def run(loop: Loop) -> None:
        loop.scaled_backward()
        loop.scaler.unscale_(loop.optimizer)
        loop.scaled_backward()
        loop.step()

    assert codes(run) == {"step-with-scaled-gradients"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_step_that_torch_refuses_is_not_said_to_lack_an_update(dtype: Any) -> None:
    def run(loop: Loop) -> None:
        loop.model.to(dtype)
        loss = loop.model(loop.inputs.to(dtype)).float().square().mean()
        (loop.scaler.scale(loss) if dtype is torch.float16 else loss).backward()
        loop.step()

    assert codes(run, steps=1) == {"half-weights" if dtype is torch.float16 else "loss-not-scaled"}


@pytest.mark.parametrize("inside", [False, True])
def test_gradients_asked_for_inside_autocast(inside: bool) -> None:
    def run(loop: Loop) -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loop.model(loop.inputs).float().square().mean()
            if inside:
                torch.autograd.grad(loss, list(loop.model.parameters()))
        if not inside:
            torch.autograd.grad(loss, list(loop.model.parameters()))

    assert codes(run) == ({"backward-in-autocast"} if inside else set())
