"""What does one eager operator cost? The timed claims: hot and cold, with a tape and without, argument by argument."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from math import inf
from typing import Any

from referee.anatomy.stages import LAYERS
from referee.anatomy.tape import read_tape
from referee.anatomy.timing import Pair, Timed, time_pairs
from referee.errors import CannotTell
from referee.lab.claims.claim import RESOLVED_NS, US
from referee.lab.claims.diagnosing import BARELY
from referee.lab.claims.operators import AT_ONCE_FRAC, CONTENTION_NS, PIPELINE_US, REFERENCES
from referee.lab.laboratory import Laboratory, Part, Reading, estimated, in_turn, spread
from referee.lab.measuring import timed
from referee.records.anatomy import Variant
from referee.records.finding import Scalar
from referee.units import format_bytes, format_frac, format_ns, format_ratio

_THOUSAND = 1_000
_CYCLE_NS = 0.2
"""One cycle of a core at 5 GHz, which is faster than most run."""


def call(lab: Laboratory, source: str, **names: Any) -> Timed:
    """An expression over ``t``, which stands for torch, and ``names``; ``context`` is what it runs in."""
    context = names.pop("context", nullcontext)
    return Timed(source, {"t": lab.operators, **names}, context)


def amid_others(lab: Laboratory) -> Reading:
    """E1. An add with a tape, between other operators; beside it each stage of the course's list."""
    found = _hot_and_cold(lab)[1]
    stages = _stages(lab)
    figures: dict[str, Scalar] = {f"{name} (ns)": part.value for name, part in stages.items() if part.value is not None}
    jump = stages["keys and jump"]
    note = ""
    if jump.low is not None and jump.low <= 0:
        note = "Keys and jump is too short for this clock: its interval reaches zero."
    return replace(found, note=note, figures=figures, parts=tuple(stages.values()))


_COURSE_NAMES = dict(
    zip(
        LAYERS,
        (
            "Python and the C boundary",
            "parsing and overloads",
            "keys and jump",
            "autograd node",
            "allocator hit",
            "shapes and strides",
            "kernel",
        ),
        strict=True,
    )
)
"""The course's name for each layer of the anatomy. Binding and parsing are one layer there, and told apart below."""


def _stages(lab: Laboratory) -> dict[str, Part]:
    """The anatomy's stages added up under the course's names; a CPU has no launch."""
    found = {
        name: Part(name=name, claimed_low=low * US, claimed_high=high * US)
        for name, (low, high) in PIPELINE_US.items()
        if name != "launch"
    }
    for stage in lab.anatomy().stages:
        name = "parsing and overloads" if stage.name == "argument parsing" else _COURSE_NAMES[stage.layer]
        if (part := found.get(name)) is not None:
            found[name] = replace(
                part,
                value=(part.value or 0.0) + stage.ns,
                low=(part.low or 0.0) + stage.ci_low_ns,
                high=(part.high or 0.0) + stage.ci_high_ns,
            )
    return found


def hot_against_cold(lab: Laboratory) -> Reading:
    """E19."""
    hot, cold = _hot_and_cold(lab)
    if hot.low <= 0:
        raise CannotTell("The hot figure cannot be told from nothing.")
    figures: dict[str, Scalar] = {"hot_ns": hot.value, "cold_ns": cold.value}
    return Reading(
        value=cold.value / hot.value,
        low=cold.low / hot.high,
        high=cold.high / hot.low,
        note=f"Hot {format_ns(hot.value)}, cold {format_ns(cold.value)}.",
        figures=figures,
        taken=f"hot {hot.taken}; cold {cold.taken}",
    )


