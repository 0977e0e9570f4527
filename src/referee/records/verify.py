"""Does the number hold here? A saved measurement beside the same measurement made again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from referee.records.finding import Finding
from referee.records.measurement import Measurement
from referee.records.provenance import Difference, Provenance
from referee.records.shown import Shown

VerifyAnswer = Literal["reproduced", "not-reproduced", "not-comparable", "cannot-tell"]


@dataclass(frozen=True, kw_only=True, repr=False)
class Verification(Shown):
    """The outcome (schema ``referee.verify/1``): time here / time saved, and the tolerance it is held against.

    ``ratio`` compares the floors where both have one, which is what load disturbs least, else the medians.
    ``differences`` is what differs between the two provenances among the keys that must agree.
    """

    name: str
    answer: VerifyAnswer
    why: str
    ratio: float | None
    ci_low: float | None
    ci_high: float | None
    tolerance_frac: float
    saved: Measurement
    again: Measurement
    differences: tuple[Difference, ...]
    provenance: Provenance
    findings: tuple[Finding, ...] = ()
    core_clock_ratio: float | None = None
    """What a fixed chain of instructions took, here / then: above 1 the core itself ran slower here."""
    ratio_at_one_clock: float | None = None
    """``ratio`` as if the core had run at one clock, of the floors; ``None`` where either record does not tell."""
    schema: str = "referee.verify/1"

    def __repr__(self) -> str:
        """The answer with its reason in a line, and the findings that limit it: no samples."""
        codes = ", ".join(dict.fromkeys(finding.code for finding in self.findings))
        return f"{self.name}: {self.answer}, {self.why}" + (f"; findings: {codes}" if codes else "")
