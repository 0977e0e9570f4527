"""The page on the records' keys names every key that there is, and no other."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from referee.records.compare import Comparison, Pair, Side
from referee.records.measurement import Clocks, Fit, Measurement, Sweep, SweepPoint, Warmup
from referee.records.verify import Verification

PAGE = Path(__file__).resolve().parents[2] / "docs" / "measuring.md"
SECTIONS = {
    "Measurement": Measurement,
    "Clocks": Clocks,
    "Warm-up": Warmup,
    "Sweep": Sweep,
    "Point of a sweep": SweepPoint,
    "Law of a sweep": Fit,
    "Comparison": Comparison,
    "Side of a comparison": Side,
    "Pair of a comparison": Pair,
    "Verification": Verification,
}


@pytest.mark.parametrize("title", SECTIONS)
def test_each_table_has_the_fields_of_its_record_in_their_order(title: str) -> None:
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(f"\n## {title}: ")
    section, _, _ = rest.partition("\n## ")
    rows = re.findall(r"^\| `(\w+)` \|([^|]*)\|", section, flags=re.MULTILINE)
    assert [name for name, _ in rows] == [field.name for field in fields(SECTIONS[title])]
    for name, unit in rows:
        assert (unit.strip() == "ns") == name.endswith("_ns"), name
        assert (unit.strip() == "share") == (name.endswith("_frac") or name == "ci_level"), name