def _hot_and_cold(lab: Laboratory) -> tuple[Reading, Reading]:
    """Taken once for both claims that need it."""
    if "hot and cold" not in lab.kept:
        a = lab.operators.randn(8, requires_grad=True)
        pair = Pair("add", call(lab, "t.add(a, a)", a=a))
        budget_ns = 3 * lab.plan.budget_ns
        (cost,) = time_pairs([pair], device=lab.device, budget_ns=budget_ns, mix=lab.mix(), cold_frac=0.7)
        if cost.cold is None:
            raise CannotTell("The cold figure could not be taken.")
        lab.kept["hot and cold"] = (estimated(cost.hot), estimated(cost.cold))
    hot, cold = lab.kept["hot and cold"]
    return hot, cold


def thousand(lab: Laboratory) -> Reading:
    """E3. At two sizes that both are small, so that what does not depend on the size is seen."""
    small, larger = lab.operators.randn(16), lab.operators.randn(256)

    def chain(x: Any) -> Callable[[], Any]:
        def step() -> Any:
            y = x
            for _ in range(_THOUSAND):
                y = lab.operators.add(y, x)
            return y

        return step

    first, second = timed(lab.time(chain(small))), timed(lab.time(chain(larger)))
    part = Part(
        name="with sixteen times the elements, over that",
        value=second.value / first.value,
        low=second.low / first.high,
        high=second.high / first.low,
        claimed_low=1 / BARELY,
        claimed_high=BARELY,
        unit="ratio",
    )
    figures: dict[str, Scalar] = {"16_elements_ns": first.value, "256_elements_ns": second.value}
    each, of_larger = (format_ns(found.value / _THOUSAND) for found in (first, second))
    note = f"{each} an operator on 16 elements, {of_larger} on 256."
    return replace(first, note=note, figures=figures, parts=(part,))


def tape_cost(lab: Laboratory) -> Reading:
    """E14."""
    torch = lab.operators
    model = torch.nn.Sequential(*(m for _ in range(4) for m in (torch.nn.Linear(64, 64), torch.nn.ReLU())))
    few = torch.randn(8, 64)
    names = {"m": model, "x": few}
    small = lab.excess(Timed("m(x)", names), Timed("m(x)", names, torch.no_grad))
    names = {"m": torch.nn.Linear(512, 512), "x": torch.randn(64, 512)}
    large = lab.excess(Timed("m(x)", names), Timed("m(x)", names, torch.no_grad))
    note = f"One layer of 512 on 64 rows takes {format_frac(large.value)} longer ({spread(large)})."
    kept = _kept_bytes(model(few), few, model)
    if kept is not None:
        note += f" The tape of the small layers holds {format_bytes(kept)} until backward or until its output dies."
    return replace(small, note=note, figures={**small.figures, "larger_frac": large.value, "tape_bytes": kept})


def _kept_bytes(output: Any, x: Any, model: Any) -> int | None:
    """What the tape behind ``output`` holds beside parameters; ``None`` where there is none to read."""
    if getattr(output, "grad_fn", None) is None:
        return None
    return read_tape(output, inputs=(x,), parameters=model.parameters()).saved_bytes


def per_argument(lab: Laboratory) -> Reading:
    """E20. Operators of one and of three tensors that compute next to nothing; beside it the arguments alone."""
    torch = lab.operators
    names = {"a": torch.randn(1)}
    no_grad: Callable[[], AbstractContextManager[Any]] = torch.no_grad
    one, three = (call(lab, source, context=no_grad, **names) for source in ("t.neg(a)", "t.addcmul(a, a, a)"))
    (found,) = lab.pairs((Pair("two more arguments", three, one),))
    anatomy = lab.anatomy()
    alone, low, high = anatomy.per_tensor_ns, anatomy.per_tensor_low_ns, anatomy.per_tensor_high_ns
    note = "" if alone is None else f"Of that {format_ns(alone)} for the key set alone, by calls that compute nothing."
    if high is not None and high < _CYCLE_NS:
        note += f" That is less than a core's clock cycle ({format_ns(_CYCLE_NS)} at 5 GHz): no cost that shows."
    figures: dict[str, Scalar] = {} if alone is None else {"key_set_alone_ns": alone}
    part = Part(name="the key set alone", value=alone, low=low, high=high, claimed_low=RESOLVED_NS, claimed_high=inf)
    return Reading(
        value=found.point / 2,
        low=found.low / 2,
        high=found.high / 2,
        note=note,
        figures=figures,
        parts=(part,),
        taken=in_turn(found),
    )


