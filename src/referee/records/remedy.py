"""Which fixes pay here? Each was applied, its outputs held against eager, and timed beside it; or why it was not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from referee.records.compare import Answer
from referee.records.finding import Finding, Scalar
from referee.records.provenance import Provenance


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What a fix was expected to do before it was tried: a range of time after / time before, and its basis.

    ``measure_it`` names the operators whose own computation the fix replaces, where they take so much of the time
    that counting operators and bytes cannot say what comes out.
    """

    low: float
    high: float
    basis: str
    measure_it: tuple[str, ...] = ()
    middle: float | None = None

    @property
    def ratio(self) -> float:
        """The likeliest ratio; where none was named the geometric mean of the range, as ratios multiply."""
        if self.middle is not None:
            return self.middle
        return float((max(self.low, 1e-9) * max(self.high, 1e-9)) ** 0.5)


@dataclass(frozen=True, kw_only=True)
class OutputCheck:
    """What came of holding the fixed step against eager, from the same weights, inputs and random numbers.

    ``tolerance`` says in words what was allowed, ``differences`` what was found beyond it (nothing where it matches);
    what was beyond it by rounding alone, as float64 shows, stands in ``notes`` with the figures;
    ``worst_*`` the largest relative error by norm, ``None`` where there was nothing of that kind.
    """

    match: bool | None
    tolerance: str
    differences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    worst_output: float | None = None
    worst_gradient: float | None = None
    worst_update: float | None = None


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What one call does: calls of operators (not known of compiled code), fused kernels, allocations."""

    operators: int | None
    kernels: int | None
    allocations: int | None
    allocated_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class FixTried:
    """One fix. Ratios are time with the fix / time without it, per item where the batch differs: below 1 it is faster.

    ``applied``: it could be applied and ran. ``outputs_match`` is ``None`` where the outputs could not be compared
    (another batch). A fix whose outputs differ is not timed: ``why_not`` says what differs. ``pays_after_steps`` is
    after how many steps all that was spent before the step was steady has been won back; ``None`` where nothing is
    compiled or nothing is gained. ``settled_at_call``: the first call that takes what later ones take.
    ``pairs``: on how many undisturbed pairs the measured ratio stands; one has no interval.
    ``inside_range``: the measured ratio lies in the predicted range. ``error_frac``: measured / predicted - 1.
    """

    name: str
    title: str
    how: str
    attacks: str
    applied: bool
    outputs_match: bool | None = None
    predicted_ratio: float | None = None
    predicted_low: float | None = None
    predicted_high: float | None = None
    predicted_basis: str = ""
    measure_it: tuple[str, ...] = ()
    measured_ratio: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    pairs: int | None = None
    answer: Answer | None = None
    error_frac: float | None = None
    inside_range: bool | None = None
    why_not: str = ""
    eager_ns: float | None = None
    fixed_ns: float | None = None
    first_call_ns: int | None = None
    settled_at_call: int | None = None
    pays_after_steps: int | None = None
    check: OutputCheck | None = None
    before: Counts | None = None
    after: Counts | None = None
    notes: tuple[str, ...] = ()
    evidence: Mapping[str, Scalar] = field(default_factory=dict)

    @property
    def gained(self) -> bool:
        """It was measured to be faster, and its outputs did not differ."""
        return self.answer == "faster" and self.outputs_match is not False


@dataclass(frozen=True, kw_only=True)
class RemedyReport:
    """The fixes of one target (schema ``referee.remedy/1``), those measured faster first, the rest in order tried."""

    name: str
    fixes: tuple[FixTried, ...]
    provenance: Provenance
    findings: tuple[Finding, ...] = ()
    schema: str = "referee.remedy/1"


def ranked(fixes: tuple[FixTried, ...]) -> tuple[FixTried, ...]:
    """The measured gains first, largest first; then what was measured without gain; then what was not applied."""

    def place(fix: FixTried) -> tuple[int, float]:
        if fix.gained:
            return 0, fix.measured_ratio or 1.0
        return (1, fix.measured_ratio or 1.0) if fix.measured_ratio is not None else (2, 0.0)

    return tuple(sorted(fixes, key=place))
