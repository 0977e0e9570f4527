"""Nesting against naive loops."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from referee.trace.nesting import depth, innermost, top_level

ROW = st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 12))
ROWS = st.lists(ROW, max_size=14).map(lambda rows: sorted(rows, key=lambda r: (r[1], -r[2])))


def columns(rows):
    thread = np.array([r[0] for r in rows], np.int32)
    start = np.array([r[1] for r in rows], np.int64)
    return thread, start, start + np.array([r[2] for r in rows], np.int64)


def naive_top(rows):
    last, top = {}, []
    for thread, start, duration in rows:
        counted = start >= last.get(thread, -1)
        top.append(counted)
        if counted:
            last[thread] = start + duration
    return top


def naive_depth(rows, index):
    thread, start, _ = rows[index]
    return sum(t == thread and s + d > start for t, s, d in rows[:index])


@given(ROWS)
def test_top_level(rows):
    assert top_level(*columns(rows)).tolist() == naive_top(rows)


@given(ROWS)
def test_depth(rows):
    assert depth(*columns(rows)).tolist() == [naive_depth(rows, index) for index in range(len(rows))]


@st.composite
def nested(draw):
    """Rows that nest properly: each is put inside one drawn before, or beside all."""
    rows = []

    def fill(thread, low, high, level):
        at = low
        while high - at >= 1 and level < 4 and draw(st.booleans()):
            start = draw(st.integers(at, high))
            end = draw(st.integers(start, high))
            rows.append((thread, start, end - start))
            fill(thread, start, end, level + 1)
            at = end + 1

    for thread in range(2):
        fill(thread, 0, 40, 0)
    # Of rows with the same interval the outer comes first, as it does in a file.
    return [row for _, row in sorted(enumerate(rows), key=lambda item: (item[1][1], -item[1][2], item[0]))]


@given(nested(), st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 42)), max_size=10))
def test_innermost(rows, asked):
    found = innermost(
        *columns(rows),
        at_thread=np.array([a[0] for a in asked], np.int32),
        at=np.array([a[1] for a in asked], np.int64),
    )
    for (thread, at), answer in zip(asked, found.tolist(), strict=True):
        around = [i for i, (t, s, d) in enumerate(rows) if t == thread and s <= at < s + d]
        assert answer == (around[-1] if around else -1)


def test_times_too_far_apart_to_shift_are_ranked():
    far = 1 << 61
    thread = np.array([0, 5, 5], np.int32)
    start = np.array([0, 0, far // 2], np.int64)
    end = np.array([10, far, far], np.int64)
    assert top_level(thread, start, end).tolist() == [True, True, False]
    assert depth(thread, start, end).tolist() == [0, 0, 1]
