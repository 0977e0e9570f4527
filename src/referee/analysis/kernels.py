"""Which kernels take the time, and what kind of work is each: computation, a collective, a copy?"""

from __future__ import annotations

import numpy as np

from referee.graph.calls import COLLECTIVES, LOCAL_COPIES, named
from referee.records.trace_report import TopKernel
from referee.trace.columns import DEVICE_KINDS, BoolColumn, Kind, RowNumbers, Trace


def is_collective(trace: Trace, rows: RowNumbers) -> BoolColumn:
    """Which of these device rows are collectives: kernels whose name says so, never copies or fills."""
    mask: BoolColumn = (trace.rows.kind[rows] == Kind.KERNEL) & named(trace, rows, COLLECTIVES)
    return mask


def is_copy(trace: Trace, rows: RowNumbers) -> BoolColumn:
    """Which of these device rows are copies by a device's engine (fills are not: they write what will be computed)."""
    mask: BoolColumn = trace.rows.kind[rows] == Kind.MEMCPY
    return mask


def is_local_copy(trace: Trace, rows: RowNumbers) -> BoolColumn:
    """Which of these device rows are copies within the memory of their device: its own work, on no link.

    By name; a copy between devices is called peer to peer (``PtoP``), not this.
    """
    mask: BoolColumn = is_copy(trace, rows) & named(trace, rows, LOCAL_COPIES)
    return mask


def top_kernels(trace: Trace) -> tuple[TopKernel, ...]:
    """All device rows grouped by name, longest in all first; ties by name."""
    rows = trace.rows
    device_rows = rows.of(*DEVICE_KINDS)
    if not device_rows.size:
        return ()
    duration_ns = rows.end_ns[device_rows] - rows.start_ns[device_rows]
    names, code = np.unique(rows.name[device_rows], return_inverse=True)
    sums = np.zeros(names.size, dtype=np.int64)
    np.add.at(sums, code, duration_ns)
    counts = np.bincount(code, minlength=names.size)
    order = sorted(range(names.size), key=lambda i: (-int(sums[i]), trace.names[int(names[i])]))
    by_name = np.argsort(code, kind="stable")
    begin = np.concatenate(([0], np.cumsum(counts)))
    return tuple(
        TopKernel(
            name=trace.names[int(names[i])],
            count=int(counts[i]),
            sum_ns=int(sums[i]),
            median_ns=float(np.median(duration_ns[by_name[begin[i] : begin[i + 1]]])),
        )
        for i in order
    )
