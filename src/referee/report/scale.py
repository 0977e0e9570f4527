"""Where does a value fall on an axis, and what stands beside the axis? Shared by every renderer that draws a plot."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from referee.records.document import Curve, Plot
from referee.units import format_ns, format_number, format_rate

_NICE = (1.0, 2.0, 2.5, 5.0)
_MARGIN = 0.04
"""Share of the axis left free at either end."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis from ``low`` to ``high``; :meth:`place` gives the share of its length at which a value falls."""

    low: float
    high: float
    log: bool
    unit: str = ""
    at: tuple[float, ...] = ()
    """Where labels are wanted; left empty, round values are chosen."""
    words: tuple[str, ...] = ()
    """What stands at each of ``at``; left empty, the value itself."""

    def place(self, value: float) -> float:
        """Where ``value`` falls: 0 at the low end, 1 at the high end; beyond them outside of the plot."""
        if self.log:
            value = max(value, math.ulp(0.0))
            return (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return (value - self.low) / (self.high - self.low)

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Values inside the axis with their labels, no two alike: those wanted, or at most ``most`` round ones."""
        if self.words:
            return [(value, word) for value, word in zip(self.at, self.words, strict=True)]
        if self.at:
            values = [value for value in self.at if 0 <= self.place(value) <= 1]
        else:
            values = _log_ticks(self, most) if self.log else _linear_ticks(self, most)
        labelled: list[tuple[float, str]] = []
        for value in values:
            label = tick_label(value, self.unit)
            if all(label != other for _, other in labelled):
                labelled.append((value, label))
        return labelled


def tick_label(value: float, unit: str) -> str:
    """A round value of an axis in words."""
    if unit == "ns":
        return _trim(format_ns(value))
    if unit.endswith("/s"):
        return _trim(format_rate(value, unit.removesuffix("/s")))
    return _trim(f"{format_number(value)} {unit}".strip())


def _trim(text: str) -> str:
    """``1.00 ms`` → ``1 ms``: a tick is exact, so its zeros say nothing."""
    number, space, unit = text.partition(" ")
    return (number.rstrip("0").rstrip(".") if "." in number else number) + space + unit


def axes(plot: Plot) -> tuple[Axis, Axis] | None:
    """The x and y axis around everything that ``plot`` draws; ``None`` where there is nothing that can be drawn."""
    points = [point for curve in plot.curves for point in curve_points(curve, plot)]
    if not points:
        return None
    xs = [x for x, *_ in points] + [x for x, _ in plot.marks if math.isfinite(x) and (x > 0 or not plot.log_x)]
    ys = [y for _, *rest in points for y in rest]
    x_axis = replace(_around(xs, log=plot.log_x), at=plot.x_ticks, words=plot.x_words)
    return x_axis, _around(ys, log=plot.log_y, unit=plot.y_unit)


def curve_points(curve: Curve, plot: Plot) -> Iterator[tuple[float, float, float, float]]:
    """The points ``(x, y, low, high)`` of ``curve`` that the axes of ``plot`` can show."""
    lows = curve.lows or curve.ys
    highs = curve.highs or curve.ys
    for x, y, low, high in zip(curve.xs, curve.ys, lows, highs, strict=True):
        shown = (x,) if not plot.log_x or x > 0 else ()
        if shown and all(map(math.isfinite, (x, y, low, high))) and (not plot.log_y or min(y, low) > 0):
            yield x, y, low, high


def _around(values: Iterable[float], *, log: bool, unit: str = "") -> Axis:
    found = list(values)
    low, high = min(found), max(found)
    if log:
        if high <= low * 1.0001:
            low, high = low / 1.5, high * 1.5
        slack = (high / low) ** _MARGIN
        return Axis(low=low / slack, high=high * slack, log=True, unit=unit)
    if high - low <= abs(high) * 1e-9:
        half = abs(high) / 10 or 1.0
        low, high = low - half, high + half
    slack = (high - low) * _MARGIN
    floor = low - slack
    # A quantity that is never negative needs no negative axis.
    return Axis(low=max(floor, 0.0) if low >= 0 else floor, high=high + slack, log=False, unit=unit)


def _linear_ticks(axis: Axis, most: int) -> list[float]:
    """Multiples of the finest round step of which no more than ``most`` fall inside."""
    power = 10.0 ** math.floor(math.log10((axis.high - axis.low) / most))
    for step in (power * nice * ten for ten in (1, 10) for nice in _NICE):
        first = math.ceil(axis.low / step - 1e-9)
        last = math.floor(axis.high / step + 1e-9)
        if last - first < most:
            return [k * step for k in range(first, last + 1)]
    return []


def _log_ticks(axis: Axis, most: int) -> list[float]:
    """Powers of ten, filled in with 2 and 5 or with all digits where few powers fall inside."""
    first, last = math.floor(math.log10(axis.low)), math.ceil(math.log10(axis.high))
    powers = range(first, last + 1)

    def inside(digits: tuple[int, ...]) -> list[float]:
        found = (digit * 10.0**power for power in powers for digit in digits)
        return [value for value in found if axis.low <= value <= axis.high]

    for digits in ((1, 2, 3, 4, 5, 6, 7, 8, 9), (1, 2, 5), (1, 3), (1,)):
        values = inside(digits)
        if len(values) <= most and (len(values) >= 2 or digits == (1,)):
            return values
    if axis.high / axis.low < 10:
        return _linear_ticks(Axis(low=axis.low, high=axis.high, log=False, unit=axis.unit), most)
    values = inside((1,))
    return values[:: math.ceil(len(values) / most)]
