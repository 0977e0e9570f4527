"""What happened on each host thread, moment by moment? The starts and ends of its rows as one chain.

Between two moments of a chain the innermost open row owns the time; where none is open the time is a gap: Python, or
anything else that is not recorded.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from referee.graph.owner import Enclosing
from referee.trace.columns import CALL_KINDS, NONE, BoolColumn, IntColumn, Kind, RowNumbers, Trace


@dataclass(frozen=True, eq=False)
class Chain:
    """One thread's moments in order."""

    thread: int
    time_ns: IntColumn
    row: RowNumbers
    """The row that starts or ends at the moment."""
    is_end: BoolColumn
    owner: RowNumbers
    """The innermost row open from this moment to the next; :data:`NONE` in a gap, and at the last moment."""


def host_rows(trace: Trace, *, begin_ns: int, end_ns: int) -> RowNumbers:
    """The operators and calls that overlap ``[begin, end)``, without those that take no time and launch nothing."""
    rows = trace.rows
    chosen = rows.of(Kind.OPERATOR, *CALL_KINDS)
    lasting = (rows.end_ns[chosen] > rows.start_ns[chosen]) | trace.links.is_launch[chosen]
    inside = (rows.start_ns[chosen] < end_ns) & (rows.start_ns[chosen] >= begin_ns)
    return chosen[lasting & inside]


def make_chain(trace: Trace, thread: int, members: RowNumbers) -> Chain:
    """The chain of one thread's rows. Ends come before starts at the same moment; of ends the inner one first."""
    rows = trace.rows
    count = members.size
    row = np.concatenate((members, members))
    is_end = np.repeat(np.array([False, True]), count)
    time_ns = np.concatenate((rows.start_ns[members], rows.end_ns[members]))
    # A row that takes no time must start before it ends: its end sorts with the starts, right behind its own.
    instant = np.tile(rows.start_ns[members] == rows.end_ns[members], 2)
    phase = np.where(is_end & ~instant, 0, 1)
    position = np.arange(count, dtype=np.int64)
    tie = np.concatenate((2 * position, np.where(instant[:count], 2 * position + 1, -2 * position)))
    order = np.lexsort((tie, phase, time_ns))
    time_ns, row, is_end = time_ns[order], row[order], is_end[order]
    inner = Enclosing(rows.start_ns[members], rows.end_ns[members]).at(time_ns)
    owner = np.where(inner == NONE, NONE, members[np.maximum(inner, 0)])
    if owner.size:
        owner[-1] = NONE
    return Chain(thread=thread, time_ns=time_ns, row=row, is_end=is_end, owner=owner)


def make_chains(trace: Trace, threads: BoolColumn, *, begin_ns: int, end_ns: int) -> tuple[Chain, ...]:
    """A chain for each of the threads that has rows in ``[begin, end)``."""
    members = host_rows(trace, begin_ns=begin_ns, end_ns=end_ns)
    members = members[threads[trace.rows.thread[members]]]
    codes = trace.rows.thread[members]
    return tuple(make_chain(trace, int(code), members[codes == code]) for code in np.unique(codes))
