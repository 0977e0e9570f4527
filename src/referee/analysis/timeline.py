"""What ran when something ran: computation, and the copies and collectives that no computation hid."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from referee.analysis.kernels import is_collective, is_copy, is_local_copy
from referee.graph.work import Work
from referee.records.trace_report import Timeline
from referee.trace.columns import IntColumn, Trace
from referee.trace.intervals import measure, union


def partition_busy(trace: Trace, works: Sequence[Work]) -> Timeline:
    """Computation + exposed communication + exposed copies = busy, exactly; summed over devices.

    Computation is the union of all rows that are neither copies nor collectives (fills included). Communication is
    exposed where no computation runs, a copy where neither computation nor communication runs: the partition that
    TraceLens prints, so that figures can be held side by side. Of exposed copies those within a device are apart: no
    link carries them, they are the device's own work.
    """
    return add_up([partition_rows(trace, work, np.arange(work.rows.size)) for work in works])


def partition_rows(trace: Trace, work: Work, members: IntColumn) -> Timeline:
    """The same for some rows of one device, by their positions."""
    rows, start_ns, end_ns = work.rows[members], work.start_ns[members], work.end_ns[members]
    copy, talk = is_copy(trace, rows), is_collective(trace, rows)
    computation_ns = measure(union(start_ns[~copy & ~talk], end_ns[~copy & ~talk]))
    both_ns = measure(union(start_ns[~copy], end_ns[~copy]))
    local = is_local_copy(trace, rows)
    carried = copy & ~local
    on_device_ns = measure(union(start_ns[~carried], end_ns[~carried])) if local.any() else both_ns
    return Timeline(
        computation_ns=computation_ns,
        exposed_communication_ns=both_ns - computation_ns,
        exposed_copy_ns=measure(union(start_ns, end_ns)) - both_ns,
        local_copy_ns=on_device_ns - both_ns,
    )


def add_up(parts: Sequence[Timeline]) -> Timeline:
    """The sum of several."""
    return Timeline(
        computation_ns=sum(part.computation_ns for part in parts),
        exposed_communication_ns=sum(part.exposed_communication_ns for part in parts),
        exposed_copy_ns=sum(part.exposed_copy_ns for part in parts),
        local_copy_ns=sum(part.local_copy_ns for part in parts),
    )
