"""Intervals against a naive implementation on a small grid of times."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from referee.trace import intervals as iv

TIMES = st.integers(-20, 40)
PAIRS = st.lists(st.tuples(TIMES, TIMES), max_size=12)


def arrays(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([p[0] for p in pairs], np.int64), np.array([p[1] for p in pairs], np.int64)


def instants(pairs: list[tuple[int, int]]) -> set[int]:
    """The unit intervals that some half-open intervals cover."""
    return {t for start, end in pairs for t in range(start, end)}


def spelled(intervals: iv.IntervalSet) -> set[int]:
    return instants(list(zip(intervals[0].tolist(), intervals[1].tolist(), strict=True)))


def well_formed(intervals: iv.IntervalSet) -> bool:
    start, end = intervals
    return bool((end > start).all() and (start[1:] > end[:-1]).all())


@given(PAIRS)
def test_union_covers_the_same_instants(pairs):
    joined = iv.union(*arrays(pairs))
    assert well_formed(joined)
    assert spelled(joined) == instants(pairs)
    assert iv.measure(joined) == len(instants(pairs))


@given(PAIRS, PAIRS)
def test_subtract_and_intersect(left, right):
    a, b = iv.union(*arrays(left)), iv.union(*arrays(right))
    assert spelled(iv.subtract(a, b)) == instants(left) - instants(right)
    assert spelled(iv.intersect(a, b)) == instants(left) & instants(right)
    assert well_formed(iv.subtract(a, b))
    assert well_formed(iv.intersect(a, b))


@given(PAIRS, TIMES, TIMES)
def test_clip(pairs, start, end):
    clipped = iv.clip(iv.union(*arrays(pairs)), start=start, end=end)
    assert spelled(clipped) == instants(pairs) & set(range(start, end))


@given(PAIRS)
def test_gaps_complete_the_union(pairs):
    joined = iv.union(*arrays(pairs))
    reach = set(range(int(joined[0][0]), int(joined[1][-1]))) if len(joined[0]) else set()
    assert spelled(iv.gaps(joined)) == reach - instants(pairs)


@given(PAIRS, PAIRS)
def test_overlap_of_each(pairs, within):
    some = [(min(p), max(p)) for p in pairs]
    covered = iv.overlap_ns(*arrays(some), within=iv.union(*arrays(within)))
    assert covered.tolist() == [len(instants([p]) & instants(within)) for p in some]


@given(st.lists(TIMES, max_size=12), PAIRS)
def test_contains(times, within):
    inside = iv.contains(np.array(times, np.int64), within=iv.union(*arrays(within)))
    assert inside.tolist() == [t in instants(within) for t in times]


def test_measure_beyond_int64():
    far = 1 << 61
    many = iv.union(np.array([-far, 0], np.int64), np.array([-1, far], np.int64))
    assert iv.measure(many) == 2 * far - 1
