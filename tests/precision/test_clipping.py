"""Clipping of gradients that carry a loss scale, however users write it; what is no clipping is left in peace."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn.utils import (  # noqa: E402
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)

from referee.precision.watch import Seen, watch  # noqa: E402

SCALE = 1024.0


def watched(act: Callable[[Any, Any], None], *, unscale: bool, steps: int = 2) -> Seen:
    """Some fp16 steps in which ``act`` is done to the gradients, before or after they are unscaled."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=SCALE)
    inputs = torch.randn(8, 4)
    with watch() as seen:
        for _ in range(steps):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = model(inputs).float().square().mean()
            scaler.scale(loss).backward()
            if unscale:
                scaler.unscale_(optimizer)
            act(list(model.parameters()), scaler)
            scaler.step(optimizer)
            scaler.update()
    return seen


def by_total_norm(parameters: Any, scaler: Any) -> None:
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters])
    torch.nn.utils.clip_grads_with_norm_(parameters, 0.1, norm)  # here


def by_total_norm_of_an_iterator(parameters: Any, scaler: Any) -> None:
    norm = torch.nn.utils.get_total_norm(p.grad for p in parameters)
    torch.nn.utils.clip_grads_with_norm_(iter(parameters), 0.1, norm)  # here


def by_imported_total_norm(parameters: Any, scaler: Any) -> None:
    norm = get_total_norm([p.grad for p in parameters])
    clip_grads_with_norm_(parameters, 0.1, norm)  # here


def by_half_imported_total_norm(parameters: Any, scaler: Any) -> None:
    norm = get_total_norm([p.grad for p in parameters])
    torch.nn.utils.clip_grads_with_norm_(parameters, 0.1, norm)  # here


def by_imported_norm(parameters: Any, scaler: Any) -> None:
    clip_grad_norm_(parameters, 0.1)  # here


def by_imported_value(parameters: Any, scaler: Any) -> None:
    clip_grad_value_(parameters, 0.1)  # here


def clamped(parameters: Any, scaler: Any) -> None:
    for p in parameters:
        p.grad.clamp_(-0.1, 0.1)  # here


def clamped_through_data(parameters: Any, scaler: Any) -> None:
    for p in parameters:
        p.grad.data.clamp_(-0.1, 0.1)  # here


def clamped_anew(parameters: Any, scaler: Any) -> None:
    for p in parameters:
        p.grad = torch.clamp(p.grad, -0.1, 0.1)  # here


def clamped_from_one_side(parameters: Any, scaler: Any) -> None:
    for p in parameters:
        p.grad = torch.clamp_max(p.grad, 0.1)  # here


def bounded_anew(parameters: Any, scaler: Any) -> None:
    limit = torch.tensor(0.1)
    for p in parameters:
        p.grad = torch.maximum(torch.minimum(p.grad, limit), -limit)  # here


def bounded_by_a_limit_for_each(parameters: Any, scaler: Any) -> None:
    for p in parameters:
        p.grad = torch.full_like(p.grad, 0.1).fmin(p.grad)  # here


def multiplied(parameters: Any, scaler: Any) -> None:
    norm = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in parameters]))
    for p in parameters:
        p.grad.mul_(0.1 / (norm + 1e-6))  # here


def multiplied_by_an_operator(parameters: Any, scaler: Any) -> None:
    norm = sum(float(torch.norm(p.grad)) ** 2 for p in parameters) ** 0.5
    for p in parameters:
        p.grad *= 0.1 / (norm + 1e-6)  # here


def multiplied_anew(parameters: Any, scaler: Any) -> None:
    norm = sum(float(p.grad.norm()) ** 2 for p in parameters) ** 0.5
    for p in parameters:
        p.grad = p.grad * (0.1 / (norm + 1e-6))  # here


def divided_together(parameters: Any, scaler: Any) -> None:
    gradients = [p.grad for p in parameters]
    norm = torch.stack(torch._foreach_norm(gradients)).norm()
    torch._foreach_div_(gradients, float(norm) / 0.1)  # here


