"""Do these traces agree? Several reports side by side: one rank does not speak for a job."""

from __future__ import annotations

from collections import Counter

from referee.records.document import Block, Column, Document, Heading, Headline, Paragraph, Table
from referee.records.trace_report import TraceReport, TraceSet
from referee.report.findings import finding_blocks
from referee.report.trace import idle_bars
from referee.report.verdict import verdict_sentence
from referee.report.wording import plural
from referee.units import format_count, format_frac, format_ns


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
            Heading(text="Side by side"),
            _table(traces),
            *(block for report in traces.reports for block in _section(report)),
            *finding_blocks(traces.findings),
        ),
    )


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
