from __future__ import annotations

import numpy as np
import pytest

from referee.stats.steady import is_steady, steady_after


def test_a_flat_series_is_steady_once_two_windows_are_full() -> None:
    assert not is_steady([100.0] * 9)
    assert is_steady([100.0] * 10)


def test_a_falling_series_is_not_steady() -> None:
    assert not is_steady([1_000 * 0.9**k for k in range(12)])


def test_a_rising_series_is_not_steady() -> None:
    assert not is_steady([100 * 1.05**k for k in range(12)])


def test_one_preemption_does_not_prolong_the_warm_up() -> None:
    assert is_steady([100.0] * 7 + [5_000.0] + [100.0] * 4)


def test_long_calls_may_be_compared_one_by_one() -> None:
    assert is_steady([2.0e9, 2.02e9], window=1)
    assert not is_steady([2.0e9, 1.0e9], window=1)


@pytest.mark.parametrize("slow_calls", [0, 1, 2, 3, 7])
def test_steady_after_counts_the_slow_calls_at_the_start(slow_calls: int) -> None:
    # A recorded graph: compile, warm-up, record, then the fast path.
    series = [9e9, 5e8, 3e8, 2e8, 2e8, 2e8, 2e8][:slow_calls] + [1e5] * 30
    assert steady_after(series) == slow_calls


def test_steady_after_is_not_fooled_by_noise_within_a_quarter() -> None:
    noise = np.random.default_rng(0).uniform(0.9, 1.1, 40)
    assert steady_after(1e4 * noise) == 0


def test_a_series_without_a_level_never_settles() -> None:
    assert steady_after([1.0, 100.0] * 10) is None
    assert steady_after([5.0]) is None
