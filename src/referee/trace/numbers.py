"""How many nanoseconds does this text say? Decimal microseconds → integer nanoseconds, never through a float.

A file's number may be written as ``12``, ``12.345``, ``"12.345"`` or ``1.2345e1``; more than three decimals round half
to even, as a decimal number would. Numbers are parsed by layout (length and place of the point), all of one layout at
once; what has no common layout goes through :class:`decimal.Decimal` one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal, InvalidOperation, localcontext
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from referee.trace.columns import IntColumn
from referee.units import NS_PER_US

Token: TypeAlias = bytes | msgspec.Raw
"""The text of one number: anything that hands out its bytes."""
Unusual: TypeAlias = dict[int, int | None]
"""Position → the exact value where it does not fit the column, or ``None`` where the text is no finite number."""

_LONGEST = 37
"""Longest layout that is parsed at once: 18 digits, a point, and 18 digits."""
_DIGITS = 18
"""So many digits always fit in int64."""
_SCALE = (1000, 100, 10, 1)
"""Nanoseconds that the last of so many decimals of a microsecond stands for."""
_MOST_US = (1 << 62) // NS_PER_US
_NINE, _ZERO, _POINT, _QUOTE, _NEWLINE = b'90."\n'
_CONTEXT = Context(prec=80)
_MAX_EXPONENT = 40
"""A number of more digits is no time, and must not be written out: ``1e999999999`` would fill the memory."""


def parse_ns(tokens: Sequence[Token]) -> tuple[IntColumn, Unusual]:
    """Each token of decimal microseconds as nanoseconds; an unusual one is 0 in the column and stands in the dict."""
    text = b"\n".join(tokens)
    values = np.zeros(len(tokens), np.int64)
    if not tokens:
        return values, {}
    if _parse_plain(text, values):
        return values, {}
    one_line_each = text.count(b"\n") == len(tokens) - 1
    slow = _parse_by_layout(text, values) if one_line_each else np.arange(len(tokens))
    unusual: Unusual = {}
    for index in slow.tolist():
        exact = exact_ns(bytes(tokens[index]))
        if exact is not None and abs(exact) < 1 << 62:
            values[index] = exact
        else:
            unusual[index] = exact
    return values, unusual


def _parse_plain(text: bytes, values: IntColumn) -> bool:
    """Parse into ``values`` if all lines are whole numbers, or all have three decimals, as profilers write them."""
    if not text or text.translate(None, b"0123456789.\n"):
        return False
    points = text.count(b".")
    if points and not _have_three_decimals(text, len(values), points):
        return False
    parsed = np.fromstring(text.replace(b".", b""), np.int64, sep="\n")
    # An empty line gives no number, and what would not fit in int64 its largest value: left to the exact way.
    if len(parsed) != len(values) or int(parsed.max()) >= (1 << 62 if points else _MOST_US):
        return False
    np.copyto(values, parsed if points else parsed * NS_PER_US)
    return True


def _have_three_decimals(text: bytes, lines: int, points: int) -> bool:
    """Whether every line has one point, and three characters behind it."""
    if points != lines or text.startswith(b".") or b"\n." in text:
        return False
    chars = np.frombuffer(text, np.uint8)
    ends = np.append(np.flatnonzero(chars == _NEWLINE), len(chars))
    return bool((ends - np.flatnonzero(chars == _POINT) == 4).all())


def _parse_by_layout(text: bytes, values: IntColumn) -> IntColumn:
    """Parse the lines of ``text`` into ``values``, all of one length at once; answers the positions that are left."""
    start, length, chars = _lines(text)
    left = []
    for size in np.flatnonzero(np.bincount(length)):
        same = np.flatnonzero(length == size)
        if 0 < size <= _LONGEST:
            same = _parse_same_length(chars[start[same][:, None] + np.arange(size)], same, values)
        left.append(same)
    return np.concatenate(left)


def exact_ns(text: bytes) -> int | None:
    """One number's nanoseconds, exactly; ``None`` if it is none, or too large for any clock."""
    try:
        value = Decimal(text.decode("ascii").strip().strip('"').strip())
    except (InvalidOperation, UnicodeDecodeError, ValueError):
        return None
    if not value.is_finite() or (value and value.adjusted() > _MAX_EXPONENT):
        return None
    with localcontext(_CONTEXT):
        return int((value * NS_PER_US).to_integral_value(rounding="ROUND_HALF_EVEN"))


def _lines(text: bytes) -> tuple[IntColumn, IntColumn, NDArray[np.uint8]]:
    """Start and length of each line, without quotes around it."""
    chars = np.frombuffer(text, np.uint8)
    breaks = np.flatnonzero(chars == _NEWLINE)
    start = np.concatenate(([0], breaks + 1))
    length = np.append(breaks, len(chars)) - start
    if b'"' in text:
        padded = np.append(chars, 0)
        quoted = (length >= 2) & (padded[start] == _QUOTE)
        start, length = start + quoted, length - 2 * quoted
    return start, length, chars


def _parse_same_length(chars: NDArray[np.uint8], same: IntColumn, values: IntColumn) -> IntColumn:
    """Parse the numbers of one length into ``values``; answers the positions of those that are left."""
    size = chars.shape[1]
    is_point = chars == _POINT
    place = np.where(is_point.any(axis=1), is_point.argmax(axis=1), size)
    left = []
    for point in np.flatnonzero(np.bincount(place)):
        chosen = np.flatnonzero(place == point)
        if not 0 < point <= _DIGITS or size - point - 1 > _DIGITS:
            left.append(same[chosen])
            continue
        digits = chars[chosen] - np.uint8(_ZERO)
        whole, fraction = digits[:, :point], digits[:, point + 1 :]
        us = _horner(whole)
        plain = (whole <= 9).all(axis=1) & (fraction <= 9).all(axis=1) & (us < _MOST_US)
        values[same[chosen[plain]]] = us[plain] * NS_PER_US + _fraction_ns(fraction[plain])
        left.append(same[chosen[~plain]])
    return np.concatenate(left)


def _fraction_ns(digits: NDArray[np.uint8]) -> IntColumn:
    """Digits after the point of a microsecond as nanoseconds; beyond three they round half to even."""
    count = digits.shape[1]
    value = _horner(digits)
    if count <= 3:
        return value * _SCALE[count]
    unit = 10 ** (count - 3)
    ns, rest = np.divmod(value, unit)
    up = (2 * rest > unit) | ((2 * rest == unit) & (ns % 2 == 1))
    rounded: IntColumn = np.where(up, ns + 1, ns)
    return rounded


def _horner(digits: NDArray[np.uint8]) -> IntColumn:
    """The integers that rows of at most 18 decimal digits spell."""
    value = np.zeros(len(digits), np.int64)
    for column in range(digits.shape[1]):
        value = value * 10 + digits[:, column]
    return value
