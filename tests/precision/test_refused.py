"""Steps that raise in a low precision: the reason, the line, and that the mend which is named mends it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from referee.precision.reading import why_not_run  # noqa: E402
from referee.precision.refused import Refusal, refusal_findings  # noqa: E402
from referee.precision.subject import make_subject  # noqa: E402

HERE = "test_refused.py"
Step = Callable[[], object]


class Product(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, weight = ctx.saved_tensors
        return gradient @ weight.t(), x.t() @ gradient


class Mended(torch.autograd.Function):  # type: ignore[misc]
    forward = staticmethod(torch.amp.custom_fwd(Product.forward, device_type="cpu"))
    backward = staticmethod(torch.amp.custom_bwd(Product.backward, device_type="cpu"))


def training(loss_of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Step:
    layer, weight, x = torch.nn.Linear(8, 8), torch.nn.Parameter(torch.randn(8, 8)), torch.randn(4, 8)
    optimizer = torch.optim.SGD([*layer.parameters(), weight], lr=0.1)

    def step() -> object:
        optimizer.zero_grad()
        loss = loss_of(layer(x), weight)
        loss.backward()
        optimizer.step()
        return loss

    step.optimizer = optimizer  # type: ignore[attr-defined]
    return step


def filled(low: float) -> Step:
    hidden = torch.eye(8, dtype=torch.bool)[:4]
    return training(lambda h, _: h.masked_fill(hidden, low).softmax(-1).square().mean())


def put(alike: bool) -> Step:
    def loss_of(h: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        buffer = torch.zeros(4, 8)
        buffer[torch.arange(4)] = h.to(buffer.dtype) if alike else h
        return buffer.square().mean()

    return training(loss_of)


def refused(step: Step, name: str) -> Refusal | None:
    return why_not_run(make_subject(step, device_type="cpu"), name)


@pytest.mark.parametrize(
    ("step", "name", "reason", "says"),
    [
        (lambda: filled(-1e9), "float16", "constant", "torch.finfo(x.dtype).min"),
        (
            lambda: training(lambda h, w: Product.apply(h, w).square().mean()),
            "bfloat16",
            "custom-function",
            "custom_fwd",
        ),
        (lambda: put(alike=False), "bfloat16", "dtypes", "a.to(b.dtype)"),
    ],
)
def test_the_reason_and_the_line_are_named(step: Callable[[], Step], name: str, reason: str, says: str) -> None:
    found = refused(step(), name)
    assert found is not None
    assert found.reason == reason
    assert found.line.startswith(f"{HERE}:")
    (finding,) = refusal_findings({name: found}, device_type="cpu")
    assert finding.message.startswith(f"The step does not run in {name}: at {found.line} ")
    assert says in finding.hint
    if reason == "custom-function":
        assert "Product meets tensors of two dtypes" in finding.message


@pytest.mark.parametrize(
    ("step", "name"),
    [
        (lambda: filled(torch.finfo(torch.float16).min), "float16"),
        (lambda: training(lambda h, w: Mended.apply(h, w).square().mean()), "bfloat16"),
        (lambda: put(alike=True), "bfloat16"),
    ],
)
def test_the_mend_mends(step: Callable[[], Step], name: str) -> None:
    assert refused(step(), name) is None


def test_what_is_not_known_is_no_finding() -> None:
    def raises(h: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        if torch.is_autocast_enabled("cpu"):
            raise ValueError("only float32 here")
        return h.sum()

    found = refused(training(raises), "bfloat16")
    assert found is not None
    assert (found.why, found.reason) == ("ValueError: only float32 here", "other")
    assert list(refusal_findings({"bfloat16": found}, device_type="cpu")) == []


def test_one_reason_for_two_precisions_is_told_once() -> None:
    step = training(lambda h, w: Product.apply(h, w).square().mean())
    found = {name: refusal for name in ("bfloat16", "float16") if (refusal := refused(step, name))}
    (finding,) = refusal_findings(found, device_type="cuda")
    assert finding.message.startswith("The step does not run in bfloat16 and float16: at ")
    assert "custom_bwd(device_type='cuda')" in finding.hint
