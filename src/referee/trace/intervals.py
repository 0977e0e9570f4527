"""How long was at least one of these going on? Unions and differences of half-open intervals, as sorted int64 arrays.

A *set* here is a pair of arrays ``(start, end)``, sorted by start, disjoint, not touching, none empty: what
:func:`union` returns and every other function takes and returns. Times are integer nanoseconds; nothing is rounded.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from referee.trace.columns import BoolColumn, IntColumn

IntervalSet: TypeAlias = tuple[IntColumn, IntColumn]

EMPTY: IntervalSet = (np.empty(0, np.int64), np.empty(0, np.int64))
"""No time at all."""


def union(start: IntColumn, end: IntColumn) -> IntervalSet:
    """What time do these intervals cover together? In any order; empty and negative ones do not count."""
    some = end > start
    if not some.all():
        start, end = start[some], end[some]
    if len(start) == 0:
        return EMPTY
    if np.any(start[1:] < start[:-1]):
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    opens = np.empty(len(start), np.bool_)
    opens[0] = True
    np.greater(start[1:], reach[:-1], out=opens[1:])
    first = np.flatnonzero(opens)
    last = np.append(first[1:], len(start)) - 1
    return start[first], reach[last]


def measure(intervals: IntervalSet) -> int:
    """How long is a set?"""
    start, end = intervals
    return (
        int(end.sum() - start.sum())
        if _sums_fit(end)
        else sum(int(e) - int(s) for s, e in zip(*intervals, strict=True))
    )


def _sums_fit(end: IntColumn) -> bool:
    """Whether summing the ends stays within int64 (always, but for hostile timestamps)."""
    return len(end) == 0 or max(abs(int(end[-1])), abs(int(end[0]))) < (1 << 62) // len(end)


def clip(intervals: IntervalSet, *, start: int, end: int) -> IntervalSet:
    """What of a set lies within [start, end)?"""
    if end <= start or len(intervals[0]) == 0:
        return EMPTY
    first = int(np.searchsorted(intervals[1], start, side="right"))
    last = int(np.searchsorted(intervals[0], end, side="left"))
    if last <= first:
        return EMPTY
    return np.maximum(intervals[0][first:last], start), np.minimum(intervals[1][first:last], end)


def gaps(intervals: IntervalSet) -> IntervalSet:
    """What lies between the intervals of a set, from its first start to its last end?"""
    return intervals[1][:-1], intervals[0][1:]


def subtract(left: IntervalSet, right: IntervalSet) -> IntervalSet:
    """What of ``left`` does ``right`` not cover?"""
    if len(left[0]) == 0 or len(right[0]) == 0:
        return left
    # The complement of right within the reach of left, cut with left.
    low, high = min(left[0][0], right[0][0]) - 1, max(left[1][-1], right[1][-1]) + 1
    outside = (np.concatenate(([low], right[1])), np.concatenate((right[0], [high])))
    return intersect(left, outside)


def intersect(left: IntervalSet, right: IntervalSet) -> IntervalSet:
    """What do both sets cover?"""
    if len(left[0]) == 0 or len(right[0]) == 0:
        return EMPTY
    # For each interval of left: the range of intervals of right that overlap it, and one piece for each of them.
    first = np.searchsorted(right[1], left[0], side="right")
    last = np.searchsorted(right[0], left[1], side="left")
    count = np.maximum(last - first, 0)
    mine = np.repeat(np.arange(len(left[0])), count)
    other = np.arange(len(mine)) - np.repeat(np.cumsum(count) - count, count) + first[mine]
    return np.maximum(left[0][mine], right[0][other]), np.minimum(left[1][mine], right[1][other])


def overlap_ns(start: IntColumn, end: IntColumn, *, within: IntervalSet) -> IntColumn:
    """For each interval (in any order): how much of it does the set ``within`` cover?"""
    return (covered_before(end, within=within) - covered_before(start, within=within)).clip(min=0)


def covered_before(times: IntColumn, *, within: IntervalSet) -> IntColumn:
    """For each time: how much of the set ``within`` lies before it?"""
    if len(within[0]) == 0:
        return np.zeros(len(times), np.int64)
    total = np.concatenate(([0], np.cumsum(within[1] - within[0])))
    index = np.searchsorted(within[0], times, side="right")
    unfinished = np.maximum(within[1][np.maximum(index - 1, 0)] - times, 0)
    covered: IntColumn = np.where(index > 0, total[index] - unfinished, 0)
    return covered


def contains(times: IntColumn, *, within: IntervalSet) -> BoolColumn:
    """For each time: does it lie in the set ``within``?"""
    if len(within[0]) == 0:
        return np.zeros(len(times), np.bool_)
    index = np.searchsorted(within[0], times, side="right") - 1
    inside: BoolColumn = np.logical_and(index >= 0, times < within[1][np.maximum(index, 0)])
    return inside
