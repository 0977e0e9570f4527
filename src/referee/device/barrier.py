"""How is the work behind these tensors awaited? One barrier for each kind of device a tensor can live on.

A tensor says where it lives; a device that has no known barrier is refused, because a clock that stops without waiting
reports how fast work can be queued.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from referee.device.settle import find_leaves
from referee.errors import EnvironmentLacks

if TYPE_CHECKING:
    import torch

NOTHING_TO_WAIT_FOR = frozenset({"cpu", "meta"})
"""Device types whose calls return when the work is done, or that do no work at all."""

RECORDING = frozenset({"lazy", "xla"})
"""Device types whose calls only record: their tensors must be materialised before there is anything to wait for."""


def settle_outputs(outputs: object) -> frozenset[str]:
    """Wait for the work behind every tensor in ``outputs``; returns the devices awaited (``cpu`` needs no wait).

    On a lazy device exactly these tensors are materialised, then awaited. No value is read back. Raises
    :class:`~referee.errors.EnvironmentLacks` for a device type that has no known barrier.
    """
    import torch

    if isinstance(outputs, torch.Tensor) and outputs.is_cpu:
        return frozenset()  # the usual case on a CPU, kept short: it lies inside the timed window
    recorded: dict[str, list[torch.Tensor]] = {}
    awaited: dict[str, torch.device] = {}
    for tensor in find_leaves(outputs, torch.Tensor):
        if tensor.is_cpu:
            continue
        kind = tensor.device.type
        if kind in RECORDING:
            recorded.setdefault(kind, []).append(tensor)
        if kind not in NOTHING_TO_WAIT_FOR:
            awaited[str(tensor.device)] = tensor.device
    for tensors in recorded.values():
        materialise(tensors)
    for device in awaited.values():
        wait_for(device)
    return frozenset(awaited)


def materialise_in(outputs: object, kind: str) -> None:
    """Run what was recorded for the tensors in ``outputs`` that live on the recording backend ``kind``, if any."""
    if outputs is None:  # looking for tensors in it would take longer than a short call
        return
    import torch

    tensors = [tensor for tensor in find_leaves(outputs, torch.Tensor) if tensor.device.type == kind]
    if tensors:
        materialise(tensors)


def materialise(tensors: list[torch.Tensor]) -> None:
    """Run what was recorded for exactly these tensors of one recording backend.

    Returns when the graph has been handed over; that it has run is another matter (:func:`wait_for`).
    """
    import torch

    if tensors[0].device.type == "xla":
        bridge()._xla_sync_multi(tensors, [], False, True)
        return
    lazy: Any = torch._C._lazy
    lazy._sync_multi(tensors, [], True, True)


def bridge() -> Any:
    """The compiled half of ``torch_xla``: private, but the public functions wrap these and no more."""
    from torch_xla import _XLAC

    return _XLAC


def wait_for(device: torch.device) -> None:
    """Wait until ``device`` has nothing queued. Covers all of its streams."""
    import torch

    kind = device.type
    if kind in NOTHING_TO_WAIT_FOR:
        return
    if kind == "cuda":
        torch.cuda.synchronize(device)
    elif kind == "lazy":
        lazy: Any = torch._C._lazy
        lazy._wait_device_ops([])
    elif kind == "xla":
        bridge()._xla_wait_device_ops([])
    elif kind == "mps":
        torch.mps.synchronize()
    else:
        _wait_for_other(device)


def _wait_for_other(device: torch.device) -> None:
    """Through the namespace that the backend registers under its own name: ``torch.xpu``, ``torch.npu`` and so on."""
    import torch

    synchronise = getattr(getattr(torch, device.type, None), "synchronize", None)
    if synchronise is None:
        raise EnvironmentLacks(
            f"No barrier is known for devices of type {device.type!r}, so nothing on {device} can be timed.",
            hint="Measure on a device that `referee env` lists.",
        )
    synchronise(device)
