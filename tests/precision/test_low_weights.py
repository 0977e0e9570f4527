"""Weights that are kept in fewer bits, complex weights, and gradients that no loss scale saves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from referee.precision.activations import measure_activations  # noqa: E402
from referee.precision.findings import finite_findings, range_findings  # noqa: E402
from referee.precision.formats import FLOAT16  # noqa: E402
from referee.precision.gradients import measure_gradients, report_gradients  # noqa: E402
from referee.precision.updates import count_lost_updates  # noqa: E402
from referee.precision.verdict import judge  # noqa: E402
from referee.records.precision import PrecisionTiming  # noqa: E402

from .models import subject_of  # noqa: E402


def step_of(dtype: Any, *, lr: float, factor: float = 1.0) -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    model = torch.nn.Linear(16, 16).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    inputs = factor * torch.randn(8, 16, dtype=dtype)

    def step() -> Any:
        optimizer.zero_grad()
        loss = model(inputs).float().abs().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, model, optimizer


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("lr", [1e-6, 1e-3, 1.0])
def test_updates_that_low_weights_lose_are_those_that_change_nothing(dtype: Any, lr: float) -> None:
    made = step_of(dtype, lr=lr)
    lost = count_lost_updates(subject_of(made))
    step, model, _ = made
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    step()
    by_hand = {n: int(((p == before[n]) & (p.grad != 0)).sum()) for n, p in model.named_parameters()}
    assert lost == by_hand
    if lr == 1e-6:
        assert lost["weight"] > 128


def timing(name: str, answer: str, ratio: float | None) -> PrecisionTiming:
    return PrecisionTiming(
        name=name,
        median_ns=1e6,
        ratio=ratio,
        ci_low=ratio,
        ci_high=ratio,
        answer=answer,
        casts_ns=None,
        kernel_gain_ns=None,
        loss_error=None,
        output_error=None,
        gradient_error=None,
    )


@pytest.mark.parametrize("low", ["", "bfloat16"])
def test_no_one_is_told_to_stay_in_a_float32_that_was_not_there(low: str) -> None:
    rows = (timing("float32", "base", None), timing("bfloat16", "slower", 1.4))
    verdict = judge(timing=rows, gradients=None, activations=(), autocast=None, kept=low)
    assert verdict.dtype == ("cannot-tell" if low else "float32")
    assert low in (verdict.undecided_because or "")
    assert low in verdict.lines[0]


def test_gradients_that_overflow_at_every_scale_are_not_said_to_need_a_scaler() -> None:
    subject = subject_of(step_of(torch.float32, lr=0.0, factor=1e6))
    ranges = report_gradients(subject, measure_gradients(subject))
    assert ranges.scale_low is None
    assert ranges.overflow_frac > 0.5
    rows = (timing("float32", "base", None), timing("bfloat16", "slower", 1.4))
    line = judge(timing=rows, gradients=ranges, activations=(), autocast=None).lines[0]
    assert "overflows at scale 1, and no loss scale that was tried is good" in line
    assert all("GradScaler" not in found.hint for found in range_findings(ranges, ()))


def test_both_parts_of_complex_gradients_are_counted() -> None:
    weights = torch.nn.Parameter(torch.ones(100, dtype=torch.complex64))
    factors = torch.complex(torch.ones(100), torch.full((100,), 2.0**-30))
    factors[:30] = 2.0**-26 + 3j
    step = lambda: (weights * factors).real.sum()  # noqa: E731
    gradients = measure_gradients(subject_of((step, None, torch.optim.SGD([weights], lr=0.1))))
    parts = np.stack([factors.real.numpy(), factors.imag.numpy()])
    assert gradients.together.elements == 200
    assert gradients.together.cast(FLOAT16).zeros == int((parts.astype(np.float16) == 0).sum()) == 100


@pytest.mark.parametrize("spoiled", [False, True])
def test_data_with_nan_are_named_and_not_taken_for_an_overflow_of_fp16(spoiled: bool) -> None:
    torch.manual_seed(0)
    model, inputs = torch.nn.Linear(4, 2), torch.randn(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if spoiled:
        inputs[0, 0] = float("nan")

    def step() -> Any:
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step()
    subject = subject_of((step, model, optimizer))
    found = finite_findings(measure_gradients(subject).reference, subject)
    assert [finding.evidence.get("nan_in") for finding in found] == (["(8, 4)"] if spoiled else [])
    rows = measure_activations(subject)
    assert any(row.overflows for row in rows) == spoiled
    assert range_findings(None, rows, not_finite=spoiled) == ()
