"""What looks on while a step computes is named, with how to be rid of it, and put back where it was set for a side."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from referee.device.cpu import CpuDevice
from referee.device.observe import Observation, observe
from referee.device.state import kept_state, read_state
from referee.device.watchers import entering, read_watchers


class Passing(TorchFunctionMode):
    """A function mode that changes nothing."""

    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        return func(*args, **(kwargs or {}))


class Counting(TorchDispatchMode):
    """A dispatch mode that changes nothing."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        return func(*args, **(kwargs or {}))


def add() -> torch.Tensor:
    x = torch.ones(4, requires_grad=True)
    total = (x + x).sum()
    total.backward()
    return total


def told(seen: Observation) -> str:
    """The message of the finding; empty where there is none."""
    return next((finding.message for finding in seen.findings if finding.code == "watched"), "")


def test_a_step_that_nothing_watches_says_so() -> None:
    with kept_state():
        seen = observe(add, CpuDevice())
    assert told(seen) == ""
    assert seen.switches["debugger"] == "off"


@pytest.mark.parametrize(
    ("switch_on", "name"),
    [
        (lambda: torch.autograd.set_detect_anomaly(True), "anomaly mode"),
        (lambda: torch.set_default_device("cpu"), "default device cpu"),
    ],
)
def test_what_is_left_on_is_named_and_put_back(switch_on: Callable[[], object], name: str) -> None:
    """Anomaly mode makes a small training step five times slower; a default device takes part in every call."""
    before = read_state()
    with kept_state():
        switch_on()
        seen = observe(add, CpuDevice())
        assert read_watchers(torch) == (name,)
    assert name in told(seen)
    assert seen.switches["debugger"] == name
    assert before.moved(read_state()) == ()
    assert read_watchers(torch) == ()


@pytest.mark.parametrize(
    ("mode", "name"),
    [
        (Passing, "function mode Passing"),
        (Counting, "dispatch mode Counting"),
        (lambda: torch.device("cpu"), "default device cpu"),
    ],
)
def test_modes_are_seen_around_a_step_and_inside(mode: Callable[[], object], name: str) -> None:
    def inside() -> torch.Tensor:
        with mode():  # type: ignore[attr-defined]
            return add()

    assert name in told(observe(inside, CpuDevice()))
    with mode():  # type: ignore[attr-defined]
        assert name in told(observe(add, CpuDevice()))
    assert told(observe(add, CpuDevice())) == ""


def test_modes_are_entered_as_before_afterwards() -> None:
    before = TorchFunctionMode.__enter__, TorchDispatchMode.__enter__
    with entering() as found, Passing(), Counting():
        pass
    assert list(found) == ["function mode Passing", "dispatch mode Counting"]
    assert before == (TorchFunctionMode.__enter__, TorchDispatchMode.__enter__)
