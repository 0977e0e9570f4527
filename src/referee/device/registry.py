"""Which device does this name mean, and is it here? The one place that knows every backend.

A new backend is one file with a class that passes the contract suite, and one line in :data:`_KINDS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from referee.device.accelerator import AcceleratorDevice
from referee.device.cpu import CpuDevice
from referee.device.cuda import CudaDevice
from referee.device.fake import FakeAsync, FakeLazy, FakeSync
from referee.device.host import load_torch
from referee.device.lazy import LazyDevice
from referee.device.protocol import Device
from referee.device.xla import XlaDevice, count_devices
from referee.errors import DeviceMissing, OptionError, PackageMissing
from referee.records.environment import DeviceEntry

_NAME = re.compile(r"([a-z][a-z0-9_]*)(?::(\d+))?")

_FAKES: dict[str, Callable[[], Device]] = {"fake-sync": FakeSync, "fake-async": FakeAsync, "fake-lazy": FakeLazy}

_OTHER_NAMES = {"gpu": "cuda", "nvidia": "cuda", "rocm": "cuda", "hip": "cuda", "amd": "cuda", "metal": "mps"}
"""What people write for a device that torch calls otherwise. They are told, not guessed for."""


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """How one kind of device is counted and opened."""

    count: Callable[[Any], int]
    open: Callable[[int], Device]
    settling: str
    absent: str


def _count(kind: str) -> Callable[[Any], int]:
    """The number of devices by the namespace ``torch.<kind>``; 0 where this build has none."""

    def count(torch: Any) -> int:
        module = getattr(torch, kind, None)
        return module.device_count() if module is not None and module.is_available() else 0

    return count


_KINDS: dict[str, _Kind] = {
    "cpu": _Kind(count=lambda _: 1, open=lambda _: CpuDevice(), settling="synchronous", absent=""),
    "cuda": _Kind(
        count=_count("cuda"),
        open=CudaDevice,
        settling="asynchronous",
        absent="Install a CUDA or ROCm build of torch on a machine with such a GPU, or use --device cpu.",
    ),
    "xpu": _Kind(
        count=_count("xpu"),
        open=lambda index: AcceleratorDevice("xpu", index),
        settling="asynchronous",
        absent="Install an XPU build of torch on a machine with an Intel GPU, or use --device cpu.",
    ),
    "mps": _Kind(
        count=_count("mps"),
        open=lambda index: AcceleratorDevice("mps", index),
        settling="asynchronous",
        absent="MPS needs macOS on Apple silicon; use --device cpu.",
    ),
    "lazy": _Kind(
        count=lambda torch: int(hasattr(torch._C, "_lazy_ts_backend")),
        open=LazyDevice,
        settling="lazy",
        absent="This build of torch has no lazy backend; use --device cpu.",
    ),
    "xla": _Kind(
        count=count_devices,
        open=XlaDevice,
        settling="lazy",
        absent="Install torch_xla for this torch (and set PJRT_DEVICE=CPU where there is no TPU), or use --device cpu.",
    ),
}


def open_device(name: object) -> Device:
    """The device called ``name``: ``cpu``, ``cuda``, ``cuda:1``, ``xla``, ``lazy``, ``xpu:0``, ``mps``, or a fake.

    A ``torch.device`` is called as it prints itself.

    Raises :class:`~referee.errors.OptionError` for what is no device name, and
    :class:`~referee.errors.DeviceMissing` for a device that is not here.
    """
    name = str(name)
    if name in _FAKES:
        return _FAKES[name]()
    match = _NAME.fullmatch(name)
    kind_name = match.group(1) if match else ""
    index = int(match.group(2) or 0) if match else 0
    if kind_name in _OTHER_NAMES:
        raise OptionError(f"{name!r} is not a device name.", hint=f"torch calls it {_OTHER_NAMES[kind_name]!r}.")
    kind = _KINDS.get(kind_name) or _other_accelerator(kind_name)
    if kind is None:
        raise OptionError(f"{name!r} is not a device name.", hint=f"Known are {', '.join(_KINDS)}, as in cuda:0.")
    _require(name, kind, index=index)
    return kind.open(index)


def _require(name: str, kind: _Kind, *, index: int) -> None:
    found = kind.count(load_torch())
    if found == 0:
        raise DeviceMissing(f"No device {name} here.", hint=kind.absent)
    if index >= found:
        there = f"{found} such device{'s are' if found > 1 else ' is'} here, numbered from 0"
        raise DeviceMissing(f"No device {name} here: {there}.", hint="`referee env` lists what is here.")


def _other_accelerator(kind: str) -> _Kind | None:
    """A backend that registered itself with torch as the accelerator of this machine under the name ``kind``."""
    if not kind:
        return None
    accelerator = getattr(load_torch(), "accelerator", None)
    if accelerator is None or not accelerator.is_available() or accelerator.current_accelerator().type != kind:
        return None
    return _Kind(
        count=lambda _: accelerator.device_count(),
        open=lambda index: AcceleratorDevice(kind, index),
        settling="asynchronous",
        absent="",
    )


def list_devices() -> tuple[DeviceEntry, ...]:
    """Which devices could be measured on, and which are here? Opens none that needs starting."""
    try:
        torch = load_torch()
    except PackageMissing as error:
        return tuple(
            DeviceEntry(name=name, available=False, detail=str(error), settling=kind.settling)
            for name, kind in _KINDS.items()
        )
    entries: list[DeviceEntry] = []
    for name, kind in _KINDS.items():
        found = kind.count(torch)
        if found == 0:
            entries.append(DeviceEntry(name=name, available=False, detail=kind.absent, settling=kind.settling))
        for index in range(found):
            full = name if found == 1 and name in ("cpu", "mps", "lazy") else f"{name}:{index}"
            detail = _detail(torch, name, index)
            entries.append(DeviceEntry(name=full, available=True, detail=detail, settling=kind.settling))
    return tuple(entries)


def _detail(torch: Any, kind: str, index: int) -> str:
    read = getattr(getattr(torch, kind, None), "get_device_name", None)
    return str(read(index)) if read is not None else ""
