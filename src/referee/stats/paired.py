"""Is B slower or faster than A? The rule for interleaved pairs: a significance test **and** a practical floor.

Blocks are taken in quads, A B B A and B A A B in turn, so that a drift of the machine falls on both sides alike. Each
quad gives one ratio. A test of significance alone gets worse with more data: a real bias of 0.05 % between two slots is
"found" in a third of five-second runs of the same code. The floor makes the rule honest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from referee.records.estimate import Estimate
from referee.stats.interval import median_interval
from referee.stats.summary import FloatArray
from referee.units import format_frac

Answer = Literal["faster", "slower", "same", "cannot-tell"]

LEVEL = 0.99
"""Level of the interval of the ratio. At 95 % three to seventeen of a hundred A/A runs of a second were called
different by significance alone; at 99 % with the floor none of 1,595 was."""

FLOOR_FRAC = 0.0075
"""A smaller difference is not called one: where their memory lies alone moves separately built twins by 0.2 %, now and
then by up to 0.7 %."""

SAME_FRAC = 0.01
"""*Same* means that the whole interval lies within one percent of 1."""

AA_FACTOR = 3.0
"""The floor is at least this many times the ratio that the same run read for A against A, where that reading's own
interval excludes 1. A few A/A quads scatter by tenths of a percent: taken at its word, that hid one planted percent in
two of thirteen runs. Of 2,000 recorded windows of equal sides as many (one) were called different either way."""

MIN_QUADS = 30
"""With fewer clean quads the answer is *cannot tell*, unless the blocks are long (:data:`MIN_LONG_QUADS`)."""

MIN_LONG_QUADS = 8
"""Enough quads where a single call is longer than a scheduler's slice: eight ratios of one sign happen by chance once
in 128, and the interval of eight is their whole range."""


CLEAR_FRAC = 0.1
"""Fewer quads than :data:`MIN_QUADS` are enough, down to :data:`MIN_LONG_QUADS`, where their whole interval lies
further than this from 1: eight interleaved quads do not all read ten percent one way by chance."""


@dataclass(frozen=True)
class QuadBlock:
    """One block of a quad: which side, time per call, and whether nothing preempted it."""

    side: Literal["a", "b"]
    ns: float
    clean: bool


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The answer (B against A), the ratio time B / time A with its interval, and what it stands on."""

    answer: Answer
    why: str
    ratio: Estimate | None
    floor_frac: float
    """The practical floor that was used."""
    quads: int
    """Clean quads."""


def quad_ratio(quad: Sequence[QuadBlock]) -> float | None:
    """ln(time B / time A) of one quad, or ``None`` if a side has no clean block.

    The lesser of each side's two blocks, because what disturbs a block only ever lengthens it. Where a block was
    preempted, one clean block of either side is compared, the two nearest in time: the lesser of two against a single
    one would favour the side that was left in peace.
    """
    clean = {side: [(i, b.ns) for i, b in enumerate(quad) if b.side == side and b.clean] for side in ("a", "b")}
    a, b = clean["a"], clean["b"]
    if not a or not b:
        return None
    if len(a) == len(b):
        left, right = min(ns for _, ns in a), min(ns for _, ns in b)
    else:
        _, left, right = min((abs(i - j), x, y) for i, x in a for j, y in b)
    if left <= 0 or right <= 0:
        return None
    return math.log(right / left)


def quad_ratios(quads: Sequence[Sequence[QuadBlock]]) -> FloatArray:
    """The log ratios of those quads that have one."""
    found = [ratio for quad in quads if (ratio := quad_ratio(quad)) is not None]
    return np.asarray(found, dtype=np.float64)


def balanced_ratios(quads: Sequence[Sequence[QuadBlock]]) -> FloatArray:
    """The mean log ratio of each two quads in a row, one of either order, where both have one.

    A block after the other side's starts with colder caches than one after its own, and in A B B A the sides do so in
    other places than in B A A B. With blocks of a single call that alone made separately built twins of
    Linear(512, 512) differ by up to 6 %; in the mean of both orders it cancels.
    """
    found = []
    for first, second in zip(quads[::2], quads[1::2], strict=False):
        a, b = quad_ratio(first), quad_ratio(second)
        if a is not None and b is not None:
            found.append((a + b) / 2)
    return np.asarray(found, dtype=np.float64)


def ratio_estimate(log_ratios: Sequence[float] | FloatArray, *, level: float = LEVEL) -> Estimate | None:
    """Median ratio and its interval; ``None`` for no ratio at all."""
    if len(log_ratios) == 0:
        return None
    found = median_interval(log_ratios, level=level)
    return Estimate(
        point=math.exp(found.point),
        low=math.exp(found.low),
        high=math.exp(found.high),
        level=level,
        n=found.n,
        n_eff=found.n_eff,
    )


