"""What does a plot look like in characters? Curves on a canvas of braille dots, two by four to a character."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from referee.records.document import Curve, Plot
from referee.report.layout import cells, pad, printable
from referee.report.scale import Axis, axes, curve_points

_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_ROWS = {"short": 5, "tall": 13}
_DASH = (3, 5)
"""Of every 5 dots of a dashed curve 3 are drawn."""

POINTS = "●○◆◇▲△"
"""Marks of the curves, in order; a reader without colour tells them apart by these."""


@dataclass
class Canvas:
    """Cells of characters over a grid of dots; (0, 0) is the lower left corner, shares run from 0 to 1."""

    columns: int
    rows: int

    def __post_init__(self) -> None:
        self._dots = [[0] * self.columns for _ in range(self.rows)]
        self._owner = [[-1] * self.columns for _ in range(self.rows)]
        self._marks: dict[tuple[int, int], str] = {}

    def dot(self, x: float, y: float, owner: int) -> None:
        """Set one dot; outside of the canvas nothing happens."""
        if 0 <= x <= 1 and 0 <= y <= 1:
            column = min(int(x * self.columns * 2), self.columns * 2 - 1)
            row = self.rows * 4 - 1 - min(int(y * self.rows * 4), self.rows * 4 - 1)
            self._dots[row // 4][column // 2] |= _BITS[row % 4][column % 2]
            self._owner[row // 4][column // 2] = owner

    def mark(self, x: float, y: float, char: str, owner: int) -> None:
        """Put one whole character."""
        if 0 <= x <= 1 and 0 <= y <= 1:
            column = min(int(x * self.columns), self.columns - 1)
            row = self.rows - 1 - min(int(y * self.rows), self.rows - 1)
            self._marks[row, column] = char
            self._owner[row][column] = owner

    def line(self, row: int) -> list[tuple[str, int]]:
        """One row of characters, each with the curve that owns it (-1: none)."""
        return [
            (self._marks.get((row, column)) or (chr(0x2800 + bits) if bits else " "), self._owner[row][column])
            for column, bits in enumerate(self._dots[row])
        ]


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A drawn plot: per row the y label and the characters with their owners, the x axis, and the marks of curves."""

    label_width: int
    rows: tuple[tuple[str, tuple[tuple[str, int], ...]], ...]
    axis: str
    x_ticks: str
    legend: tuple[tuple[str, str], ...]


def draw(plot: Plot, width: int) -> Drawing | None:
    """Draw ``plot`` in ``width`` cells; ``None`` where it has no point that can be shown."""
    scales = axes(plot)
    if scales is None:
        return None
    x_axis, y_axis = scales
    rows = _ROWS[plot.height]
    labels = {
        rows - 1 - min(int(y_axis.place(value) * rows), rows - 1): text
        for value, text in y_axis.ticks(max(3, rows // 2))
    }
    label_width = max((cells(text) for text in labels.values()), default=1)
    canvas = Canvas(max(10, width - label_width - 2), rows)
    for x, _ in plot.marks:
        for step in range(0, rows * 4, 2):
            canvas.dot(x_axis.place(x), step / (rows * 4), -1)
    # Points go on top of lines, and the first curve on top of all.
    for number, curve in reversed(list(enumerate(plot.curves))):
        _draw_curve(canvas, plot, number, curve, x_axis, y_axis)
    return Drawing(
        label_width=label_width,
        rows=tuple((pad(labels.get(row, ""), label_width, right=True), tuple(canvas.line(row))) for row in range(rows)),
        axis=_axis_line(canvas.columns, x_axis),
        x_ticks=_tick_line(canvas.columns, x_axis),
        legend=(
            *((_sign(curve, number, canvas.columns), curve.label) for number, curve in enumerate(plot.curves)),
            *(("⡇", text) for _, text in plot.marks),
        ),
    )


def plain_lines(plot: Plot, drawing: Drawing) -> Iterator[str]:
    """The drawing as lines without colour: the y label, the canvas, the axis, its label and the legend."""
    lead = " " * (drawing.label_width + 1)
    yield printable(plot.y_label)
    for label, row in drawing.rows:
        yield label + (" ┤" if label.strip() else " │") + "".join(char for char, _ in row)
    yield f"{lead}└{drawing.axis[1:]}"
    yield lead + drawing.x_ticks
    yield lead + printable(plot.x_label)
    yield lead + "   ".join(f"{sign} {printable(text)}" for sign, text in drawing.legend)


def _sign(curve: Curve, number: int, columns: int) -> str:
    """What a curve looks like on the canvas: its mark where its points are marked, else its dots."""
    if curve.style == "dashed":
        return "⠒⠒"
    return POINTS[number % len(POINTS)] if len(curve.xs) <= _most_marks(columns) else "⠒⠂"


def _most_marks(columns: int) -> int:
    """More points than this are drawn as dots: marks would cover each other."""
    return columns // 2


def _draw_curve(canvas: Canvas, plot: Plot, number: int, curve: Curve, x_axis: Axis, y_axis: Axis) -> None:
    points = list(curve_points(curve, plot))
    placed = [(x_axis.place(x), y_axis.place(y)) for x, y, _, _ in points]
    if curve.style != "points":
        for (x0, y0), (x1, y1) in pairwise(placed):
            _segment(canvas, x0, y0, x1, y1, number, dashed=curve.style == "dashed")
    if len(points) > _most_marks(canvas.columns):
        for x, y in placed:
            canvas.dot(x, y, number)
        return
    for (x, y), (_, _, low, high) in zip(placed, points, strict=True):
        low_at, high_at = y_axis.place(low), y_axis.place(high)
        steps = int((high_at - low_at) * canvas.rows * 4)
        for step in range(steps + 1 if steps > 3 else 0):
            canvas.dot(x, low_at + (high_at - low_at) * step / steps, number)
        if curve.style != "dashed":
            canvas.mark(x, y, POINTS[number % len(POINTS)], number)


def _segment(canvas: Canvas, x0: float, y0: float, x1: float, y1: float, owner: int, *, dashed: bool) -> None:
    steps = max(1, int(max(abs(x1 - x0) * canvas.columns * 2, abs(y1 - y0) * canvas.rows * 4)))
    for step in range(steps + 1):
        x = x0 + (x1 - x0) * step / steps
        # The dash follows the place on the canvas, so that many short segments still look dashed.
        if not dashed or int(x * canvas.columns * 2) % _DASH[1] < _DASH[0]:
            canvas.dot(x, y0 + (y1 - y0) * step / steps, owner)


def _tick_columns(columns: int, axis: Axis) -> list[tuple[int, str]]:
    placed: list[tuple[int, str]] = []
    free = 0
    for value, label in axis.ticks(max(2, columns // 9)):
        column = min(int(axis.place(value) * columns), columns - 1)
        start = max(0, min(column - cells(label) // 2, columns - cells(label)))
        if start >= free:
            placed.append((column, label))
            free = start + cells(label) + 1
    return placed


def _axis_line(columns: int, axis: Axis) -> str:
    ticks = {column for column, _ in _tick_columns(columns, axis)}
    return "".join("┬" if column in ticks else "─" for column in range(columns))


def _tick_line(columns: int, axis: Axis) -> str:
    line = ""
    for column, label in _tick_columns(columns, axis):
        start = max(0, min(column - cells(label) // 2, columns - cells(label)))
        line = pad(line, start) + label
    return pad(line, columns)
