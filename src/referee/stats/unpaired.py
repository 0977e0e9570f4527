"""By how much do two groups differ, one number per process? The shift between them with an exact interval.

Each process draws its own memory layout, which moves a tiny operation by 2-4 % for the whole life of the process. The
blocks of one process are therefore one sample, not many, and what counts is how many processes there were.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from referee.records.estimate import Estimate
from referee.stats.paired import AA_FACTOR, FLOOR_FRAC, Answer, Decision
from referee.stats.summary import as_array
from referee.units import format_frac

LEVEL = 0.95
"""Four processes a side are the fewest for which an interval at this level exists (2 of 70 orders are extreme)."""

MIN_PROCESSES = 4

SAME_FRAC = 0.02
"""*Same* for separate processes: below that two layouts of one program cannot be told apart."""


def shift(a: Sequence[float], b: Sequence[float], *, level: float = LEVEL) -> Estimate | None:
    """The Hodges-Lehmann shift of ``b`` against ``a`` (median of all differences) and its exact interval.

    The interval holds the differences that a Mann-Whitney test at ``1 - level`` does not reject; no distribution is
    assumed. ``None`` where there are too few samples for any interval at that level.
    """
    left, right = as_array(a), as_array(b)
    if left.size == 0 or right.size == 0:
        return None
    critical = _critical_rank(left.size, right.size, tail=(1 - level) / 2)
    if critical is None:
        return None
    diffs = np.sort((right[:, None] - left[None, :]).ravel())
    return Estimate(
        point=float(np.median(diffs)),
        low=float(diffs[critical]),
        high=float(diffs[diffs.size - 1 - critical]),
        level=level,
        n=int(left.size + right.size),
        n_eff=float(left.size + right.size),
    )


def decide_processes(a_ns: Sequence[float], b_ns: Sequence[float], *, floor_frac: float = FLOOR_FRAC) -> Decision:
    """Faster, slower, same, or cannot tell, from one time per process and side?

    The same rule as for interleaved blocks. This run's A/A reading is the shift between A's own processes, every
    second one against the others; the floor is ``floor_frac`` or three times that reading.
    """
    a, b = [math.log(ns) for ns in a_ns], [math.log(ns) for ns in b_ns]
    floor = max(math.log1p(floor_frac), AA_FACTOR * abs(aa_shift(a_ns) or 0.0) / math.sqrt(max(1, len(a))))
    found = shift(a, b)
    count = min(len(a), len(b))
    frac = math.expm1(floor)
    if found is None:
        why = f"{count} processes a side are too few: {MIN_PROCESSES} are needed"
        return Decision(answer="cannot-tell", why=why, ratio=None, floor_frac=frac, quads=count)
    ratio = Estimate(
        point=math.exp(found.point),
        low=math.exp(found.low),
        high=math.exp(found.high),
        level=found.level,
        n=found.n,
        n_eff=found.n_eff,
    )
    answer: Answer = "cannot-tell"
    same, words = max(math.log1p(SAME_FRAC), floor), format_frac(frac, digits=2)
    limits = f"{math.exp(-same):.3f} and {math.exp(same):.3f}"
    if found.low > 0 and found.point > floor:
        answer, why = (
            "slower",
            f"the interval over processes lies above 1, the ratio above the floor of {words}",
        )
    elif found.high < 0 and found.point < -floor:
        answer, why = (
            "faster",
            f"the interval over processes lies below 1, the ratio below the floor of {words}",
        )
    elif -same <= found.low and found.high <= same:
        answer, why = (
            "same",
            f"the whole interval over processes lies between {limits}",
        )
    else:
        why = "the processes of one side differ among themselves by as much as the sides do"
    return Decision(answer=answer, why=why, ratio=ratio, floor_frac=frac, quads=count)


def aa_shift(a_ns: Sequence[float]) -> float | None:
    """The log shift between every second process of A and the others; ``None`` for fewer than two."""
    logs = np.log(as_array(a_ns))
    if logs.size < 2:
        return None
    return float(np.median(logs[1::2]) - np.median(logs[::2]))


def _critical_rank(m: int, n: int, *, tail: float) -> int | None:
    """The largest k with P(U ≤ k - 1) ≤ ``tail`` for the Mann-Whitney statistic U, less 1: the index of the bound.

    By counting: the number of orders of m and n samples with U = u obeys f(m, n, u) = f(m-1, n, u-n) + f(m, n-1, u).
    """
    counts: dict[tuple[int, int], np.ndarray[tuple[int], np.dtype[np.float64]]] = {}
    for i in range(m + 1):
        for j in range(n + 1):
            row = np.zeros(m * n + 1)
            if i == 0 or j == 0:
                row[0] = 1
            else:
                row[j:] += counts[i - 1, j][: row.size - j]
                row += counts[i, j - 1]
            counts[i, j] = row
    cumulative = np.cumsum(counts[m, n]) / math.comb(m + n, m)
    allowed = int(np.searchsorted(cumulative, tail, side="right"))  # values of U that are rejected: 0 … allowed - 1
    return None if allowed == 0 else allowed - 1 if allowed - 1 < m * n / 2 else None
