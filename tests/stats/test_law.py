from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.stats.law import fit_law

BATCHES = [1, 2, 4, 8, 16, 32, 64, 128]


def law_max(host: float, fixed: float, slope: float, *, values: list[float]) -> list[float]:
    return [max(host, fixed + slope * b) for b in values]


def law_sum(intercept: float, slope: float, *, values: list[float]) -> list[float]:
    return [intercept + slope * b for b in values]


def test_max_law_is_recovered_exactly() -> None:
    fit = fit_law(BATCHES, law_max(100_000, 20_000, 5_000, values=BATCHES))
    assert fit.law == "max"
    assert fit.host_ns == pytest.approx(100_000)
    assert fit.fixed_ns == pytest.approx(20_000)
    assert fit.slope_ns == pytest.approx(5_000)
    assert fit.knee == pytest.approx(16)


def test_sum_law_is_recovered_exactly() -> None:
    fit = fit_law(BATCHES, law_sum(40_000, 5_000, values=BATCHES))
    assert fit.law == "sum"
    assert fit.host_ns == pytest.approx(40_000)
    assert fit.fixed_ns == 0
    assert fit.slope_ns == pytest.approx(5_000)
    assert fit.knee == pytest.approx(8)


def test_order_of_the_points_does_not_matter() -> None:
    times = law_max(100_000, 20_000, 5_000, values=BATCHES)
    mixed = [3, 0, 7, 1, 5, 2, 6, 4]
    assert fit_law([BATCHES[i] for i in mixed], [times[i] for i in mixed]) == fit_law(BATCHES, times)


@given(
    host=st.floats(1e4, 1e7),
    corner=st.floats(3, 60),
    share=st.floats(0, 0.6),
    seed=st.integers(0, 1_000),
)
@settings(max_examples=30, deadline=None)
def test_knee_of_a_noisy_max_law_lies_in_its_interval_or_near(
    host: float, corner: float, share: float, seed: int
) -> None:
    """One percent of noise: the true corner is within the interval widened by a tenth, and the law is named right
    wherever each part is seen at three points or more (leaving one out must leave two)."""
    values = [1.0, 2, 4, 8, 16, 32, 64, 128, 256]
    fixed = share * host
    slope = (host - fixed) / corner
    noise = 1 + 0.01 * np.random.default_rng(seed).standard_normal(len(values))
    fit = fit_law(values, list(np.array(law_max(host, fixed, slope, values=values)) * noise))
    if sum(v < corner for v in values) >= 3 and sum(v > corner for v in values) >= 3:
        assert fit.law == "max"
        assert fit.knee is not None
        assert fit.knee_low is not None
        assert fit.knee_high is not None
        assert fit.knee_low * 0.9 <= corner <= fit.knee_high * 1.1


@given(intercept=st.floats(1e4, 1e7), knee=st.floats(3, 40), seed=st.integers(0, 1_000))
@settings(max_examples=30, deadline=None)
def test_a_noisy_sum_law_is_not_taken_for_the_other(intercept: float, knee: float, seed: int) -> None:
    noise = 1 + 0.005 * np.random.default_rng(seed).standard_normal(len(BATCHES))
    fit = fit_law(BATCHES, list(np.array(law_sum(intercept, intercept / knee, values=BATCHES)) * noise))
    assert fit.law == "sum"
    assert fit.knee == pytest.approx(knee, rel=0.15)


def test_interval_of_the_knee_grows_with_the_intervals_of_the_points() -> None:
    times = law_sum(40_000, 5_000, values=BATCHES)

    def width(frac: float) -> float:
        fit = fit_law(BATCHES, times, low_ns=[t * (1 - frac) for t in times], high_ns=[t * (1 + frac) for t in times])
        assert fit.knee_low is not None
        assert fit.knee_high is not None
        return fit.knee_high - fit.knee_low

    assert 0 < width(0.01) < width(0.1)


def test_a_knee_needs_two_points_on_each_side() -> None:
    low = fit_law([16, 32, 64, 128], law_sum(40_000, 5_000, values=[16, 32, 64, 128]))
    assert low.knee is None
    assert "below" in low.why_no_knee
    high = fit_law([1, 2, 3, 4], law_sum(40_000, 5_000, values=[1, 2, 3, 4]))
    assert high.knee is None
    assert "above" in high.why_no_knee


def test_where_no_whole_numbers_lie_below_a_knee_nobody_is_sent_there() -> None:
    counts = fit_law([1, 2, 4, 8], law_sum(4_000, 5_000, values=[1, 2, 4, 8]))
    assert counts.knee is None
    assert "no two whole numbers" in counts.why_no_knee
    shares = fit_law([1.5, 3, 6, 12], law_sum(4_000, 5_000, values=[1.5, 3, 6, 12]))
    assert "further below" in shares.why_no_knee


def test_a_flat_sweep_has_no_knee() -> None:
    fit = fit_law(BATCHES, [50_000.0] * 8)
    assert fit.knee is None
    assert fit.why_no_knee


def test_three_points_are_not_fitted() -> None:
    fit = fit_law([1, 2, 4], [1.0, 2.0, 4.0])
    assert fit.law == "none"
    assert "four points" in fit.why_no_knee


def test_neither_law_explains_a_quadratic() -> None:
    fit = fit_law(BATCHES, [10.0 * b * b for b in BATCHES])
    assert fit.law == "none"
    assert fit.error_max_frac is not None
    assert fit.error_max_frac > 0.1


@pytest.mark.parametrize("values", [[0, 1, 2, 4], [1, 1, 2, 4], [-1, 1, 2, 4]])
def test_values_that_no_law_can_take_are_not_fitted(values: list[float]) -> None:
    assert fit_law(values, [1.0, 2.0, 3.0, 4.0]).law == "none"
