"""Does a claim hold? Its number, and every part of it that states a figure, against the ranges that it states.

One rule for all rows: a claim differs if any part of it does, cannot be told if any part cannot, and holds otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from referee.lab.claims import METHODS, Claim
from referee.lab.claims.claim import MORE_THAN_NOTHING, bounded
from referee.lab.laboratory import Part, Reading
from referee.records.finding import Scalar
from referee.records.lab import LabPart, LabRow, Outcome
from referee.units import format_apart, format_quantity

_Side = Literal["within", "below", "above", "open"]


def judge(claim: Claim, reading: Reading, *, basis: Any) -> LabRow:
    """Each figure holds with its whole interval in the range, differs with its whole interval outside.

    An interval with a bound inside leaves open on which side the figure lies, wherever its middle is. What decided is
    told first. A claim that no number of ours could confirm or refute is left open with its reason.
    """
    side: _Side = "open" if claim.undecided else _side(reading.low, reading.high, claim.low, claim.high)
    words: list[str] = []
    if side == "below":
        words.append(_sentence(_distance(reading, claim.low, claim.unit, side, claim.below)))
    elif side == "above":
        words.append(_sentence(_distance(reading, claim.high, claim.unit, side, claim.above)))
    elif side == "open":
        words.append(_sentence(claim.undecided or _left_open(reading, claim.low, claim.high, claim.unit)))
    sides = [side]
    for part in reading.parts:
        sides.append(_of_part(part))
        if sides[-1] != "within":
            words.append(_about(part, sides[-1]))
    words += [*filter(None, [reading.note]), *_among_traces(claim, reading)]
    low, high = claim.bounds
    outcome = _together(sides)
    common = _common(claim, recorded=basis == "recorded", untested=reading.untested)
    common["teaches"] = _teaching(claim, outcome, reading.teaches)
    return LabRow(
        **common,
        measured=reading.value,
        low=reading.low,
        high=reading.high,
        outcome=outcome,
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
        outcome=_together([_of_part(part)]),
        measured=part.value,
        low=part.low,
        high=part.high,
        unit=part.unit,
        counted=part.counted,
        claimed_low=low,
        claimed_high=high,
    )


def _together(sides: list[_Side]) -> Outcome:
    if "below" in sides or "above" in sides:
        return "differs"
    return "cannot-tell" if "open" in sides else "holds"


def _teaching(claim: Claim, outcome: Outcome, computed: str) -> str:
    """What follows from the outcome; from none nothing follows but what would, if the claim held."""
    if outcome in ("holds", "differs"):
        return computed or (claim.teaches if outcome == "holds" else claim.otherwise)
    return f"Nothing yet: it is not settled here. If the claim holds: {claim.teaches}"


def _of_part(part: Part) -> _Side:
    return _side(part.low, part.high, part.claimed_low, part.claimed_high)


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
        return f"{name}: {_left_open(part, part.claimed_low, part.claimed_high, part.unit)}"
    bound = part.claimed_low if side == "below" else part.claimed_high
    return f"{name}: {_distance(part, bound, part.unit, side, part.below if side == 'below' else part.above)}"


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}"


def _left_open(found: Reading | Part, claimed_low: float, claimed_high: float, unit: str) -> str:
    """Why the side is open: the interval has values on both sides of a bound, with digits enough to tell them apart."""
    if found.low is None or found.high is None:
        return "it could not be measured."
    words = []
    for bound, name, outside, other in (
        (claimed_low, "least", found.low, found.high),
        (claimed_high, "most", found.high, found.low),
    ):
        if claimed_low <= outside <= claimed_high:
            continue
        end, limit = format_apart(outside, 0.0 if bound == MORE_THAN_NOTHING else bound, unit)
        side, opposite = ("below", "upper") if name == "least" else ("above", "lower")
        words.append(
            f"the interval, which has its end at {end}, lies {side} the claim's {name}, {limit}, but for its "
            f"{opposite} end"
            if other == bound
            else f"the interval, with an end at {end}, has values on both sides of the claim's {name}, {limit}"
        )
    return f"{'; '.join(words)}."


def _among_traces(claim: Claim, reading: Reading) -> list[str]:
    """What a median over traces hides: how many of them lie outside of the range, and which is the farthest."""
    if len(reading.each) < 2 or claim.undecided:
        return []
    ordered = sorted(reading.each, key=lambda one: one[1])
    outside = [one for one in ordered if not claim.low <= one[1] <= claim.high]
    ends = [f"{format_quantity(value, claim.unit)} ({name})" for name, value in (ordered[0], ordered[-1])]
    count = f"{len(outside)} of the" if outside else "None of the"
    lie = "lie outside of the range by themselves" if len(outside) > 1 else "lies outside of the range by itself"
    return [f"{count} {len(ordered)} traces {lie}; the least is {ends[0]}, the most {ends[1]}."]


def _distance(found: Reading | Part, bound: float, unit: str, side: str, likely: str) -> str:
    """How a figure lies outside: by the end of its interval that is nearest to the range."""
    outside = (found.high if side == "below" else found.low) or 0.0
    if bound == MORE_THAN_NOTHING:
        return f"{format_quantity(outside, unit)} is not more than nothing."
    end, limit = format_apart(outside, bound, unit)
    near = end if found.low == found.high else f"even the near end of the interval, {end},"
    words = f"{near} is {side} the {limit} that the claim allows"
    return f"{words}. A possible reason, not tested: {likely}." if likely else f"{words}."


def without(claim: Claim, outcome: Outcome, why: str) -> LabRow:
    """A row that has no number, and the reason."""
    low, high = claim.bounds
    common = _common(claim)
    common["teaches"] = _teaching(claim, outcome, "")
    return LabRow(
        **common,
        measured=None,
        low=None,
        high=None,
        outcome=outcome,
        claimed_low=low,
        claimed_high=high,
        why=why,
    )


def _common(claim: Claim, *, recorded: bool = False, untested: Mapping[str, str] | None = None) -> dict[str, Any]:
    method = METHODS[claim.id]
    left = {**(untested or {}), **method.untested}
    return {
        "id": claim.id,
        "claimed": claim.claimed,
        "measures": (claim.measures_recorded if recorded else "") or claim.measures,
        "unit": claim.unit,
        "contradiction": claim.contradiction,
        "how": method.told(recorded=recorded),
        "range_from": method.range_from,
        "untested": "; ".join(f"{name} ({why})" for name, why in left.items()) + "." * bool(left),
        "untested_parts": tuple(left),
    }
