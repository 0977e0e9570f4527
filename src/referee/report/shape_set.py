"""How long does a request take when shapes differ? A mixture as a document: its tail first, then each shape."""

from __future__ import annotations

from referee.records.document import Bar, Bars, Block, Column, Document, Fact, Facts, Heading, Headline, Table
from referee.records.finding import fatal
from referee.records.shapes import ShapePoint, ShapeSet, Tail
from referee.report.findings import alarm_blocks, finding_blocks
from referee.report.provenance import provenance_blocks
from referee.report.wording import context_lines, plural, sentence
from referee.units import format_count, format_frac, format_ns


def compose_shape_set(shapes: ShapeSet) -> Document:
    """The mixture as a document."""
    return Document(
        title=shapes.name,
        blocks=(
            _headline(shapes),
            *alarm_blocks(shapes.findings),
            Heading(text="Each shape"),
            _table(shapes),
            *_shares(shapes),
            Heading(text="How it was measured"),
            Facts(facts=_facts(shapes)),
            *finding_blocks(shapes.findings),
            *provenance_blocks(shapes.provenance),
        ),
    )


def _headline(shapes: ShapeSet) -> Headline:
    """The percentiles of the mixture, with the bound of the 99th; without them the reason."""
    chip, _, method = context_lines(shapes.provenance)
    drawn = f"{shapes.provenance.dtype} · {plural(len(shapes.points), 'shape')} called in random order by their shares"
    context = (chip, drawn, method)
    if shapes.mixture is None:
        reasons = " ".join(sentence(finding.message) for finding in fatal(shapes.findings))
        return Headline(
            figure="No headline number", sentence=reasons or "No call could be used.", context=context, tone="bad"
        )
    tail = shapes.mixture
    return Headline(
        figure=f"p50 {format_ns(tail.p50_ns)}, p95 {format_ns(tail.p95_ns)}, p99 {format_ns(tail.p99_ns)}",
        sentence=f"Settled single calls over the mixture, {plural(tail.n, 'call')}. {_bound(tail)}",
        context=context,
        tone="warn" if alarm_blocks(shapes.findings) else "good",
    )


def _bound(tail: Tail) -> str:
    if tail.p99_high_ns is None:
        return f"The 99th percentile has no upper bound: that takes {tail.calls_for_p99:,} calls."
    return f"The 99th percentile is at most {format_ns(tail.p99_high_ns)} at {format_frac(tail.level, digits=0)}."


def _table(shapes: ShapeSet) -> Table:
    columns = (
        Column(title="Shape", fit="shorten"),
        Column(title="Share", align="right"),
        Column(title="p50", align="right"),
        Column(title="p95", align="right", priority=2),
        Column(title="p99", align="right"),
        Column(title="p99 at most", align="right", priority=2),
        Column(title="Calls", align="right", priority=2),
        Column(title="First call", align="right", priority=3),
    )
    return Table(columns=columns, rows=tuple(_row(point) for point in shapes.points))


def _row(point: ShapePoint) -> tuple[str, ...]:
    tail = point.tail
    times = ("–",) * 5
    if tail is not None:
        bound = "not bounded" if tail.p99_high_ns is None else format_ns(tail.p99_high_ns)
        times = (format_ns(tail.p50_ns), format_ns(tail.p95_ns), format_ns(tail.p99_ns), bound, format_count(tail.n))
    return (point.label, format_frac(point.share_frac), *times, format_ns(point.warmup.first_call_ns))


def _shares(shapes: ShapeSet) -> tuple[Block, ...]:
    """Which shape costs the time: shares of requests weighted by their medians; nothing where one is not known."""
    weights = [(point, point.share_frac * point.tail.p50_ns) for point in shapes.points if point.tail is not None]
    total = sum(weight for _, weight in weights)
    if len(weights) < 2 or len(weights) < len(shapes.points) or not total:
        return ()
    bars = tuple(
        Bar(label=point.label, frac=weight / total, text=format_frac(weight / total)) for point, weight in weights
    )
    return (Bars(bars=bars, caption="Share of the time: requests by their medians.", stacked=True),)


def _facts(shapes: ShapeSet) -> tuple[Fact, ...]:
    everything = format_ns(shapes.p99_all_ns) if shapes.p99_all_ns is not None else "not known"
    return (
        Fact(label="Stopped because", value=shapes.stop_reason),
        Fact(label="Preempted calls", value=format_frac(shapes.preempted_frac), note="left out of every percentile"),
        Fact(label="p99 with them in", value=everything),
        Fact(label="Seed of the order", value=str(shapes.seed)),
    )
