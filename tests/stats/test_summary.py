from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from referee.stats.summary import summarise

times = st.lists(st.floats(min_value=0.1, max_value=1e12), min_size=1, max_size=200)


def test_quantiles_of_a_known_series() -> None:
    # 0..100: with linear interpolation the q quantile of 101 equally spaced values is 100 q.
    found = summarise(range(101))
    assert (found.p10, found.floor, found.median, found.p75) == (10, 25, 50, 75)
    assert found.p95 == pytest.approx(95)
    assert found.iqr == 50
    assert found.n == 101


def test_no_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="no samples"):
        summarise([])


@given(times)
def test_quantiles_are_ordered_and_within_the_samples(samples: list[float]) -> None:
    found = summarise(samples)
    ordered = [min(samples), found.p10, found.floor, found.median, found.p75, found.p95, max(samples)]
    assert all(a <= b * (1 + 1e-12) for a, b in itertools.pairwise(ordered))


@given(times, st.floats(min_value=1e-3, max_value=1e3))
def test_quantiles_scale_with_the_unit(samples: list[float], factor: float) -> None:
    scaled = summarise([factor * s for s in samples])
    assert scaled.median == pytest.approx(factor * summarise(samples).median)
    assert scaled.iqr == pytest.approx(factor * summarise(samples).iqr, abs=1e-9 * factor * max(samples))


@given(st.lists(st.floats(1, 1e6), min_size=20, max_size=200), st.floats(2, 100))
def test_floor_is_untouched_by_a_few_slow_blocks(samples: list[float], slow: float) -> None:
    """A twentieth of the blocks slowed down moves the lower quartile by less than one step of rank five percent."""
    values = np.sort(samples)
    disturbed = values.copy()
    disturbed[-len(values) // 20 :] *= slow
    assert summarise(disturbed).floor <= np.quantile(values, 0.31)
