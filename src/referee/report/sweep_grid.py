"""How does the time grow at each setting of the other parameters? The sweeps as one document, in one plot."""

from __future__ import annotations

from dataclasses import replace

from referee.records.document import Column, Document, Heading, Headline, Plot, Table
from referee.records.finding import Finding
from referee.records.measurement import Sweep, SweepPoint
from referee.records.sweep_grid import SweepGrid, words_of
from referee.report.findings import alarm_blocks, finding_blocks
from referee.report.provenance import provenance_blocks
from referee.report.sweep import amount, knee_words, priced, sweep_plot, value_words
from referee.report.wording import context_lines, plural
from referee.units import format_ns, format_rate


def compose_sweep_grid(grid: SweepGrid) -> Document:
    """The grid as a document: the plot, a table of the times, one of the laws, what was found in each."""
    findings = (*grid.findings, *_of_sweeps(grid))
    return Document(
        title=f"{grid.name}, swept over {grid.parameter} for each {' and '.join(grid.others)}",
        blocks=(
            _headline(grid, findings),
            *alarm_blocks(findings),
            Heading(text=f"Time over {grid.parameter}"),
            grid_plot(grid),
            _times(grid),
            Heading(text="The law each obeys"),
            _laws(grid),
            *finding_blocks(findings),
            *provenance_blocks(grid.provenance),
        ),
    )


def grid_plot(grid: SweepGrid) -> Plot:
    """Time over the parameter, a curve for each combination."""
    plots = [(words_of(each.fixed), sweep_plot(each.sweep)) for each in grid.sweeps]
    first = plots[0][1]
    curves = tuple(replace(plot.curves[0], label=words) for words, plot in plots)
    return Plot(
        curves=curves,
        x_label=first.x_label,
        y_label=first.y_label,
        log_x=all(plot.log_x for _, plot in plots),
        log_y=all(plot.log_y for _, plot in plots),
        x_ticks=tuple(sorted({x for _, plot in plots for x in plot.x_ticks})),
        x_words=first.x_words if all(plot.x_words == first.x_words for _, plot in plots) else (),
    )


def _headline(grid: SweepGrid, findings: tuple[Finding, ...]) -> Headline:
    best = max(
        ((point.throughput_per_s, words_of(each.fixed), point) for each in grid.sweeps for point in each.sweep.points),
        key=lambda item: item[0] or 0.0,
    )
    context = context_lines(grid.provenance)
    held = f"{grid.parameter} at each {' and '.join(grid.others)}"
    words = "No combination has a number." if best[0] is None else _best(best[1], grid, best[2])
    return Headline(
        figure=f"{plural(len(grid.sweeps), 'sweep')} over {grid.parameter}",
        sentence=words,
        context=(context[0], held, context[2]),
        tone="bad" if best[0] is None else "warn" if alarm_blocks(findings) else "good",
    )


def _best(words: str, grid: SweepGrid, point: SweepPoint) -> str:
    return (
        f"The highest throughput, {format_rate(point.throughput_per_s)}, is at {grid.parameter} {value_words(point)} "
        f"with {words}: {format_ns(point.median_ns)} a call. Which of two settings is faster is for referee compare "
        "to say, which times them in turn."
    )


def _values(grid: SweepGrid) -> list[str]:
    """Every value of the parameter that was measured anywhere, as written, in the order of their figures."""
    found = {value_words(point): point.value for each in grid.sweeps for point in each.sweep.points}
    return sorted(found, key=lambda words: found[words])


def _held(grid: SweepGrid) -> tuple[Column, list[str]]:
    """The column that names each sweep by what is held in it, and its cells."""
    cells = [", ".join(str(each.fixed[name]) for name in grid.others) for each in grid.sweeps]
    return Column(title=", ".join(grid.others), fit="shorten"), cells


def _times(grid: SweepGrid) -> Table:
    column, cells = _held(grid)
    values, rows = _values(grid), list[tuple[str, ...]]()
    dollars = any(priced(each.sweep) for each in grid.sweeps)
    for held, each in zip(cells, grid.sweeps, strict=True):
        points = {value_words(point): point for point in each.sweep.points}
        rows += [(held, words, *_cells(points.get(words), dollars=dollars)) for words in values]
    columns = (
        column,
        Column(title=grid.parameter, align="right"),
        Column(title="Median", align="right"),
        Column(title="Throughput", align="right", priority=2),
        *([Column(title="Per dollar", align="right", priority=1)] if dollars else []),
        Column(title="Findings", priority=3, fit="wrap"),
    )
    return Table(columns=columns, rows=tuple(rows))


def _cells(point: SweepPoint | None, *, dollars: bool) -> tuple[str, ...]:
    if point is None:
        return ("not measured", "–", *(["–"] if dollars else []), "")
    codes = dict.fromkeys(f.code for f in point.measurement.findings if f.severity != "info")
    rate = "–" if point.throughput_per_s is None else format_rate(point.throughput_per_s)
    items = [] if not dollars else ["–" if point.items_per_dollar is None else amount(point.items_per_dollar)]
    median = format_ns(point.median_ns) if point.median_ns is not None else "no number"
    return (median, rate, *items, ", ".join(codes))


def _laws(grid: SweepGrid) -> Table:
    column, cells = _held(grid)
    columns = (
        column,
        Column(title="Law"),
        Column(title="Fixed", align="right", priority=2),
        Column(title="For each", align="right"),
        Column(title="Knee", align="right", fit="wrap", priority=2),
    )
    laws = (_law(each.sweep) for each in grid.sweeps)
    return Table(columns=columns, rows=tuple((held, *law) for held, law in zip(cells, laws, strict=True)))


def _law(sweep: Sweep) -> tuple[str, str, str, str]:
    fit = sweep.fit
    if fit.slope_ns is None:
        return (fit.law, "–", "–", "none")
    whole = None if fit.host_ns is None or fit.fixed_ns is None else max(fit.host_ns, fit.fixed_ns)
    fixed = "–" if whole is None else format_ns(whole)
    return (fit.law, fixed, format_ns(fit.slope_ns), knee_words(fit))


def _of_sweeps(grid: SweepGrid) -> tuple[Finding, ...]:
    """What was found of each sweep, by its combination."""
    return tuple(
        replace(finding, message=f"{words_of(each.fixed)}: {finding.message}")
        for each in grid.sweeps
        for finding in each.sweep.findings
    )
