"""What does the document look like as Markdown? For issues, pull requests and notes; raw HTML is never passed on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import singledispatch

from referee.records.document import (
    Align,
    Bars,
    Block,
    Document,
    Entries,
    Facts,
    Findings,
    Heading,
    Headline,
    Paragraph,
    Plot,
    Table,
)
from referee.report.braille import draw, plain_lines
from referee.report.layout import bar_text, printable
from referee.report.wording import SEVERITY_SIGNS, evidence_line, severity_order

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~#$])")
_LIST_LIKE = re.compile(r"^(\s*)([-+]|\d+[.)])(\s)")
_PLOT_WIDTH = 76
_BAR_WIDTH = 20


def render_markdown(document: Document) -> str:
    """The document as GitHub-flavoured Markdown, ending in a newline."""
    parts = [f"# {escape(document.title)}"]
    parts += ["\n".join(_block(block)) for block in document.blocks]
    return "\n\n".join(part for part in parts if part) + "\n"


def escape(text: str) -> str:
    """``text`` so that Markdown shows it as it is."""
    escaped = _SPECIAL.sub(r"\\\1", printable(text).replace("&", "&amp;"))
    return _LIST_LIKE.sub(r"\1\\\2\3", escaped)


def code_span(text: str) -> str:
    """``text`` as a code span, with a fence longer than any run of backticks inside."""
    text = printable(text)
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    room = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{room}{text}{room}{fence}"


@singledispatch
def _block(block: Block) -> Iterator[str]:
    raise TypeError(f"{type(block).__name__} is not a block")


@_block.register
def _(block: Headline) -> Iterator[str]:
    yield f"> **{escape(block.figure)}**"
    yield ">"
    yield f"> {escape(block.sentence)}"
    for text in block.context:
        yield ">"
        yield f"> *{escape(text)}*"


@_block.register
def _(block: Heading) -> Iterator[str]:
    yield f"{'#' * min(6, max(1, block.level))} {escape(block.text)}"


@_block.register
def _(block: Paragraph) -> Iterator[str]:
    yield f"*{escape(block.text)}*" if block.tone == "note" else escape(block.text)


@_block.register
def _(block: Facts) -> Iterator[str]:
    yield from _table(
        ("", ""),
        ("left", "left"),
        (
            (escape(fact.label), escape(fact.value) + (f" · {escape(fact.note)}" if fact.note else ""))
            for fact in block.facts
        ),
    )


@_block.register
def _(block: Entries) -> Iterator[str]:
    for number, entry in enumerate(block.entries, 1):
        sign = f"{number}." if block.numbered else "-"
        figure = f": {escape(entry.figure)}" if entry.figure else ""
        yield f"{sign} **{escape(entry.title)}**{figure}"
        lines = [escape(text) for text in (entry.against, entry.text) if text]
        lines += [f"*{escape(part.label)}*: {escape(part.value)}" for part in entry.lines]
        if entry.code:
            lines.append(code_span(entry.code))
        for line in lines:
            yield f"{' ' * len(sign)} <br>{line}"


@_block.register
def _(block: Table) -> Iterator[str]:
    if block.caption:
        yield f"*{escape(block.caption)}*"
        yield ""
    rows = (tuple(escape(cell) for cell in row) for row in block.rows)
    yield from _table([escape(c.title) for c in block.columns], [c.align for c in block.columns], rows)


@_block.register
def _(block: Bars) -> Iterator[str]:
    if block.caption:
        yield f"*{escape(block.caption)}*"
        yield ""
    rows = (
        (escape(bar.label), code_span(bar_text(bar.frac, _BAR_WIDTH) or " "), escape(bar.text)) for bar in block.bars
    )
    yield from _table(("", "", ""), ("left", "left", "right"), rows)


@_block.register
def _(block: Plot) -> Iterator[str]:
    if block.caption:
        yield f"*{escape(block.caption)}*"
        yield ""
    drawing = draw(block, _PLOT_WIDTH)
    if drawing is None:
        yield f"*{escape(block.y_label)}: no point to show.*"
        return
    yield "```text"
    yield from (line.rstrip() for line in plain_lines(block, drawing))
    yield "```"


@_block.register
def _(block: Findings) -> Iterator[str]:
    for finding in sorted(block.findings, key=severity_order):
        sign = f"{SEVERITY_SIGNS[finding.severity]} {finding.severity}"
        yield f"- **{sign}** {code_span(finding.code)}: {escape(finding.message)}"
        if finding.evidence:
            yield f"  <br>*{escape(evidence_line(finding.evidence))}*"
        if finding.hint:
            yield f"  <br>→ {escape(finding.hint)}"


def _table(titles: Sequence[str], aligns: Sequence[Align], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A table of cells that are Markdown already."""
    yield "| " + " | ".join(titles) + " |"
    yield "|" + "|".join("---:" if align == "right" else ":---" for align in aligns) + "|"
    for row in rows:
        yield "| " + " | ".join(row) + " |"
