"""A compiled step is timed once it is steady: compile, graph warm-up and graph record are calls of their own."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from referee.remedy.settling import settled_at, settling_words, spent_ns
from referee.units import NS_PER_MS, NS_PER_S


def test_the_second_of_equal_calls_may_be_slow_as_well() -> None:
    """CUDA graphs: the first call compiles, the second records the graph, the third is the step."""
    calls_ns = (9 * NS_PER_S, 2 * NS_PER_S, *[NS_PER_MS] * 11)
    assert settled_at(calls_ns) == 3
    assert spent_ns(calls_ns) == 11 * NS_PER_S - 2 * NS_PER_MS
    assert settling_words(calls_ns) == ("settled at call 3: the calls before took 11.0 s more than later ones in all",)


def test_a_disturbed_call_among_steady_ones_is_no_warm_up() -> None:
    calls_ns = (9 * NS_PER_S, NS_PER_MS, 40 * NS_PER_MS, *[NS_PER_MS] * 10)
    assert settled_at(calls_ns) == 2
    assert settling_words(calls_ns) == ()


def test_nothing_compiled_has_nothing_to_settle() -> None:
    assert (settled_at(()), spent_ns(()), settling_words(())) == (None, None, ())


@pytest.mark.torch
@pytest.mark.slow
def test_what_is_compiled_under_one_grad_mode_is_compiled_again_under_another(tmp_path: Path) -> None:
    """Grad mode is guarded: warmed up under no_grad and run under inference_mode the step compiles once more."""
    pytest.importorskip("torch")
    from referee.device.registry import open_device
    from referee.remedy.attempt import attempt
    from referee.remedy.fixes import fix_named
    from referee.target import load_target

    body = """
    import torch
    def make():
        model, x, calls = torch.nn.Linear(8, 8), torch.randn(4, 8), []
        compute = lambda: model(x).relu() + 1
        def step():
            calls.append(None)
            mode = torch.no_grad() if len(calls) < 3 else torch.inference_mode()
            with mode:
                return compute()
        step.model = model
        return step
    """
    path = tmp_path / "t.py"
    path.write_text(textwrap.dedent(body))
    fix = fix_named("compile")
    assert fix is not None
    tried = attempt(fix, lambda: load_target(f"{path}:make"), device=open_device("cpu"), budget_ns=20_000_000).fixes[0]
    assert any(note.startswith("recompiled:") and "grad_mode" in note for note in tried.notes), tried
