"""How sure is the median? An interval that allows for neighbouring blocks resembling each other."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from referee.records.estimate import Estimate
from referee.stats.summary import FloatArray, as_array

_SHORT_SERIES = 4.0
_DEGREES_DIVISOR = 3.0
"""Both chosen by simulation so that AR(1) noise of up to 0.8 is covered at 95 % from 50 samples on."""


def effective_size(samples: Sequence[float] | FloatArray) -> float:
    """How many independent samples are these worth, as far as their median is concerned? Between 1 and ``n``.

    The median moves with the signs of ``x - median``, so the autocorrelation of the signs counts, not that of the
    values: n_eff = n / (1 + 2 Σ ρ_k). The sum ends where the sum of two neighbouring terms turns negative (Geyer's
    initial positive sequence, 1992). The sum is biased low in a short series, because the mean that is taken off
    follows the series; it is enlarged for that. Samples that are all equal count in full.
    """
    values = as_array(samples)
    n = values.size
    if n < 4:
        return float(n)
    signs = np.sign(values - np.median(values))
    signs -= signs.mean()
    if not signs.any():
        return float(n)
    size = 1 << (2 * n - 1).bit_length()
    spectrum = np.fft.rfft(signs, size)
    covariance = np.fft.irfft(spectrum * np.conj(spectrum), size)[:n]
    rho = covariance / covariance[0]
    pairs = rho[: n - n % 2].reshape(-1, 2).sum(axis=1)
    ends = np.flatnonzero(pairs <= 0)
    last = int(ends[0]) if ends.size else pairs.size
    # Geyer's monotone form: a pair may not exceed the one before it.
    total = float(np.minimum.accumulate(pairs[:last]).sum())
    tau = max(1.0, 2 * total - 1)
    tau *= 1 + _SHORT_SERIES * (tau - 1) / n
    return float(min(n, max(1.0, n / tau)))


def median_interval(samples: Sequence[float] | FloatArray, *, level: float = 0.95) -> Estimate:
    """The median and its interval at ``level``, from order statistics at the effective sample size.

    Ranks n/2 ± t · √n_eff / 2, scaled back to n; t, not the normal quantile, with a third of n_eff as its degrees of
    freedom, because n_eff is itself uncertain. Covered in simulation, nominal 95 %: independent samples 0.96-0.99;
    AR(1) of 0.5, 0.95 and more from 50 samples on; AR(1) of 0.8, 0.95 from 50 on; AR(1) of 0.9, 0.93 from 100 on.
    With fewer than six samples the interval is the whole range, which covers at 1 - 2^(1-n). Assumes a stationary
    series; a drift makes n_eff small and the interval wide. Raises ``ValueError`` for no samples or a level outside
    (0, 1).
    """
    values = np.sort(as_array(samples))
    n = values.size
    if n == 0:
        raise ValueError("no samples to estimate from")
    if not 0 < level < 1:
        raise ValueError(f"a level lies between 0 and 1, not {level}")
    point = float(np.median(values))
    n_eff = effective_size(samples)
    if n < 6:
        return Estimate(point=point, low=float(values[0]), high=float(values[-1]), level=level, n=n, n_eff=n_eff)
    half = (
        student_quantile((1 + level) / 2, degrees=max(1.0, (n_eff - 1) / _DEGREES_DIVISOR))
        * np.sqrt(n_eff)
        / 2
        * (n / n_eff)
    )
    low = max(0, int(np.floor((n - 1) / 2 - half)))
    high = min(n - 1, int(np.ceil((n - 1) / 2 + half)))
    return Estimate(point=point, low=float(values[low]), high=float(values[high]), level=level, n=n, n_eff=n_eff)


def student_quantile(probability: float, *, degrees: float) -> float:
    """Student's t quantile, exact for one and two degrees of freedom, else to about 0.5 % (expansion in 1/degrees)."""
    if degrees < 2:
        exact_one = float(np.tan(np.pi * (probability - 0.5)))
        return exact_one if degrees <= 1 else exact_one + (degrees - 1) * (_student_two(probability) - exact_one)
    if degrees < 3:
        third = _student_expansion(probability, 3.0)
        return _student_two(probability) + (degrees - 2) * (third - _student_two(probability))
    return _student_expansion(probability, degrees)


def _student_two(probability: float) -> float:
    alpha = 4 * probability * (1 - probability)
    return float(2 * (probability - 0.5) * np.sqrt(2 / alpha))


def _student_expansion(probability: float, degrees: float) -> float:
    """Cornish-Fisher expansion about the normal quantile (Abramowitz and Stegun 26.7.5)."""
    z = NormalDist().inv_cdf(probability)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / degrees ** (power + 1) for power, term in enumerate(terms))
