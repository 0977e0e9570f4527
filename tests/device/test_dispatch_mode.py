"""A listening mode hears the operators, and loads torch's compiler for nobody."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from referee.device.dispatch_mode import ListeningMode  # noqa: E402 - needs torch


class Heard(ListeningMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func._schema.name)
        return func(*args, **(kwargs or {}))


def _run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip().splitlines()[-1]


def test_measuring_does_not_load_the_compiler() -> None:
    code = """
import sys, torch, referee
a = torch.ones(8)
referee.bench(torch.add, a, a, budget=0.05)
print("torch._dynamo" in sys.modules)
"""
    assert _run(code) == "False"


def test_listens_without_the_compiler_and_with_it() -> None:
    code = """
import sys, torch
from tests.device.test_dispatch_mode import Heard
a = torch.ones(8)
with Heard() as before:
    torch.add(a, a)
early = "torch._dynamo" in sys.modules
import torch._dynamo
with Heard() as after:
    torch.add(a, a)
    with Heard() as within:
        torch.mul(a, a)
print(early, before.names, after.names, within.names)
"""
    heard = "['aten::add'] ['aten::add', 'aten::mul'] ['aten::mul']"
    assert _run(code) == f"False {heard}"


def test_code_compiled_while_a_mode_listens_computes_what_it_should() -> None:
    compiled = torch.compile(lambda x: x.sin() + 1, backend="eager")
    x = torch.ones(3)
    with Heard() as heard:
        out = compiled(x)
    assert torch.equal(out, x.sin() + 1)
    assert "aten::sin" in heard.names


def test_what_the_step_raises_leaves_no_handler_behind() -> None:
    mode = Heard()
    with pytest.raises(ValueError, match="mine"), mode:
        raise ValueError("mine")
    assert "__torch_dispatch__" not in vars(mode)
