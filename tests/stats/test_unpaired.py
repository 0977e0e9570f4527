from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from referee.stats.unpaired import aa_shift, decide_processes, shift


def test_shift_of_two_groups() -> None:
    found = shift([0.0, 1, 2, 3, 4], [10.0, 11, 12, 13, 14])
    assert found is not None
    assert found.point == 10


def test_four_a_side_have_an_interval_at_95_percent_and_three_have_not() -> None:
    # 2 of the C(8,4) = 70 orders are the most extreme: 2.9 %. Of C(6,3) = 20: 10 %.
    assert shift([1.0] * 4, [2.0] * 4) is not None
    assert shift([1.0] * 3, [2.0] * 3) is None


@pytest.mark.parametrize(("m", "n"), [(4, 4), (5, 5), (5, 6)])
def test_the_interval_excludes_zero_exactly_when_counting_all_orders_rejects(m: int, n: int) -> None:
    """By brute force over every order of m and n ranks: p = share of orders at least as extreme, two-sided."""
    ranks = range(m + n)
    orders = [set(c) for c in combinations(ranks, m)]

    def u(a: set[int]) -> int:
        return sum(1 for x in a for y in ranks if y not in a and y < x)

    statistics = [u(a) for a in orders]
    for a, statistic in zip(orders, statistics, strict=True):
        extreme = min(statistic, m * n - statistic)
        p = 2 * sum(s <= extreme for s in statistics) / len(statistics)
        found = shift([float(x) for x in sorted(a)], [float(y) for y in ranks if y not in a])
        assert found is not None
        assert (found.low > 0 or found.high < 0) == (p <= 0.05)


def test_coverage_of_the_interval() -> None:
    random = np.random.default_rng(7)
    hits, trials = 0, 1_000
    for _ in range(trials):
        found = shift(random.standard_normal(6), 0.3 + random.standard_normal(6))
        assert found is not None
        hits += found.low <= 0.3 <= found.high
    assert hits / trials >= 0.94


@pytest.mark.parametrize(("factor", "answer"), [(1.10, "slower"), (0.9, "faster"), (1.0, "same")])
def test_answers(factor: float, answer: str) -> None:
    random = np.random.default_rng(11)
    a = 100 * (1 + 0.004 * random.standard_normal(8))
    b = 100 * factor * (1 + 0.004 * random.standard_normal(8))
    assert decide_processes(list(a), list(b)).answer == answer


def test_layout_noise_of_three_percent_does_not_become_a_difference_of_two() -> None:
    random = np.random.default_rng(13)
    false = 0
    for _ in range(300):
        a = 100 * (1 + 0.03 * random.standard_normal(6))
        b = 100 * (1 + 0.03 * random.standard_normal(6))
        false += decide_processes(list(a), list(b)).answer in ("faster", "slower")
    assert false / 300 <= 0.05


def test_too_few_processes_cannot_tell() -> None:
    found = decide_processes([100.0, 101, 102], [200.0, 201, 202])
    assert found.answer == "cannot-tell"
    assert "too few" in found.why


def test_aa_reading_compares_every_second_process() -> None:
    assert aa_shift([100.0, 110, 100, 110]) == pytest.approx(np.log(1.1))
    assert aa_shift([100.0]) is None
