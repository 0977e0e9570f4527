"""What differs from eager by rounding alone is told from what computes something else, by the step in float64."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from referee.device.registry import open_device  # noqa: E402
from referee.records.remedy import FixTried  # noqa: E402
from referee.remedy.attempt import attempt  # noqa: E402
from referee.remedy.fix import Fix, Loaded  # noqa: E402
from referee.remedy.fixes import fix_named, rewrite  # noqa: E402
from referee.remedy.rounding import Against, distance, rms  # noqa: E402
from referee.target import Target, load_target  # noqa: E402

pytestmark = pytest.mark.torch

BUDGET_NS = 20_000_000
DEVICE = open_device("cpu")
ROUNDING = "so it is rounding"

NORM = """\
import torch

def make():
    x = torch.randn(64, 32)
    def step():
        y = {far}
        return ({scale} * (y - y.mean(-1, keepdim=True)) / y.std(-1, keepdim=True)).float()
    return step
"""
FAR = "x + 4000.0"
"""The sum alone is off by up to 1.2e-4, half of the distance between float32 numbers of that size."""

CONV = """\
import torch
from torch import nn

def make():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
    x = torch.randn(4, 3, 8, 8)
    def step():
        model.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss.detach()
    step.model = model
    return step
"""


def target(tmp_path: Path, text: str, *, file: str = "t.py") -> Callable[[], Target]:
    (tmp_path / file).write_text(text)
    return lambda: load_target(f"{tmp_path / file}:make")


def try_fix(fix: Fix, load_it: Callable[[], Target]) -> FixTried:
    return attempt(fix, load_it, device=DEVICE, budget_ns=BUDGET_NS).fixes[0]


def norm_instead(tmp_path: Path, **given: str) -> FixTried:
    """The norm far from zero, and another way to write it as the fix."""
    load_it = target(tmp_path, NORM.format(far=FAR, scale="1.0"))
    other = target(tmp_path, NORM.format(**{"far": FAR, "scale": "1.0", **given}), file="u.py")
    return try_fix(rewrite("u.py:make", other), load_it)


def after_step(tmp_path: Path, change: Callable[[Any], None]) -> FixTried:
    """The training step, its gradients changed when it is done."""

    def apply(loaded: Loaded, _: object) -> Callable[[], object]:
        def step() -> object:
            output = loaded.step()
            change(loaded.target.model)
            return output

        return step

    return try_fix(Fix(name="planted", title="", how="", attacks="", apply=apply), target(tmp_path, CONV))


@pytest.mark.parametrize(
    ("far", "words"),
    [("0.9 * x + 3600.0", "both are about as far"), ("x.double() + 4000.0", "the fix is nearer")],
)
def test_what_is_as_near_float64_as_eager_matches(tmp_path: Path, far: str, words: str) -> None:
    tried = norm_instead(tmp_path, far=far)
    assert tried.outputs_match is True
    assert tried.check is not None
    assert tried.check.worst_output is not None
    assert tried.check.worst_output > 2e-5
    said = next(note for note in tried.notes if ROUNDING in note)
    assert "output 0 differs from eager's by" in said
    assert "from float64 the fix is" in said
    assert words in said


@pytest.mark.parametrize("change", [{"scale": "1.001"}, {"far": "(x + 4000.0).half().float()"}, {"far": "x + 32000.0"}])
def test_what_is_further_from_float64_than_eager_is_rejected(tmp_path: Path, change: dict[str, str]) -> None:
    tried = norm_instead(tmp_path, **change)
    assert tried.outputs_match is False
    assert tried.measured_ratio is None
    assert "from float64 the fix is" in tried.why_not
    assert "more than rounding" in tried.why_not


def _size_of_all(model: Any) -> float:
    return rms([p.grad for p in model.parameters()])


def test_noise_in_a_gradient_that_is_zero_by_mathematics_matches(tmp_path: Path) -> None:
    def disturb(model: Any) -> None:
        model[0].bias.grad.copy_(torch.tensor([5e-6, -5e-6, 4e-6, 3e-6]) * _size_of_all(model))

    tried = after_step(tmp_path, disturb)
    assert tried.outputs_match is True
    assert tried.check is not None
    assert tried.check.worst_gradient is not None
    assert tried.check.worst_gradient > 2e-4
    assert any("gradient 1 differs" in note and "zero by mathematics" in note for note in tried.notes)


def test_a_gradient_that_should_be_zero_and_is_not_is_rejected(tmp_path: Path) -> None:
    def disturb(model: Any) -> None:
        model[0].bias.grad.add_(2e-3 * _size_of_all(model))

    tried = after_step(tmp_path, disturb)
    assert tried.outputs_match is False
    assert "gradient 1" in tried.why_not
    assert "more than rounding" in tried.why_not


@pytest.mark.parametrize("place", [0, 1, 4])
def test_a_gradient_that_is_off_by_a_thousandth_is_rejected(tmp_path: Path, place: int) -> None:
    tried = after_step(tmp_path, lambda model: model[place].weight.grad.mul_(1.001))
    assert tried.outputs_match is False
    assert "more than rounding" in tried.why_not


NO_REFERENCE = {
    "random numbers": "    return lambda: model(x) + torch.rand(4)",
    "writes to its inputs": "    return lambda: (x.add_(1), model(x))[1]",
    "does not run in float64": (
        "    def step():\n"
        "        if x.dtype != torch.float32: raise TypeError('float32 alone, please')\n"
        "        return model(x)\n"
        "    return step"
    ),
    "still returns float32": "    return lambda: torch.from_numpy(model(x).detach().numpy().astype('float32'))",
    "in float64 already": "    x, model = x.double(), model.double()\n    return lambda: model(x)",
}


@pytest.mark.parametrize("why", list(NO_REFERENCE))
def test_without_a_float64_run_the_refusal_stands(tmp_path: Path, why: str) -> None:
    text = "import torch\ndef make():\n    model, x = torch.nn.Linear(4, 4), torch.randn(8, 4)\n"
    load_it = target(tmp_path, text + NO_REFERENCE[why] + "\n")
    scaled: Callable[[Any], Any] = lambda y: y * (1 + 1e-4)  # noqa: E731
    fix = Fix(name="planted", title="", how="", attacks="", apply=lambda loaded, _: lambda: scaled(loaded.step()))
    tried = try_fix(fix, load_it)
    assert tried.outputs_match is False
    assert "values differ: relative error" in tried.why_not
    assert "float64" not in tried.why_not
    assert any("not held against float64" in note and why in note for note in tried.notes)


def test_float64_runs_only_where_values_differ(tmp_path: Path) -> None:
    built: list[Target] = []
    load_it = target(tmp_path, NORM.format(far=FAR, scale="1.0"))

    def counted() -> Target:
        built.append(load_it())
        return built[-1]

    def planted(change: Callable[[Any], Any]) -> int:
        built.clear()
        apply = lambda loaded, _: lambda: change(loaded.step())  # noqa: E731
        try_fix(Fix(name="planted", title="", how="", attacks="", apply=apply), counted)
        return len(built)

    same, other_dtype, other_values = (planted(c) for c in (lambda y: y, lambda y: y.double(), lambda y: y * 1.01))
    assert same == 3  # watched, eager's side, the fix's
    assert other_dtype == same + 2  # eager against itself
    assert other_values == other_dtype + 1  # float64


def test_eager_that_is_as_far_from_float64_as_no_rounding_is_proves_nothing() -> None:
    exact, eager = torch.ones(64, dtype=torch.float64), torch.full((64,), 1.5)
    against = Against(exact={0: exact}, scale=1.0, floor=0.0)
    matches, words = against.judge(0, eager, torch.full((64,), 0.5), tolerance=2e-5, element_factor=10.0)
    assert not matches
    assert "too far to be rounding" in words
    assert against.judge(1, eager, eager, tolerance=2e-5, element_factor=10.0)[0] is False


def test_one_element_further_off_than_any_of_eagers_is_not_rounding() -> None:
    torch.manual_seed(0)
    exact = torch.ones(4096, dtype=torch.float64)
    eager = exact + 1e-4 * (torch.rand(4096, dtype=torch.float64) - 0.5)
    fixed = eager.clone()
    fixed[7] += 1e-3
    assert distance(exact, fixed, floor=0.0)[0] < 2 * distance(exact, eager, floor=0.0)[0]
    against = Against(exact={0: exact}, scale=1.0, floor=0.0)
    assert against.judge(0, eager, eager, tolerance=2e-5, element_factor=10.0)[0] is True
    matches, words = against.judge(0, eager, fixed, tolerance=2e-5, element_factor=10.0)
    assert not matches
    assert "one element" in words


COMPILED = """\
import torch
from torch import nn

def biases():
    torch.manual_seed(0)
    norm = [nn.BatchNorm2d(8), nn.ReLU()]
    model = nn.Sequential(nn.Conv2d(3, 8, 3), *norm, nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
    x = torch.randn(4, 3, 16, 16)
    def step():
        model.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss.detach()
    step.model = model
    return step

def far():
    torch.manual_seed(0)
    model, x = nn.LayerNorm(64), torch.randn(32, 64)
    return torch.no_grad()(lambda: model(x + 1000))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["biases", "far"])
def test_compiled_code_is_not_rejected_for_rounding(tmp_path: Path, name: str) -> None:
    (tmp_path / "t.py").write_text(COMPILED)
    fix = fix_named("compile")
    assert fix is not None
    tried = try_fix(fix, lambda: load_target(f"{tmp_path / 't.py'}:{name}"))
    assert tried.outputs_match is True