WAYS = (
    by_total_norm,
    by_total_norm_of_an_iterator,
    by_imported_total_norm,
    by_half_imported_total_norm,
    by_imported_norm,
    by_imported_value,
    clamped,
    clamped_through_data,
    clamped_anew,
    clamped_from_one_side,
    bounded_anew,
    bounded_by_a_limit_for_each,
    multiplied,
    multiplied_by_an_operator,
    multiplied_anew,
    divided_together,
)


def line_of(act: Callable[..., object]) -> str:
    lines, first = inspect.getsourcelines(act)
    return f"test_clipping.py:{next(first + k for k, words in enumerate(lines) if words.rstrip().endswith('# here'))}"


@pytest.mark.parametrize("act", WAYS)
def test_clipping_before_unscaling_is_named_with_its_line(act: Callable[[Any, Any], None]) -> None:
    (found,) = watched(act, unscale=False).findings
    assert found.code == "clip-before-unscale"
    assert found.evidence["line"] == line_of(act)
    assert found.evidence["scale"] == SCALE
    assert "unscale_" in found.hint


@pytest.mark.parametrize("act", WAYS)
def test_clipping_after_unscaling_is_left_in_peace(act: Callable[[Any, Any], None]) -> None:
    assert watched(act, unscale=True).findings == ()


def test_a_total_norm_says_by_how_much_the_update_is_too_small() -> None:
    (found,) = watched(by_total_norm, unscale=False).findings
    seen, norm = float(str(found.evidence["norm_seen"])), float(str(found.evidence["norm"]))
    assert seen == pytest.approx(SCALE * norm)
    assert found.evidence["too_small_by"] == pytest.approx((seen / 0.1) / max(1.0, norm / 0.1))


def test_a_norm_taken_before_unscaling_and_used_after_it() -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=SCALE)
    with watch() as seen:
        with torch.autocast("cpu", dtype=torch.float16):
            loss = layer(torch.randn(8, 4)).float().square().mean()
        scaler.scale(loss).backward()
        norm = torch.nn.utils.get_total_norm([p.grad for p in layer.parameters()])
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grads_with_norm_(layer.parameters(), 0.1, norm)
        scaler.step(optimizer)
        scaler.update()
    (found,) = seen.findings
    assert found.code == "clip-before-unscale"


def logged(parameters: Any, scaler: Any) -> None:
    for p in parameters:
        p.grad.norm()


def logged_and_averaged(parameters: Any, scaler: Any) -> None:
    norm = get_total_norm([p.grad for p in parameters])
    for p in parameters:
        p.grad.div_(4)
        p.grad.mul_(1 / 3)
    assert norm > 0


def unscaled_by_hand(parameters: Any, scaler: Any) -> None:
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters])
    torch.nn.utils.clip_grads_with_norm_(parameters, 0.1, norm / scaler.get_scale())


def other_tensors_changed(parameters: Any, scaler: Any) -> None:
    norm = torch.randn(4).norm()
    torch.randn(4).clamp_(-1, 1).mul_(norm)


def extremes_read(parameters: Any, scaler: Any) -> None:
    for p in parameters:
        assert p.grad.max() >= torch.min(p.grad, 0).values.min()
        torch.maximum(p.grad, p.grad)


def bounded_at_a_scaled_limit(parameters: Any, scaler: Any) -> None:
    limit = torch.tensor(0.1 * scaler.get_scale())
    for p in parameters:
        p.grad = torch.maximum(torch.minimum(p.grad, limit.expand_as(p.grad)), -limit)


NO_CLIPPING = (
    logged,
    logged_and_averaged,
    unscaled_by_hand,
    other_tensors_changed,
    extremes_read,
    bounded_at_a_scaled_limit,
)


@pytest.mark.parametrize("act", NO_CLIPPING)
def test_what_is_no_clipping_of_scaled_gradients_is_left_in_peace(act: Callable[[Any, Any], None]) -> None:
    assert watched(act, unscale=False).findings == ()


def test_a_step_is_compiled_whole_while_it_is_watched() -> None:
    def step(x: Any) -> Any:
        return torch.mul(x.clamp(-1, 1), 2).mul_(3) * x.norm()

    x = torch.randn(4)
    with watch():
        assert torch.equal(torch.compile(step, backend="eager", fullgraph=True)(x), step(x))
