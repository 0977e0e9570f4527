"""How slow is the slow end? Percentiles with a bound that says when there are too few samples for one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from referee.records.shapes import Tail
from referee.stats.summary import FloatArray, as_array

LEVEL = 0.95
P99 = 0.99


def tail_of(samples: Sequence[float] | FloatArray, *, level: float = LEVEL) -> Tail | None:
    """Median, 95th and 99th percentile, and an upper bound of the 99th; ``None`` for no samples.

    The bound is the smallest order statistic that lies above the true percentile with probability ``level``: by the
    binomial distribution, without assuming any other. It exists from :func:`samples_for` samples on.
    """
    values = np.sort(as_array(samples))
    if values.size == 0:
        return None
    p50, p95, p99 = np.quantile(values, (0.5, 0.95, P99))
    rank = upper_rank(values.size, P99, level=level)
    return Tail(
        n=int(values.size),
        p50_ns=float(p50),
        p95_ns=float(p95),
        p99_ns=float(p99),
        p99_high_ns=None if rank is None else float(values[rank]),
        level=level,
        calls_for_p99=samples_for(P99, level=level),
    )


def samples_for(quantile: float, *, level: float = LEVEL) -> int:
    """How many samples it takes until their maximum bounds the quantile: the least n with 1 - quantile^n ≥ level."""
    return math.ceil(math.log(1 - level) / math.log(quantile))


def upper_rank(n: int, quantile: float, *, level: float = LEVEL) -> int | None:
    """The index (from 0) of the smallest order statistic above the quantile with probability ``level``, or ``None``.

    P(x_(k) ≥ q) = P(at most k - 1 of n lie below q) for the k-th smallest, by the binomial distribution in logarithms.
    """
    if n < samples_for(quantile, level=level):
        return None
    total = 0.0
    for below in range(n):
        log_term = (
            math.lgamma(n + 1)
            - math.lgamma(below + 1)
            - math.lgamma(n - below + 1)
            + below * math.log(quantile)
            + (n - below) * math.log1p(-quantile)
        )
        total += math.exp(log_term)
        if total >= level:
            return below
    return n - 1
