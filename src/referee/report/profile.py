"""What came of profiling a target? The recording, then what each file says."""

from __future__ import annotations

from referee.records.document import Block, Document, Heading
from referee.records.profile import Profile
from referee.records.trace_report import TraceReport
from referee.report.capture import capture_blocks, compose_capture
from referee.report.measurement import finding_blocks
from referee.report.provenance import provenance_blocks
from referee.report.trace import reasoning_section, trace_blocks, trace_context
from referee.report.verdict import remedy_blocks, verdict_headline


def compose_profile(profile: Profile) -> Document:
    """One document: the verdict on each file with its reasons, and what was recorded at what cost."""
    if not profile.reports:
        return compose_capture(profile.capture)
    sections = [block for report in profile.reports for block in _section(report, many=len(profile.reports) > 1)]
    return Document(
        title=profile.name,
        blocks=(
            *sections,
            *finding_blocks((*profile.findings, *profile.capture.findings)),
            *capture_blocks(profile.capture),
            *provenance_blocks(profile.provenance),
        ),
    )


def _section(report: TraceReport, *, many: bool) -> tuple[Block, ...]:
    return (
        *((Heading(text=report.source, level=2),) if many else ()),
        verdict_headline(report.verdict, trace=report, context=trace_context(report)),
        *reasoning_section(report),
        *trace_blocks(report),
        Heading(text="What to try"),
        *remedy_blocks(report.remedies),
        *finding_blocks(report.findings),
    )
