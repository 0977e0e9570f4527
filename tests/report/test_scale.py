"""Do axes show round values, inside, apart, and do points fall where they belong?"""

from __future__ import annotations

import math

from hypothesis import assume, given
from hypothesis import strategies as st

from referee.records.document import Curve, Plot
from referee.report.braille import Canvas, draw, plain_lines
from referee.report.scale import Axis, axes, curve_points
from referee.report.svg import render_plot

positive = st.floats(1e-3, 1e12)


@given(positive, positive, st.booleans(), st.integers(2, 12))
def test_ticks_lie_inside_apart_and_ascend(a: float, b: float, log: bool, most: int) -> None:
    low, high = sorted((a, b))
    assume(high > low * 1.01)
    ticks = Axis(low=low, high=high, log=log, unit="ns").ticks(most)
    values = [value for value, _ in ticks]
    labels = [label for _, label in ticks]
    slack = 1e-6 * (high - low)
    assert len(ticks) <= most
    assert all(low - slack <= value <= high + slack for value in values)
    assert values == sorted(values)
    assert len(set(labels)) == len(labels)


def test_ticks_are_round() -> None:
    assert [label for _, label in Axis(low=0, high=10, log=False).ticks(6)] == ["0", "2", "4", "6", "8", "10"]
    decades = Axis(low=0.9e3, high=1.1e6, log=True, unit="ns").ticks(5)
    assert [label for _, label in decades] == ["1 µs", "10 µs", "100 µs", "1 ms"]


def test_wanted_ticks_are_taken() -> None:
    plot = Plot(
        curves=(Curve(label="a", xs=(1, 2, 4, 8), ys=(1, 2, 3, 4)),), x_label="x", y_label="y", x_ticks=(1, 2, 4, 8)
    )
    scales = axes(plot)
    assert scales is not None
    assert [label for _, label in scales[0].ticks(3)] == ["1", "2", "4", "8"]


@given(positive, positive, positive)
def test_places_keep_order_and_ends(a: float, b: float, c: float) -> None:
    low, middle, high = sorted((a, b, c))
    assume(high > low * 1.01)
    for log in (False, True):
        axis = Axis(low=low, high=high, log=log)
        assert math.isclose(axis.place(low), 0, abs_tol=1e-9)
        assert math.isclose(axis.place(high), 1, abs_tol=1e-9)
        assert -1e-9 <= axis.place(middle) <= 1 + 1e-9


def test_what_an_axis_cannot_show_is_left_out() -> None:
    curve = Curve(label="a", xs=(0.0, 1.0, 2.0, 3.0), ys=(1.0, math.nan, -1.0, 5.0))
    plot = Plot(curves=(curve,), x_label="x", y_label="y")
    assert [x for x, *_ in curve_points(curve, plot)] == [3.0]
    hidden = Plot(curves=(Curve(label="a", xs=(0.0,), ys=(1.0,)),), x_label="x", y_label="y")
    assert draw(hidden, 60) is None
    assert render_plot(hidden) == ""


def test_the_canvas_sets_the_dot_that_is_meant() -> None:
    canvas = Canvas(1, 1)
    canvas.dot(0.0, 0.0, 0)
    canvas.dot(0.99, 0.99, 0)
    canvas.dot(1.5, 0.5, 0)
    assert canvas.line(0) == [(chr(0x2800 + 0x40 + 0x08), 0)]


def test_a_rising_curve_rises() -> None:
    plot = Plot(curves=(Curve(label="a", xs=(1, 2, 4), ys=(10, 20, 40)),), x_label="x", y_label="y")
    drawing = draw(plot, 60)
    assert drawing is not None
    lines = list(plain_lines(plot, drawing))
    places = [(row, line.index("●")) for row, line in enumerate(lines[:-1]) if "●" in line]
    assert len(places) == 3
    assert [column for _, column in places] == sorted((column for _, column in places), reverse=True)


def test_a_single_point_has_axes() -> None:
    plot = Plot(curves=(Curve(label="a", xs=(1,), ys=(10,), style="points"),), x_label="x", y_label="y")
    assert draw(plot, 60) is not None
    assert "<circle" in render_plot(plot)
