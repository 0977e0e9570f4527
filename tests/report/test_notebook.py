"""A record as the value of a notebook cell: its report, apart from the page around it."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from referee.records.schema import KINDS, Record
from referee.records.shown import Shown
from referee.report.notebook import scoped_style

from .live_samples import COMPARISON, MEASUREMENT, SHAPES, SWEEP, VERIFICATION

RECORDS = (MEASUREMENT, SWEEP, COMPARISON, VERIFICATION, SHAPES)
_VOID = frozenset({"meta", "br", "hr", "img", "input", "line", "rect", "circle", "polyline"})


class _Nesting(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in _VOID:
            assert self.open.pop() == tag


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_the_fragment_is_whole_and_brings_no_page(record: Record) -> None:
    assert isinstance(record, Shown)
    fragment = record._repr_html_()
    read = _Nesting()
    read.feed(fragment)
    assert read.open == []
    assert not {"html", "head", "body", "main", "script", "link", "iframe"} & set(read.seen)
    assert fragment.count("<details>") == 1
    assert "src=" not in fragment
    assert "url(" not in fragment


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_what_the_user_wrote_is_text(record: Record) -> None:
    hostile = replace(record, name="<script>alert(1)</script>\"'&")  # type: ignore[type-var]
    fragment = hostile._repr_html_()  # type: ignore[union-attr]
    assert "<script" not in fragment
    assert "&lt;script&gt;" in fragment


def test_every_rule_of_the_style_is_for_the_fragment_alone() -> None:
    rules = [selector.strip() for selector, _ in re.findall(r"([^{}]+)\{([^{}]*)\}", scoped_style())]
    assert len(rules) > 50
    for rule in rules:
        assert all(one.strip().startswith(".referee") for one in rule.split(",")), rule


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_the_line_holds_no_samples(record: Record) -> None:
    assert len(repr(record)) < 600
    assert "\n" not in repr(record)


def test_each_kind_that_the_interface_returns_is_shown() -> None:
    kinds = {kind for _, kind in KINDS.values()}
    assert {type(record) for record in RECORDS} <= kinds
