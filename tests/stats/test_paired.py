from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from referee.stats.paired import FLOOR_FRAC, QuadBlock, balanced_ratios, decide, quad_ratio, quad_ratios, ratio_estimate


def quad(order: str, times: list[float], clean: list[bool] | None = None) -> list[QuadBlock]:
    marks = clean or [True] * len(times)
    return [QuadBlock(s, t, c) for s, t, c in zip(order, times, marks, strict=True)]  # type: ignore[arg-type]


def noisy(ratio: float, *, count: int, sigma: float = 0.01, seed: int = 0) -> np.ndarray:
    return math.log(ratio) + sigma * np.random.default_rng(seed).standard_normal(count)


def test_a_quad_compares_the_lesser_blocks_of_each_side() -> None:
    assert quad_ratio(quad("abba", [100, 110, 120, 105])) == pytest.approx(math.log(110 / 100))
    assert quad_ratio(quad("baab", [110, 100, 105, 120])) == pytest.approx(math.log(110 / 100))


def test_a_linear_drift_falls_on_both_sides_alike() -> None:
    drifting = [100 + 1 * k for k in range(4)]
    forward, backward = quad_ratio(quad("abba", drifting)), quad_ratio(quad("baab", drifting))
    assert forward is not None
    assert backward is not None
    assert forward + backward == pytest.approx(0, abs=1e-12)


def test_a_quad_with_a_preempted_block_compares_one_block_of_each_side_nearest_in_time() -> None:
    # The second A block was preempted: the A at 0 is next to the B at 1, not to the B at 2.
    found = quad_ratio(quad("abba", [100, 111, 109, 900], [True, True, True, False]))
    assert found == pytest.approx(math.log(111 / 100))


def test_a_quad_without_a_clean_block_on_one_side_says_nothing() -> None:
    assert quad_ratio(quad("abba", [1, 2, 3, 4], [False, True, True, False])) is None
    assert quad_ratios([quad("abba", [1, 2, 3, 4], [False, True, True, False])]).size == 0


@pytest.mark.parametrize(("ratio", "answer"), [(1.03, "slower"), (0.97, "faster"), (1.0, "same"), (1.003, "same")])
def test_answers(ratio: float, answer: str) -> None:
    found = decide(noisy(ratio, count=400), aa_log_ratios=noisy(1.0, count=130, seed=1))
    assert found.answer == answer
    assert found.ratio is not None
    assert found.ratio.point == pytest.approx(ratio, abs=0.003)


def test_a_wide_interval_cannot_tell() -> None:
    assert decide(noisy(1.01, count=40, sigma=0.2)).answer == "cannot-tell"


def test_few_quads_answer_only_clear_of_one() -> None:
    assert decide([math.log(2.0)] * 8).answer == "slower"
    assert decide([math.log(0.34)] * 17).answer == "faster"
    found = decide([math.log(1.05)] * 29)
    assert found.answer == "cannot-tell"
    assert "29" in found.why


def test_the_floor_holds_back_what_is_significant_but_small() -> None:
    """A bias of 0.1 % with much data: significant, and no difference."""
    log_ratios = noisy(1.001, count=20_000)
    estimate = ratio_estimate(log_ratios)
    assert estimate is not None
    assert estimate.low > 1
    assert decide(log_ratios).answer == "same"


def test_this_runs_own_aa_reading_raises_the_floor() -> None:
    biased = noisy(1.01, count=500, seed=2)
    assert decide(biased).answer == "slower"
    held_back = decide(biased, aa_log_ratios=noisy(1.006, count=500, seed=3))
    assert held_back.answer == "cannot-tell"
    assert held_back.floor_frac == pytest.approx(0.018, abs=0.004)


def test_an_aa_reading_that_is_mere_scatter_does_not() -> None:
    scattered = noisy(1.004, count=20, sigma=0.02, seed=4)
    reading = ratio_estimate(scattered)
    assert reading is not None
    assert reading.low < 1 < reading.high
    found = decide(noisy(1.01, count=500, seed=2), aa_log_ratios=scattered)
    assert found.answer == "slower"
    assert found.floor_frac == pytest.approx(FLOOR_FRAC)


@given(st.floats(0.8, 1.25), st.integers(0, 50))
def test_swapping_the_sides_mirrors_the_answer(ratio: float, seed: int) -> None:
    mirror = {"faster": "slower", "slower": "faster", "same": "same", "cannot-tell": "cannot-tell"}
    log_ratios = noisy(ratio, count=100, seed=seed)
    there, back = decide(log_ratios), decide(-log_ratios)
    assert back.answer == mirror[there.answer]
    assert there.ratio is not None
    assert back.ratio is not None
    assert there.ratio.point * back.ratio.point == pytest.approx(1)


def test_no_false_answer_in_a_thousand_comparisons_of_the_same_code() -> None:
    false = 0
    for seed in range(1_000):
        found = decide(
            noisy(1.0, count=200, sigma=0.02, seed=seed), aa_log_ratios=noisy(1.0, count=60, seed=-seed % 997)
        )
        false += found.answer in ("faster", "slower")
    assert false <= 3


def test_three_percent_is_found_in_noise_of_two() -> None:
    found = sum(decide(noisy(1.03, count=200, sigma=0.02, seed=seed)).answer == "slower" for seed in range(200))
    assert found >= 195


def test_what_the_place_in_the_quad_costs_cancels_over_both_orders() -> None:
    """In A B B A the second B follows its own and is 5 % faster; in B A A B the second A is."""
    forward = quad("abba", [105, 105, 100, 105])
    backward = quad("baab", [105, 105, 100, 105])
    assert quad_ratio(forward) != 0
    assert balanced_ratios([forward, backward, backward, forward]) == pytest.approx([0, 0], abs=1e-12)


def test_a_pair_of_quads_with_a_spoilt_one_is_left_out() -> None:
    good = quad("abba", [100, 103, 103, 100])
    spoilt = quad("baab", [1, 2, 3, 4], [True, False, False, True])
    assert balanced_ratios([good, spoilt, good, good]) == pytest.approx([math.log(1.03)])


def test_same_states_the_bounds_themselves() -> None:
    assert decide([0.0] * 60).why == "the whole interval lies between 0.990 and 1.010"
