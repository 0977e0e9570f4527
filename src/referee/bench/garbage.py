"""Do the calls leave garbage that only the collector frees? It is off while the clock runs, so that memory grows."""

from __future__ import annotations

import gc
from typing import Protocol, runtime_checkable

from referee.device.protocol import Device
from referee.records.finding import Finding
from referee.units import format_bytes

_GROWN_BYTES = 256 * 1024 * 1024
"""Less than this is what caches and workspaces take, and fits any machine."""

_PER_CALL = 0.5
"""Objects in cycles, a call: what single calls leave now and then is not the step's habit."""


@runtime_checkable
class SeesMemory(Protocol):
    """A device whose host process knows how much memory it occupies."""

    def resident_bytes(self) -> int | None:
        """In bytes; ``None`` where nothing tells."""


def read_resident(device: Device) -> int | None:
    """How much memory the process occupies now; ``None`` where nothing tells."""
    return device.resident_bytes() if isinstance(device, SeesMemory) else None


def check_garbage(before_bytes: int | None, *, device: Device, calls: int) -> tuple[Finding, ...]:
    """Has memory grown by what reference cycles hold? Collects them where it has grown by much, and only there."""
    now_bytes = read_resident(device)
    if before_bytes is None or now_bytes is None or now_bytes - before_bytes < _GROWN_BYTES:
        return ()
    freed = gc.collect()
    if freed < _PER_CALL * calls:
        return ()
    grown = now_bytes - before_bytes
    return (
        Finding(
            code="results-kept",
            severity="warning",
            message=f"Each call leaves objects that refer to each other in a cycle: the process grew by "
            f"{format_bytes(grown)} in {calls:,} calls, because the garbage collector is off while the clock runs, and "
            "each call had to be given memory that was not used before.",
            evidence={"grown_bytes": grown, "collected_objects": freed, "calls": calls},
            hint="Break the cycle (a tensor on an object that refers to itself, a stored exception), or collect in the "
            "step: gc.collect().",
        ),
    )