def decide(
    log_ratios: Sequence[float] | FloatArray,
    *,
    aa_log_ratios: Sequence[float] | FloatArray = (),
    level: float = LEVEL,
    min_quads: int = MIN_QUADS,
    floor_frac: float = FLOOR_FRAC,
) -> Decision:
    """Faster, slower, same, or cannot tell?

    Slower: the interval lies above 1 **and** the ratio exceeds 1 + floor; faster is its mirror image. Same: the
    interval lies within 1 % of 1 (never more: a run whose own A/A reading is off by more cannot tell). The floor is
    ``floor_frac``, or :data:`AA_FACTOR` times this run's own A/A reading if that is larger and no mere scatter. Fewer
    than ``min_quads`` answer only where they lie clear of 1 (:data:`CLEAR_FRAC`).
    """
    aa = ratio_estimate(aa_log_ratios, level=level)
    estimate = ratio_estimate(log_ratios, level=level)
    return _judge(estimate, aa=aa, quads=len(log_ratios), min_quads=min_quads, floor_frac=floor_frac)


def decide_medians(
    quads: Sequence[Sequence[QuadBlock]],
    *,
    aa_quads: Sequence[Sequence[QuadBlock]] = (),
    level: float = LEVEL,
    min_quads: int = MIN_QUADS,
    floor_frac: float = FLOOR_FRAC,
) -> Decision:
    """The same answers for steps whose calls differ by themselves: B's median block against A's.

    The lesser of two blocks says nothing of such a step's usual cost, and a quad's four blocks are no pair of equals:
    all clean blocks of a side are one sample, and the ratio of the medians has the interval of both together. As
    nothing pairs them, a ratio inside the interval that A read against itself is no difference either.
    """
    estimate, aa = ratio_of_medians(quads, level=level), ratio_of_medians(aa_quads, level=level)
    complete = sum({block.side for block in quad if block.clean} == {"a", "b"} for quad in quads)
    found = _judge(estimate, aa=aa, quads=complete, min_quads=min_quads, floor_frac=floor_frac)
    if estimate is None or aa is None or found.answer not in ("slower", "faster"):
        return found
    if not aa.low <= estimate.point <= aa.high:
        return found
    why = f"A against itself reads {aa.low:.3f} to {aa.high:.3f} in this run, and the ratio lies inside"
    return replace(found, answer="cannot-tell", why=why)


def ratio_of_medians(quads: Sequence[Sequence[QuadBlock]], *, level: float = LEVEL) -> Estimate | None:
    """Median of B's clean blocks over that of A's; ``None`` where a side has none.

    Each median has its own interval at half of the error, so that the quotient's holds at ``level`` at least.
    """
    a, b = (
        [block.ns for quad in quads for block in quad if block.side == side and block.clean and block.ns > 0]
        for side in ("a", "b")
    )
    if not a or not b:
        return None
    left, right = (median_interval(times, level=1 - (1 - level) / 2) for times in (a, b))
    return Estimate(
        point=right.point / left.point,
        low=right.low / left.high,
        high=right.high / left.low,
        level=level,
        n=left.n + right.n,
        n_eff=left.n_eff + right.n_eff,
    )


def _judge(
    estimate: Estimate | None, *, aa: Estimate | None, quads: int, min_quads: int, floor_frac: float
) -> Decision:
    """The answer by the rule of :func:`decide`."""
    floor = math.log1p(floor_frac)
    if aa is not None and (aa.low > 1 or aa.high < 1):
        floor = max(floor, AA_FACTOR * abs(math.log(aa.point)))
    frac = math.expm1(floor)
    answer: Answer = "cannot-tell"
    if estimate is None or (quads < min_quads and not (quads >= MIN_LONG_QUADS and _is_clear(estimate))):
        why = f"only {quads} of the {min_quads} undisturbed quads needed"
        return Decision(answer=answer, why=why, ratio=estimate, floor_frac=frac, quads=quads)
    middle, low, high = math.log(estimate.point), math.log(estimate.low), math.log(estimate.high)
    same, words = math.log1p(SAME_FRAC), format_frac(frac, digits=2)
    differs = (low > 0 and middle > floor) or (high < 0 and middle < -floor)
    if differs and middle > 0:
        answer, why = "slower", f"the interval lies above 1 and the ratio is above the floor of {words}"
    elif differs:
        answer, why = "faster", f"the interval lies below 1 and the ratio is below the floor of {words}"
    elif -same <= low and high <= same:
        answer, why = "same", f"the whole interval lies between {math.exp(-same):.3f} and {math.exp(same):.3f}"
    else:
        why = "the interval reaches further than one percent from 1 and does not exclude it by more than the floor"
    return Decision(answer=answer, why=why, ratio=estimate, floor_frac=frac, quads=quads)


def _is_clear(estimate: Estimate) -> bool:
    return estimate.low > 1 + CLEAR_FRAC or estimate.high < 1 / (1 + CLEAR_FRAC)
