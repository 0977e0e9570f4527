"""How does the time grow with a parameter? The null experiment as a document."""

from __future__ import annotations

import math
from collections import Counter

from referee.records.document import (
    Block,
    Column,
    Curve,
    Document,
    Fact,
    Facts,
    Heading,
    Headline,
    Paragraph,
    Plot,
    Table,
)
from referee.records.measurement import Fit, Sweep, SweepPoint
from referee.records.provenance import describe_shapes
from referee.report.findings import alarm_blocks, finding_blocks
from referee.report.provenance import provenance_blocks
from referee.report.wording import context_lines, plural, sentence
from referee.units import NS_PER_S, format_frac, format_ns, format_number, format_range_ns, format_rate

_LAWS = {
    "max": "max(host, fixed + slope·b)",
    "sum": "host + fixed + slope·b",
}
_CURVE_POINTS = 120


def compose_sweep(sweep: Sweep) -> Document:
    """The sweep as a document: the knee first, then the curve, the points and the fit."""
    return Document(
        title=f"{sweep.name}, swept over {sweep.parameter}",
        blocks=(
            sweep_headline(sweep),
            *alarm_blocks(sweep.findings),
            *point_findings(sweep),
            *sweep_blocks(sweep),
            *finding_blocks(sweep.findings),
            *provenance_blocks(sweep.provenance),
        ),
    )


def sweep_headline(sweep: Sweep) -> Headline:
    """The knee and what it means, or why there is none."""
    fit = sweep.fit
    context = (*context_lines(sweep.provenance)[:1], _swept_line(sweep), *context_lines(sweep.provenance)[2:])
    if fit.law not in _LAWS:
        if any(point.label for point in sweep.points):
            return Headline(figure="No law over words", sentence=_over_words(sweep), context=context, tone="good")
        return Headline(figure="No fit", sentence=no_knee(fit), context=context, tone="warn")
    if fit.knee is None:
        return Headline(figure="No knee", sentence=no_knee(fit), context=context, tone="warn")
    limited = alarm_blocks(sweep.findings) or point_findings(sweep)
    return Headline(
        figure=f"Knee at {sweep.parameter} ≈ {knee_words(fit)}",
        sentence=knee_sentence(sweep),
        context=context,
        tone="warn" if limited else "good",
    )


def _over_words(sweep: Sweep) -> str:
    """What a sweep over words shows, and which question it leaves to a comparison."""
    values = ",".join(value_words(point) for point in sweep.points)
    return (
        f"The values of {sweep.parameter} have no order, so that no law is fitted: each stands for itself. Which is "
        f"faster is for referee compare --vary {sweep.parameter}={values} to say."
    )


def value_words(point: SweepPoint) -> str:
    """The value of the parameter at ``point``, as the user wrote it."""
    return point.label or format_number(point.value)


def point_findings(sweep: Sweep) -> tuple[Block, ...]:
    """What limits single points, in one line; nothing where nothing does."""
    counts = Counter(
        code
        for point in sweep.points
        for code in dict.fromkeys(f.code for f in point.measurement.findings if f.severity != "info")
    )
    if not counts:
        return ()
    named = ", ".join(f"{code} at {count} of {len(sweep.points)}" for code, count in counts.most_common())
    return (Paragraph(text=f"Limits of the points: {named}.", tone="warn"),)


def no_knee(fit: Fit) -> str:
    """Why no knee is reported, in a sentence."""
    if fit.law not in _LAWS:
        return sentence(fit.why_no_knee or "neither law explains the points")
    return sentence(fit.why_no_knee or "two points on each side of the knee are needed")


def knee_words(fit: Fit) -> str:
    """``12.3 (9.8 to 15.1)``."""
    if fit.knee is None:
        return "none"
    words = format_number(fit.knee)
    if fit.knee_low is not None and fit.knee_high is not None:
        words += f" ({format_number(fit.knee_low)} to {format_number(fit.knee_high)})"
    return words


def knee_sentence(sweep: Sweep) -> str:
    """What the knee says about values below and above it."""
    if sweep.fit.law == "max":
        return (
            f"Below it the host sets the time and a larger {sweep.parameter} is free; above it the time grows with "
            f"{sweep.parameter}, {format_ns(sweep.fit.slope_ns)} for each."
        )
    return (
        f"Below it the fixed part of {format_ns(_intercept(sweep.fit))} is the larger one; above it the part that "
        f"grows with {sweep.parameter}, {format_ns(sweep.fit.slope_ns)} for each."
    )


