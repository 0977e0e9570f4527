"""What does a further tensor argument cost? The call as a whole, and the key set alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from math import ceil, floor, inf
from statistics import median
from typing import Any

from referee.anatomy.stages import FURTHER_TENSORS
from referee.anatomy.timing import Pair
from referee.errors import CannotTell
from referee.lab.claims.claim import MORE_THAN_NOTHING
from referee.lab.eager import call
from referee.lab.key_set import KeySet
from referee.lab.laboratory import Laboratory, Part, Reading, in_turn, many, told
from referee.records.finding import Scalar
from referee.units import format_frac, format_ns

_DIGITS = 2
"""Of a nanosecond: a clock around blocks tells no more of so short a time. The interval is rounded outwards."""

_MOSTLY = 0.5
"""More than half."""


def per_argument(lab: Laboratory) -> Reading:
    """E20. Operators of one and of three tensors that compute next to nothing; beside it the arguments alone."""
    torch = lab.operators
    names = {"a": torch.randn(1)}
    no_grad: Callable[[], AbstractContextManager[Any]] = torch.no_grad
    one, three = (call(lab, source, context=no_grad, **names) for source in ("t.neg(a)", "t.addcmul(a, a, a)"))
    (found,) = lab.pairs((Pair("two more arguments", three, one),))
    alone, whole = _key_set_alone(lab), found.point / 2
    part, note, teaches = alone.part, alone.note, ""
    if found.low > 0:
        teaches = f"A further tensor adds {format_ns(whole)} to a call; what of that is its key set is not settled."
    if part.value is not None and part.low is not None and part.low > 0 and found.low > 0:
        share = part.value / whole
        rest = " The rest is what else an argument costs: parsing, checks, set-up." if share < _MOSTLY else ""
        note = told(note, f"That is {format_frac(share)} of the {format_ns(whole)} of a whole argument.{rest}")
        teaches = (
            f"A further tensor adds {format_ns(whole)} to a call; {format_ns(part.value)} of that is the key set, "
            f"which grows with the arguments and {'is little beside the rest' if share < _MOSTLY else 'is most of it'}."
        )
    figures: dict[str, Scalar] = {} if part.value is None else {"key_set_alone_ns": part.value}
    return Reading(
        teaches=teaches,
        value=whole,
        low=found.low / 2,
        high=found.high / 2,
        note=note,
        figures=figures,
        parts=(part,),
        taken="; ".join(filter(None, (in_turn(found), alone.taken))),
    )


@dataclass(frozen=True, kw_only=True)
class _Alone:
    """The key set as a part of the claim, what is to be told of it, and how often it was taken."""

    part: Part
    note: str = ""
    taken: str = ""


def _key_set_alone(lab: Laboratory) -> _Alone:
    """What each further tensor adds, with an interval that covers all makings and what equal calls differ by."""
    part = Part(name="the key set alone", claimed_low=MORE_THAN_NOTHING, claimed_high=inf)
    try:
        made = lab.key_sets(lab.device, 3 * lab.plan.budget_ns)
    except CannotTell:
        made = ()
    if not made:
        return _Alone(part=part)
    each = [one.further for one in made]
    apart = max(abs(end) for one in made for end in (one.equal.low, one.equal.high))
    value = round(median(one.point for one in each) / FURTHER_TENSORS, _DIGITS)
    low = floor((min(one.low for one in each) - apart) / FURTHER_TENSORS * 10**_DIGITS) / 10**_DIGITS
    high = ceil((max(one.high for one in each) + apart) / FURTHER_TENSORS * 10**_DIGITS) / 10**_DIGITS
    least = min(one.n for one in each)
    return _Alone(
        part=replace(part, value=value, low=low, high=high),
        note=told(_raw(made, value, apart), _cycle(lab, value)),
        taken=f"of the key set {many(len(made), 'making')}, each {least:,} blocks of each, in turn, or more",
    )


def _raw(made: Sequence[KeySet], value: float, apart: float) -> str:
    """The two raw times, the figure of each making, and what two equal calls differ by."""
    one, eight = median(each.one.point for each in made), median(each.eight.point for each in made)
    singles = ", ".join(f"{each.further.point / FURTHER_TENSORS:.2g}" for each in made)
    return (
        f"A call that computes nothing takes {one:.4g} ns with one tensor and {eight:.4g} ns with "
        f"{1 + FURTHER_TENSORS}, each in the median of {many(len(made), 'making')}. Their difference, timed as a "
        f"pair of its own, is {singles} ns in these for each of the {FURTHER_TENSORS} further tensors, "
        f"{value:.2g} ns in the median. Two equal calls differ by up to {apart:.2g} ns, which would be "
        f"{apart / FURTHER_TENSORS:.2g} ns each."
    )


def _cycle(lab: Laboratory, value: float) -> str:
    """Whether that is less than a cycle of the core: it can be, because several steps run in one."""
    mhz = lab.cpu_mhz()
    if not mhz or not 0 < value < 1_000 / mhz:
        return ""
    return (
        f"A cycle of this core takes {1_000 / mhz:.2g} ns. Less than that for a tensor is possible, because a core "
        "does several such steps in one; it is at the limit of what a clock around blocks of calls can tell."
    )
