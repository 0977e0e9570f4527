from __future__ import annotations

import numpy as np
import pytest

from referee.stats.tail import samples_for, tail_of, upper_rank


def test_percentiles_of_a_known_series() -> None:
    found = tail_of(range(1, 1_001))
    assert found is not None
    assert (found.p50_ns, found.p95_ns, found.p99_ns) == pytest.approx((500.5, 950.05, 990.01))
    assert found.p99_high_ns is not None
    assert found.p99_high_ns >= found.p99_ns


def test_299_samples_are_the_fewest_that_bound_the_99th_percentile_at_95_percent() -> None:
    # 0.99^298 = 0.0500, 0.99^299 = 0.0495.
    assert samples_for(0.99) == 299
    assert upper_rank(298, 0.99) is None
    assert upper_rank(299, 0.99) == 298
    few = tail_of(range(298))
    assert few is not None
    assert few.p99_high_ns is None
    assert few.calls_for_p99 == 299


@pytest.mark.parametrize("n", [299, 1_000, 5_000])
def test_the_bound_lies_above_the_true_percentile_as_often_as_stated(n: int) -> None:
    random = np.random.default_rng(n)
    above = 0
    for _ in range(1_000):
        found = tail_of(random.random(n))
        assert found is not None
        assert found.p99_high_ns is not None
        above += found.p99_high_ns >= 0.99
    assert above / 1_000 >= 0.94


def test_no_samples_have_no_tail() -> None:
    assert tail_of([]) is None
