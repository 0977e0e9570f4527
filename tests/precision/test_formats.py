"""Counts by bit patterns against NumPy's and torch's own casts."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.precision.formats import BFLOAT16, FLOAT16, Magnitudes, lost_updates

torch = pytest.importorskip("torch")

EXPONENTS = tuple(range(-40, 42))


def random_patterns(count: int, seed: int = 0) -> np.ndarray:
    """Float32 values of every kind: each bit pattern equally likely, finite ones kept."""
    bits = np.random.default_rng(seed).integers(0, 1 << 32, size=count, dtype=np.uint32)
    values = bits.view(np.float32)
    return values[np.isfinite(values)]


def edges() -> np.ndarray:
    """Powers of two, the rounding borders of fp16 at all scales, and their neighbours on both sides."""
    powers = np.ldexp(np.float32(1), np.arange(-149, 128)).astype(np.float32)
    borders = [np.float32(2 - 2.0**-k) for k in (7, 8, 10, 11, 12)]
    values = np.concatenate([powers, *(border * powers[20:-20] for border in borders)]).astype(np.float32)
    return np.concatenate(
        [values, np.nextafter(values, np.float32(0)), np.nextafter(values, np.float32(np.inf)), -values]
    )


def by_numpy(values: np.ndarray, exponent: int) -> tuple[int, int, int]:
    scaled = np.ldexp(values.astype(np.float64), exponent)
    with np.errstate(over="ignore", under="ignore"):
        cast = scaled.astype(np.float16)
    zeros = np.count_nonzero((cast == 0) & (values != 0))
    subnormal = np.count_nonzero((np.abs(cast) < np.float16(2.0**-14)) & (cast != 0))
    overflow = np.count_nonzero(np.isinf(cast) & np.isfinite(values))
    return int(zeros), int(subnormal), int(overflow)


@pytest.mark.parametrize("values", [random_patterns(1_000_000), edges()], ids=["a million patterns", "edges"])
def test_counts_equal_numpys_cast_at_every_power_of_two(values: np.ndarray) -> None:
    magnitudes = Magnitudes()
    magnitudes.add(values)
    for exponent in EXPONENTS:
        cast = magnitudes.cast(FLOAT16, exponent=exponent)
        assert (cast.zeros, cast.subnormals, cast.overflows) == by_numpy(values, exponent), exponent


def test_counts_equal_torchs_cast_to_bfloat16() -> None:
    values = np.concatenate([random_patterns(300_000, seed=1), edges()])
    magnitudes = Magnitudes()
    magnitudes.add(values)
    got = torch.from_numpy(values.copy()).bfloat16()
    cast = magnitudes.cast(BFLOAT16)
    exact = torch.from_numpy(values.copy())
    assert cast.zeros == int(((got == 0) & (exact != 0)).sum())
    assert cast.overflows == int(torch.isinf(got).sum())
    assert cast.subnormals == int(((got.abs() < 2.0**-126) & (got != 0)).sum())


@pytest.mark.parametrize("share", [0.037, 0.5, 0.0001])
def test_a_planted_share_is_exact_to_the_element(share: float) -> None:
    count = 100_000
    planted = round(share * count)
    values = np.full(count, 0.01, dtype=np.float32)
    values[:planted] = 2.0**-25  # the tie, which goes to zero
    np.random.default_rng(2).shuffle(values)
    magnitudes = Magnitudes()
    magnitudes.add(values)
    assert magnitudes.cast(FLOAT16).zeros == planted
    assert magnitudes.cast(FLOAT16, exponent=1).zeros == 0
    assert magnitudes.cast(FLOAT16, exponent=1).subnormals == planted
    assert magnitudes.elements == count


def test_zeros_and_what_is_not_finite_are_counted_apart() -> None:
    magnitudes = Magnitudes()
    magnitudes.add(np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, 1e9], dtype=np.float32))
    assert (magnitudes.zeros, magnitudes.nonfinite, magnitudes.nonzero) == (2, 3, 2)
    assert magnitudes.cast(FLOAT16).overflows == 1


def test_parts_merge_to_the_whole() -> None:
    values = random_patterns(10_000, seed=3)
    whole, parts = Magnitudes(), Magnitudes()
    whole.add(values)
    for part in np.array_split(values, 7):
        one = Magnitudes()
        one.add(part)
        parts.merge(one)
    assert whole.binades() == parts.binades()
    assert whole.cast(FLOAT16, exponent=5) == parts.cast(FLOAT16, exponent=5)


def test_binades_are_the_exponents() -> None:
    magnitudes = Magnitudes()
    magnitudes.add(np.array([1.0, 1.5, 4.0, -0.25], dtype=np.float32))
    assert magnitudes.binades() == ((-2, 1), (-1, 0), (0, 2), (1, 0), (2, 1))
    assert magnitudes.largest_exponent() == 2
    assert Magnitudes().largest_exponent() is None


def bf16_values(count: int, seed: int) -> np.ndarray:
    return torch.from_numpy(random_patterns(count, seed).copy()).bfloat16().float().numpy()


def rounded_to_bf16(value: Fraction) -> Fraction:
    """Nearest bf16, ties to even, by whole numbers alone."""
    if value == 0:
        return value
    sign, size = (-1 if value < 0 else 1), abs(value)
    exponent = max(_floor_log2(size), -126) - 7
    unit = Fraction(2) ** exponent
    whole, rest = divmod(size, unit)
    if rest * 2 > unit or (rest * 2 == unit and whole % 2):
        whole += 1
    return sign * whole * unit


def _floor_log2(size: Fraction) -> int:
    guess = size.numerator.bit_length() - size.denominator.bit_length()
    return guess if Fraction(2) ** guess <= size else guess - 1


@settings(max_examples=300, deadline=None)
@given(
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.integers(-12, 4),
)
def test_lost_updates_equal_exact_rounding(weight: float, noise: float, shift: int) -> None:
    held = torch.tensor([weight]).bfloat16().double()
    if not bool(torch.isfinite(held)):
        return
    w = float(held)
    # Near the border: an update of about an ulp of the weight, and half of one exactly.
    updates = [noise, w * 2.0**shift, np.ldexp(1.0, np.frexp(w)[1] - 9), -np.ldexp(1.0, np.frexp(w)[1] - 10)]
    for update in updates:
        got = lost_updates(np.array([w]), np.array([update], dtype=np.float64), BFLOAT16)
        kept = rounded_to_bf16(Fraction(w) + Fraction(float(update))) == Fraction(w)
        assert got == int(kept and update != 0), (w, update)


def test_lost_updates_equal_torchs_addition() -> None:
    weights = bf16_values(200_000, seed=5)
    weights = weights[np.isfinite(weights) & (np.abs(weights) > 1e-30) & (np.abs(weights) < 1e30)]
    ratios = np.exp2(np.random.default_rng(6).uniform(-14, -4, size=weights.size))
    updates = torch.from_numpy(weights * ratios * np.random.default_rng(7).choice([-1, 1], size=weights.size))
    updates = updates.float().bfloat16().float()
    held = torch.from_numpy(weights.copy()).bfloat16()
    same = (held + updates.bfloat16()) == held
    assert lost_updates(weights, updates.numpy(), BFLOAT16) == int(same.sum())
    assert 0 < int(same.sum()) < weights.size
