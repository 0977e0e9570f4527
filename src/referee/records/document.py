"""What is shown? A document of plain blocks, which every renderer can draw and none computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from referee.records.finding import Finding

Align = Literal["left", "right"]
Tone = Literal["plain", "good", "warn", "bad", "note"]
Fit = Literal["keep", "shorten", "wrap"]
"""What a column does where the page is narrow: keep its width, shorten its cells in the middle, or wrap at words."""


@dataclass(frozen=True, kw_only=True)
class Headline:
    """The answer: one figure or word, the sentence that goes with it, and the lines needed to believe it."""

    figure: str
    sentence: str
    context: tuple[str, ...] = ()
    tone: Tone = "plain"


@dataclass(frozen=True, kw_only=True)
class Heading:
    """A heading of level 1 (the document's) to 3."""

    text: str
    level: int = 2


@dataclass(frozen=True, kw_only=True)
class Paragraph:
    """A paragraph; ``tone`` says how it is meant."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A labelled value with an optional note behind it."""

    label: str
    value: str
    note: str = ""
    tone: Tone = "plain"


@dataclass(frozen=True, kw_only=True)
class Facts:
    """A list of labelled values."""

    facts: tuple[Fact, ...]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One item of a list: its title and figure, what the figure is held against, what follows, labelled paragraphs,
    and a line to run."""

    title: str
    figure: str = ""
    against: str = ""
    text: str = ""
    lines: tuple[Fact, ...] = ()
    code: str = ""
    tone: Tone = "plain"


@dataclass(frozen=True, kw_only=True)
class Entries:
    """A list in a meant order: the steps of a reasoning, or things ranked."""

    entries: tuple[Entry, ...]
    numbered: bool = True


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of a table; where the page is narrow, columns of high ``priority`` number go first (1 stays)."""

    title: str
    align: Align = "left"
    priority: int = 1
    fit: Fit = "keep"


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of text cells, as many in each row as there are columns."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One bar: label, length as a share of the longest possible, and the text behind it."""

    label: str
    frac: float
    text: str
    tone: Tone = "plain"
    hue: int | None = None
    """Which colour of the palette a part of a whole takes, so that one cause looks the same in every report."""


@dataclass(frozen=True, kw_only=True)
class Bars:
    """Horizontal bars on one scale from 0 to 1; ``stacked`` ones are parts of one whole, also drawn end to end."""

    bars: tuple[Bar, ...]
    caption: str = ""
    stacked: bool = False


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One line through points ``(x, y)``, with intervals ``(low, high)`` where there are any."""

    label: str
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    lows: tuple[float, ...] = ()
    highs: tuple[float, ...] = ()
    style: Literal["line", "dashed", "points"] = "line"


@dataclass(frozen=True, kw_only=True)
class Plot:
    """Curves over one x axis; ``y_unit`` is ``ns`` (shown scaled) or a plain unit."""

    curves: tuple[Curve, ...]
    x_label: str
    y_label: str
    y_unit: str = "ns"
    log_x: bool = True
    log_y: bool = True
    marks: tuple[tuple[float, str], ...] = ()
    """Vertical marks: x and text (the knee, for example)."""
    x_ticks: tuple[float, ...] = ()
    """Where the x axis is labelled; left empty, the renderer chooses."""
    x_words: tuple[str, ...] = ()
    """What stands at each of ``x_ticks``, where the values are words."""
    caption: str = ""
    height: Literal["short", "tall"] = "tall"


@dataclass(frozen=True, kw_only=True)
class Findings:
    """Findings, most severe first."""

    findings: tuple[Finding, ...]


Block = Headline | Heading | Paragraph | Facts | Entries | Table | Bars | Plot | Findings


@dataclass(frozen=True, kw_only=True)
class Document:
    """A title and its blocks in reading order."""

    title: str
    blocks: tuple[Block, ...]
