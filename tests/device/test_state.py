"""Switches that hold for the whole process are read, told apart, and put back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import pytest
import torch

from referee.device.cpu import CpuDevice
from referee.device.observe import observe
from referee.device.state import State, kept_state, read_state, switch_findings


def _deterministic() -> None:
    torch.use_deterministic_algorithms(True)


def _unfrozen() -> AbstractContextManager[object]:
    """Other tests import torch's own, which freeze the flags of its backends for the whole process."""
    return getattr(torch.backends, "__allow_nonbracketed_mutation", nullcontext)()


def _cudnn() -> None:
    with _unfrozen():
        torch.backends.cudnn.benchmark = not torch.backends.cudnn.benchmark


def _tf32() -> None:
    with _unfrozen():
        torch.backends.cudnn.allow_tf32 = not torch.backends.cudnn.allow_tf32


SETTERS: dict[str, Callable[[], object]] = {
    "switches.float32_matmul_precision": lambda: torch.set_float32_matmul_precision("medium"),
    "switches.tf32_cudnn": _tf32,
    "switches.cudnn_benchmark": _cudnn,
    "switches.deterministic": _deterministic,
    "switches.default_dtype": lambda: torch.set_default_dtype(torch.float64),
    "switches.grad_mode": lambda: torch.set_grad_enabled(False),
    "switches.autocast": lambda: torch.set_autocast_enabled("cpu", True),
    "chip.threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
}


@pytest.mark.parametrize("path", SETTERS)
def test_each_switch_is_seen_to_move_and_put_back(path: str) -> None:
    before = read_state()
    newer = getattr(torch.backends.mkldnn.matmul, "fp32_precision", None)
    with kept_state() as session:
        SETTERS[path]()
        later = read_state()
        assert path in [difference.path for difference in session.moved(later)]
    assert before.moved(read_state()) == ()
    assert getattr(torch.backends.mkldnn.matmul, "fp32_precision", None) == newer
    with kept_state():
        later.put([path])
        assert path in [difference.path for difference in before.moved(read_state())]
    assert before.moved(read_state()) == ()


def test_frozen_flags_are_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.m, "__allow_nonbracketed_mutation_flag", False)
    with pytest.raises(RuntimeError, match="flags"):
        torch.backends.cudnn.benchmark = True
    before = read_state()
    before.put()
    with kept_state():
        _cudnn()
        assert before.moved(read_state())
    assert before.moved(read_state()) == ()


def test_inference_mode_that_was_entered_is_left_again() -> None:
    with kept_state():
        guard = torch.inference_mode()
        guard.__enter__()
        assert read_state().values["switches.grad_mode"] == "inference_mode"
    assert read_state().values["switches.grad_mode"] == "grad"
    assert not torch.ones(1).is_inference()


def test_nothing_moved_is_no_finding() -> None:
    assert switch_findings(read_state().moved(read_state())) == ()
    assert State().moved(read_state()) == ()


def test_what_a_step_puts_back_is_stated_as_it_was_while_it_computed() -> None:
    x = torch.ones(4, 4)

    def step() -> torch.Tensor:
        torch.set_float32_matmul_precision("medium")
        try:
            return x @ x
        finally:
            torch.set_float32_matmul_precision("highest")

    with kept_state():
        torch.set_float32_matmul_precision("highest")
        seen = observe(step, CpuDevice())
    assert seen.switches["float32_matmul_precision"] == "medium"
