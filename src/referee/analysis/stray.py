"""Does a row that cannot be believed set the window? A few device rows far from all others, with nothing to hold them.

One row without a duration, 56 ms after a trace of 4 ms, makes a window of 60 ms that is 99 % idle. The totals keep it:
the window is what it is defined to be. The verdict is judged on what is left, and a finding names the row and gives
the window with it and without.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from referee.analysis.hosts import HOST_KINDS
from referee.graph.work import Work
from referee.records.finding import Finding, Scalar
from referee.trace.columns import BoolColumn, RowNumbers, Trace
from referee.units import format_count, format_ns

APART_FRAC = 0.5
"""Rows are apart from the others where the idle interval between takes at least this share of the window."""

FEW_FRAC = 0.01
"""At most this share of the device's rows, and of its busy time, may be set aside: more is work, not an error.
Without a duration it may be one row of a short trace, too."""

FEWEST_LEFT = 2
"""Two rows have a window of their own."""


def stray_rows(trace: Trace, works: Sequence[Work]) -> RowNumbers:
    """Rows at an edge of their device's window, apart from all others, that no record holds where they are.

    Such a row has no duration, or lies outside what the host's rows cover by at least half of the window. A row with a
    duration inside the host's record stays, however far away it is: a first kernel before a load of code of 600 ms. So
    does one that follows its own launch: it was queued, and what it waited for is not in the file. That is *unseen*,
    and no error.
    """
    found = [work.rows[_stray(trace, work)] for work in works]
    return np.concatenate([np.zeros(0, dtype=np.int64), *found])


def _stray(trace: Trace, work: Work) -> BoolColumn:
    stray = np.zeros(work.rows.size, dtype=bool)
    if work.rows.size <= FEWEST_LEFT or work.window_ns <= 0:
        return stray
    for members in _edges(work, few=max(1, int(FEW_FRAC * work.rows.size))):
        if _unheld(trace, work, members):
            stray[members] = True
    busy_ns = int((work.end_ns - work.start_ns)[stray].sum())
    return stray if busy_ns <= FEW_FRAC * work.busy_ns else np.zeros_like(stray)


def _edges(work: Work, *, few: int) -> tuple[RowNumbers, ...]:
    """The rows before the first and behind the last of those idle intervals that take half of the window or more."""
    reach = np.maximum.accumulate(work.end_ns)
    wide = np.flatnonzero(work.start_ns[1:] - reach[:-1] >= APART_FRAC * work.window_ns) + 1
    every = np.arange(work.rows.size)
    bounds = [0, *wide.tolist(), work.rows.size]
    pieces = [every[low:high] for low, high in pairwise(bounds)]
    return tuple(piece for piece in (pieces[0], pieces[-1]) if piece.size <= few)


def _unheld(trace: Trace, work: Work, members: RowNumbers) -> bool:
    """None of these rows follows its launch, and none has a duration or all lie far outside the host's record."""
    if (work.linked[members] & (work.launch_start_ns[members] <= work.start_ns[members])).any():
        return False
    if (work.end_ns[members] == work.start_ns[members]).all():
        return True
    host = trace.rows.of(*HOST_KINDS)
    if not host.size or members.size > FEW_FRAC * work.rows.size:
        return False
    far_ns = APART_FRAC * work.window_ns
    early = int(work.end_ns[members].max()) <= int(trace.rows.start_ns[host].min()) - far_ns
    return early or int(work.start_ns[members].min()) >= int(trace.rows.end_ns[host].max()) + far_ns


def stray_finding(trace: Trace, stray: RowNumbers, *, window_ns: int, rest_ns: int) -> Finding:
    """The row and what it does to the window; of several the first."""
    rows, row = trace.rows, int(stray[0])
    others = f" and {format_count(stray.size - 1)} more" if stray.size > 1 else ""
    evidence: dict[str, Scalar] = {
        "name": trace.name_of(row),
        "rows": int(stray.size),
        "start_ns": int(rows.start_ns[row]),
        "duration_ns": int(rows.end_ns[row] - rows.start_ns[row]),
        "window_ns": window_ns,
        "window_without_ns": rest_ns,
    }
    return Finding(
        code="stray-rows",
        severity="warning",
        message=f"The device row {trace.name_of(row)!r} at {format_ns(int(rows.start_ns[row]))}{others} lies far from "
        f"all others and sets the window: {format_ns(window_ns)} with it, {format_ns(rest_ns)} without. The verdict "
        "is on the window without; totals and causes of idle time are on the whole.",
        evidence=evidence,
        hint="Its time or its duration is likely wrong; --range leaves it out of every figure.",
    )