def saving(lab: Laboratory) -> Reading:
    """E21. What a tape adds to mul, which saves two tensors, less what it adds to add, which saves none."""
    torch = lab.operators
    a = torch.randn(8, requires_grad=True)

    def beyond(name: str) -> Pair:
        source = f"t.{name}(a, a)"
        return Pair(name, call(lab, source, a=a), call(lab, source, a=a, context=torch.no_grad))

    mul, add = lab.pairs((beyond("mul"), beyond("add")))
    ways = [v for v in lab.anatomy().variants if v.group == REFERENCES and v.ns is not None]
    shared = {v.name: v.ns for v in ways}
    note = ""
    if shared:
        parts = ", ".join(f"{format_ns(ns)} from {name}" for name, ns in shared.items())
        note = f"One reference copied and dropped: {parts}."
        note += _of_saving(mul.point - add.point, shared.get("one thread"))
    if (times := _in_turn(ways)) is not None:
        note += f" The two threads ran in turn and not at once: with a tensor each they took {format_ratio(times)} the "
        note += "time of one, so that nothing was contended for. It takes two idle cores."
    figures: dict[str, Scalar] = {"mul_ns": mul.point, "add_ns": add.point, **shared}
    return Reading(
        value=mul.point - add.point,
        low=mul.low - add.high,
        high=mul.high - add.low,
        note=note,
        figures=figures,
        parts=(_contention(ways),),
        taken=in_turn(mul),
    )


def _of_saving(whole_ns: float, one_ns: float | None) -> str:
    """How much of what saving two tensors adds is their references."""
    if not one_ns or 2 * one_ns >= whole_ns:
        return ""
    words = f" Two references are {format_ns(2 * one_ns)} of the {format_ns(whole_ns)} that saving two tensors adds; "
    return words + "the rest is what else saving does."


def _contention(ways: Sequence[Variant]) -> Part:
    """What copying costs more where two threads copy one tensor than where each has its own."""
    part = Part(name="two threads on one tensor, beyond a tensor each", claimed_low=CONTENTION_NS, claimed_high=inf)
    if _in_turn(ways) is not None:
        return part
    known = {way.name: way for way in ways}
    one, each = known.get("two threads, one tensor"), known.get("two threads, a tensor each")
    if one is None or each is None or None in (one.extra_ns, one.ci_low_ns, each.extra_ns, each.ci_low_ns):
        return part
    # Both are timed against the same first way, which falls out of the difference.
    ends = [(way.ci_low_ns or 0.0, way.extra_ns or 0.0, way.ci_high_ns or 0.0) for way in (one, each)]
    (low, middle, high), (less, other, more) = ends
    return replace(part, value=middle - other, low=low - more, high=high - less)


def _in_turn(ways: Sequence[Variant]) -> float | None:
    """Times that two threads with a tensor each took the time of one, where too little of it was at once."""
    known = {way.name: way.ns for way in ways}
    alone, each = known.get("one thread"), known.get("two threads, a tensor each")
    if not alone or each is None or each <= (2 - AT_ONCE_FRAC) * alone:
        return None
    return each / alone


def redispatch(lab: Laboratory) -> Reading:
    """What one dispatch more costs: autograd's kernel, passed through without a tape, against a call that skips it."""
    torch = lab.operators
    with torch.inference_mode():
        bare = torch.randn(8)
    through = call(lab, "t.neg(a)", a=torch.randn(8))
    (found,) = lab.pairs((Pair("one dispatch", through, call(lab, "t.neg(a)", a=bare, context=torch.inference_mode)),))
    return estimated(found)
