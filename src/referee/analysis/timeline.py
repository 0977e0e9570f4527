"""What ran when something ran: computation, and the copies and collectives that no computation hid."""

from __future__ import annotations

from collections.abc import Sequence

from referee.analysis.kernels import is_collective, is_copy
from referee.graph.work import Work
from referee.records.trace_report import Timeline
from referee.trace.columns import BoolColumn, Trace
from referee.trace.intervals import measure, union


def partition_busy(trace: Trace, works: Sequence[Work]) -> Timeline:
    """Computation + exposed communication + exposed copies = busy, exactly; summed over devices.

    Computation is the union of all rows that are neither copies nor collectives (fills included). Communication is
    exposed where no computation runs, a copy where neither computation nor communication runs: the partition that
    TraceLens prints, so that figures can be held side by side.
    """
    parts = [_partition(work, copy=is_copy(trace, work.rows), talk=is_collective(trace, work.rows)) for work in works]
    return Timeline(
        computation_ns=sum(part[0] for part in parts),
        exposed_communication_ns=sum(part[1] for part in parts),
        exposed_copy_ns=sum(part[2] for part in parts),
    )


def _partition(work: Work, *, copy: BoolColumn, talk: BoolColumn) -> tuple[int, int, int]:
    computation_ns = measure(union(work.start_ns[~copy & ~talk], work.end_ns[~copy & ~talk]))
    both_ns = measure(union(work.start_ns[~copy], work.end_ns[~copy]))
    return computation_ns, both_ns - computation_ns, work.busy_ns - both_ns
