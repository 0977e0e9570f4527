"""Does a step wait instead of computing? The time that its process neither computed nor wanted a processor."""

from __future__ import annotations

from dataclasses import dataclass

from referee.bench.sampling import SeesProcess
from referee.device.protocol import Device, Settling


@dataclass(frozen=True, slots=True)
class Occupied:
    """The time at a reading, and how long this process had computed or waited for a processor until then."""

    now_ns: int
    occupied_ns: int


def read_occupied(device: Device) -> Occupied | None:
    """A reading now; ``None`` where calls are not done when they return, or no such account is kept."""
    if not isinstance(device, SeesProcess) or device.settling is not Settling.SYNCHRONOUS:
        return None
    occupied_ns = device.occupied_ns()
    return None if occupied_ns is None else Occupied(device.now_ns(), occupied_ns)


def waited_frac(before: Occupied | None, after: Occupied | None) -> float | None:
    """The share of the time between two readings in which the process slept; ``None`` without both."""
    if before is None or after is None or after.now_ns <= before.now_ns:
        return None
    occupied_ns = after.occupied_ns - before.occupied_ns
    return min(1.0, max(0.0, 1.0 - occupied_ns / (after.now_ns - before.now_ns)))
