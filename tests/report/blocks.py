"""One sample of every kind of block, each text in it unlike any other, and the texts that a renderer must show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from referee.records.document import (
    Bar,
    Bars,
    Block,
    Column,
    Curve,
    Entries,
    Entry,
    Fact,
    Facts,
    Findings,
    Heading,
    Headline,
    Paragraph,
    Plot,
    Table,
)
from referee.records.finding import Finding

BLOCKS: dict[type[Block], tuple[Block, ...]] = {
    Headline: (Headline(figure="h-figure", sentence="h-sentence", context=("h-context-a", "h-context-b"), tone="bad"),),
    Heading: tuple(Heading(text=f"heading-{level}", level=level) for level in (1, 2, 3)),
    Paragraph: tuple(
        Paragraph(text=f"paragraph-{tone}", tone=tone) for tone in ("plain", "good", "warn", "bad", "note")
    ),
    Facts: (
        Facts(
            facts=(
                Fact(label="fact-a", value="value-a", note="note-a", tone="warn"),
                Fact(label="fact-b", value="value-b"),
            )
        ),
    ),
    Entries: tuple(
        Entries(
            entries=(
                Entry(
                    title=f"title-{kind}-1",
                    figure=f"figure-{kind}",
                    against=f"against-{kind}",
                    text=f"text-{kind}",
                    lines=(Fact(label=f"label-{kind}-line", value=f"value-{kind}-line"),),
                    code=f"code({kind!r})",
                    tone="good",
                ),
                Entry(title=f"title-{kind}-2"),
            ),
            numbered=kind == "numbered",
        )
        for kind in ("numbered", "plain")
    ),
    Table: (
        Table(
            columns=(
                Column(title="col-a", fit="shorten"),
                Column(title="col-b", align="right"),
                Column(title="col-c", fit="wrap", priority=2),
            ),
            rows=(("cell-a1", "cell-b1", "cell-c1"), ("cell-a2", "cell-b2", "cell-c2")),
            caption="table-caption",
        ),
    ),
    Bars: tuple(
        Bars(
            bars=(
                Bar(label=f"bar-{kind}-a", frac=0.75, text=f"bartext-{kind}-a", tone="warn"),
                Bar(label=f"bar-{kind}-b", frac=0.25, text=f"bartext-{kind}-b"),
            ),
            caption=f"bars-caption-{kind}",
            stacked=kind == "stacked",
        )
        for kind in ("stacked", "apart")
    ),
    Plot: (
        Plot(
            curves=(
                Curve(label="curve-a", xs=(1, 2, 4), ys=(10, 20, 40), lows=(9, 18, 30), highs=(11, 22, 50)),
                Curve(label="curve-b", xs=(1, 4), ys=(12, 44), style="dashed"),
                Curve(label="curve-c", xs=(2,), ys=(30,), style="points"),
            ),
            x_label="x-label",
            y_label="y-label",
            marks=((3.0, "mark-a"),),
            caption="plot-caption",
            height="short",
        ),
        Plot(curves=(), x_label="x", y_label="empty-y-label", caption="empty-caption"),
    ),
    Findings: (
        Findings(
            findings=(
                Finding(
                    code="disturbed", severity="warning", message="message-a", evidence={"key_ns": 1500}, hint="hint-a"
                ),
                Finding(code="no-clean-block", severity="fatal", message="message-b"),
                Finding(code="one-batch-size", severity="info", message="message-c"),
            )
        ),
    ),
}
"""Every kind of block; a new kind has no renderer until it stands here."""

_NOT_SHOWN = {"tone", "align", "fit", "style", "height", "y_unit"}
"""Fields that say how something is drawn."""


def texts(block: object) -> Iterator[str]:
    """Every text of a block that a reader must find on the page."""
    if isinstance(block, Plot) and not block.curves:
        yield from (block.y_label, block.caption)
    elif is_dataclass(block):
        for field in fields(block):
            if field.name not in _NOT_SHOWN:
                yield from texts(getattr(block, field.name))
    elif isinstance(block, tuple):
        for part in block:
            yield from texts(part)
    elif isinstance(block, str) and block:
        yield block
