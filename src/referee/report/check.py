"""What came of the main job? The number, the regime, the reasons and the remedies as one document."""

from __future__ import annotations

from referee.records.check import Check
from referee.records.document import Block, Document, Heading, Paragraph
from referee.records.finding import Finding
from referee.records.measurement import Sweep
from referee.report.capture import capture_blocks
from referee.report.findings import finding_blocks, united
from referee.report.measurement import measurement_blocks, measurement_headline
from referee.report.provenance import provenance_blocks
from referee.report.sweep import knee_sentence, knee_words, no_knee, point_findings, sweep_blocks
from referee.report.trace import trace_blocks, trace_context
from referee.report.verdict import reasoning_blocks, remedy_blocks, verdict_headline


def compose_check(check: Check) -> Document:
    """The main job as a document: the answers first, then what each stands on, provenance once at the end."""
    reasoning = reasoning_blocks(check.verdict)
    context = trace_context(check.trace)[-1:] if check.trace and check.trace.provenance else ()
    return Document(
        title=check.name,
        blocks=(
            measurement_headline(check.measurement),
            verdict_headline(check.verdict, trace=check.trace, context=context),
            *((Heading(text="Why"), *reasoning) if reasoning else ()),
            Heading(text="What to try"),
            *remedy_blocks(check.remedies),
            *finding_blocks(_findings(check)),
            *measurement_blocks(check.measurement),
            *_sweep(check),
            *(trace_blocks(check.trace) if check.trace else ()),
            *_capture(check),
            *provenance_blocks(check.provenance),
        ),
    )


def _sweep(check: Check) -> tuple[Block, ...]:
    sweep = check.sweep
    if sweep is None:
        return Heading(text="Null experiment"), Paragraph(text="Not run: one batch size alone is not a benchmark.")
    words = no_knee(sweep.fit) if sweep.fit.knee is None else _knee(sweep)
    heading = Heading(text=f"Null experiment: time over {sweep.parameter}")
    return heading, Paragraph(text=words), *point_findings(sweep), *sweep_blocks(sweep)[1:]


def _knee(sweep: Sweep) -> str:
    return f"Knee at {sweep.parameter} ≈ {knee_words(sweep.fit)}. {knee_sentence(sweep)}"


def _capture(check: Check) -> tuple[Block, ...]:
    if check.capture is None:
        return Heading(text="Recording"), Paragraph(text="No trace was recorded.", tone="note")
    return capture_blocks(check.capture)


def _findings(check: Check) -> tuple[Finding, ...]:
    """The findings of all parts, each once."""
    parts = (check, check.measurement, check.sweep, check.capture, check.trace)
    return united(*(part.findings for part in parts if part is not None))