def sweep_blocks(sweep: Sweep) -> tuple[Block, ...]:
    """The curve, the points, and the fitted law."""
    return (
        Heading(text=f"Time over {sweep.parameter}"),
        sweep_plot(sweep),
        _table(sweep),
        *([Paragraph(text=words)] if (words := items_words(sweep)) else []),
        *([] if not priced(sweep) else [Facts(facts=price_facts(sweep))]),
        Heading(text="The law it obeys"),
        Facts(facts=_fit_facts(sweep)),
    )


def priced(sweep: Sweep) -> bool:
    """Whether a price was given."""
    return sweep.price_per_hour is not None


def price_facts(sweep: Sweep) -> tuple[Fact, ...]:
    """What a dollar buys at the value to be served."""
    price = f"at {format_number(sweep.price_per_hour or 0.0)} dollars per hour"
    if sweep.served is None:
        return (Fact(label="Price", value=price, note="--served VALUE says at which value it counts"),)
    served = next((point for point in sweep.points if point.value == sweep.served), None)
    label = f"Served at {sweep.parameter} {format_number(sweep.served)}"
    if served is None or served.items_per_dollar is None:
        return (Fact(label=label, value="no number", note="it could not be measured at that value", tone="warn"),)
    return (Fact(label=label, value=f"{amount(served.items_per_dollar)} items per dollar", note=price),)


def amount(items: float) -> str:
    """``227 M``: a large count, as throughput is shown."""
    return format_rate(items).removesuffix("/s").strip()


def items_words(sweep: Sweep) -> str:
    """What throughput counts; empty where no point has any."""
    per_call = [
        (point.value, point.throughput_per_s * point.median_ns / NS_PER_S)
        for point in sweep.points
        if point.throughput_per_s and point.median_ns
    ]
    if not per_call:
        return ""
    if all(math.isclose(items, per_call[0][1], rel_tol=1e-6) for _, items in per_call) and (
        len(per_call) > 1 or not math.isclose(per_call[0][0], per_call[0][1], rel_tol=1e-6)
    ):
        return f"Throughput counts {format_number(per_call[0][1])} items a call, whatever {sweep.parameter} is."
    if all(math.isclose(items, value, rel_tol=1e-6) for value, items in per_call):
        return f"Throughput counts one item for each unit of {sweep.parameter}."
    return "Throughput counts the items of a call, as the caller gave them."


def _swept_line(sweep: Sweep) -> str:
    """What was swept, and what entered at either end: the shapes change along the sweep."""
    values = ", ".join(value_words(point) for point in sweep.points)
    symbol = "" if any(point.label for point in sweep.points) else " (b)"
    ends = dict.fromkeys(
        describe_shapes(p.measurement.provenance.shapes) for p in (*sweep.points[:1], *sweep.points[-1:])
    )
    return f"{sweep.provenance.dtype} · {' to '.join(ends) or 'no point'} · {sweep.parameter}{symbol} = {values}"


def _intercept(fit: Fit) -> float | None:
    return None if fit.host_ns is None or fit.fixed_ns is None else fit.host_ns + fit.fixed_ns


def law_value(fit: Fit, value: float) -> float | None:
    """The fitted time at ``value``; ``None`` where no law was fitted."""
    if fit.host_ns is None or fit.fixed_ns is None or fit.slope_ns is None:
        return None
    device = fit.fixed_ns + fit.slope_ns * value
    if fit.law == "max":
        return max(fit.host_ns, device)
    return fit.host_ns + device if fit.law == "sum" else None


def sweep_plot(sweep: Sweep) -> Plot:
    """Time over the parameter: the points with their intervals, the law, the knee."""
    measured = [(p, p.median_ns) for p in sweep.points if p.median_ns is not None]
    curves = [
        Curve(
            label="measured",
            xs=tuple(p.value for p, _ in measured),
            ys=tuple(median for _, median in measured),
            lows=tuple(median if p.ci_low_ns is None else p.ci_low_ns for p, median in measured),
            highs=tuple(median if p.ci_high_ns is None else p.ci_high_ns for p, median in measured),
            style="points",
        )
    ]
    words = any(point.label for point in sweep.points)
    log_x = not words and all(p.value > 0 for p in sweep.points)
    law = _law_curve(sweep.fit, [p.value for p, _ in measured], log_x=log_x)
    knee = sweep.fit.knee
    return Plot(
        curves=(*curves, *law),
        x_label=sweep.parameter,
        y_label="time per call",
        log_x=log_x,
        log_y=all(median > 0 for _, median in measured),
        x_ticks=tuple(p.value for p, _ in measured),
        x_words=tuple(p.label for p, _ in measured) if words else (),
        marks=() if knee is None else ((knee, "knee"),),
    )


