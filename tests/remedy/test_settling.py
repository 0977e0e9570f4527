"""A compiled step is timed once it is steady: compile, graph warm-up and graph record are calls of their own."""

from __future__ import annotations

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
def test_what_is_compiled_under_one_grad_mode_is_compiled_again_under_another() -> None:
    """Grad mode and the key set of tensors are guarded: warmed up in another mode, a timed call compiles."""
    torch = pytest.importorskip("torch")
    from referee.device.registry import open_device
    from referee.remedy.compiler import listening

    device, x = open_device("cpu"), torch.randn(4)
    compiled = torch.compile(lambda x: torch.relu(x) + 1, backend="eager")
    made = []
    with listening() as log:
        for mode in (torch.no_grad, torch.no_grad, torch.inference_mode, torch.inference_mode, torch.enable_grad):
            before = device.counters().get("compile.frames", 0)
            with mode():
                compiled(x)
            made.append(device.counters()["compile.frames"] - before)
    assert made == [1, 0, 1, 0, 1]
    keys, mode_words = log.recompiles
    assert "dispatch key set mismatch" in keys
    assert "GLOBAL_STATE changed: grad_mode" in mode_words
