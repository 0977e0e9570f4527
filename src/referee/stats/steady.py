"""Has the series become steady? The question a warm-up asks after each call, instead of counting calls."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from referee.stats.summary import FloatArray, as_array

WINDOW = 5
"""Calls on either side of the comparison. Recorded graphs need three calls before the fast path is reached, compiled
code two, so a window must be longer than that."""

DRIFT_FRAC = 0.05
"""How far two neighbouring windows may differ. The noise of a shared machine moves a lower quartile of five by less."""

LEVEL_FRAC = 0.25
"""A call belongs to the steady part while it is within this share of the final level."""


def is_steady(series: Sequence[float] | FloatArray, *, window: int = WINDOW) -> bool:
    """Do the last two windows of the series agree in their lower quartiles, and is the last call no outlier of both?

    Lower quartiles, because one preemption must not prolong a warm-up. ``window`` may be as small as 1 for calls that
    take long. A series shorter than two windows is not known to be steady.
    """
    values = as_array(series)
    if values.size < 2 * window:
        return False
    before = float(np.quantile(values[-2 * window : -window], 0.25))
    after = float(np.quantile(values[-window:], 0.25))
    return abs(after - before) <= DRIFT_FRAC * min(before, after)


def steady_after(series: Sequence[float] | FloatArray) -> int | None:
    """After how many calls did the series reach its final level (median of the last half)? ``None`` if never.

    The answer is the length of the leading run of calls that lie off the final level by more than a quarter of it,
    where *leading* ends at the first two calls in a row that do not.
    """
    values = as_array(series)
    if values.size < 2:
        return None
    level = float(np.median(values[values.size // 2 :]))
    near = np.abs(values - level) <= LEVEL_FRAC * level
    for index in range(values.size - 1):
        if near[index] and near[index + 1]:
            return index
    return None
