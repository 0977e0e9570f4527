"""Does a claim hold? Its number, and every part of it that states a figure, against the ranges that it states.

One rule for all rows: a claim differs if any part of it does, cannot be told if any part cannot, and holds otherwise.
"""

from __future__ import annotations

from typing import Any, Literal

from referee.lab.claims import METHODS, Claim
from referee.lab.claims.claim import bounded
from referee.lab.laboratory import Part, Reading
from referee.records.finding import Scalar
from referee.records.lab import LabPart, LabRow, Outcome
from referee.units import format_apart

_Side = Literal["within", "below", "above", "open"]


def judge(claim: Claim, reading: Reading, *, basis: Any) -> LabRow:
    """Each figure holds with its whole interval in the range, differs with its whole interval outside.

    An interval with a bound inside leaves open on which side the figure lies, wherever its middle is.
    """
    side = _side(reading.low, reading.high, claim.low, claim.high)
    words = [reading.note] if reading.note else []
    if side == "below":
        words.append(_sentence(_distance(reading, claim.low, claim.unit, side, claim.below)))
    elif side == "above":
        words.append(_sentence(_distance(reading, claim.high, claim.unit, side, claim.above)))
    elif side == "open":
        words.append(f"The interval {_across(reading.low, reading.high, claim.low, claim.high, claim.unit)}.")
    sides = [side]
    for part in reading.parts:
        sides.append(_side(part.low, part.high, part.claimed_low, part.claimed_high))
        if sides[-1] != "within":
            words.append(_about(part, sides[-1]))
    low, high = claim.bounds
    return LabRow(
        **_common(claim, recorded=basis == "recorded", untested=reading.untested),
        measured=reading.value,
        low=reading.low,
        high=reading.high,
        outcome=_together(sides),
        claimed_low=low,
        claimed_high=high,
        why=" ".join(words),
        basis=basis,
        sources=reading.sources,
        figures=dict[str, Scalar](reading.figures) or None,
        taken=reading.taken,
        parts=tuple(_judged(part) for part in reading.parts),
    )


def _judged(part: Part) -> LabPart:
    low, high = bounded(part.claimed_low, part.claimed_high)
    return LabPart(
        name=part.name,
        outcome=_together([_side(part.low, part.high, part.claimed_low, part.claimed_high)]),
        measured=part.value,
        low=part.low,
        high=part.high,
        unit=part.unit,
        claimed_low=low,
        claimed_high=high,
    )


def _together(sides: list[_Side]) -> Outcome:
    if "below" in sides or "above" in sides:
        return "differs"
    return "cannot-tell" if "open" in sides else "holds"


def _side(low: float | None, high: float | None, claimed_low: float, claimed_high: float) -> _Side:
    if low is None or high is None:
        return "open"
    if high < claimed_low:
        return "below"
    if low > claimed_high:
        return "above"
    return "within" if claimed_low <= low and high <= claimed_high else "open"


def _about(part: Part, side: _Side) -> str:
    """A part that does not hold, in a sentence that names it."""
    name = _sentence(part.name)
    if part.value is None or part.low is None or part.high is None:
        return f"{name}, which the claim gives a figure for, could not be measured."
    if side == "open":
        across = _across(part.low, part.high, part.claimed_low, part.claimed_high, part.unit)
        return f"{name}: the interval {across}."
    bound = part.claimed_low if side == "below" else part.claimed_high
    return f"{name}: {_distance(part, bound, part.unit, side, part.below if side == 'below' else part.above)}"


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}"


def _across(low: float, high: float, claimed_low: float, claimed_high: float, unit: str) -> str:
    """Which bound of the range an interval lies across, with digits enough to tell its end from the bound."""
    words = []
    if low < claimed_low:
        end, bound = format_apart(low, claimed_low, unit)
        reaches = "only reaches" if high == claimed_low else "reaches beyond"
        words.append(f"begins at {end}, below the least that the claim allows, and {reaches} that, {bound}")
    if high > claimed_high:
        end, bound = format_apart(high, claimed_high, unit)
        begins = "begins only at" if low == claimed_high else "begins below"
        words.append(f"ends at {end}, above the most that the claim allows, and {begins} that, {bound}")
    return "; it ".join(words)


def _distance(found: Reading | Part, bound: float, unit: str, side: str, likely: str) -> str:
    """How a figure lies outside: by the end of its interval that is nearest to the range."""
    outside = (found.high if side == "below" else found.low) or 0.0
    end, limit = format_apart(outside, bound, unit)
    near = end if found.low == found.high else f"even the near end of the interval, {end},"
    words = f"{near} is {side} the {limit} that the claim allows"
    return f"{words}; likely: {likely}." if likely else f"{words}."


def without(claim: Claim, outcome: Outcome, why: str) -> LabRow:
    """A row that has no number, and the reason."""
    low, high = claim.bounds
    return LabRow(
        **_common(claim),
        measured=None,
        low=None,
        high=None,
        outcome=outcome,
        claimed_low=low,
        claimed_high=high,
        why=why,
    )


def _common(claim: Claim, *, recorded: bool = False, untested: str = "") -> dict[str, Any]:
    method = METHODS[claim.id]
    return {
        "id": claim.id,
        "claimed": claim.claimed,
        "teaches": claim.teaches,
        "measures": (claim.measures_recorded if recorded else "") or claim.measures,
        "unit": claim.unit,
        "contradiction": claim.contradiction,
        "how": method.told(recorded=recorded),
        "range_from": method.range_from,
        "untested": " ".join(filter(None, (untested, method.untested))),
    }
