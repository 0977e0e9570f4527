"""Which one is faster? A comparison: the sides, the ratio of each against the first, and this run's own A/A floor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from referee.records.finding import Finding
from referee.records.measurement import Warmup
from referee.records.provenance import Difference, Provenance
from referee.records.shown import Shown

Answer = Literal["faster", "slower", "same", "cannot-tell"]


@dataclass(frozen=True, kw_only=True)
class Side:
    """One candidate: its own times per call from the blocks of the comparison, and where they come from.

    ``median_ns`` and ``floor_ns`` are for orientation: the answer stands on the paired ratios, or, where a finding
    says that the calls of a side differ by themselves, on the ratio of the medians.
    """

    name: str
    median_ns: float | None
    floor_ns: float | None
    blocks: int
    clean_blocks: int
    calls_per_block: int
    warmup: Warmup | None
    provenance: Provenance


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One candidate against the first: ratio time B / time A with its interval, the answer, and why.

    ``ratios`` are those of the undisturbed quads (of the pairs of processes, where each side ran in its own).
    ``differences`` is what else differs between the provenances.
    """

    name: str
    ratio: float | None
    ci_low: float | None
    ci_high: float | None
    answer: Answer
    why: str
    quads: int
    clean_quads: int
    n_eff: float
    floor_frac: float
    ratios: tuple[float, ...]
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison(Shown):
    """A comparison (schema ``referee.compare/1``). The ratio is time B / time A: below 1, B is faster.

    The first candidate is A. ``ratio``, ``ci_low``, ``ci_high`` and ``answer`` are those of the second against it
    (``pairs[0]``); further candidates follow in ``pairs``. ``aa_ratio_low`` and ``aa_ratio_high`` bound what this very
    run read for a side against itself. ``processes`` is how many processes each side ran in; 0: both in this one.
    """

    name: str
    ratio: float | None
    ci_low: float | None
    ci_high: float | None
    ci_level: float
    aa_ratio: float | None
    aa_ratio_low: float | None
    aa_ratio_high: float | None
    answer: Answer
    why: str
    sides: tuple[Side, ...]
    pairs: tuple[Pair, ...]
    stop_reason: str
    processes: int
    provenance: Provenance
    findings: tuple[Finding, ...] = ()
    schema: str = "referee.compare/1"

    def __repr__(self) -> str:
        """The answer for each candidate in a line, and the findings that limit it: no samples."""
        parts = [f"{pair.name}: {_in_words(pair)}" for pair in self.pairs]
        codes = ", ".join(dict.fromkeys(finding.code for finding in self.findings))
        return "; ".join([*parts, *([f"findings: {codes}"] if codes else [])])


def _in_words(pair: Pair) -> str:
    if pair.answer == "cannot-tell" or pair.ratio is None or pair.ci_low is None or pair.ci_high is None:
        return f"cannot tell ({pair.why})"
    return f"{pair.answer}, {pair.ratio:.3f}× the time ({pair.ci_low:.3f} to {pair.ci_high:.3f})"
