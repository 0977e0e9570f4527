"""What does the document look like on a terminal? Text of a given width, in colour or without."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from functools import singledispatchmethod
from typing import TYPE_CHECKING

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
from referee.report.braille import draw
from referee.report.layout import GAP, bar_text, cells, fit_columns, pad, printable, shorten_middle, wrap
from referee.report.wording import SEVERITY_SIGNS, evidence_line, severity_order

if TYPE_CHECKING:
    from rich.text import Text

_PROSE = 100
"""Prose wider than this is hard to read; tables and plots may be wider."""

_STYLES = {"plain": "", "good": "green", "warn": "yellow", "bad": "red", "note": "dim"}
_SEVERITY_TONES = {"fatal": "red", "warning": "yellow", "info": "cyan"}
_CURVES = ("cyan", "magenta", "yellow", "green", "blue", "red")
_PARTS = (
    *("blue", "bright_blue", "cyan", "yellow", "magenta", "bright_magenta", "green", "bright_green"),
    *("red", "bright_red", "bright_black"),
)
_SHADES = "█▚▞▓▙▛▜▟▒░·"
"""Parts of a whole; they differ without colour too."""

Span = tuple[str, str]
"""A piece of text and its style."""

Line = list[Span]


def render_text(document: Document, *, width: int, color: bool) -> str:
    """The document as lines of at most ``width`` cells, ending in a newline; ANSI colours only where ``color``."""
    lines = _Layout(width).document(document)
    if not color:
        return "".join("".join(text for text, _ in line).rstrip() + "\n" for line in lines)
    return _colored(lines, width)


def _colored(lines: Sequence[Line], width: int) -> str:
    from rich.console import Console
    from rich.text import Text

    stream = io.StringIO()
    console = Console(
        file=stream, width=width, force_terminal=True, color_system="standard", highlight=False, legacy_windows=False
    )
    for line in lines:
        text: Text = Text.assemble(*line, no_wrap=True, overflow="ignore", end="\n")
        text.rstrip()
        console.print(text, soft_wrap=True)
    return stream.getvalue()


class _Layout:
    """Lays blocks out as styled lines; one method per kind of block."""

    def __init__(self, width: int) -> None:
        self._width = max(24, width)
        self._prose = min(self._width, _PROSE)

    def document(self, document: Document) -> list[Line]:
        lines: list[Line] = [[("", "")]]
        lines += ([(text, "bold")] for text in wrap(printable(document.title), self._prose))
        before: Block | None = None
        for block in document.blocks:
            if not (isinstance(before, Heading) and before.level > 2):
                lines.append([])
            lines += self.block(block)
            before = block
        lines.append([])
        return lines

    @singledispatchmethod
    def block(self, block: Block) -> Iterator[Line]:
        """The lines of one block."""
        raise TypeError(f"{type(block).__name__} is not a block")

    @block.register
    def _(self, block: Headline) -> Iterator[Line]:
        style = f"bold {_STYLES[block.tone]}".strip()
        yield from self._prose_lines(block.figure, style, indent=2)
        yield from self._prose_lines(block.sentence, "", indent=2)
        for text in block.context:
            yield from self._prose_lines(text, "dim", indent=2, hang=2)

    @block.register
    def _(self, block: Heading) -> Iterator[Line]:
        text = printable(block.text)
        if block.level > 2:
            yield from self._prose_lines(text, "bold", indent=2)
            return
        *lines, last = wrap(text, self._prose - 3)
        for line in lines:
            yield [("── ", "dim"), (line, "bold")]
        yield [("── ", "dim"), (last, "bold"), (f" {'─' * (self._prose - cells(last) - 4)}", "dim")]

    @block.register
    def _(self, block: Paragraph) -> Iterator[Line]:
        yield from self._prose_lines(block.text, _STYLES[block.tone], indent=2)

    @block.register
    def _(self, block: Facts) -> Iterator[Line]:
        facts = block.facts
        label_width = min(max((cells(printable(fact.label)) for fact in facts), default=0), self._width // 3)
        for fact in facts:
            start = label_width + 2 + GAP
            room = max(12, self._prose - start)
            value = printable(fact.value)
            spans = [(word, _STYLES[fact.tone]) for word in value.split(" ")]
            if fact.note:
                spans += [(word, "dim") for word in ("· " + printable(fact.note)).split(" ")]
            label = shorten_middle(printable(fact.label), label_width)
            for number, line in enumerate(_flow(spans, room)):
                lead = pad(label, label_width) if number == 0 else " " * label_width
                yield [("  ", ""), (lead, "dim"), (" " * GAP, ""), *line]

    @block.register
    def _(self, block: Entries) -> Iterator[Line]:
        number_width = len(str(len(block.entries))) if block.numbered else 1
        indent = 2 + number_width + 2
        for number, entry in enumerate(block.entries, 1):
            sign = f"{number}." if block.numbered else "·"
            title, figure, against = (printable(text) for text in (entry.title, entry.figure, entry.against))
            head: Line = [("  ", ""), (pad(sign, number_width + 2), "dim"), (title, "bold")]
            figure_room = self._prose - indent - cells(title) - GAP
            if figure and cells(figure) <= figure_room:
                tone = f"bold {_STYLES[entry.tone]}".strip() if entry.tone != "plain" else ""
                yield [*head, (" " * (figure_room - cells(figure) + GAP), ""), (figure, tone)]
            else:
                yield from self._hang(head, indent)
                for line in wrap(figure, self._prose - indent) if figure else ():
                    yield [(pad(line, self._prose, right=True), _STYLES[entry.tone])]
            if against:
                yield from self._prose_lines(against, "dim", indent=indent)
            if entry.text:
                yield from self._prose_lines(entry.text, "", indent=indent)
            for part in entry.lines:
                yield from self._prose_lines(f"{part.label}: {part.value}", _STYLES[part.tone], indent=indent, hang=2)
            if entry.code:
                yield from self._prose_lines(entry.code, "cyan", indent=indent, hang=2)

    @block.register
    def _(self, block: Table) -> Iterator[Line]:
        table = Table(
            columns=block.columns,
            rows=tuple(tuple(printable(cell) for cell in row) for row in block.rows),
            caption=block.caption,
        )
        kept, widths = fit_columns(table, self._width - 2)
        columns = [table.columns[i] for i in kept]
        titles = [
            pad(shorten_middle(column.title, width), width, right=column.align == "right")
            for column, width in zip(columns, widths, strict=True)
        ]
        if block.caption:
            yield from self._prose_lines(block.caption, "dim", indent=2)
        yield [("  ", ""), ((" " * GAP).join(titles), "dim underline")]
        for row in table.rows:
            yield from _table_row([row[i] for i in kept], columns, widths)
        if len(kept) < len(table.columns):
            left = ", ".join(column.title for i, column in enumerate(table.columns) if i not in kept)
            yield from self._prose_lines(f"A wider page also shows: {left}.", "dim", indent=2)

    @block.register
    def _(self, block: Bars) -> Iterator[Line]:
        if block.caption:
            yield from self._prose_lines(block.caption, "dim", indent=2)
        if block.stacked:
            yield [("  ", ""), *_stack(block.bars, self._prose - 2)]
        texts = [printable(bar.text) for bar in block.bars]
        labels = [printable(bar.label) for bar in block.bars]
        sign = 2 if block.stacked else 0
        text_width = min(max(map(cells, texts), default=0), self._prose // 2)
        label_width = min(max(map(cells, labels), default=0), self._prose * 2 // 5)
        room = max(8, min(40, self._prose - label_width - text_width - sign - 2 - 2 * GAP))
        for number, (bar, label, text) in enumerate(zip(block.bars, labels, texts, strict=True)):
            shade, hue = _part(bar, number)
            style = hue if block.stacked else _STYLES[bar.tone] or "blue"
            lead: Line = [("  ", "")]
            if block.stacked:
                lead.append((f"{shade} ", style))
            lead.append((pad(shorten_middle(label, label_width), label_width + GAP), ""))
            body = [*lead, (pad(bar_text(bar.frac, room), room + GAP), style)]
            start = sum(cells(piece) for piece, _ in body)
            for count, line in enumerate(wrap(text, max(8, self._prose - start))):
                yield [*(body if count == 0 else [(" " * start, "")]), (line, "")]

    @block.register
    def _(self, block: Plot) -> Iterator[Line]:
        width = min(self._width, _PROSE) - 2
        drawing = draw(block, width)
        if block.caption:
            yield from self._prose_lines(block.caption, "dim", indent=2)
        if drawing is None:
            yield from self._prose_lines(f"{block.y_label}: no point to show.", "dim", indent=2)
            return
        yield [("  ", ""), (printable(block.y_label), "dim")]
        for label, row in drawing.rows:
            spans = [(char, _CURVES[owner % len(_CURVES)] if owner >= 0 else "dim") for char, owner in row]
            yield [("  ", ""), (label, "dim"), (" ┤" if label.strip() else " │", "dim"), *spans]
        lead = " " * (drawing.label_width + 3)
        yield [(lead, ""), ("└" + drawing.axis[1:] if drawing.axis else "", "dim")]
        yield [(lead, ""), (drawing.x_ticks, "dim")]
        yield [(lead, ""), (printable(block.x_label), "dim")]
        legend: list[Span] = []
        for number, (sign, label) in enumerate(drawing.legend):
            style = _CURVES[number % len(_CURVES)] if number < len(block.curves) else "dim"
            legend.append((f"{sign} {printable(label)}   ", style))
        for line in _flow(legend, self._prose - len(lead)):
            yield [(lead, ""), *line]

    @block.register
    def _(self, block: Findings) -> Iterator[Line]:
        for finding in sorted(block.findings, key=severity_order):
            style = _SEVERITY_TONES[finding.severity]
            sign = f"{SEVERITY_SIGNS[finding.severity]} {finding.severity}"
            yield [("  ", ""), (pad(sign, 11), style), (finding.code, "bold")]
            yield from self._prose_lines(finding.message, "", indent=4)
            if finding.evidence:
                yield from self._prose_lines(evidence_line(finding.evidence), "dim", indent=4)
            if finding.hint:
                yield from self._prose_lines(f"→ {finding.hint}", "", indent=4, hang=2)

    def _prose_lines(self, text: str, style: str, *, indent: int, hang: int = 0) -> Iterator[Line]:
        for number, line in enumerate(wrap(printable(text), max(8, self._prose - indent - hang))):
            yield [(" " * (indent + (hang if number else 0)), ""), (line, style)]

    def _hang(self, head: Line, indent: int) -> Iterator[Line]:
        *lead, (title, style) = head
        for number, line in enumerate(wrap(title, max(8, self._prose - indent))):
            yield [*(lead if number == 0 else [(" " * indent, "")]), (line, style)]


def _table_row(row: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> Iterator[Line]:
    """The lines of one row: cells that may wrap do, all others are shortened in the middle."""
    wrapped = [
        wrap(cell, width) if column.fit == "wrap" else [shorten_middle(cell, width)]
        for cell, column, width in zip(row, columns, widths, strict=True)
    ]
    for number in range(max(map(len, wrapped))):
        texts = [
            pad(lines[number] if number < len(lines) else "", width, right=column.align == "right")
            for lines, column, width in zip(wrapped, columns, widths, strict=True)
        ]
        yield [("  ", ""), ((" " * GAP).join(texts), "")]


def _flow(spans: Sequence[Span], width: int) -> Iterator[Line]:
    """Styled words as lines of at most ``width`` cells; a word too long for a line is broken."""
    line: Line = []
    used = 0
    for word, style in spans:
        for number, piece in enumerate(wrap(word, width)):
            size = cells(piece)
            if line and (number or used + 1 + size > width):
                yield line
                line, used = [], 0
            if line:
                line.append((" ", ""))
                used += 1
            line.append((piece, style))
            used += size
    yield line


def _part(bar: Bar, number: int) -> tuple[str, str]:
    """The shade and the colour of a part of a whole."""
    hue = number if bar.hue is None else bar.hue
    return _SHADES[hue % len(_SHADES)], _PARTS[hue % len(_PARTS)]


def _stack(bars: Sequence[Bar], width: int) -> Line:
    """The parts end to end; cells are dealt so that they fill the width exactly where the shares sum to one."""
    line: Line = []
    done = 0.0
    for number, bar in enumerate(bars):
        start = round(done * width)
        done += max(0.0, bar.frac)
        count = min(width, round(done * width)) - start
        shade, hue = _part(bar, number)
        line.append((shade * max(0, count), hue))
    return line
