"""The pages on the records' keys name every key that there is, and no other."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from referee.records.anatomy import Anatomy, AnatomySurvey, Stage, SurveyRow
from referee.records.compare import Comparison, Pair, Side
from referee.records.measurement import Clocks, CoreClock, Fit, Measurement, Sweep, SweepPoint, Warmup
from referee.records.verify import Verification

DOCS = Path(__file__).resolve().parents[2] / "docs"
MEASURING: dict[str, type] = {
    "Measurement": Measurement,
    "Clocks": Clocks,
    "Core clock": CoreClock,
    "Warm-up": Warmup,
    "Sweep": Sweep,
    "Point of a sweep": SweepPoint,
    "Law of a sweep": Fit,
    "Comparison": Comparison,
    "Side of a comparison": Side,
    "Pair of a comparison": Pair,
    "Verification": Verification,
}
ANATOMY: dict[str, type] = {
    "Anatomy": Anatomy,
    "Stage": Stage,
    "Survey": AnatomySurvey,
    "Row of a survey": SurveyRow,
}
SECTIONS = [("measuring.md", *item) for item in MEASURING.items()]
SECTIONS += [("anatomy.md", *item) for item in ANATOMY.items()]


@pytest.mark.parametrize(("page", "title", "record"), SECTIONS)
def test_each_table_has_the_fields_of_its_record_in_their_order(page: str, title: str, record: type) -> None:
    _, _, rest = (DOCS / page).read_text(encoding="utf-8").partition(f"\n## {title}: ")
    section, _, _ = rest.partition("\n## ")
    rows = re.findall(r"^\| `(\w+)` \|([^|]*)\|", section, flags=re.MULTILINE)
    assert [name for name, _ in rows] == [field.name for field in fields(record)]
    for name, unit in rows:
        assert (unit.strip() == "ns") == (name == "ns" or name.endswith("_ns")), name
        assert (unit.strip() == "share") == (name.endswith("_frac") or name == "ci_level"), name
