"""What came of profiling a target? The verdict on each file, and how it was recorded, as one document."""

from __future__ import annotations

from referee.records.document import Block, Document, Heading, Paragraph
from referee.records.profile import Profile
from referee.records.trace_report import TraceReport
from referee.report.capture import capture_blocks, capture_headline
from referee.report.findings import alarm_blocks, finding_blocks, united
from referee.report.provenance import provenance_blocks
from referee.report.trace import reasoning_section, trace_blocks, trace_context
from referee.report.verdict import remedy_blocks, verdict_headline


def compose_profile(profile: Profile) -> Document:
    """The profile as a document: one file as one answer, several files one after the other."""
    findings = united(profile.findings, profile.capture.findings, *(report.findings for report in profile.reports))
    several = len(profile.reports) > 1
    return Document(
        title=profile.name,
        blocks=(
            capture_headline(profile.capture),
            *(block for report in profile.reports for block in _report(report, named=several)),
            *capture_blocks(profile.capture),
            *finding_blocks(findings),
            *provenance_blocks(profile.provenance),
        ),
    )


def _report(report: TraceReport, *, named: bool) -> tuple[Block, ...]:
    """What one file says; under its name where there are several."""
    rows = trace_context(report)[-1:]
    headline = verdict_headline(report.verdict, trace=report, context=rows if report.provenance else ())
    return (
        *((Heading(text=report.source),) if named else ()),
        headline,
        *alarm_blocks(report.findings),
        *reasoning_section(report),
        *trace_blocks(report),
        Heading(text="What to try"),
        *remedy_blocks(report.remedies),
        *(() if report.remedies or report.totals.device_rows else (_host_only(),)),
    )


def _host_only() -> Paragraph:
    return Paragraph(text="The file holds no device row: `referee check` names the regime of a CPU step.", tone="note")
