"""What does a plot look like as a drawing? Inline SVG that takes its colours from the page."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape as _escape
from itertools import pairwise

from referee.records.document import Curve, Plot
from referee.report.layout import cells, printable
from referee.report.scale import Axis, axes, curve_points

_WIDTH = 860
_HEIGHTS = {"short": 190, "tall": 340}
_LEFT, _RIGHT, _TOP, _BOTTOM = 74, 18, 30, 44
_CHAR = 6.4
"""Width of a character of a label, for placing the legend."""


def render_plot(plot: Plot) -> str:
    """The plot as one ``<svg>`` element; an empty string where it has no point that can be shown."""
    scales = axes(plot)
    if scales is None:
        return ""
    return "".join(_parts(plot, _Frame(*scales, _HEIGHTS[plot.height])))


class _Frame:
    """From values to places on the drawing."""

    def __init__(self, x_axis: Axis, y_axis: Axis, height: int) -> None:
        self.x_axis, self.y_axis, self.height = x_axis, y_axis, height
        self.bottom = height - _BOTTOM

    def x(self, value: float) -> float:
        return round(_LEFT + self.x_axis.place(value) * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(self, value: float) -> float:
        return round(self.bottom - self.y_axis.place(value) * (self.bottom - _TOP), 1)


def _parts(plot: Plot, frame: _Frame) -> Iterator[str]:
    title = f"{plot.y_label} over {plot.x_label}: " + ", ".join(curve.label for curve in plot.curves)
    yield f'<svg class="plot" viewBox="0 0 {_WIDTH} {frame.height}" role="img" aria-label="{text(title)}">'
    yield from _grid(plot, frame)
    for x, _ in plot.marks:
        yield f'<line class="mark" x1="{frame.x(x)}" x2="{frame.x(x)}" y1="{_TOP}" y2="{frame.bottom}"/>'
    for number, curve in reversed(list(enumerate(plot.curves))):
        yield f'<g class="c{number % 6}">'
        yield from _curve(plot, curve, frame)
        yield "</g>"
    yield from _legend(plot)
    yield "</svg>"


def _grid(plot: Plot, frame: _Frame) -> Iterator[str]:
    rows = 6 if plot.height == "tall" else 4
    for value, label in frame.y_axis.ticks(rows):
        y = frame.y(value)
        yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>'
        yield f'<text class="tick" x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{text(label)}</text>'
    taken = 0.0
    for value, label in frame.x_axis.ticks(10):
        x, half = frame.x(value), cells(label) * _CHAR / 2
        yield f'<line class="axis" x1="{x}" x2="{x}" y1="{frame.bottom}" y2="{frame.bottom + 4}"/>'
        if x - half > taken:
            yield f'<text class="tick" x="{x}" y="{frame.bottom + 18}" text-anchor="middle">{text(label)}</text>'
            taken = x + half + _CHAR
    yield f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{frame.bottom}" y2="{frame.bottom}"/>'
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    yield f'<text class="label" x="{middle}" y="{frame.height - 6}" text-anchor="middle">{text(plot.x_label)}</text>'
    yield f'<text class="label" x="4" y="16">{text(plot.y_label)}</text>'


def _curve(plot: Plot, curve: Curve, frame: _Frame) -> Iterator[str]:
    points = list(curve_points(curve, plot))
    if curve.style != "points" and len(points) > 1:
        path = " ".join(f"{frame.x(x)},{frame.y(y)}" for x, y, _, _ in points)
        dash = ' stroke-dasharray="7 5"' if curve.style == "dashed" else ""
        yield f'<polyline class="line" points="{path}"{dash}/>'
    if curve.style == "dashed":
        return
    radius = 4 if len(points) <= 40 else 2.2
    for x, y, low, high in points:
        if low < high:
            place = frame.x(x)
            yield f'<line class="interval" x1="{place}" x2="{place}" y1="{frame.y(low)}" y2="{frame.y(high)}"/>'
        yield f'<circle cx="{frame.x(x)}" cy="{frame.y(y)}" r="{radius}"/>'


def _legend(plot: Plot) -> Iterator[str]:
    """The curves and marks by name, right-aligned above the drawing."""
    entries = [(f"c{number % 6}", str(curve.style), curve.label) for number, curve in enumerate(plot.curves)]
    entries += [("", "mark", words) for _, words in plot.marks]
    widths = [cells(label) * _CHAR + 56 for _, _, label in entries]
    x = max(150.0, _WIDTH - _RIGHT - sum(widths))
    for (group, style, label), (start, _) in zip(entries, pairwise(_running(x, widths)), strict=True):
        yield f'<g class="{group}">'
        if style == "points":
            yield f'<circle cx="{start + 13:.1f}" cy="12" r="4"/>'
        elif style == "mark":
            yield f'<line class="mark" x1="{start + 13:.1f}" x2="{start + 13:.1f}" y1="5" y2="19"/>'
        else:
            dash = ' stroke-dasharray="7 5"' if style == "dashed" else ""
            yield f'<line class="line" x1="{start + 2:.1f}" x2="{start + 26:.1f}" y1="12" y2="12"{dash}/>'
        yield f'</g><text class="tick" x="{start + 31:.1f}" y="16">{text(label)}</text>'


def _running(start: float, widths: list[float]) -> list[float]:
    places = [start]
    for width in widths:
        places.append(places[-1] + width)
    return places


def text(words: str) -> str:
    """Words made safe for an element or a quoted attribute."""
    return _escape(printable(words), quote=True)
