"""What every renderer owes the document: each text, no block lost, nothing that a hostile name could do."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import get_args

import pytest

from referee.records.document import (
    Block,
    Column,
    Document,
    Entries,
    Entry,
    Fact,
    Facts,
    Findings,
    Heading,
    Headline,
    Table,
)
from referee.records.finding import Finding
from referee.report.compose import compose
from referee.report.html import render_html
from referee.report.layout import cells
from referee.report.markdown import render_markdown
from referee.report.text import render_text

from .blocks import BLOCKS, texts
from .samples import RECORDS

ANSI = re.compile(r"\x1b\[[0-9;]*m")
Renderer = Callable[[Document], str]


def plain(width: int) -> Renderer:
    return lambda document: render_text(document, width=width, color=False)


def colored(document: Document) -> str:
    return ANSI.sub("", render_text(document, width=100, color=True))


def markdown_as_read(document: Document) -> str:
    return html.unescape(re.sub(r"\\(.)", r"\1", render_markdown(document)))


def html_as_read(document: Document) -> str:
    page = render_html(document)
    return html.unescape(page[page.index("<main>") :])


def unbroken(text: str) -> str:
    """``text`` without what line breaks put into it."""
    return re.sub(r"[\s─]+", "", text)


AS_READ: dict[str, Renderer] = {
    "text-60": plain(60),
    "text-80": plain(80),
    "text-140": plain(140),
    "text-color": colored,
    "markdown": markdown_as_read,
    "html": html_as_read,
}
RENDERERS: dict[str, Renderer] = {**AS_READ, "markdown": render_markdown, "html": render_html}


@pytest.fixture(params=AS_READ)
def as_read(request: pytest.FixtureRequest) -> Renderer:
    return AS_READ[request.param]


@pytest.fixture(params=RENDERERS)
def render(request: pytest.FixtureRequest) -> Renderer:
    return RENDERERS[request.param]


def test_every_kind_of_block_is_sampled() -> None:
    assert set(BLOCKS) == set(get_args(Block))


@pytest.mark.parametrize("kind", BLOCKS, ids=lambda kind: kind.__name__)
def test_shows_every_text_of_every_block(as_read: Renderer, kind: type[Block]) -> None:
    shown = as_read(Document(title="the-title", blocks=BLOCKS[kind]))
    wanted = ["the-title", *(text for block in BLOCKS[kind] for text in texts(block))]
    assert [text for text in wanted if text not in shown] == []


def test_keeps_the_order_of_blocks(as_read: Renderer) -> None:
    blocks = tuple(block for samples in BLOCKS.values() for block in samples)
    shown = as_read(Document(title="t", blocks=blocks))
    places = [shown.index(next(texts(block))) for block in blocks]
    assert places == sorted(places)


def test_finding_severities_are_words_and_the_worst_comes_first(as_read: Renderer) -> None:
    shown = as_read(Document(title="t", blocks=BLOCKS[Findings]))
    places = [shown.index(word) for word in ("fatal", "warning", "info")]
    assert places == sorted(places)
    assert "key 1.50 µs" in shown


@pytest.mark.parametrize("name", RECORDS)
def test_renders_every_record(as_read: Renderer, name: str) -> None:
    document = compose(RECORDS[name])
    shown = unbroken(as_read(document))
    headings = [block.text for block in document.blocks if isinstance(block, Heading)]
    figures = [block.figure for block in document.blocks if isinstance(block, Headline)]
    assert figures
    assert [text for text in headings + figures if unbroken(text) not in shown] == []


def test_empty_blocks_do_not_break(render: Renderer) -> None:
    empty = (Facts(facts=()), Entries(entries=()), Table(columns=(Column(title="only-title"),), rows=()))
    assert "only-title" in render(Document(title="", blocks=empty))


HOSTILE = '\x1b[31mred\x07 \u202eevil\x00 <script>alert(1)</script> "><img src=x> | `tick` \n# head *b* \ud800'


def hostile_document() -> Document:
    finding = Finding(code="disturbed", severity="info", message=HOSTILE, evidence={HOSTILE: HOSTILE}, hint=HOSTILE)
    return Document(
        title=HOSTILE,
        blocks=(
            Headline(figure=HOSTILE, sentence=HOSTILE, context=(HOSTILE,)),
            Heading(text=HOSTILE),
            Facts(facts=(Fact(label=HOSTILE, value=HOSTILE, note=HOSTILE),)),
            Entries(
                entries=(
                    Entry(
                        title=HOSTILE,
                        figure=HOSTILE,
                        against=HOSTILE,
                        text=HOSTILE,
                        lines=(Fact(label=HOSTILE, value=HOSTILE),),
                        code=HOSTILE,
                    ),
                )
            ),
            Table(columns=(Column(title="kernel", fit="shorten"), Column(title="n")), rows=((HOSTILE * 3, "1"),)),
            Findings(findings=(finding,)),
        ),
    )


def test_names_from_a_file_cannot_steer_the_reader(render: Renderer) -> None:
    shown = render(hostile_document())
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", shown)
    assert "alert(1)" in shown
    shown.encode()


class Page(HTMLParser):
    """Tags and attributes of a page, and whether the tags nest."""

    VOID = frozenset({"meta", "rect", "circle", "line", "polyline", "br"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: dict[str, set[str]] = {}
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            self.attributes.setdefault(name, set()).add(value or "")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def document_named(name: str) -> Document:
    if name == "hostile":
        return hostile_document()
    if name == "blocks":
        return Document(title="t", blocks=tuple(block for samples in BLOCKS.values() for block in samples))
    return compose(RECORDS[name])


@pytest.mark.parametrize("name", [*RECORDS, "blocks", "hostile"])
def test_pages_are_well_formed_and_need_nothing_else(name: str) -> None:
    page = render_html(document_named(name))
    parsed = Page(page)
    assert parsed.open == []
    assert not parsed.tags & {"script", "img", "link", "iframe", "object", "a", "form", "base"}
    assert not {key for key in parsed.attributes if key.startswith("on") or key in ("src", "href", "style")}
    assert not re.search(r"https?://|url\(|@import", page)


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 140])
def test_no_line_of_text_is_wider_than_the_page(name: str, width: int) -> None:
    lines = render_text(compose(RECORDS[name]), width=width, color=False).splitlines()
    assert [line for line in lines if cells(line) > width] == []
    assert not any(line != line.rstrip() for line in lines)


@pytest.mark.parametrize("width", [80, 120])
def test_hostile_text_keeps_the_width(width: int) -> None:
    lines = render_text(hostile_document(), width=width, color=False).splitlines()
    assert [line for line in lines if cells(line) > width] == []


@pytest.mark.parametrize("name", RECORDS)
def test_colour_changes_no_letter(name: str) -> None:
    document = compose(RECORDS[name])
    with_color = render_text(document, width=80, color=True)
    assert ANSI.search(with_color)
    assert ANSI.sub("", with_color) == render_text(document, width=80, color=False)


@pytest.mark.parametrize("name", [*RECORDS, "hostile"])
def test_markdown_tables_keep_their_columns(name: str) -> None:
    rows: list[int] = []
    fenced = False
    for line in render_markdown(document_named(name)).splitlines():
        fenced ^= line.startswith("```")
        if line.startswith("|") and not fenced:
            rows.append(len(re.findall(r"(?<!\\)\|", line)))
        elif rows:
            assert len(set(rows)) == 1
            rows = []


@pytest.mark.parametrize("name", [*RECORDS, "hostile"])
def test_markdown_passes_no_raw_html_on(name: str) -> None:
    outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", render_markdown(document_named(name)), flags=re.DOTALL)
    assert re.findall(r"(?<!\\)<(?!br>)", outside) == []
