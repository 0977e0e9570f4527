"""What a step holds does not depend on what else the process has called."""

from __future__ import annotations

import functools
import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from referee.device.discover import discover  # noqa: E402
from referee.device.observe import observe  # noqa: E402
from referee.device.registry import open_device  # noqa: E402

pytestmark = pytest.mark.torch


def test_a_compiled_function_is_found() -> None:
    compiled = torch.compile(lambda x: x + 1, backend="eager")

    def step() -> Any:
        return compiled(torch.ones(2))

    assert discover(step).compiled == ["torch.compile(<lambda>)"]


@pytest.mark.parametrize("keep", [torch._disable_dynamo, torch.compiler.disable])
def test_a_function_kept_from_the_compiler_is_not_compiled_and_is_watched(keep: Any) -> None:
    """Torch puts its wrapper on some of its own functions at their first call: the second look must say the same."""
    plain = keep(lambda x: x + 1)
    x = torch.ones(2)

    def step() -> Any:
        return plain(x)

    assert discover(step).compiled == []
    step()
    assert discover(step).compiled == []
    seen = observe(step, open_device("cpu"))
    assert (seen.basis, seen.n_ops) == ("operators", 1)


@pytest.mark.parametrize("wrap", [lambda f: f, lambda f: functools.partial(f, 2.0), lambda f: lambda: f(2.0)])
def test_the_tensor_of_a_method_that_is_no_python_code_is_held(wrap: Any) -> None:
    x = torch.ones(3)
    assert [id(tensor) for tensor in discover(wrap(x.mul_)).tensors] == [id(x)]
    assert [id(tensor) for tensor in discover(wrap(x.__imul__)).tensors] == [id(x)]


def test_functions_of_torch_and_of_modules_hold_nothing() -> None:
    held = discover(lambda: (torch.add, math.sin, torch.nn.functional.relu, len))
    assert (held.tensors, held.modules) == ([], [])
