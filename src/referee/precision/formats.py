"""What survives in fewer bits? Exact counts of zeros, subnormals and overflows at every power of two, by bit patterns.

One histogram of a tensor's bits (:class:`Magnitudes`) answers the question for every format and every scale 2^k at
once, without casting: rounding to nearest even only depends on the binade and on how many leading bits of the
significand are ones. Equal, element for element, to casting ``x * 2^k`` (tests hold it against NumPy's cast).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.floating[Any]]
Counts: TypeAlias = NDArray[np.int64]

_BIAS, _FRACTION_BITS = 1023, 52
_ONES = 13
"""Leading ones are told apart up to this many: enough for formats of up to 11 fraction bits (fp16 has 10)."""
_POWER = _ONES + 1
"""The class of exact powers of two, whose significand has no fraction."""
_CHUNK = 1 << 20
"""Elements treated at once: the temporaries stay within some tens of MiB."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """A binary floating format that rounds to nearest even and has subnormals."""

    name: str
    fraction_bits: int
    min_exponent: int
    """Exponent of the smallest normal number."""
    max_exponent: int
    """Exponent of the largest finite numbers."""

    @property
    def smallest(self) -> float:
        """The smallest subnormal."""
        return 2.0 ** (self.min_exponent - self.fraction_bits)

    @property
    def smallest_normal(self) -> float:
        """The smallest normal number."""
        return 2.0**self.min_exponent

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return (2.0 - 2.0**-self.fraction_bits) * 2.0**self.max_exponent


FLOAT16 = Format(name="float16", fraction_bits=10, min_exponent=-14, max_exponent=15)
BFLOAT16 = Format(name="bfloat16", fraction_bits=7, min_exponent=-126, max_exponent=127)
FORMATS = {format_.name: format_ for format_ in (FLOAT16, BFLOAT16)}


@dataclass(frozen=True, kw_only=True)
class Cast:
    """What a cast of all elements times 2^k would give: how many of them become zero, subnormal, infinite."""

    zeros: int
    """Nonzero elements that become zero."""
    subnormals: int
    """Elements that become subnormal, and so lose significant bits."""
    overflows: int
    """Finite elements that become infinite."""


class Magnitudes:
    """How large are the elements? Counts by binade and by the leading ones of the significand; exact, and additive."""

    def __init__(self) -> None:
        self._counts: Counts = np.zeros((2 * _BIAS + 2, _POWER + 1), dtype=np.int64)
        self.zeros = 0
        self.nonfinite = 0

    @property
    def elements(self) -> int:
        """All elements counted, zeros and infinities included."""
        return int(self._counts.sum()) + self.zeros + self.nonfinite

    @property
    def nonzero(self) -> int:
        """Finite elements other than zero."""
        return int(self._counts.sum())

    def add(self, values: Floats) -> None:
        """Count ``values`` (float16, float32 or float64; all are exact in float64)."""
        flat = values.reshape(-1)
        for start in range(0, flat.size, _CHUNK):
            self._add(flat[start : start + _CHUNK].astype(np.float64))

    def _add(self, values: NDArray[np.float64]) -> None:
        # Every float32, subnormal or not, is a normal float64; float64 subnormals (below 1e-307) count as binade 0.
        bits = values.view(np.uint64)
        exponents = ((bits >> np.uint64(_FRACTION_BITS)) & np.uint64(0x7FF)).astype(np.int64)
        fractions = bits & np.uint64((1 << _FRACTION_BITS) - 1)
        finite = exponents != 0x7FF
        zero = (exponents == 0) & (fractions == 0)
        self.nonfinite += int(values.size - np.count_nonzero(finite))
        self.zeros += int(np.count_nonzero(zero))
        used = finite & ~zero
        classes = _leading_ones(fractions[used])
        flat = np.bincount(exponents[used] * (_POWER + 1) + classes, minlength=self._counts.size)
        self._counts += flat.reshape(self._counts.shape)

    def merge(self, other: Magnitudes) -> None:
        """Count what ``other`` counted as well."""
        self._counts += other._counts
        self.zeros += other.zeros
        self.nonfinite += other.nonfinite

    def cast(self, form: Format, *, exponent: int = 0) -> Cast:
        """What the cast of ``x * 2^exponent`` to ``form`` gives. The product itself is taken as exact."""
        p = form.fraction_bits
        zeros = self._at_most_power(form.min_exponent - p - 1 - exponent)
        below = self._below_rounding_up(form.min_exponent - 1 - exponent, ones=p)
        finite = self._below_rounding_up(form.max_exponent - exponent, ones=p + 1)
        return Cast(zeros=zeros, subnormals=below - zeros, overflows=self.nonzero - finite)

    def binades(self) -> tuple[tuple[int, int], ...]:
        """The nonzero elements by exponent e (2^e ≤ |x| < 2^(e+1)), from the smallest to the largest present."""
        totals = self._counts.sum(axis=1)
        present = np.flatnonzero(totals)
        if not present.size:
            return ()
        return tuple((int(k) - _BIAS, int(totals[k])) for k in range(present[0], present[-1] + 1))

    def largest_exponent(self) -> int | None:
        """The exponent of the largest finite magnitude; ``None`` where there is none."""
        binades = self.binades()
        return binades[-1][0] if binades else None

    def _at_most_power(self, exponent: int) -> int:
        """Elements with |x| ≤ 2^exponent: the tie between zero and the smallest subnormal goes to zero (even)."""
        row = exponent + _BIAS
        if row < 0:
            return 0
        below = int(self._counts[: min(row, len(self._counts))].sum())
        return below + (int(self._counts[row, _POWER]) if row < len(self._counts) else 0)

    def _below_rounding_up(self, exponent: int, *, ones: int) -> int:
        """Elements below (2 − 2^−ones) · 2^exponent: from there on they round to 2^(exponent+1), ties included."""
        row = exponent + _BIAS
        if row < 0:
            return 0
        if row >= len(self._counts):
            return self.nonzero
        rounding_up = int(self._counts[row, min(ones, _ONES) : _POWER].sum())
        return int(self._counts[: row + 1].sum()) - rounding_up


def _leading_ones(fractions: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The number of leading ones of each 52-bit fraction, at most :data:`_ONES`; :data:`_POWER` where it is zero."""
    top = (fractions >> np.uint64(_FRACTION_BITS - _ONES)).astype(np.int64)
    classes = _ONES_OF[top]
    classes[fractions == 0] = _POWER
    return classes


