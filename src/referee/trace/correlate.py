"""Which call launched which device row, and which operator made the call?

By non-zero correlation id; where several calls share one, the launch-named call, then the earliest. Where a driver call
nests in a runtime call, the outer one is the launch. Rows that stay unlinked stay in the totals, unlinked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from referee.trace.columns import DEVICE_KINDS, NONE, BoolColumn, IntColumn, Kind, Links, RowNumbers, Rows
from referee.trace.kinds import launch_names
from referee.trace.nesting import innermost, top_level


@dataclass(frozen=True, kw_only=True, eq=False)
class Calls:
    """The runtime and driver calls of a trace: row number, outermost runtime call, whether of a launch family."""

    row: RowNumbers
    outer: RowNumbers
    launch_named: BoolColumn


def link(rows: Rows, *, names: Sequence[str]) -> Links:
    """The links of all rows."""
    calls = find_calls(rows, names=names)
    device_rows = rows.of(*DEVICE_KINDS)
    launch_of = np.full(len(rows), NONE, np.int64)
    launch_of[device_rows] = match(
        rows.correlation[device_rows],
        ids=rows.correlation[calls.row],
        rows=calls.row,
        preferred=calls.launch_named,
        answers=calls.outer,
    )
    is_launch = np.zeros(len(rows), np.bool_)
    is_launch[calls.outer[calls.launch_named]] = True
    is_launch[launch_of[launch_of >= 0]] = True
    return Links(
        launch_of=launch_of,
        first_of=first_rows(launch_of),
        is_launch=is_launch,
        operator_of=operators_of(rows, calls.row),
    )


def find_calls(rows: Rows, *, names: Sequence[str]) -> Calls:
    """The calls, each with the runtime call it nests in (itself where it nests in none)."""
    row = rows.of(Kind.RUNTIME, Kind.DRIVER)
    outer = row.copy()
    driver = np.flatnonzero(rows.kind[row] == Kind.DRIVER)
    runtime = row[rows.kind[row] == Kind.RUNTIME]
    if len(driver) and len(runtime):
        outer[driver] = _outermost(rows, runtime, row[driver])
    return Calls(row=row, outer=outer, launch_named=launch_names(names)[rows.name[row]])


def _outermost(rows: Rows, runtime: RowNumbers, driver: RowNumbers) -> RowNumbers:
    """For each driver call: the outermost runtime call around it on its thread, else the driver call itself."""
    thread, start, end = rows.thread[runtime], rows.start_ns[runtime], rows.end_ns[runtime]
    top = top_level(thread, start, end)
    found = innermost(thread[top], start[top], end[top], at_thread=rows.thread[driver], at=rows.start_ns[driver])
    around = runtime[top][np.maximum(found, 0)]
    # A call inside another never outlasts it; one that does only overlaps it.
    holds = (found >= 0) & (rows.end_ns[around] >= rows.end_ns[driver])
    return np.where(holds, around, driver)


def match(
    asked: IntColumn,
    *,
    ids: IntColumn,
    rows: RowNumbers,
    preferred: BoolColumn,
    answers: RowNumbers,
) -> RowNumbers:
    """For each id asked: the answer of the call that has it, :data:`NONE` for id 0, none stated, or no such call.

    ``ids``, ``preferred`` and ``answers`` run over the calls in order of start (``rows``: their row numbers). Of
    several calls with one id a preferred one wins, then the earliest.
    """
    some = np.flatnonzero(ids > 0)
    if len(some) == 0 or len(asked) == 0:
        return np.full(len(asked), NONE, np.int64)
    unique, best = ids[some], some
    if not (unique[1:] > unique[:-1]).all():
        # Ids are mostly counted up by the calls, one each. Otherwise: by id, and of each id the best call.
        order = some[np.lexsort((rows[some], ~preferred[some], ids[some]))]
        unique, first = np.unique(ids[order], return_index=True)
        best = order[first]
    index = np.minimum(np.searchsorted(unique, asked), len(unique) - 1)
    return np.where((asked > 0) & (unique[index] == asked), answers[best[index]], NONE)


def first_rows(launch_of: RowNumbers) -> BoolColumn:
    """Which device rows are the first, by start, of their launch?"""
    first = np.zeros(len(launch_of), np.bool_)
    linked = np.flatnonzero(launch_of >= 0)
    first[linked[np.unique(launch_of[linked], return_index=True)[1]]] = True
    return first


def operators_of(rows: Rows, calls: RowNumbers) -> RowNumbers:
    """For every row that is a call: the innermost operator around it on its thread, else that of its external id.

    The second way serves files whose calls are written under another thread id than their operators.
    """
    result = np.full(len(rows), NONE, np.int64)
    operators = rows.of(Kind.OPERATOR)
    found = innermost(
        rows.thread[operators],
        rows.start_ns[operators],
        rows.end_ns[operators],
        at_thread=rows.thread[calls],
        at=rows.start_ns[calls],
    )
    if len(operators) == 0:
        return result
    result[calls] = np.where(found >= 0, operators[np.maximum(found, 0)], NONE)
    outside = calls[found < 0]
    result[outside] = match(
        rows.external_id[outside],
        ids=rows.external_id[operators],
        rows=operators,
        preferred=np.ones(len(operators), np.bool_),
        answers=operators,
    )
    return result
