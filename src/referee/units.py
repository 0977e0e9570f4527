"""How much is it, in words? Formatting and parsing of times, bytes, rates and fractions.

One internal unit per quantity, scaled only here, at the display edge: time is nanoseconds (``int`` for timestamps
and block totals, ``float`` for estimates per call; suffix ``_ns``), sizes are bytes (``_bytes``), rates are per
second (``_per_s``), shares are fractions in [0, 1] (``_frac``). Intervals are half-open.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation

NS_PER_US = 1_000
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000

ENDLESS_NS = 2**63
"""Nothing is timed for three centuries: a figure beyond, in a record edited by hand, is no time."""

_TIME_STEPS = ((NS_PER_S, "s"), (NS_PER_MS, "ms"), (NS_PER_US, "µs"), (1, "ns"))
_MOST_MORE_DIGITS = 6
_DURATION = re.compile(r"\s*([0-9.eE+-]+)\s*(ns|us|µs|ms|s|m|min|h)?\s*")
_DURATION_NS = {
    "ns": 1,
    "us": NS_PER_US,
    "µs": NS_PER_US,
    "ms": NS_PER_MS,
    "s": NS_PER_S,
    "m": 60 * NS_PER_S,
    "min": 60 * NS_PER_S,
    "h": 3600 * NS_PER_S,
}


def _significant(value: float, digits: int) -> str:
    """``value`` with ``digits`` significant digits and no exponent; never fewer digits than the integer part."""
    if value == 0:
        return "0"
    whole = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    return f"{value:,.{max(0, digits - whole)}f}" if whole else f"{value:.{digits}g}"


def format_ns(ns: float | None, *, digits: int = 3) -> str:
    """A time in the unit that reads best: ``1.26 µs``, ``142 µs``, ``-35 ns``; ``None`` reads ``n/a``."""
    if ns is None:
        return "n/a"
    for scale, unit in _TIME_STEPS:
        # 999.6 of a unit would round up to 1,000 of it: move to the next unit first.
        if abs(ns) >= scale * (0.9995 if scale > 1 else 1.0):
            return f"{_significant(ns / scale, digits)} {unit}"
    return f"{_significant(float(ns), digits)} ns"


def format_bytes(count: float | None) -> str:
    """A size in binary multiples: ``512 B``, ``1.5 MiB``."""
    if count is None:
        return "n/a"
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024 or unit == "TiB":
            return f"{value:.0f} B" if unit == "B" else f"{_significant(value, 3)} {unit}"
        value /= 1024
    raise AssertionError("unreachable")


def format_rate(per_s: float | None, unit: str = "") -> str:
    """A rate in decimal multiples: ``31.6 TFLOP/s``, ``1.91 TB/s``, ``412 /s``; ``unit`` is what is counted."""
    if per_s is None:
        return "n/a"
    value = float(per_s)
    for prefix in ("", "k", "M", "G", "T", "P"):
        if abs(value) < 1000 or prefix == "P":
            return f"{_significant(value, 3)} {prefix}{unit}/s"
        value /= 1000
    raise AssertionError("unreachable")


def format_frac(frac: float | None, *, digits: int = 1) -> str:
    """A share as a percentage: ``7.9 %``."""
    return "n/a" if frac is None else f"{100 * frac:.{digits}f} %"


def format_ratio(ratio: float | None) -> str:
    """A ratio of two times: ``1.03×``."""
    return "n/a" if ratio is None else f"{_significant(ratio, 3)}×"


def format_count(count: int | None) -> str:
    """A count with thousands separators."""
    return "n/a" if count is None else f"{count:,}"


def format_number(value: float, *, digits: int = 3) -> str:
    """A bare number: whole ones with thousands separators, others with ``digits`` significant digits."""
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}"
    return _significant(float(value), digits)


def format_range_ns(low_ns: float | None, high_ns: float | None) -> str:
    """Two times in the unit of the larger, with enough digits to tell them apart: ``12.3 to 12.6 ms``."""
    if low_ns is None or high_ns is None:
        return "n/a"
    largest = max(abs(low_ns), abs(high_ns))
    scale, unit = next(((s, u) for s, u in _TIME_STEPS if largest >= s * (0.9995 if s > 1 else 1.0)), (1, "ns"))
    for digits in (3, 4, 5, 6):
        low, high = (_significant(value / scale, digits) for value in (low_ns, high_ns))
        if low != high:
            return f"{low} to {high} {unit}"
    return format_ns(low_ns)


def format_quantity(value: str | int | float | bool | None, unit: str = "") -> str:
    """A value with the unit that a record gives it: ``ns``, ``bytes``, ``frac``, ``per_s``, ``ratio``, or any word."""
    if value is None:
        return "n/a"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return f"{value} {unit}".strip()
    scaled: dict[str, Callable[[float], str]] = {
        "ns": format_ns,
        "bytes": format_bytes,
        "frac": format_frac,
        "per_s": format_rate,
        "ratio": format_ratio,
    }
    if unit in scaled:
        return scaled[unit](value)
    return f"{format_number(value)} {unit}".strip()


def format_apart(first: float, second: float, unit: str = "") -> tuple[str, str]:
    """Two quantities of one unit, with enough digits to tell them apart where they differ: ``1.049×``, ``1.050×``."""
    words = format_quantity(first, unit), format_quantity(second, unit)
    for more in range(1, _MOST_MORE_DIGITS + 1):
        if first == second or words[0] != words[1]:
            break
        words = _longer(first, unit, more), _longer(second, unit, more)
    return words


def _longer(value: float, unit: str, more: int) -> str:
    """:func:`format_quantity` with ``more`` digits than it takes by itself."""
    if unit == "ns":
        return format_ns(value, digits=3 + more)
    if unit == "frac":
        return format_frac(value, digits=1 + more)
    if unit == "ratio":
        return f"{_significant(value, 3 + more)}×"
    return format_quantity(value, unit) if unit in ("bytes", "per_s") else f"{value:,.{3 + more}g} {unit}".strip()


def parse_duration_ns(text: str) -> int:
    """A duration written by a person, in nanoseconds: ``250ms``, ``1.5s``, ``2`` (seconds when no unit is given).

    Raises ``ValueError`` for anything else, and for a negative duration.
    """
    match = _DURATION.fullmatch(text)
    try:
        value = Decimal(match.group(1)) if match else None
    except InvalidOperation:
        value = None
    if match is None or value is None or not value.is_finite() or value < 0:
        raise ValueError(f"{text!r} is not a duration: write for example 250ms, 1.5s or 2min")
    return int(value * _DURATION_NS[match.group(2) or "s"])
