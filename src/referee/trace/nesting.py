"""Which row lies inside which, on the same thread? Depth, top-level rows, the innermost enclosing row.

All functions take rows in the order of :class:`~referee.trace.columns.Rows` (start, then longer first) with the code of
their thread. A row encloses what starts in its half-open interval, so an empty row encloses nothing.
"""

from __future__ import annotations

import numpy as np

from referee.trace.columns import NONE, BoolColumn, CodeColumn, IntColumn, RowNumbers


def per_thread(thread: CodeColumn, *times: IntColumn) -> tuple[IntColumn, ...]:
    """Shift ``times`` so that threads do not overlap and one sort or search serves them all; order is kept.

    Where the shifted times would not fit in int64, times are replaced by their ranks first.
    """
    if len(thread) == 0:
        return tuple(np.empty(0, np.int64) for _ in times)
    low, high = min(int(t.min()) for t in times), max(int(t.max()) for t in times)
    span = high - low + 2
    if (int(thread.max()) + 2) * span >= 1 << 62:
        ranks = np.unique(np.concatenate(times), return_inverse=True)[1].astype(np.int64)
        times, low, span = tuple(np.split(ranks, len(times))), 0, len(ranks) + 2
    shift = thread.astype(np.int64) * span - low
    return tuple(t + shift for t in times)


def top_level(thread: CodeColumn, start: IntColumn, end: IntColumn) -> BoolColumn:
    """Which rows are counted when, thread by thread, a row counts if it starts at or after the end of the last counted?

    Exact also where rows overlap without nesting: follows, from each thread's first row, the pointer to the first row
    that starts at or after this one's end, by doubling.
    """
    count = len(start)
    top = np.zeros(count, np.bool_)
    if count == 0:
        return top
    order = np.argsort(thread, kind="stable")
    codes = thread[order]
    begins, finishes = per_thread(codes, start[order], end[order])
    # A row always moves on, also an empty one: the next row may start where it ends.
    jump = np.maximum(np.searchsorted(begins, finishes, side="left"), np.arange(1, count + 1))
    group_end = np.searchsorted(codes, codes, side="right")
    jump = np.append(np.where(jump < group_end, jump, count), count)
    reached = np.zeros(count + 1, np.bool_)
    reached[np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))] = True
    while True:
        before = int(reached.sum())
        reached[jump[reached]] = True
        jump = jump[jump]
        if int(reached.sum()) == before:
            break
    top[order] = reached[:count]
    return top


def depth(thread: CodeColumn, start: IntColumn, end: IntColumn) -> IntColumn:
    """How many rows of its own thread enclose the start of each row?"""
    order = np.argsort(thread, kind="stable")
    begins, finishes = per_thread(thread[order], start[order], end[order])
    some = finishes > begins
    opened: IntColumn = np.cumsum(some) - some
    closed = np.searchsorted(np.sort(finishes[some]), begins, side="right")
    result = np.empty(len(start), np.int64)
    result[order] = opened - closed
    return result


def innermost(
    thread: CodeColumn,
    start: IntColumn,
    end: IntColumn,
    *,
    at_thread: CodeColumn,
    at: IntColumn,
) -> RowNumbers:
    """For each time ``at`` on ``at_thread``: the position of the innermost row open then, :data:`NONE` if none is.

    A row that starts at that very time counts as open. The innermost is the one of the greatest depth.
    """
    some = np.flatnonzero(end > start)
    if len(some) == 0 or len(at) == 0:
        return np.full(len(at), NONE, np.int64)
    deep = depth(thread, start, end)[some]
    codes = np.concatenate((thread[some], at_thread))
    begins, finishes = per_thread(codes, np.concatenate((start[some], at)), np.concatenate((end[some], at)))
    rows, times = begins[: len(some)], begins[len(some) :]
    opened = np.searchsorted(np.sort(rows), times, side="right")
    closed = np.searchsorted(np.sort(finishes[: len(some)]), times, side="right")
    level = opened - closed - 1
    # The latest row of that depth that started by then: one sort of rows and questions by depth, then time.
    levels = np.concatenate((deep, level))
    asked = np.concatenate((np.zeros(len(some), np.int8), np.ones(len(at), np.int8)))
    order = np.lexsort((asked, begins, levels))
    latest = np.maximum.accumulate(np.where(asked[order] == 0, np.arange(len(order)), -1))
    found = np.where(latest >= 0, order[np.maximum(latest, 0)], NONE)
    answer = np.full(len(order), NONE, np.int64)
    answer[order] = found
    answer = answer[len(some) :]
    valid = (level >= 0) & (answer >= 0)
    picked = np.where(valid, answer, 0)
    valid &= (codes[picked] == at_thread) & (finishes[picked] > times) & (levels[picked] == level)
    return np.where(valid, some[picked], NONE)
