"""Do these traces agree? Several reports side by side: one rank does not speak for a job."""

from __future__ import annotations

from collections import Counter

from referee.records.document import Block, Column, Document, Fact, Facts, Heading, Headline, Paragraph, Table
from referee.records.trace_report import NullExperiment, TraceReport, TraceSet
from referee.report.findings import finding_blocks
from referee.report.trace import idle_bars
from referee.report.verdict import verdict_sentence
from referee.report.wording import plural, sentence
from referee.units import format_count, format_frac, format_ns, format_number


def compose_trace_set(traces: TraceSet) -> Document:
    """The reports as one document: do they agree, then a row and a short section for each."""
    regimes = Counter(report.verdict.regime for report in traces.reports)
    words = ", ".join(f"{regime} {count:,}" for regime, count in regimes.most_common())
    return Document(
        title=plural(len(traces.reports), "trace"),
        blocks=(
            Headline(
                figure=next(iter(regimes)).capitalize() if len(regimes) == 1 else plural(len(regimes), "regime"),
                sentence=f"By verdict: {words or 'none'}. One trace does not speak for the others.",
                context=("Each trace on its own: times are not compared across files, whose clocks differ.",),
                tone="plain" if len(regimes) == 1 else "warn",
            ),
            *_experiment(traces.null_experiment),
            Heading(text="Side by side"),
            _table(traces),
            *(block for report in traces.reports for block in _section(report)),
            *finding_blocks(traces.findings),
        ),
    )


def _experiment(experiment: NullExperiment | None) -> tuple[Block, ...]:
    """The null experiment made of the traces: both sides of the law at each batch size, and where they meet."""
    if experiment is None:
        return ()
    rows = tuple(
        (
            format_number(point.value),
            point.regime,
            format_ns(point.window_ns),
            format_ns(point.busy_ns),
            format_ns(point.host_ns),
            format_count(point.ops_top),
            format_count(point.synchronises),
        )
        for point in experiment.points
    )
    columns = (
        Column(title=experiment.parameter),
        Column(title="Regime"),
        Column(title="Window", align="right"),
        Column(title="Busy", align="right"),
        Column(title="Host", align="right"),
        Column(title="Operators", align="right", priority=2),
        Column(title="Synchronises", align="right", priority=2),
    )
    if experiment.knee_estimate is None:
        knee = "not known"
    else:
        knee = f"near {format_number(experiment.knee_estimate)}"
        knee += "" if experiment.knee_reached else ": not reached by the traces, extrapolated"
    fit = experiment.fit
    facts = (
        Fact(label="Knee", value=knee, note="where the device's busy time equals the host's"),
        Fact(label="Law of the windows", value=fit.law, note=fit.why_no_knee),
    )
    heading = Heading(text=f"Null experiment over {experiment.parameter}")
    return heading, Paragraph(text=sentence(experiment.so)), Table(columns=columns, rows=rows), Facts(facts=facts)


def _table(traces: TraceSet) -> Table:
    rows = tuple(
        (
            report.source,
            report.verdict.regime,
            format_ns(report.totals.window_ns),
            format_frac(report.totals.busy_ns / report.totals.window_ns) if report.totals.window_ns else "–",
            format_count(report.totals.kernels),
            format_count(len(report.steps)),
            format_count(len(report.findings)),
        )
        for report in traces.reports
    )
    columns = (
        Column(title="Trace", fit="shorten"),
        Column(title="Regime"),
        Column(title="Window", align="right"),
        Column(title="Busy", align="right"),
        Column(title="Kernels", align="right", priority=2),
        Column(title="Steps", align="right", priority=3),
        Column(title="Findings", align="right", priority=3),
    )
    return Table(columns=columns, rows=rows)


def _section(report: TraceReport) -> tuple[Block, ...]:
    blocks: list[Block] = [Heading(text=report.source), Paragraph(text=verdict_sentence(report.verdict, report))]
    if report.totals.window_ns > 0:
        blocks.append(idle_bars(report))
    codes = dict.fromkeys(finding.code for finding in report.findings)
    if codes:
        blocks.append(Paragraph(text=f"Findings: {', '.join(codes)}.", tone="note"))
    return tuple(blocks)
