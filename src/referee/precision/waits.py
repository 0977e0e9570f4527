"""How often does the host wait for the device because of a scaler? Values read back in a step, with and without it."""

from __future__ import annotations

from typing import Any

from referee.device.dispatch_mode import ListeningMode
from referee.precision.control import FLOAT32, FP16, Control, Setting, own_scaler
from referee.precision.subject import Subject, restored

_READS = "aten::_local_scalar_dense"
"""The operator behind ``.item()``, ``float(tensor)`` and ``if tensor``: on a device it waits for everything queued."""


def count_scaler_waits(subject: Subject) -> int:
    """Values that one fp16 step with a ``GradScaler`` reads back and the float32 step does not. Expected: one."""
    scaler = own_scaler(subject.device_type)
    return _reads(subject, FP16, scaler) - _reads(subject, FLOAT32, None)


def _reads(subject: Subject, setting: Setting, scaler: Any) -> int:
    control = Control(setting, device_type=subject.device_type, own_sites=subject.own_sites, scaler=scaler)
    with restored(subject), _Counter() as counter:
        control.call(subject.step)
    return int(counter.reads)


class _Counter(ListeningMode):
    """Counts the values read back."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.reads += func._schema.name == _READS
        return func(*args, **(kwargs or {}))