def _table() -> NDArray[np.int64]:
    values = np.arange(1 << _ONES, dtype=np.int64)
    ones = np.zeros_like(values)
    still = np.ones(values.shape, dtype=bool)
    for bit in range(_ONES - 1, -1, -1):
        still &= ((values >> bit) & 1).astype(bool)
        ones += still
    return ones


_ONES_OF = _table()


def lost_updates(weights: Floats, updates: Floats, form: Format) -> int:
    """How many nonzero ``updates`` leave ``weights``, held in ``form``, as they are?

    ``weights`` must be representable in ``form`` and normal in it. An update is lost when it is smaller than half the
    distance to the next number in its direction (a quarter of an ulp downwards from a power of two), or equal to it
    while the weight is even. Arithmetic is exact: comparisons of float64 numbers without rounding.
    """
    w, u = np.abs(weights.astype(np.float64)), updates.astype(np.float64) * np.sign(weights.astype(np.float64))
    u = np.where(weights == 0, np.abs(updates.astype(np.float64)), u)
    fraction, exponent = np.frexp(w)
    exponent = np.where(w == 0, form.min_exponent, np.maximum(exponent - 1, form.min_exponent))
    half_ulp = np.ldexp(0.5, exponent - form.fraction_bits)
    downwards = (u < 0) & (fraction == 0.5) & (exponent > form.min_exponent)
    half_ulp = np.where(downwards, half_ulp / 2, half_ulp)
    odd = (np.ldexp(w, form.fraction_bits - exponent) % 2).astype(bool)
    # From a power of two down, the tie goes to the power itself (even); elsewhere it depends on the last bit.
    keeps_tie = ~odd
    lost = (np.abs(u) < half_ulp) | ((np.abs(u) == half_ulp) & keeps_tie)
    return int(np.count_nonzero(lost & (u != 0)))
