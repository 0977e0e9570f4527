"""How does a plot look as a file of its own? SVG by ourselves, PNG through matplotlib (an extra)."""

from __future__ import annotations

import io
from importlib.util import find_spec

from referee.errors import PackageMissing
from referee.records.document import Plot
from referee.report.html import style_sheet
from referee.report.svg import render_plot

_SIZE_INCHES = (8.0, 4.5)
_DPI = 150


def require_matplotlib() -> None:
    """Raise one sentence where matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        raise PackageMissing.named("matplotlib", need="A plot as PNG", extra="plot")


def render_picture(plot: Plot, suffix: str) -> bytes:
    """``plot`` as the content of a ``.svg`` or ``.png`` file."""
    if suffix == ".svg":
        return _svg(plot).encode()
    require_matplotlib()
    return _png(plot)


def _svg(plot: Plot) -> str:
    """The drawing of the HTML report with its namespace and the page's style sheet inside, so that it stands alone."""
    opening, rest = render_plot(plot).split(">", 1)
    style = style_sheet().replace("&", "&amp;").replace("<", "&lt;")
    return opening.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) + f"><style>{style}</style>{rest}\n"


def _png(plot: Plot) -> bytes:
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    from referee.units import format_ns

    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    axes = figure.add_subplot()
    for curve in plot.curves:
        if curve.style == "points" and curve.lows:
            below = [y - low for y, low in zip(curve.ys, curve.lows, strict=True)]
            above = [high - y for y, high in zip(curve.ys, curve.highs, strict=True)]
            axes.errorbar(curve.xs, curve.ys, yerr=(below, above), fmt="o", capsize=3, label=curve.label)
        else:
            axes.plot(curve.xs, curve.ys, _LINES.get(curve.style, "-"), label=curve.label)
    for x, words in plot.marks:
        axes.axvline(x, color="0.6", linewidth=1)
        axes.annotate(words, (x, 1), xycoords=("data", "axes fraction"), va="bottom", ha="center", fontsize=9)
    if plot.log_x:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    if plot.x_words:
        axes.set_xticks(plot.x_ticks, plot.x_words)
    if plot.log_y:
        axes.set_yscale("log")
    if plot.y_unit == "ns":
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: format_ns(y)))
    if plot.y_unit == "%":
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g} %"))
    axes.set_xlabel(plot.x_label)
    axes.set_ylabel(plot.y_label)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_DPI)
    return buffer.getvalue()


_LINES = {"points": "o", "line": "-", "dashed": "--"}
