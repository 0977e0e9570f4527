"""XPU, MPS and other devices that torch reaches through ``torch.accelerator``: asynchronous, one queue or more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from referee.device.barrier import wait_for
from referee.device.host import HostClocked
from referee.device.protocol import DeviceTimer, Settling
from referee.records.finding import Scalar

NS_PER_MS = 1_000_000


class EventTimer:
    """Two events in a device's queue. ``elapsed_time`` of torch's events is in milliseconds.

    ``stream`` gives the stream to mark, asked for at each mark; without it the event takes the current device's.
    """

    def __init__(self, start: Any, stop: Any, *, stream: Callable[[], Any] | None = None) -> None:
        self._start = start
        self._stop = stop
        self._stream = stream

    def start(self) -> None:
        """Record the first event on the current stream."""
        self._record(self._start)

    def stop(self) -> None:
        """Record the second event on the current stream."""
        self._record(self._stop)

    def elapsed_ns(self) -> float:
        """Device time between the two; waits for the second."""
        self._stop.synchronize()
        return float(self._start.elapsed_time(self._stop)) * NS_PER_MS

    def _record(self, event: Any) -> None:
        if self._stream is None:
            event.record()
        else:
            event.record(self._stream())


class AcceleratorDevice(HostClocked):
    """Any asynchronous device with a namespace of its own under ``torch`` that has ``synchronize``."""

    settling = Settling.ASYNCHRONOUS
    # A synchronise costs 5 to 20 µs on the devices known: 1 ms keeps it at or below 2 % of a block.
    block_target_ns = 1_000_000

    def __init__(self, kind: str, index: int = 0) -> None:
        super().__init__(kind if kind == "mps" else f"{kind}:{index}")
        self._kind = kind
        self._device = self._torch.device(kind, index)
        self._module: Any = getattr(self._torch, kind)

    def timer(self) -> DeviceTimer | None:
        """A pair of events on the current stream, or ``None`` where the backend's events carry no time."""
        make: Any = getattr(self._module, "Event", None)
        if make is None:
            make = getattr(getattr(self._module, "event", None), "Event", None)
        if make is None:
            return None
        current: Any = getattr(self._module, "current_stream", None)
        # MPS has one queue and no streams.
        stream = None if current is None else lambda: current(self._device)
        return EventTimer(make(enable_timing=True), make(enable_timing=True), stream=stream)

    def describe(self) -> Mapping[str, Scalar] | None:
        """What ``get_device_properties`` tells, where the backend has it."""
        found: dict[str, Scalar] = {"name": self._kind, "index": self._device.index or 0}
        read: Any = getattr(self._module, "get_device_properties", None)
        if read is not None:
            properties = read(self._device)
            for key, attribute in _PROPERTIES:
                value = getattr(properties, attribute, None)
                if value is not None:
                    found[key] = value if isinstance(value, (int, float)) else str(value)
        elif self._kind == "mps":
            found["memory_bytes"] = int(self._torch.mps.recommended_max_memory())
        return found

    def _wait(self) -> None:
        wait_for(self._device)


_PROPERTIES = (
    ("name", "name"),
    ("sm_count", "max_compute_units"),
    ("sm_count", "multi_processor_count"),
    ("memory_bytes", "total_memory"),
    ("l2_cache_bytes", "last_level_cache_size"),
    ("driver", "driver_version"),
)
"""Provenance keys and the attribute that backends give them under; where two are there the later one counts."""
