"""How does text fit into a width? Shortening, wrapping and the widths of table columns; shared by the renderers."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from referee.records.document import Column, Table

GAP = 2
"""Spaces between two columns."""

_ROOM = {"shorten": 24, "wrap": 28}
"""A flexible column narrower than this says little: columns of lower importance go first."""

_LEAST = 8
"""No column is made narrower than this, whatever the page."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]+")


def printable(text: str) -> str:
    """``text`` without what could steer a terminal or reorder a page: control and direction characters.

    Names come from files that anybody may have written. Runs of white space become one space; lone surrogates become
    the replacement character.
    """
    text = _CONTROL.sub(lambda run: " " if run.group().isspace() else "\ufffd", text)
    return text.encode("utf-8", "replace").decode("utf-8") if not text.isascii() else text


def cells(text: str) -> int:
    """Terminal cells that ``text`` takes: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(_cell(char) for char in text)


def _cell(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def shorten_middle(text: str, width: int) -> str:
    """``text`` in at most ``width`` cells, its middle replaced by ``…``: both ends of a kernel's name say something."""
    if cells(text) <= width:
        return text
    if width <= 1:
        return "…"[:width]
    head = (width - 1 + 1) // 2
    return _take(text, head) + "…" + _take(text[::-1], width - 1 - head)[::-1]


def _take(text: str, width: int) -> str:
    taken, used = [], 0
    for char in text:
        used += _cell(char)
        if used > width:
            break
        taken.append(char)
    return "".join(taken)


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most ``width`` cells, broken at spaces; a word longer than a line is broken where it must be."""
    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        joined = f"{line} {word}" if line else word
        if cells(joined) <= width:
            line = joined
            continue
        if line:
            lines.append(line)
        while word and cells(word) > width:
            head = _take(word, width) or word[0]
            lines.append(head)
            word = word[len(head) :]
        line = word
    lines.append(line)
    return lines


_EIGHTHS = " ▏▎▍▌▋▊▉"


def bar_text(frac: float, width: int) -> str:
    """A bar of ``frac`` of ``width`` cells, in eighths; a share above zero is never invisible."""
    eighths = round(min(1.0, max(0.0, frac)) * width * 8)
    if frac > 0:
        eighths = max(1, eighths)
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")


def pad(text: str, width: int, *, right: bool = False) -> str:
    """``text`` filled with spaces to ``width`` cells, at its left end where ``right``."""
    fill = " " * max(0, width - cells(text))
    return fill + text if right else text + fill


def fit_columns(table: Table, width: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Which columns of ``table`` are shown in ``width`` cells, and how wide is each?

    Returns the indices of the columns kept and their widths. Flexible columns give way first, then columns leave in
    order of falling priority number, the rightmost first; columns of priority 1 never leave.
    """
    natural = _natural_widths(table)
    kept = list(range(len(table.columns)))
    while True:
        widths = _squeeze([natural[i] for i in kept], [table.columns[i] for i in kept], width)
        if widths is not None:
            return tuple(kept), tuple(widths)
        leaving = max(kept, key=lambda i: (table.columns[i].priority, i))
        if table.columns[leaving].priority == 1:
            return tuple(kept), tuple(_force([natural[i] for i in kept], width))
        kept.remove(leaving)


def _natural_widths(table: Table) -> list[int]:
    widths = [cells(column.title) for column in table.columns]
    for row in table.rows:
        widths = [max(width, cells(cell)) for width, cell in zip(widths, row, strict=True)]
    return widths


def _squeeze(natural: Sequence[int], columns: Sequence[Column], width: int) -> list[int] | None:
    """Widths that fit when only flexible columns give way, each down to its room; ``None`` where that fails."""
    least = [
        natural[i] if column.fit == "keep" else min(natural[i], max(_ROOM[column.fit], cells(column.title)))
        for i, column in enumerate(columns)
    ]
    return _reduce(list(natural), least, width)


def _force(natural: Sequence[int], width: int) -> list[int]:
    least = [min(_LEAST, n) for n in natural]
    return _reduce(list(natural), least, width) or least


def _reduce(widths: list[int], least: Sequence[int], width: int) -> list[int] | None:
    """Take cells from the widest column that can still give, until the row fits."""
    excess = sum(widths) + GAP * (len(widths) - 1) - width
    if excess > sum(w - low for w, low in zip(widths, least, strict=True)):
        return None
    while excess > 0:
        giving = [i for i, low in enumerate(least) if widths[i] > low]
        widest = max(giving, key=lambda i: widths[i])
        second = max((widths[i] for i in giving if widths[i] < widths[widest]), default=0)
        step = min(excess, widths[widest] - max(least[widest], second))
        widths[widest] -= max(1, step)
        excess -= max(1, step)
    return widths
