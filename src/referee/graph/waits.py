"""Which calls kept the host waiting for the device?

A wait is a ``*Synchronize``, a copy that is not asynchronous, a ``*Free``, or any call that covers its own single
device row while the device was busy for at least half of the call (a pageable copy). A launch that blocks on a full
queue, or while code is loaded, is not a wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from referee.graph.calls import COPIES, FREES, WAITS, calls_named
from referee.graph.work import Work
from referee.trace.columns import CALL_KINDS, BoolColumn, IntColumn, RowNumbers, Trace
from referee.trace.intervals import overlap_ns

BUSY_SHARE = 0.5
"""A call that covers its own row is a wait if the device worked for at least this share of it."""


@dataclass(frozen=True, eq=False)
class Waits:
    """Waiting calls, in order of end."""

    rows: RowNumbers
    start_ns: IntColumn
    end_ns: IntColumn
    frees: BoolColumn
    """A call that frees memory: it waits only until the device has drained, the rest is its own work."""
    only: BoolColumn
    """A call that synchronises: it does nothing else."""


def find_waits(trace: Trace, work: Work | None) -> Waits:
    """The waits that may explain idle time of one device of ``trace`` (without one: those that a name tells)."""
    if work is None:
        return _find(trace, None)
    if (found := _FOUND.get(work)) is None:
        found = _FOUND[work] = _find(trace, work)
    return found


_FOUND: WeakKeyDictionary[Work, Waits] = WeakKeyDictionary()
"""Several analyses ask about the same device: what was found stays for as long as its work does."""


def _find(trace: Trace, work: Work | None) -> Waits:
    calls = trace.rows.of(*CALL_KINDS)
    frees = calls_named(trace, FREES, among=calls)
    only = calls_named(trace, WAITS, among=calls)
    named = [only, calls_named(trace, COPIES, among=calls), frees]
    if work is not None:
        named.append(_covering(trace, work))
    rows = np.unique(np.concatenate(named))
    rows = rows[np.argsort(trace.rows.end_ns[rows], kind="stable")]
    return Waits(
        rows=rows,
        start_ns=trace.rows.start_ns[rows],
        end_ns=trace.rows.end_ns[rows],
        frees=np.isin(rows, frees),
        only=np.isin(rows, only),
    )


def _covering(trace: Trace, work: Work) -> RowNumbers:
    """Launches that returned only after their own single row had ended, with the device busy for half of them."""
    linked = np.flatnonzero(work.linked)
    launches, position, count = np.unique(work.launch[linked], return_index=True, return_counts=True)
    own = linked[position]
    start_ns, end_ns = trace.rows.start_ns[launches], trace.rows.end_ns[launches]
    covers = (count == 1) & (start_ns <= work.start_ns[own]) & (work.end_ns[own] <= end_ns)
    busy_ns = overlap_ns(start_ns, end_ns, within=work.busy)
    waits: RowNumbers = launches[covers & (busy_ns >= BUSY_SHARE * (end_ns - start_ns))]
    return waits
