"""What does the document look like as a page? One HTML file that needs nothing else: no network, no script."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import singledispatch
from importlib.resources import files

from referee.records.document import (
    Bar,
    Bars,
    Block,
    Column,
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
from referee.report.layout import shorten_middle
from referee.report.svg import render_plot, text
from referee.report.wording import SEVERITY_SIGNS, evidence_line, severity_order

_NAME = 70
"""A name longer than this is shortened in the middle; the whole of it shows when pointed at."""

_PARTS = 11
"""Colours that parts of a whole may take."""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""The page may load nothing, whatever a file's names hold."""


def style_sheet() -> str:
    """The style sheet of every page and drawing."""
    return files("referee.report").joinpath("style.css").read_text(encoding="utf-8")


def render_html(document: Document) -> str:
    """The document as one self-contained HTML page."""
    title = text(document.title)
    style = style_sheet()
    body = "\n".join(render_blocks(document.blocks))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f"<title>{title} · Referee</title>\n<style>\n{style}</style>\n</head>\n"
        f"<body>\n<main>\n<h1>{title}</h1>\n{body}\n</main>\n</body>\n</html>\n"
    )


def render_blocks(blocks: Iterable[Block]) -> Iterator[str]:
    """The blocks as elements, in lines; whatever their texts hold is made safe."""
    for block in blocks:
        yield from _block(block)


@singledispatch
def _block(block: Block) -> Iterator[str]:
    raise TypeError(f"{type(block).__name__} is not a block")


@_block.register
def _(block: Headline) -> Iterator[str]:
    yield f'<section class="headline {block.tone}"><p class="figure {block.tone}">{text(block.figure)}</p>'
    yield f'<p class="sentence">{text(block.sentence)}</p>'
    yield from (f'<p class="context">{text(words)}</p>' for words in block.context)
    yield "</section>"


@_block.register
def _(block: Heading) -> Iterator[str]:
    level = min(6, max(2, block.level))
    yield f"<h{level}>{text(block.text)}</h{level}>"


@_block.register
def _(block: Paragraph) -> Iterator[str]:
    yield f'<p class="{block.tone}">{text(block.text)}</p>'


@_block.register
def _(block: Facts) -> Iterator[str]:
    yield '<dl class="facts">'
    for fact in block.facts:
        note = f'<span class="note">{text(fact.note)}</span>' if fact.note else ""
        yield f'<dt>{text(fact.label)}</dt><dd><span class="{fact.tone}">{text(fact.value)}</span>{note}</dd>'
    yield "</dl>"


@_block.register
def _(block: Entries) -> Iterator[str]:
    tag = "ol" if block.numbered else "ul"
    yield f'<{tag} class="entries">'
    for entry in block.entries:
        figure = f'<span class="value {entry.tone}">{text(entry.figure)}</span>' if entry.figure else ""
        yield f'<li><div class="head"><span class="title">{text(entry.title)}</span>{figure}</div>'
        if entry.against:
            yield f'<p class="against">{text(entry.against)}</p>'
        if entry.text:
            yield f"<p>{text(entry.text)}</p>"
        for part in entry.lines:
            yield f'<p class="{part.tone}"><b>{text(part.label)}:</b> {text(part.value)}</p>'
        if entry.code:
            yield f"<code>{text(entry.code)}</code>"
        yield "</li>"
    yield f"</{tag}>"


@_block.register
def _(block: Table) -> Iterator[str]:
    yield '<div class="scroll"><table>'
    if block.caption:
        yield f"<caption>{text(block.caption)}</caption>"
    heads = (f'<th scope="col" class="{column.align}">{text(column.title)}</th>' for column in block.columns)
    yield f"<thead><tr>{''.join(heads)}</tr></thead><tbody>"
    for row in block.rows:
        cells = (_cell(cell, column) for cell, column in zip(row, block.columns, strict=True))
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table></div>"


def _cell(cell: str, column: Column) -> str:
    kind = f"{column.align} {column.fit}"
    short = shorten_middle(cell, _NAME) if column.fit == "shorten" else cell
    if short == cell:
        return f'<td class="{kind}">{text(cell)}</td>'
    return f'<td class="{kind}" title="{text(cell)}">{text(short)}</td>'


@_block.register
def _(block: Bars) -> Iterator[str]:
    yield "<figure>"
    if block.caption:
        yield f"<figcaption>{text(block.caption)}</figcaption>"
    if block.stacked:
        yield _stack(block)
    yield '<div class="bars">'
    for number, bar in enumerate(block.bars):
        fill = _hue(bar, number) if block.stacked else f"f-{bar.tone}"
        chip = f'<svg class="chip" aria-hidden="true"><rect class="{fill}" width="11" height="11" rx="2"/></svg>'
        length = 1000 * min(1.0, max(0.0, bar.frac))
        yield f'<span class="label">{chip if block.stacked else ""}{text(bar.label)}</span>'
        yield (
            '<svg class="bar" viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true">'
            '<rect class="track" width="1000" height="10"/>'
            f'<rect class="{fill}" width="{length:.2f}" height="10"/></svg>'
        )
        yield f'<span class="value">{text(bar.text)}</span>'
    yield "</div></figure>"


def _hue(bar: Bar, number: int) -> str:
    return f"f{(number if bar.hue is None else bar.hue) % _PARTS}"


def _stack(block: Bars) -> str:
    parts = ['<svg class="stack" viewBox="0 0 1000 10" preserveAspectRatio="none" role="img" aria-label="']
    parts.append(text(", ".join(f"{bar.label} {bar.text}" for bar in block.bars)) + '">')
    start = 0.0
    for number, bar in enumerate(block.bars):
        length = 1000 * max(0.0, bar.frac)
        parts.append(f'<rect class="{_hue(bar, number)}" x="{start:.3f}" width="{length:.3f}" height="10"/>')
        start += length
    return "".join(parts) + "</svg>"


@_block.register
def _(block: Plot) -> Iterator[str]:
    yield "<figure>"
    if block.caption:
        yield f"<figcaption>{text(block.caption)}</figcaption>"
    yield render_plot(block) or f'<p class="note">{text(block.y_label)}: no point to show.</p>'
    yield "</figure>"


@_block.register
def _(block: Findings) -> Iterator[str]:
    for finding in sorted(block.findings, key=severity_order):
        sign = f"{SEVERITY_SIGNS[finding.severity]} {finding.severity}"
        yield f'<div class="finding {finding.severity}"><p><span class="severity">{sign}</span>'
        yield f"<code>{text(finding.code)}</code></p><p>{text(finding.message)}</p>"
        if finding.evidence:
            yield f'<p class="evidence">{text(evidence_line(finding.evidence))}</p>'
        if finding.hint:
            yield f"<p>→ {text(finding.hint)}</p>"
        yield "</div>"
