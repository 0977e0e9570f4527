"""Which fixes pay? The measured gains first, prediction beside measurement, and why the others were not taken."""

from __future__ import annotations

from referee.records.document import Block, Column, Document, Entries, Entry, Heading, Headline, Table
from referee.records.remedy import Counts, FixTried, RemedyReport
from referee.report.findings import alarm_blocks, finding_blocks
from referee.report.provenance import provenance_blocks
from referee.report.wording import context_lines, precise_ratio, ratio_range, sentence
from referee.units import format_bytes, format_count, format_frac, format_ns


def compose_remedy(report: RemedyReport) -> Document:
    """The report as a document."""
    return Document(
        title=report.name,
        blocks=(
            _headline(report),
            *alarm_blocks(report.findings),
            *_table(report),
            *_proofs(report),
            *_declined(report),
            *finding_blocks(report.findings),
            *provenance_blocks(report.provenance),
        ),
    )


def _headline(report: RemedyReport) -> Headline:
    gained = [fix for fix in report.fixes if fix.gained]
    tried = sum(fix.applied for fix in report.fixes)
    method = f"{tried} of {len(report.fixes)} fixes applied; outputs held against eager before anything was timed"
    context = (*context_lines(report.provenance), method)
    if not gained:
        return Headline(figure="No fix paid", sentence=_tried_words(report), context=context, tone="warn")
    best = gained[0]
    interval = ratio_range(best.ci_low, best.ci_high) or "not known"
    words = f"{best.title}: {precise_ratio(best.measured_ratio)}× the time, measured (interval {interval})."
    others = "" if len(gained) == 1 else f" {len(gained) - 1} more gained by themselves; gains need not add up."
    return Headline(
        figure=f"{precise_ratio(best.measured_ratio)}× the time",
        sentence=words + others,
        context=context,
        tone="good",
    )


def _tried_words(report: RemedyReport) -> str:
    """How many fixes were tried, and of how many it stays open whether they pay."""
    tried = [fix for fix in report.fixes if fix.applied]
    unsettled = [fix.name for fix in tried if fix.outputs_match is not False and fix.answer in (None, "cannot-tell")]
    counted = "No fix was tried" if not tried else "1 fix was tried" if len(tried) == 1 else f"{len(tried)} were tried"
    return f"{counted}; of {', '.join(unsettled)} it cannot be told." if unsettled else f"{counted}."


def _table(report: RemedyReport) -> tuple[Block, ...]:
    measured = [fix for fix in report.fixes if fix.measured_ratio is not None]
    if not measured:
        return ()
    columns = (
        Column(title="Fix", fit="shorten"),
        Column(title="Answer"),
        Column(title="Measured", align="right"),
        Column(title="Interval", align="right", priority=2),
        Column(title="Predicted", align="right"),
        Column(title="Off by", align="right", priority=2),
        Column(title="Outputs", priority=2),
        Column(title="First call", align="right", priority=3),
        Column(title="Pays after", align="right", priority=3),
    )
    caption = "Ratios are time with the fix / time without, per item: below 1 it is faster. Predicted before measuring."
    return Heading(text="Tried and timed"), Table(columns=columns, rows=tuple(map(_row, measured)), caption=caption)


def _row(fix: FixTried) -> tuple[str, ...]:
    return (
        fix.name,
        fix.answer or "–",
        precise_ratio(fix.measured_ratio),
        ratio_range(fix.ci_low, fix.ci_high, pairs=fix.pairs) or "–",
        _predicted(fix),
        "–" if fix.error_frac is None else format_frac(fix.error_frac, digits=0),
        {True: "as eager's", False: "differ", None: "not compared"}[fix.outputs_match],
        "–" if fix.first_call_ns is None else format_ns(fix.first_call_ns),
        "–" if fix.pays_after_steps is None else f"{fix.pays_after_steps:,} steps",
    )


def _predicted(fix: FixTried) -> str:
    if fix.predicted_low is None or fix.predicted_high is None:
        return "only trying says"
    text = ratio_range(fix.predicted_low, fix.predicted_high)
    return f"{text}, measure it" if fix.measure_it else text


def _proofs(report: RemedyReport) -> tuple[Block, ...]:
    """Beneath each timed fix: how to apply it, on what the prediction stood, what changed, what was allowed."""
    entries = tuple(
        Entry(
            title=fix.title,
            figure=f"{precise_ratio(fix.measured_ratio)}×",
            against=f"predicted {_predicted(fix)}",
            text=" ".join(sentence(part) for part in _words(fix) if part),
            code=fix.how,
            tone="good" if fix.gained else "plain",
        )
        for fix in report.fixes
        if fix.measured_ratio is not None
    )
    return (Heading(text="What was done"), Entries(entries=entries, numbered=False)) if entries else ()


def _words(fix: FixTried) -> tuple[str, ...]:
    replaced = f"measure it: {', '.join(fix.measure_it)} are computed by other code" if fix.measure_it else ""
    return (
        fix.why_not if fix.answer == "cannot-tell" else "",
        f"Predicted from: {fix.predicted_basis}",
        replaced,
        _changed(fix.before, fix.after),
        f"Outputs: {fix.check.tolerance}; found {_worst(fix)}" if fix.check and fix.check.match else "",
        *fix.notes,
    )


def _worst(fix: FixTried) -> str:
    check = fix.check
    if check is None:
        return "nothing"
    parts = (("outputs", check.worst_output), ("gradients", check.worst_gradient), ("updates", check.worst_update))
    return ", ".join(f"{what} {value:.1e}" for what, value in parts if value is not None) or "no floating value"


def _changed(before: Counts | None, after: Counts | None) -> str:
    if before is None or after is None:
        return ""
    parts = []
    if before.operators is not None and after.kernels:
        kernels = f"{format_count(after.kernels)} fused kernels generated, loop tails included"
        parts.append(f"{format_count(before.operators)} calls of operators before, {kernels}")
    elif before.operators is not None and after.operators is not None:
        parts.append(f"calls of operators {format_count(before.operators)} → {format_count(after.operators)}")
    if before.allocations is not None and after.allocations is not None:
        parts.append(
            f"allocations {format_count(before.allocations)} → {format_count(after.allocations)} "
            f"({format_bytes(before.allocated_bytes)} → {format_bytes(after.allocated_bytes)})"
        )
    return "; ".join(parts)


def _declined(report: RemedyReport) -> tuple[Block, ...]:
    entries = tuple(
        Entry(
            title=fix.title,
            figure="rejected" if fix.outputs_match is False else "not applied" if not fix.applied else "not timed",
            text=" ".join(map(sentence, (fix.why_not, *fix.notes))),
            tone="bad" if fix.outputs_match is False else "note",
        )
        for fix in report.fixes
        if fix.measured_ratio is None
    )
    if not entries:
        return ()
    return Heading(text="Not taken, and why"), Entries(entries=entries, numbered=False)
