"""Enclosing: against a search over all rows."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from referee.graph import owner
from referee.graph.owner import Enclosing, covering

intervals = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), max_size=40)


@given(rows=intervals, moments=st.lists(st.integers(-5, 100), min_size=1, max_size=20))
def test_the_last_row_that_covers_a_moment(rows: list[tuple[int, int]], moments: list[int]) -> None:
    rows = sorted(rows, key=lambda r: (r[0], -r[1]))
    start = np.array([s for s, _ in rows], dtype=np.int64)
    end = start + np.array([d for _, d in rows], dtype=np.int64)
    expected = [max((i for i in range(len(rows)) if start[i] <= moment < end[i]), default=-1) for moment in moments]
    assert Enclosing(start, end).at(np.array(moments, dtype=np.int64)).tolist() == expected


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@given(
    rows=intervals,
    chosen=st.sets(st.integers(0, 39)),
    moments=st.lists(st.integers(-5, 100), max_size=20),
    block=st.integers(1, 5),
)
def test_the_last_member_that_covers_a_moment(
    dtype: type[np.integer],
    rows: list[tuple[int, int]],
    chosen: set[int],
    moments: list[int],
    block: int,
) -> None:
    rows = sorted(rows, key=lambda r: (r[0], -r[1]))
    start = np.array([s for s, _ in rows], dtype=np.int64)
    columns = SimpleNamespace(start_ns=start, end_ns=start + np.array([d for _, d in rows], dtype=np.int64))
    members = np.array(sorted(one for one in chosen if one < len(rows)), dtype=dtype)
    expected = [
        max((i for i in members.tolist() if start[i] <= moment < columns.end_ns[i]), default=-1) for moment in moments
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, "_BLOCK", block)
        patch.setattr(owner, "_CHUNK", 3)
        assert covering(columns, members, np.array(moments, dtype=np.int64)).tolist() == expected
