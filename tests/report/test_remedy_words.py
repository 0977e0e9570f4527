"""What is said over a report of fixes of which none is known to pay."""

from __future__ import annotations

from dataclasses import replace

import pytest

from referee.records.document import Headline, Table
from referee.records.remedy import FixTried
from referee.report.remedy import compose_remedy

from .live_samples import PROVENANCE
from .remedy_samples import remedy_report

GAINED, REJECTED, SENSELESS = remedy_report(PROVENANCE).fixes
SLOWER = replace(GAINED, name="slow", answer="slower", measured_ratio=1.4)
OPEN = replace(GAINED, name="open", answer="cannot-tell")
UNTIMED = replace(GAINED, name="untimed", answer=None, measured_ratio=None)


@pytest.mark.parametrize(
    ("fixes", "sentence"),
    [
        ((SENSELESS,), "No fix was tried."),
        ((SLOWER,), "1 fix was tried."),
        ((SLOWER, REJECTED, SENSELESS), "2 were tried."),
        ((SLOWER, OPEN, UNTIMED, REJECTED), "4 were tried; of open, untimed it cannot be told."),
    ],
)
def test_the_headline_counts_what_was_tried_and_names_what_stays_open(
    fixes: tuple[FixTried, ...], sentence: str
) -> None:
    report = replace(remedy_report(PROVENANCE), fixes=fixes)
    headline = compose_remedy(report).blocks[0]
    assert isinstance(headline, Headline)
    assert (headline.figure, headline.sentence) == ("No fix paid", sentence)


@pytest.mark.parametrize(
    ("pairs", "high", "words"), [(1, 0.69, "one pair only, no interval"), (9, 0.69, "0.690 to 0.690")]
)
def test_a_single_pair_has_no_interval(pairs: int, high: float, words: str) -> None:
    fix = replace(GAINED, pairs=pairs, ci_low=0.69, ci_high=high)
    blocks = compose_remedy(replace(remedy_report(PROVENANCE), fixes=(fix,))).blocks
    table = next(block for block in blocks if isinstance(block, Table))
    assert words in table.rows[0]
