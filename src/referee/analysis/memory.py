"""How much memory was in use, when was the peak, and how often did requests reach the driver?"""

from __future__ import annotations

import numpy as np

from referee.graph.calls import ALLOCATIONS, calls_named
from referee.records.tables import MemoryPoint, MemoryTimeline
from referee.trace.columns import NONE, Trace
from referee.trace.details import Details

MOST_POINTS = 200


def memory_timeline(trace: Trace, details: Details | None) -> MemoryTimeline | None:
    """The allocator's events on devices; ``None`` where the profile holds none (``profile_memory`` was off).

    Files that state no totals give the running sum of changes since the first event.
    """
    if details is None or not details.memory.time_ns.size:
        return None
    memory = details.memory
    stated = bool((memory.allocated_bytes != NONE).all())
    allocated = memory.allocated_bytes if stated else np.cumsum(memory.change_bytes)
    peak = int(np.argmax(allocated))
    step = max(1, -(-allocated.size // MOST_POINTS))
    chosen = np.unique(np.concatenate((np.arange(0, allocated.size, step), [peak, allocated.size - 1])))
    calls = calls_named(trace, ALLOCATIONS)
    return MemoryTimeline(
        events=int(allocated.size),
        peak_bytes=int(allocated[peak]),
        peak_time_ns=int(memory.time_ns[peak]),
        from_start=stated,
        points=tuple(
            MemoryPoint(
                time_ns=int(memory.time_ns[i]),
                allocated_bytes=int(allocated[i]),
                reserved_bytes=int(memory.reserved_bytes[i]) if memory.reserved_bytes[i] != NONE else None,
            )
            for i in chosen
        ),
        driver_calls=int(calls.size),
        driver_ns=int((trace.rows.end_ns[calls] - trace.rows.start_ns[calls]).sum()),
    )