def _law_curve(fit: Fit, values: list[float], *, log_x: bool) -> tuple[Curve, ...]:
    if fit.law not in _LAWS or len(values) < 2:
        return ()
    low, high = min(values), max(values)
    shares = [k / (_CURVE_POINTS - 1) for k in range(_CURVE_POINTS)]
    if log_x:
        xs = [low * math.pow(high / low, share) for share in shares]
    else:
        xs = [low + (high - low) * share for share in shares]
    points = [(x, y) for x in xs if (y := law_value(fit, x)) is not None]
    if not points:
        return ()
    label = f"t(b) = {_LAWS[fit.law]}"
    return (Curve(label=label, xs=tuple(x for x, _ in points), ys=tuple(y for _, y in points), style="dashed"),)


def _table(sweep: Sweep) -> Table:
    return Table(
        columns=(
            Column(title=sweep.parameter, align="right"),
            Column(title="Median", align="right"),
            Column(title="Interval", align="right", priority=2),
            Column(title="Throughput", align="right"),
            Column(title="Per item", align="right", priority=2),
            *([Column(title="Per dollar", align="right")] if priced(sweep) else []),
            Column(title="Naive claim", align="right", priority=3),
            Column(title="Findings", priority=3, fit="wrap"),
        ),
        rows=tuple(_row(point, price=priced(sweep)) for point in sweep.points),
    )


def _row(point: SweepPoint, *, price: bool) -> tuple[str, ...]:
    throughput = point.throughput_per_s
    return (
        value_words(point),
        "none" if point.median_ns is None else format_ns(point.median_ns),
        "–" if point.ci_low_ns is None else format_range_ns(point.ci_low_ns, point.ci_high_ns),
        "–" if throughput is None else format_rate(throughput),
        "–" if not throughput else format_ns(1e9 / throughput),
        *(["–" if point.items_per_dollar is None else amount(point.items_per_dollar)] if price else []),
        "–" if point.measurement.naive_ns is None else format_ns(point.measurement.naive_ns),
        ", ".join(dict.fromkeys(f.code for f in point.measurement.findings)) or "–",
    )


def _fit_facts(sweep: Sweep) -> tuple[Fact, ...]:
    fit = sweep.fit
    if fit.law not in _LAWS:
        return (Fact(label="Law", value="none", note=no_knee(fit), tone="warn"), *_error_facts(fit))
    if fit.law == "sum":
        whole = Fact(label="Host + fixed", value=format_ns(_intercept(fit)), note="paid at any value")
        parts: tuple[Fact, ...] = (whole,)
    else:
        parts = (
            Fact(label="Host", value=format_ns(fit.host_ns), note="the time below the knee"),
            Fact(label="Fixed", value=format_ns(fit.fixed_ns), note="the device part paid at any value"),
        )
    return (
        Fact(label="Law", value=f"t(b) = {_LAWS[fit.law]}", note=f"from {plural(_numbers(sweep), 'point')}"),
        *parts,
        Fact(label="Slope", value=f"{format_ns(fit.slope_ns)} per unit of {sweep.parameter}"),
        Fact(label="Knee", value=knee_words(fit), note="" if fit.knee is not None else no_knee(fit)),
        *_error_facts(fit),
    )


def _numbers(sweep: Sweep) -> int:
    return sum(point.median_ns is not None for point in sweep.points)


def _error_facts(fit: Fit) -> tuple[Fact, ...]:
    if fit.error_frac is None and fit.error_max_frac is None and fit.error_sum_frac is None:
        return ()
    laws = (("max law", fit.error_max_frac), ("sum law", fit.error_sum_frac))
    tried = ", ".join(f"{name} {format_frac(error)}" for name, error in laws if error is not None)
    return (Fact(label="Held-out error", value=format_frac(fit.error_frac), note=tried),)
