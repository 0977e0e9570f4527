"""The examples run as they are documented, on the CPU and on the lazy backend, and carry what the targets promise."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from referee.device.registry import open_device

torch = pytest.importorskip("torch")

FOLDER = Path(__file__).resolve().parents[2] / "examples"
TRAINING = [("transformer", "train_step"), ("convnet", "train_step")]
FORWARD = [("inference", "with_inference_mode"), ("inference", "without"), ("convnet", "infer")]


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def factory(file: str, name: str) -> Callable[..., Any]:
    return getattr(load(file), name)


@pytest.mark.parametrize(("file", "name"), TRAINING)
def test_a_training_step_lowers_its_loss(file: str, name: str) -> None:
    step = factory(file, name)(batch_size=2)
    losses = [float(step()) for _ in range(8)]
    assert all(math.isfinite(loss) for loss in losses)
    assert losses[-1] < losses[0]
    assert {id(p) for g in step.optimizer.param_groups for p in g["params"]} == {id(p) for p in step.model.parameters()}


@pytest.mark.parametrize(("file", "name"), FORWARD)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_forward_step_answers_for_each_item(file: str, name: str, dtype: Any) -> None:
    step = factory(file, name)(batch_size=3, dtype=dtype)
    outputs = step()
    assert outputs.shape == (3, 10)
    assert outputs.dtype == dtype
    assert outputs.count_nonzero() == outputs.numel()
    assert isinstance(step.model, torch.nn.Module)


def test_the_two_inference_steps_differ_in_the_grad_mode_alone() -> None:
    module = load("inference")
    without, with_mode = module.without(batch_size=2)(), module.with_inference_mode(batch_size=2)()
    assert torch.equal(without, with_mode)
    assert without.requires_grad
    assert with_mode.is_inference()


@pytest.mark.parametrize(("file", "name"), TRAINING + FORWARD)
def test_two_builds_give_the_same_numbers(file: str, name: str) -> None:
    build = factory(file, name)
    assert torch.equal(build(batch_size=2)().detach(), build(batch_size=2)().detach())


@pytest.mark.parametrize(("file", "name"), TRAINING + FORWARD)
def test_the_lazy_backend_gives_what_the_cpu_gives(file: str, name: str) -> None:
    device = open_device("lazy")
    build = factory(file, name)
    step = build(batch_size=2, device="lazy")
    on_lazy = step()
    device.settle(on_lazy)
    torch.testing.assert_close(on_lazy.detach().cpu(), build(batch_size=2)().detach(), rtol=1e-4, atol=1e-4)
