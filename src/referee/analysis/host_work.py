"""How much of the host's idle time is no overhead? Operators that compute on the host while the device has nothing.

An optimizer whose state lives in host memory, noise drawn there and copied over, a mask built from Python numbers:
such operators launch nothing, and no captured graph takes them away. They count neither as per-op overhead nor as a
pause when the regime is named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from referee.analysis.hosts import SILENT_NS
from referee.analysis.idle import Gaps
from referee.graph.computing import computing_rows
from referee.trace.columns import IntColumn, RowNumbers, Trace
from referee.trace.intervals import IntervalSet, overlap_ns, union


@dataclass(frozen=True, eq=False)
class HostWork:
    """Operators that compute on the host, in order of start, and when they did."""

    rows: RowNumbers
    short: IntervalSet
    long: IntervalSet
    """Those of 2 ms and more: their idle time is called a pause."""


def find_host_work(trace: Trace) -> HostWork:
    """The operators of the launching threads that hold no other row, launch nothing, and last."""
    rows, operators = trace.rows, computing_rows(trace)
    long = rows.end_ns[operators] - rows.start_ns[operators] >= SILENT_NS
    return HostWork(
        rows=operators,
        short=union(rows.start_ns[operators[~long]], rows.end_ns[operators[~long]]),
        long=union(rows.start_ns[operators[long]], rows.end_ns[operators[long]]),
    )


def of_per_op(trace: Trace, gaps: Gaps) -> IntColumn:
    """How much of the per-op part of each idle interval the host spent computing."""
    work = find_host_work(trace)
    return np.minimum(gaps.per_op_ns, overlap_ns(gaps.start_ns, gaps.host_end_ns, within=work.short))


def of_pause(trace: Trace, gaps: Gaps) -> IntColumn:
    """How much of the paused part of each idle interval the host spent computing."""
    work = find_host_work(trace)
    return np.minimum(gaps.pause_ns, overlap_ns(gaps.start_ns, gaps.host_end_ns, within=work.long))


def host_work_ns(trace: Trace, gaps: Sequence[Gaps]) -> int:
    """All of it, over all devices."""
    return sum(int(of_per_op(trace, g).sum() + of_pause(trace, g).sum()) for g in gaps)


def who_computes(trace: Trace, gaps: Sequence[Gaps]) -> list[tuple[str, int]]:
    """The operators by name with the idle time that they held, in ns, the longest first."""
    rows, work = trace.rows, find_host_work(trace)
    idle = union(
        np.concatenate([np.zeros(0, dtype=np.int64), *(g.start_ns for g in gaps)]),
        np.concatenate([np.zeros(0, dtype=np.int64), *(g.host_end_ns for g in gaps)]),
    )
    held_ns = overlap_ns(rows.start_ns[work.rows], rows.end_ns[work.rows], within=idle)
    took: Counter[str] = Counter()
    for row, ns in zip(work.rows.tolist(), held_ns.tolist(), strict=True):
        took[trace.name_of(row)] += ns
    return sorted(((name, ns) for name, ns in took.items() if ns), key=lambda pair: (-pair[1], pair[0]))
