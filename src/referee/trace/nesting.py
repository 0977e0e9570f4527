"""Which row lies inside which, on the same thread? Depth, top-level rows, the innermost enclosing row.

All functions take rows in the order of :class:`~referee.trace.columns.Rows` (start, then longer first) with the code of
their thread. A row encloses what starts in its half-open interval, so an empty row encloses nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from referee.trace.columns import NONE, BoolColumn, CodeColumn, IntColumn, RowNumbers


def per_thread(thread: CodeColumn, *times: IntColumn) -> tuple[IntColumn, ...]:
    """Shift ``times`` so that threads do not overlap and one sort or search serves them all; order is kept.

    The arrays are the caller's no longer: they are shifted where they are, for there are large ones. Where the shifted
    times would not fit in int64, they are replaced by their ranks first.
    """
    if len(thread) == 0:
        return tuple(np.empty(0, np.int64) for _ in times)
    low, high = min(int(t.min()) for t in times), max(int(t.max()) for t in times)
    span = high - low + 2
    if (int(thread.max()) + 2) * span >= 1 << 62:
        ranks = np.unique(np.concatenate(times), return_inverse=True)[1].astype(np.int64)
        times, low, span = tuple(np.split(ranks, len(times))), 0, len(ranks) + 2
    shift = thread.astype(np.int64)
    shift *= span
    shift -= low
    for column in times:
        column += shift
    return times


def top_level(thread: CodeColumn, start: IntColumn, end: IntColumn) -> BoolColumn:
    """Which rows count when, per thread, a row counts if it starts at or after the end of the last that counts?"""
    count = len(start)
    top = np.zeros(count, np.bool_)
    if count == 0:
        return top
    order = _short(by_thread(thread))
    codes = thread[order]
    begins, finishes = per_thread(codes, start[order], end[order])
    alone = np.append(True, begins[1:] >= np.maximum.accumulate(finishes)[:-1])
    # Where rows nest, those behind all earlier ends are the ones. An end beyond that of the last of them does not nest.
    counted = _short(np.arange(count))
    counted *= alone
    np.maximum.accumulate(counted, out=counted)
    nested = (finishes <= finishes[counted]).all()
    top[order] = alone if nested else _follow(codes, begins, finishes)
    return top


def _follow(codes: CodeColumn, begins: IntColumn, finishes: IntColumn) -> BoolColumn:
    """The rows met when, from each thread's first row, one goes on to the first that starts at or after this one's end.

    All rows have a pointer to that next one; by doubling the pointers, few rounds reach them all.
    """
    count = len(begins)
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
            return reached[:count]


def by_thread(thread: CodeColumn) -> IntColumn:
    """The order that puts rows of one thread together and keeps their order otherwise."""
    # A stable sort of 16-bit integers is a radix sort.
    narrow = thread.astype(np.int16) if len(thread) and int(thread.max()) < 1 << 15 else thread
    return np.argsort(narrow, kind="stable")


def _short(positions: IntColumn) -> CodeColumn | IntColumn:
    """Positions in half the memory, where they fit."""
    return positions.astype(np.int32) if len(positions) < 1 << 31 else positions


def depth(thread: CodeColumn, start: IntColumn, end: IntColumn) -> IntColumn:
    """How many rows of its own thread enclose the start of each row?"""
    order = _short(by_thread(thread))
    begins, finishes = per_thread(thread[order], start[order], end[order])
    # What the caller no longer holds is given back: of a million rows these are megabytes.
    del thread, start, end
    level = _depths(begins, finishes)[0]
    del begins, finishes
    result = np.empty(len(level), np.int64)
    result[order] = level
    return result


def _depths(begins: IntColumn, finishes: IntColumn) -> tuple[IntColumn, IntColumn]:
    """The depth of each of some rows in order of (shifted) start, and the ends of those that are not empty, sorted."""
    some = finishes > begins
    ends = finishes[some]
    ends.sort(kind="stable")
    level: IntColumn = np.cumsum(some)
    level -= some
    level -= np.searchsorted(ends, begins, side="right")
    return level, ends


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
    some = some[by_thread(thread[some])]
    begins, finishes = per_thread(
        np.concatenate((thread[some], at_thread)), np.concatenate((start[some], at)), np.concatenate((end[some], at))
    )
    rows, times, finishes = begins[: len(some)], begins[len(some) :], finishes[: len(some)]
    level, ends = _depths(rows, finishes)
    if int(level.max()) < 1 << 15:
        level = level.astype(np.int16)
    opened = np.searchsorted(rows, times, side="right")
    wanted = opened - np.searchsorted(ends, times, side="right") - 1
    del ends
    # Mostly it is the very last row that opened. Where that has ended, the last one of the depth that is open then.
    picked = np.maximum(opened - 1, 0)
    deeper = np.flatnonzero((wanted >= 0) & ((level[picked] != wanted) | (finishes[picked] <= times)))
    if len(deeper):
        picked[deeper] = _last_at_depth(level, before=opened[deeper], wanted=wanted[deeper])
    valid = (wanted >= 0) & (picked >= 0)
    np.maximum(picked, 0, out=picked)
    valid &= (level[picked] == wanted) & (finishes[picked] > times)
    picked = some[picked]
    valid &= thread[picked] == at_thread
    return np.where(valid, picked, NONE)


def _last_at_depth(level: NDArray[np.signedinteger[Any]], *, before: IntColumn, wanted: IntColumn) -> IntColumn:
    """For each position ``before``: the last position ahead of it of the wanted depth, negative where there is none."""
    # Rows by depth, then by position, in one sorted key. What is no longer needed is let go of at once: of a million
    # rows each of these arrays takes megabytes.
    width = len(level) + 1
    order = np.argsort(level, kind="stable")
    key = level[order].astype(np.int64)
    key *= width
    key += order
    found = np.searchsorted(key, wanted * width + before, side="left") - 1
    return np.where(found >= 0, order[np.maximum(found, 0)], NONE)
