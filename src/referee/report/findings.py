"""What limits the answer? Findings as blocks: one line near the top, and all of them under a heading."""

from __future__ import annotations

from referee.records.document import Block, Findings, Heading, Paragraph, Tone
from referee.records.finding import Finding, fatal
from referee.report.wording import severity_order

_MOST_CODES = 5
"""Codes named near the top; the findings below show all."""


def alarm_blocks(findings: tuple[Finding, ...]) -> tuple[Block, ...]:
    """One line near the top that names what limits the answer; nothing where nothing does."""
    codes = dict.fromkeys(f.code for f in sorted(findings, key=severity_order) if f.severity != "info")
    if not codes:
        return ()
    worst: Tone = "bad" if fatal(findings) else "warn"
    named = ", ".join(list(codes)[:_MOST_CODES])
    more = f" and {len(codes) - _MOST_CODES} more" if len(codes) > _MOST_CODES else ""
    return (Paragraph(text=f"Read the findings first: {named}{more}.", tone=worst),)


def finding_blocks(findings: tuple[Finding, ...]) -> tuple[Block, ...]:
    """The findings under a heading; nothing where there are none."""
    return (Heading(text="Findings"), Findings(findings=findings)) if findings else ()


def united(*parts: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The findings of several parts, each once, in order."""
    found: list[Finding] = []
    for part in parts:
        found += [finding for finding in part if finding not in found]
    return tuple(found)
