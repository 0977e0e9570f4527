"""How much longer is one of two things, by their floors? Differences of lower quartiles, with intervals."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from referee.records.estimate import Estimate
from referee.stats.interval import effective_size
from referee.stats.summary import FLOOR_QUANTILE, FloatArray

_RESAMPLES = 400
_SEED = 20_260_101


def floor_difference(upper: FloatArray, lower: FloatArray | None = None, *, level: float = 0.95) -> Estimate:
    """The lower quartile of ``upper`` less that of ``lower`` (or of nothing), with a moving-block bootstrap interval.

    The two are series of rounds, taken in turn: sample k of one belongs to sample k of the other, and both are drawn
    together, in runs long enough that neighbours which resemble each other stay together. NaN marks a sample not to be
    believed. Raises ``ValueError`` where either has no sample.
    """
    series = [np.asarray(upper, dtype=np.float64)]
    if lower is not None:
        series.append(np.asarray(lower, dtype=np.float64))
    if any(not np.isfinite(values).any() for values in series):
        raise ValueError("no samples to estimate from")
    rounds = min(values.size for values in series)
    drawn = _draw(rounds, _run_length(series[0]))
    point = _floors(series[0][None, :])[0]
    spread = _floors(series[0][drawn])
    if lower is not None:
        point -= _floors(series[1][None, :])[0]
        spread = spread - _floors(series[1][drawn])
    spread = spread[np.isfinite(spread)]
    low, high = np.quantile(spread, ((1 - level) / 2, (1 + level) / 2))
    counted = int(np.isfinite(series[0][:rounds]).sum())
    n_eff = effective_size(series[0][np.isfinite(series[0])])
    return Estimate(
        point=float(point),
        low=float(min(low, point)),
        high=float(max(high, point)),
        level=level,
        n=counted,
        n_eff=n_eff,
    )


def _run_length(values: FloatArray) -> int:
    """Neighbours that resemble each other are kept together: as many as one independent sample is made of."""
    finite = values[np.isfinite(values)]
    return max(1, min(finite.size // 4 or 1, round(finite.size / effective_size(finite))))


def _draw(rounds: int, run: int) -> NDArray[np.intp]:
    """Which rounds each resample is made of."""
    generator = np.random.default_rng(_SEED)
    runs = -(-rounds // run)
    starts = generator.integers(0, max(1, rounds - run + 1), size=(_RESAMPLES, runs))
    return (starts[:, :, None] + np.arange(run)).reshape(_RESAMPLES, -1)[:, :rounds]


def _floors(rows: FloatArray) -> FloatArray:
    """The lower quartile of each row, NaN left out; NaN for a row of nothing else."""
    ordered = np.sort(rows, axis=1)  # NaN goes to the end
    counts = np.isfinite(ordered).sum(axis=1)
    at = np.maximum(counts - 1, 0) * FLOOR_QUANTILE
    below = np.floor(at).astype(np.intp)
    above = np.minimum(below + 1, np.maximum(counts - 1, 0))
    index = np.arange(ordered.shape[0])
    floors: FloatArray = ordered[index, below] + (at - below) * (ordered[index, above] - ordered[index, below])
    floors[counts == 0] = np.nan
    return floors
