"""Which operators compute on the host? Those that call no other, launch nothing, and last."""

from __future__ import annotations

import re
from weakref import WeakKeyDictionary

import numpy as np

from referee.graph.calls import COLLECTIVES, named
from referee.graph.threads import launching_threads
from referee.trace.columns import CALL_KINDS, Kind, RowNumbers, Trace
from referee.units import NS_PER_US

LASTS_NS = 50 * NS_PER_US
"""An operator that calls no other and launches nothing costs a few microseconds to issue, recorded or not; one that
takes ten times as long computes."""
_NO_COMPUTING = re.compile(rf"c10d::|record_param_comms|barrier|wait|{COLLECTIVES.pattern}", re.IGNORECASE)
"""Operators that may stand still for others without a call that says so."""


def computing_rows(trace: Trace) -> RowNumbers:
    """The operators of the launching threads that compute on the host, in order of start."""
    if (found := _FOUND.get(trace)) is None:
        found = _FOUND[trace] = _find(trace)
    return found


_FOUND: WeakKeyDictionary[Trace, RowNumbers] = WeakKeyDictionary()
"""The window, its steps, the remedies and the edits ask about the same trace."""


def _find(trace: Trace) -> RowNumbers:
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
    return operators[alone]
