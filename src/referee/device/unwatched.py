"""In which grad mode did a step run that could not be watched? What its outputs and its parameters tell afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from referee.device.host import load_torch
from referee.device.switches import grad_mode
from referee.records.provenance import NOT_READ

if TYPE_CHECKING:
    import torch


def told_grad_mode(parameters: Iterable[torch.Tensor]) -> Callable[[Sequence[torch.Tensor]], str]:
    """A function that is given the outputs of the call that follows, and says in which mode it ran.

    A step may set its mode itself. Gradients wanted by an output, or new at a parameter, or a parameter that was
    updated, say ``grad``; an output that wants none, although ``parameters`` do, says that none were recorded. Where
    nothing wants a gradient it cannot be told (``not read``).
    """
    before = {id(tensor): (tensor, _state(tensor)) for tensor in parameters if tensor.requires_grad}

    def told(outputs: Sequence[torch.Tensor]) -> str:
        around = grad_mode(load_torch())
        if any(output.is_inference() for output in outputs):
            return "inference_mode"
        trained = any(_state(tensor) != state for tensor, state in before.values())
        if trained or any(output.requires_grad for output in outputs):
            return "grad"
        if around != "grad":
            return around
        recorded_none = before and any(output.is_floating_point() for output in outputs)
        return "no_grad" if recorded_none else NOT_READ

    return told


def _state(tensor: torch.Tensor) -> tuple[int | None, ...]:
    """What a backward or an update changes: the version of a parameter, and which gradient it has in which one."""
    gradient = tensor.grad
    return (
        None if tensor.is_inference() else tensor._version,
        None if gradient is None else id(gradient),
        None if gradient is None or gradient.is_inference() else gradient._version,
    )
