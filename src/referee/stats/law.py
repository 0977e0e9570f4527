"""Which law does the sweep obey, and where is its knee?

Two laws: ``max``, t(b) = max(host, fixed + slope·b), where the host runs ahead of a device; ``sum``,
t(b) = intercept + slope·b, which the CPU and code that synchronises each step obey. The one with the smaller held-out
error is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from referee.records.measurement import Fit
from referee.stats.summary import FloatArray, as_array
from referee.units import format_frac

GOOD_FRAC = 0.20
"""A law whose held-out error (root mean square of the relative errors at left-out points) exceeds this explains
nothing. Real models on a CPU leave 5-12 %: caches and kernel choices change along the sweep."""

DRAWS = 200
"""Bootstrap draws for the interval of the knee."""

TIE_FRAC = 0.8
"""``max`` has one parameter more: it must beat ``sum`` by a fifth to be chosen."""

FLAT_POINTS = 2
"""A flat part is seen only where at least two points lie on it: one point can always be met by a constant."""


@dataclass(frozen=True)
class _Max:
    host: float
    fixed: float
    slope: float

    def at(self, b: FloatArray) -> FloatArray:
        return np.maximum(self.host, self.fixed + self.slope * b)

    def knee(self) -> float | None:
        return (self.host - self.fixed) / self.slope if self.slope > 0 else None


@dataclass(frozen=True)
class _Sum:
    intercept: float
    slope: float

    def at(self, b: FloatArray) -> FloatArray:
        return self.intercept + self.slope * b

    def knee(self) -> float | None:
        return self.intercept / self.slope if self.slope > 0 else None


def fit_law(
    values: Sequence[float],
    times_ns: Sequence[float],
    *,
    low_ns: Sequence[float] | None = None,
    high_ns: Sequence[float] | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> Fit:
    """Fit both laws to times per call at distinct positive ``values``, choose one, and find its knee.

    ``low_ns`` and ``high_ns`` are the intervals of the times at ``level``; the knee's interval is at the same level,
    by a parametric bootstrap over them and over the scatter about the law. Errors are relative, so small batches
    count as much as large ones. Law ``none``: fewer than four points, or a held-out error above 20 % for both.
    """
    b, t = as_array(values), as_array(times_ns)
    order = np.argsort(b)
    b, t = b[order], t[order]
    width = np.zeros_like(t)
    if low_ns is not None and high_ns is not None:
        width = (as_array(high_ns) - as_array(low_ns))[order]
    if b.size < 4:
        return no_fit(f"a fit needs at least four points with a number, and here {_count(b.size)}")
    if np.any(b <= 0) or np.any(t <= 0) or np.any(np.diff(b) == 0):
        return no_fit("the points are not distinct, positive and of positive time")
    error_max, error_sum = _held_out(_fit_max, b, t), _held_out(_fit_sum, b, t)
    if min(error_max, error_sum) > GOOD_FRAC:
        return no_fit(
            f"neither law predicts left-out points: {_share(error_max)} (max) and {_share(error_sum)} (sum) off",
            error_max=error_max,
            error_sum=error_sum,
        )
    law: _Max | _Sum = _fit_max(b, t)
    knee_of_max = law.knee()
    is_max = (
        error_max < TIE_FRAC * error_sum and knee_of_max is not None and int(np.sum(b < knee_of_max)) >= FLAT_POINTS
    )
    if not is_max:
        law = _fit_sum(b, t)
    # A point is as uncertain as its interval says, and at least as the scatter about the law.
    residual = float(np.sqrt(np.mean((law.at(b) / t - 1) ** 2)))
    spread = np.maximum(residual * t, width / 2 / NormalDist().inv_cdf((1 + level) / 2))
    knee, low, high, why = _knee_interval(law, b, t, spread=spread, level=level, seed=seed)
    return Fit(
        law="max" if is_max else "sum",
        host_ns=law.host if isinstance(law, _Max) else law.intercept,
        fixed_ns=law.fixed if isinstance(law, _Max) else 0.0,
        slope_ns=law.slope,
        knee=knee,
        knee_low=low,
        knee_high=high,
        why_no_knee=why,
        error_frac=error_max if is_max else error_sum,
        error_max_frac=error_max,
        error_sum_frac=error_sum,
    )


def no_fit(why: str, *, error_max: float | None = None, error_sum: float | None = None) -> Fit:
    """The fit of what no law was fitted to, and why."""
    return Fit(
        law="none",
        host_ns=None,
        fixed_ns=None,
        slope_ns=None,
        knee=None,
        knee_low=None,
        knee_high=None,
        why_no_knee=why,
        error_max_frac=error_max,
        error_sum_frac=error_sum,
    )


def _share(frac: float) -> str:
    return format_frac(frac, digits=0)


def _count(points: int) -> str:
    return {0: "is none", 1: "is one"}.get(points, f"are {points}")


def _line(b: FloatArray, t: FloatArray) -> tuple[float, float]:
    """Intercept and slope by least squares of the relative error."""
    design = np.stack((1 / t, b / t), axis=1)
    solution, *_ = np.linalg.lstsq(design, np.ones_like(t), rcond=None)
    return float(solution[0]), float(solution[1])


def _fit_sum(b: FloatArray, t: FloatArray) -> _Sum:
    return _Sum(*_line(b, t))


def _fit_max(b: FloatArray, t: FloatArray) -> _Max:
    """Every split into a flat left and a sloped right part is tried; the one with the least relative error stays."""
    intercept, slope = _line(b, t)
    best, best_error = _Max(0.0, intercept, slope), float("inf")
    for left in range(b.size - 1):
        # The relative least-squares constant: Σ(1/t) / Σ(1/t²).
        host = float(np.sum(1 / t[:left]) / np.sum(1 / t[:left] ** 2)) if left else 0.0
        candidate = _Max(host, *_line(b[left:], t[left:]))
        error = float(np.sum((candidate.at(b) / t - 1) ** 2))
        if error < best_error:
            best, best_error = candidate, error
    flat = float(np.sum(1 / t) / np.sum(1 / t**2))
    if float(np.sum((flat / t - 1) ** 2)) <= best_error:
        best = _Max(flat, 0.0, 0.0)
    return best


def _held_out(fit: Callable[[FloatArray, FloatArray], _Max | _Sum], b: FloatArray, t: FloatArray) -> float:
    """Root mean square of the relative errors, each point predicted by a fit to the others."""
    errors = []
    for index in range(b.size):
        keep = np.arange(b.size) != index
        law = fit(b[keep], t[keep])
        errors.append(float(law.at(b[index : index + 1])[0]) / t[index] - 1)
    return float(np.sqrt(np.mean(np.square(errors))))


def _knee_interval(
    law: _Max | _Sum, b: FloatArray, t: FloatArray, *, spread: FloatArray, level: float, seed: int
) -> tuple[float | None, float | None, float | None, str]:
    knee = law.knee()
    if knee is None:
        return None, None, None, "the time does not grow over the sweep"
    if knee <= 0:
        return None, None, None, "the fixed part of the time is not above zero"
    left, right = int(np.sum(b < knee)), int(np.sum(b > knee))
    if knee <= 2 and bool(np.all(b == np.rint(b))):
        return None, None, None, f"below the knee near {knee:.3g} there are no two whole numbers, so no count shows it"
    if left < 2 or right < 2:
        side = "below" if left < 2 else "above"
        return None, None, None, f"the knee near {knee:.3g} needs two points on each side: sweep further {side} it"
    random = np.random.default_rng(seed)
    refit = _fit_max if isinstance(law, _Max) else _fit_sum
    knees = []
    for _ in range(DRAWS):
        drawn = refit(b, np.maximum(law.at(b) + spread * random.standard_normal(b.size), t * 0.01)).knee()
        if drawn is not None and drawn > 0:
            knees.append(drawn)
    if len(knees) < DRAWS // 2:
        return None, None, None, "the knee is not determined by these points"
    low, high = np.quantile(knees, ((1 - level) / 2, (1 + level) / 2))
    return knee, float(min(low, knee)), float(max(high, knee)), ""
