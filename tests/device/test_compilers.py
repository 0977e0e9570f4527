"""Compilations are counted from torch's own books, and asking never loads the compiler."""

from __future__ import annotations

import subprocess
import sys

import pytest

from referee.device.compilers import compile_counters, compile_time_ns, recompile_reason

pytestmark = pytest.mark.torch


def test_asking_does_not_load_the_compiler() -> None:
    pytest.importorskip("torch")
    code = (
        "import sys, torch\n"
        "from referee.device.compilers import compile_counters, compile_time_ns\n"
        "print(set(compile_counters().values()), compile_time_ns(), 'torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{0} 0 False"


def test_compilations_recompilations_and_their_time_are_counted() -> None:
    torch = pytest.importorskip("torch")

    @torch.compile(backend="eager", dynamic=False)
    def step(x):  # type: ignore[no-untyped-def]
        return x + 1

    before = compile_counters()
    before_ns = compile_time_ns() or 0
    step(torch.ones(3))
    first = compile_counters()
    assert first["compile.frames"] == before["compile.frames"] + 1
    assert first["compile.recompiles"] == before["compile.recompiles"]
    step(torch.ones(3))
    assert compile_counters() == first
    step(torch.ones(4))
    second = compile_counters()
    assert second["compile.recompiles"] == first["compile.recompiles"] + 1
    assert (compile_time_ns() or 0) > before_ns


def test_graph_breaks_are_counted() -> None:
    torch = pytest.importorskip("torch")

    @torch.compile(backend="eager")
    def step(x):  # type: ignore[no-untyped-def]
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    before = compile_counters()["compile.graph_breaks"]
    step(torch.ones(3))
    assert compile_counters()["compile.graph_breaks"] > before


def test_the_compiler_says_which_frame_it_compiled_again_and_why() -> None:
    torch = pytest.importorskip("torch")

    @torch.compile(backend="eager", dynamic=False)
    def step(x, times=1):  # type: ignore[no-untyped-def]
        return x * times

    step(torch.ones(3))
    assert recompile_reason() is None
    for x, times, words in (
        (torch.ones(4), 1, "size mismatch at index 0. expected 3, actual 4"),
        (torch.ones(4), 2, "times == 1"),
    ):
        step(x, times)
        told = recompile_reason()
        assert told is not None
        frame, reason = told
        assert frame.startswith("step (test_compilers.py:")
        assert words in reason
        assert "\n" not in reason
        assert not reason[0].isdigit()
