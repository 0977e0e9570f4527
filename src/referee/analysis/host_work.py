"""How much of the host's idle time is no overhead? Operators that compute on the host while the device has nothing.

An optimizer whose state lives in host memory, noise drawn there and copied over, a mask built from Python numbers:
such operators launch nothing, and no captured graph takes them away. They count neither as per-op overhead nor as a
pause when the regime is named.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from referee.analysis.hosts import SILENT_NS
from referee.analysis.idle import Gaps
from referee.graph.calls import COLLECTIVES, named
from referee.graph.threads import launching_threads
from referee.trace.columns import CALL_KINDS, IntColumn, Kind, RowNumbers, Trace
from referee.trace.intervals import IntervalSet, overlap_ns, union
from referee.units import NS_PER_US

LASTS_NS = 50 * NS_PER_US
"""An operator that calls no other and launches nothing costs a few microseconds to issue, recorded or not; one that
takes ten times as long computes."""
_NO_COMPUTING = re.compile(rf"c10d::|record_param_comms|barrier|wait|{COLLECTIVES.pattern}", re.IGNORECASE)
"""Operators that may stand still for others without a call that says so."""


@dataclass(frozen=True, eq=False)
class HostWork:
    """Operators that compute on the host, in order of start, and when they did."""

    rows: RowNumbers
    short: IntervalSet
    long: IntervalSet
    """Those of 2 ms and more: their idle time is called a pause."""


def find_host_work(trace: Trace) -> HostWork:
    """The operators of the launching threads that hold no other row, launch nothing, and last."""
    if (found := _FOUND.get(trace)) is None:
        found = _FOUND[trace] = _find(trace)
    return found


_FOUND: WeakKeyDictionary[Trace, HostWork] = WeakKeyDictionary()
"""The window, its steps and the remedies ask about the same trace."""


def _find(trace: Trace) -> HostWork:
    rows = trace.rows
    operators = rows.of(Kind.OPERATOR)
    operators = operators[rows.end_ns[operators] - rows.start_ns[operators] >= LASTS_NS]
    operators = operators[launching_threads(trace)[rows.thread[operators]]]
    operators = operators[~named(trace, operators, _NO_COMPUTING)] if operators.size else operators
    inner = rows.of(Kind.OPERATOR, *CALL_KINDS)
    alone = np.ones(operators.size, dtype=bool)
    for code in np.unique(rows.thread[operators]):
        mine = np.flatnonzero(rows.thread[operators] == code)
        same = inner[rows.thread[inner] == code]
        # Rows are in order of start, the longer first: what a row holds comes right behind it.
        place = np.searchsorted(same, operators[mine]) + 1
        follower = same[np.minimum(place, same.size - 1)]
        alone[mine] = (place >= same.size) | (rows.start_ns[follower] >= rows.end_ns[operators[mine]])
    operators = operators[alone]
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
