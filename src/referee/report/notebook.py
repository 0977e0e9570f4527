"""What does a notebook cell show of a record? Its report as a fragment of HTML that leaves the page around it alone."""

from __future__ import annotations

import re
from collections.abc import Iterable

from referee.records.document import Block, Heading
from referee.records.schema import Record
from referee.report.compose import compose
from referee.report.html import render_blocks, style_sheet
from referee.report.svg import text

_SCOPE = ".referee"

_WHOLE_PAGE = frozenset({":root", "body", "main"})
"""Selectors that mean the page in a page of its own, and the fragment here."""

_OWN = f"{_SCOPE} {{ max-width: 960px; margin: 0; padding: 12px 16px; border-radius: 6px; }}"

_FOLDED = "Provenance"
"""The section that is folded: it is there with every number, and longer than all the rest."""

_RULE = re.compile(r"([^{}]+)(\{[^{}]*\})")
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


def render_notebook(record: Record) -> str:
    """The report of ``record`` as one ``<div>`` with its style; its provenance can be unfolded."""
    document = compose(record)
    shown, folded = _split(document.blocks)
    parts = [f"<h1>{text(document.title)}</h1>", *render_blocks(shown)]
    if folded:
        parts += [f"<details><summary>{_FOLDED}</summary>", *render_blocks(folded), "</details>"]
    body = "\n".join(parts)
    return f'<style>\n{scoped_style()}\n</style>\n<div class="{_SCOPE[1:]}">\n{body}\n</div>\n'


def scoped_style() -> str:
    """The style sheet of the reports, each of its rules for what lies inside the fragment alone."""
    return _RULE.sub(_scoped, _COMMENT.sub("", style_sheet())) + _OWN


def _scoped(rule: re.Match[str]) -> str:
    selectors = [one.strip() for one in rule[1].split(",")]
    inside = (_SCOPE if one in _WHOLE_PAGE else f"{_SCOPE} {one}" for one in selectors)
    return f"\n{', '.join(inside)} {rule[2]}"


def _split(blocks: Iterable[Block]) -> tuple[list[Block], list[Block]]:
    """What is shown at once, and what stands under the heading that is folded."""
    shown: list[Block] = []
    folded: list[Block] = []
    hidden = False
    for block in blocks:
        if isinstance(block, Heading) and block.level <= 2:
            hidden = block.text == _FOLDED
            if hidden:
                continue
        (folded if hidden else shown).append(block)
    return shown, folded
