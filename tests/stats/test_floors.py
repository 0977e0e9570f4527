"""Differences of floors: exact on constants, covered by the interval, blind to preempted samples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from referee.stats.floors import floor_difference


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.integers(1, 60))
def test_constants_give_their_difference(upper: float, lower: float, rounds: int) -> None:
    found = floor_difference(np.full(rounds, upper), np.full(rounds, lower))
    assert found.point == pytest.approx(upper - lower, abs=1e-6)
    assert found.low == pytest.approx(found.point, abs=1e-6)
    assert found.high == pytest.approx(found.point, abs=1e-6)


@given(st.lists(st.floats(1, 1e5), min_size=1, max_size=80))
def test_the_floor_is_the_lower_quartile(values: list[float]) -> None:
    assert floor_difference(np.array(values)).point == pytest.approx(float(np.quantile(values, 0.25)))


def test_preempted_samples_count_for_nothing() -> None:
    clean = np.random.default_rng(1).normal(1000, 10, 200)
    spoilt = clean.copy()
    spoilt[::7] = np.nan
    assert floor_difference(spoilt).point == pytest.approx(float(np.quantile(clean[~np.isnan(spoilt)], 0.25)))
    with pytest.raises(ValueError, match="no samples"):
        floor_difference(np.full(5, np.nan))


def test_the_interval_covers_the_true_difference() -> None:
    generator = np.random.default_rng(7)
    covered = 0
    for _ in range(200):
        drift = np.repeat(generator.normal(0, 5, 20), 10)  # ten neighbours share a slow or a fast moment
        upper = 1300 + drift + generator.exponential(20, 200)
        lower = 1000 + drift + generator.exponential(20, 200)
        found = floor_difference(upper, lower)
        covered += found.low <= 300 <= found.high
    assert covered >= 180
