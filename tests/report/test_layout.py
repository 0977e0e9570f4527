"""Does everything fit, and does it stay whole where it can?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from referee.records.document import Column, Document, Table
from referee.report.layout import (
    GAP,
    bar_text,
    cells,
    fit_columns,
    pad,
    printable,
    shorten_middle,
    wrap,
)
from referee.report.text import render_text

from .trace_samples import LONG_KERNEL

words = st.text(alphabet=st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), max_size=60)


@given(words, st.integers(0, 40))
def test_shortening_fits_and_keeps_what_fits(text: str, width: int) -> None:
    short = shorten_middle(text, width)
    assert cells(short) <= width
    assert (short == text) == (cells(text) <= width)


def test_shortening_keeps_both_ends() -> None:
    assert shorten_middle("abcdefghij", 7) == "abc…hij"
    short = shorten_middle(LONG_KERNEL, 40)
    assert short.startswith("void at::native::")
    assert short.endswith("add<c10::BFloat16>)")


@given(words, st.integers(2, 40))
def test_wrapping_loses_no_letter(text: str, width: int) -> None:
    lines = wrap(text, width)
    assert all(cells(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


@given(words, st.integers(0, 80), st.booleans())
def test_padding_fills_to_the_cell(text: str, width: int, right: bool) -> None:
    assert cells(pad(text, width, right=right)) == max(width, cells(text))


def test_wide_and_combining_characters_count_as_shown() -> None:
    assert cells("カーネル") == 8
    assert cells("e\u0301") == 1
    assert cells("µs") == 2


@given(st.text(max_size=50))
def test_printable_is_settled_and_encodes(text: str) -> None:
    clean = printable(text)
    assert printable(clean) == clean
    clean.encode()


@given(st.floats(0, 1), st.integers(1, 60))
def test_a_share_above_zero_shows(frac: float, width: int) -> None:
    bar = bar_text(frac, width)
    assert len(bar) <= width
    assert bool(bar) == (frac > 0)
    assert abs(len(bar) - frac * width) <= 1


@st.composite
def tables(draw: st.DrawFn) -> Table:
    count = draw(st.integers(1, 6))
    columns = tuple(
        Column(
            title=draw(st.sampled_from(["a", "kernel", "share of all"])),
            fit=draw(st.sampled_from(["keep", "shorten", "wrap"])),
            priority=draw(st.integers(1, 3)),
        )
        for _ in range(count)
    )
    cell = st.text(alphabet="abc ", min_size=0, max_size=90)
    rows = draw(st.lists(st.tuples(*[cell] * count), max_size=3))
    return Table(columns=columns, rows=tuple(rows))


@given(tables(), st.integers(70, 160))
def test_columns_fit_and_the_first_rank_stays(table: Table, width: int) -> None:
    kept, widths = fit_columns(table, width)
    assert sum(widths) + GAP * (len(widths) - 1) <= width
    assert {i for i, column in enumerate(table.columns) if column.priority == 1} <= set(kept)
    natural = [max(map(cells, column)) for column in zip([c.title for c in table.columns], *table.rows, strict=True)]
    if sum(natural) + GAP * (len(natural) - 1) <= width:
        assert widths == tuple(natural)


def test_the_least_important_column_leaves_and_is_named() -> None:
    table = Table(
        columns=(
            Column(title="name", fit="shorten"),
            Column(title="first"),
            Column(title="third", priority=3),
            Column(title="second", priority=2),
        ),
        rows=(("x" * 300, "1" * 20, "3" * 20, "2" * 20),),
    )
    shown = render_text(Document(title="t", blocks=(table,)), width=80, color=False)
    assert "A wider page also shows: third." in shown
    assert "2" * 20 in shown
    assert "1" * 20 in shown
    assert "xxx…xxx" in shown


@pytest.mark.parametrize("width", [-3, 0, 1])
def test_where_there_is_no_room_words_are_broken_into_characters(width: int) -> None:
    assert "".join(wrap("a  word", width)) == "aword"
