from __future__ import annotations

import itertools
import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from referee.stats.interval import effective_size, median_interval, student_quantile
from referee.stats.summary import FloatArray


def ar1(phi: float, *, count: int, random: np.random.Generator) -> FloatArray:
    """A stationary AR(1) series of mean 0 and variance 1."""
    shocks = random.standard_normal(count)
    series = np.empty(count)
    series[0] = shocks[0]
    for index in range(1, count):
        series[index] = phi * series[index - 1] + math.sqrt(1 - phi**2) * shocks[index]
    return series


@pytest.mark.parametrize(("phi", "count"), [(0.0, 200), (0.5, 200), (0.8, 200), (0.8, 1000), (0.9, 1000)])
def test_nominal_95_percent_covers_at_least_93(phi: float, count: int) -> None:
    random = np.random.default_rng(20_250_101)
    trials = 400
    hits = 0
    for _ in range(trials):
        found = median_interval(ar1(phi, count=count, random=random))
        hits += found.low <= 0 <= found.high
    assert hits / trials >= 0.93


def test_ignoring_correlation_would_not_cover() -> None:
    """The trap: order statistics at the nominal n, on the same series."""
    random = np.random.default_rng(5)
    hits, trials, count = 0, 300, 400
    for _ in range(trials):
        values = np.sort(ar1(0.8, count=count, random=random))
        half = NormalDist().inv_cdf(0.975) * math.sqrt(count) / 2
        hits += values[int(count / 2 - half)] <= 0 <= values[int(count / 2 + half)]
    assert hits / trials < 0.75


@pytest.mark.parametrize("phi", [0.5, 0.8])
def test_effective_size_agrees_with_theory(phi: float) -> None:
    # For a Gaussian AR(1), the signs correlate as (2/π) asin(phi^k).
    tau = 1 + 2 * sum(2 / math.pi * math.asin(phi**k) for k in range(1, 200))
    count = 20_000
    found = effective_size(ar1(phi, count=count, random=np.random.default_rng(1)))
    assert found == pytest.approx(count / tau, rel=0.15)


def test_independent_samples_count_nearly_in_full() -> None:
    assert effective_size(np.random.default_rng(2).standard_normal(10_000)) > 9_000


def test_two_long_episodes_are_worth_few_samples() -> None:
    assert effective_size([1.0] * 500 + [2.0] * 500) < 10


def test_constant_samples_have_a_closed_interval() -> None:
    found = median_interval([7.0] * 50)
    assert (found.low, found.point, found.high, found.n_eff) == (7, 7, 7, 50)


def test_few_samples_give_the_whole_range() -> None:
    found = median_interval([3.0, 1.0, 2.0])
    assert (found.low, found.point, found.high) == (1, 2, 3)


@given(st.lists(st.floats(min_value=-1e9, max_value=1e9), min_size=1, max_size=120), st.sampled_from([0.5, 0.9, 0.99]))
def test_interval_holds_the_median_and_grows_with_the_level(samples: list[float], level: float) -> None:
    found = median_interval(samples, level=level)
    assert found.low <= found.point <= found.high
    assert 1 <= found.n_eff <= found.n == len(samples)
    wider = median_interval(samples, level=0.999)
    assert wider.low <= found.low
    assert wider.high >= found.high


def test_median_of_two_modes_is_the_greater_one_not_the_minimum() -> None:
    random = np.random.default_rng(3)
    samples = np.where(random.random(1_001) < 0.3, 100.0, 130.0)
    assert median_interval(samples).point == 130.0


@pytest.mark.parametrize("level", [0.0, 1.0, 1.5])
def test_a_level_outside_zero_and_one_is_refused(level: float) -> None:
    with pytest.raises(ValueError, match="level"):
        median_interval([1.0, 2.0], level=level)


def test_no_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="no samples"):
        median_interval([])


@pytest.mark.parametrize(
    ("degrees", "expected"),
    # Published table of Student's t, 97.5 %.
    [(1, 12.706), (2, 4.303), (3, 3.182), (5, 2.571), (10, 2.228), (30, 2.042), (120, 1.980)],
)
def test_student_quantile_agrees_with_the_table(degrees: float, expected: float) -> None:
    assert student_quantile(0.975, degrees=degrees) == pytest.approx(expected, rel=0.005)


def test_student_quantile_falls_steadily_with_the_degrees() -> None:
    found = [student_quantile(0.975, degrees=d) for d in np.arange(1, 40, 0.25)]
    assert all(a > b for a, b in itertools.pairwise(found))
