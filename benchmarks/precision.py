"""What do autocast, fp16 and bf16 do here, measured? Three claims about mixed precision, each with its figures.

Run it with::

    python benchmarks/precision.py

1. Autocast runs matrix products and convolutions in the low-precision dtype and keeps reductions and other sensitive
   operators in float32: by the policies that are found by behaviour, for each kind of device that torch knows.
2. In fp16 small gradients underflow to exactly zero, and scaling the loss saves them: the share that vanishes in a real
   fp16 backward at rising loss scales, beside the share that the cast alone would lose.
3. bf16 needs no scaler: the same backward in bf16 at scale 1.

And what watching costs: a training step with the watch and without it.
"""

from __future__ import annotations

import torch
from torch import nn

from referee.api import compare
from referee.precision import watch
from referee.precision.gradients import measure_gradients, report_gradients
from referee.precision.policy import policies
from referee.precision.subject import make_subject

PRODUCTS = ("linear", "matmul", "bmm", "conv2d", "conv_transpose2d")
SENSITIVE = ("sum", "mean", "softmax", "log_softmax", "layer_norm", "norm", "exp", "pow", "mse_loss", "cumsum")


def show_policies() -> None:
    """Claim 1."""
    print("1. What autocast does with each call")
    kinds = ("cuda", "cpu", "xpu", "mps")
    print(f"   {'':18}" + "".join(f"{kind:>18}" for kind in kinds))
    for call in (*PRODUCTS, *SENSITIVE):
        print(f"   {call:18}" + "".join(f"{policies(kind).of_call(call) or 'leaves alone':>18}" for kind in kinds))


def show_underflow() -> None:
    """Claims 2 and 3."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.Sigmoid(), nn.Linear(128, 128), nn.Sigmoid(), nn.Linear(128, 8))
    inputs = torch.randn(32, 64)

    def step() -> torch.Tensor:
        model.zero_grad(set_to_none=True)
        loss = 1e-5 * model(inputs).float().square().mean()
        loss.backward()
        return loss.detach()

    subject = make_subject(step, device_type="cpu", model=model)
    found = report_gradients(subject, measure_gradients(subject))
    elements = f"{found.elements:,} gradient elements, {found.zeros_frac:.2%} zero in float32"
    print(f"2. A small loss through two sigmoids: {elements}")
    for point in found.scales:
        if point.zero_frac is not None:
            print(
                f"   loss scale 2^{point.exponent:<3} vanish: {point.zero_frac:7.2%} in a real fp16 backward, "
                f"{point.zero_frac_cast:7.2%} by the cast; overflow {point.overflow_frac:7.2%}"
            )
    print(f"   good scales: {found.scale_low:,.0f} to {found.scale_high:,.0f}")
    print(f"3. bf16 at scale 1: {found.zero_frac_bf16:.2%} vanish")


def show_cost() -> None:
    """The cost of the watch."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    inputs = torch.randn(32, 64)

    def plain() -> torch.Tensor:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = model(inputs).float().square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    def watched() -> torch.Tensor:
        with watch():
            return plain()

    found = compare(("plain", plain), ("watched", watched), budget="3s")
    print(f"4. The watch, entered for every step: {found.ratio} of the time ({found.ci_low} to {found.ci_high})")


if __name__ == "__main__":
    show_policies()
    show_underflow()
    show_cost()
