"""The error of each precision, against the same step in float64."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from referee.precision.accuracy import errors, float64_pass  # noqa: E402
from referee.precision.control import BF16, FLOAT32, FP16  # noqa: E402
from referee.precision.passes import run_pass  # noqa: E402
from referee.precision.subject import make_subject  # noqa: E402

from .models import FAMILIES, subject_of, training  # noqa: E402


def test_float64_is_float64_throughout() -> None:
    model = nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.GELU(), nn.Linear(7, 2))
    inputs = torch.randn(9, 5)
    step = lambda: model(inputs).float().square().mean()  # noqa: E731
    found = float64_pass(subject_of((step, model, None)))
    twin = copy.deepcopy(model).double()
    twin(inputs.double()).square().mean().backward()
    exact = {name: p.grad for name, p in twin.named_parameters()}
    assert all(torch.allclose(found.gradients[k], exact[k], rtol=1e-12, atol=0) for k in exact)
    assert found.losses[0].dtype == torch.float64
    assert model[0].weight.dtype == torch.float32


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_a_float64_reference(family: str) -> None:
    torch.manual_seed(0)
    model, step = FAMILIES[family]()
    subject = subject_of((step, model, None))
    reference = float64_pass(subject)
    assert {g.dtype for g in reference.gradients.values()} == {torch.float64}
    found = errors(run_pass(subject, FLOAT32), reference)
    assert found.gradient is not None
    assert 0 <= found.gradient < 1e-5
    assert found.loss is not None
    assert found.loss < 1e-5


def test_errors_rank_the_precisions() -> None:
    subject = subject_of(training())
    reference = float64_pass(subject)
    wrong = {s.name: errors(run_pass(subject, s), reference).gradient for s in (FLOAT32, FP16, BF16)}
    assert wrong["float32"] is not None
    assert wrong["float32"] < 1e-5 < wrong["float16"] < wrong["bfloat16"] < 0.1


def test_random_numbers_are_the_same_in_float64() -> None:
    model = nn.Linear(3, 3)
    step = lambda: (model(torch.randn(4, 3)) * torch.rand(4, 1)).sum()  # noqa: E731
    subject = subject_of((step, model, None))
    assert errors(run_pass(subject, FLOAT32), float64_pass(subject)).gradient == pytest.approx(0, abs=1e-6)


def test_errors_of_complex_gradients_are_those_of_both_parts() -> None:
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(4, 4, dtype=torch.complex64))
    inputs = torch.randn(8, 4, dtype=torch.complex64)
    subject = make_subject(lambda: (inputs @ weight).abs().square().mean(), device_type="cpu")
    exact = run_pass(subject, FLOAT32)
    (name,) = exact.gradients
    off = copy.copy(exact)
    object.__setattr__(off, "gradients", {name: exact.gradients[name] * (1 + 0.5j)})
    assert errors(off, exact).gradient == pytest.approx(0.5, rel=1e-6)
    assert errors(exact, exact).gradient == 0
