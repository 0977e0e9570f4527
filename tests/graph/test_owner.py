"""Enclosing: against a search over all rows."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from referee.graph.owner import Enclosing

intervals = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), max_size=40)


@given(rows=intervals, moments=st.lists(st.integers(-5, 100), min_size=1, max_size=20))
def test_the_last_row_that_covers_a_moment(rows: list[tuple[int, int]], moments: list[int]) -> None:
    rows = sorted(rows, key=lambda r: (r[0], -r[1]))
    start = np.array([s for s, _ in rows], dtype=np.int64)
    end = start + np.array([d for _, d in rows], dtype=np.int64)
    expected = [max((i for i in range(len(rows)) if start[i] <= moment < end[i]), default=-1) for moment in moments]
    assert Enclosing(start, end).at(np.array(moments, dtype=np.int64)).tolist() == expected
