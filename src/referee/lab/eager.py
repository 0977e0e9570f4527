"""What does one eager operator cost? The timed claims: hot and cold, with a tape and without, argument by argument."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from math import inf
from typing import Any

from referee.anatomy.stages import AUTOGRAD, LAYERS
from referee.anatomy.tape import read_tape
from referee.anatomy.timing import Pair, Timed, time_pairs
from referee.errors import CannotTell
from referee.lab.claims.claim import US
from referee.lab.claims.diagnosing import BARELY
from referee.lab.claims.operators import (
    AT_ONCE_FRAC,
    CONTENTION_NS,
    COURSE_EACH_US,
    PIPELINE_US,
    REFERENCES,
    ROUNDED_US,
    TAPE_FRAC,
    THOUSAND,
)
from referee.lab.laboratory import Laboratory, Part, Reading, estimated, in_turn, spread, told
from referee.lab.measuring import timed
from referee.records.anatomy import SMALL_NS, Stage, Variant
from referee.records.finding import Scalar
from referee.units import format_bytes, format_frac, format_ns, format_range_ns, format_ratio

_ELEMENTS, _MANY = (16, 256, 4_096, 65_536), 1 << 20
_MOSTLY = 0.5
"""More than half."""


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
    note = _shorter(tuple(stages.values()))
    if jump.low is not None and jump.low <= 0:
        note = told(note, "Keys and jump is too short for this clock: its interval reaches zero.")
    note = told(note, _short(stages))
    note = told(note, _sum_of_stages(lab, stages), _kernel_of_autograd(lab))
    teaches = f"An add of 8 elements takes {format_ns(found.value)} on this core, most of it before it computes."
    whole = lab.anatomy().whole_ns
    if not whole or sum(part.value or 0.0 for part in stages.values()) < _MOSTLY * whole:
        teaches = f"An add of 8 elements takes {format_ns(found.value)} on this core."
    taken = f"{found.taken}{_times_taken('stages', lab.anatomy().stages)}"
    return replace(found, note=note, figures=figures, parts=tuple(stages.values()), teaches=teaches, taken=taken)


def _times_taken(what: str, parts: Sequence[Stage | Variant]) -> str:
    """How often the least frequent of these was timed, in words that go on."""
    known = [part.n for part in parts if part.n]
    return f"; {what} {min(known):,} blocks of each, in turn, or more" if known else ""


def _short(stages: Mapping[str, Part]) -> str:
    """The stages that are so short that another process can find them outside of their interval."""
    names = [name for name, part in stages.items() if part.value is not None and part.value < SMALL_NS]
    if not names:
        return ""
    return (
        f"Below {format_ns(SMALL_NS)} a stage can lie outside of its interval in another process, where code and "
        f"tensors lie elsewhere in memory: {', '.join(names)}."
    )


def _shorter(stages: Sequence[Part]) -> str:
    """How many stages are shorter or longer than the course has them: where its sum and this one part."""
    known = [(part, part.low, part.high) for part in stages if part.low is not None and part.high is not None]
    below = sum(high < part.claimed_low for part, _, high in known)
    above = sum(low > part.claimed_high for part, low, _ in known)
    if not below + above:
        return ""
    return f"Of the {len(known)} stages timed {below} are shorter than the course has them and {above} longer."


def _sum_of_stages(lab: Laboratory, stages: Mapping[str, Part]) -> str:
    """How the stages in their own loop add up to the call in that loop; the row's number is taken amid others."""
    whole_ns = lab.anatomy().whole_ns
    known = [part.value for part in stages.values() if part.value is not None]
    if whole_ns is None or not known:
        return ""
    rest = whole_ns - sum(known)
    words = (
        f"These stages add to {format_ns(sum(known))}; the whole add took {format_ns(whole_ns)} in the loop they were "
        f"taken in, so that {format_ns(rest)} are the kernel and what no stage explains."
    )
    hot, cold = (found.value for found in _hot_and_cold(lab))
    return (
        f"{words} The same add took {format_ns(hot)} in E19's loop, at another moment: the two hot figures are "
        f"{format_ns(abs(hot - whole_ns))} apart, and {_ahead(cold - hot)} is what other operators in between add to "
        "the latter (E19), up to this row's number."
    )


def _ahead(ns: float) -> str:
    return format_ns(ns) if ns > 0 else "nothing"


def _kernel_of_autograd(lab: Laboratory) -> str:
    """What of the autograd node is autograd's kernel, which the dispatcher visits on its way."""
    kernels = [stage.ns for stage in lab.anatomy().stages if stage.layer == AUTOGRAD and "dispatch" in stage.name]
    return f"Of the autograd node {format_ns(sum(kernels))} are autograd's kernel." if kernels else ""


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
        name: Part(name=name, claimed_low=(low - by) * US, claimed_high=(high + by) * US)
        for name, (low, high) in PIPELINE_US.items()
        if name != "launch"
        for by in (ROUNDED_US if low == high else 0.0,)
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
        a, b = (lab.operators.randn(8, requires_grad=True) for _ in range(2))
        # An earlier result keeps the nodes alive that accumulate gradients: else each call would make them anew.
        pair = Pair("add", call(lab, "t.add(a, b)", a=a, b=b, earlier=lab.operators.add(a, b)))
        budget_ns = 3 * lab.plan.budget_ns
        (cost,) = time_pairs([pair], device=lab.device, budget_ns=budget_ns, mix=lab.mix(), cold_frac=0.7)
        if cost.cold is None:
            raise CannotTell("The cold figure could not be taken.")
        lab.kept["hot and cold"] = (estimated(cost.hot), estimated(cost.cold))
    hot, cold = lab.kept["hot and cold"]
    return hot, cold


def thousand(lab: Laboratory) -> Reading:
    """E3. At several sizes; and, without any arithmetic, at two that are far apart."""

    def chain(x: Any) -> Callable[[], Any]:
        def step() -> Any:
            y = x
            for _ in range(THOUSAND):
                y = lab.operators.add(y, x)
            return y

        return step

    def views(x: Any) -> Callable[[], Any]:
        def step() -> Any:
            y = x
            for _ in range(THOUSAND):
                y = lab.operators.detach(y)
            return y

        return step

    taken = {size: timed(lab.time(chain(lab.operators.randn(size)))) for size in _ELEMENTS}
    few, many = _ELEMENTS[0], _MANY
    bare = [timed(lab.time(views(lab.operators.randn(size)))) for size in (few, many)]
    first, second = bare
    part = Part(
        name=f"issuing alone, {many:,} elements over {few}",
        value=second.value / first.value,
        low=second.low / first.high,
        high=second.high / first.low,
        claimed_low=1 / BARELY,
        claimed_high=BARELY,
        unit="ratio",
    )
    figures: dict[str, Scalar] = {f"{size}_elements_ns": found.value for size, found in taken.items()}
    each = ", ".join(f"{format_ns(found.value / THOUSAND)} on {size:,}" for size, found in taken.items())
    issued = " and ".join(format_ns(found.value / THOUSAND) for found in bare)
    here = taken[few]
    low, high = (US * end for end in PIPELINE_US["launch"])
    left = format_range_ns(COURSE_EACH_US * US - high, COURSE_EACH_US * US - low)
    note = (
        f"An add takes {each} elements: on a CPU the same thread does the arithmetic, which grows. A detach, which "
        f"computes nothing, takes {issued} on {few} and {many:,}. The course's {COURSE_EACH_US:.3g} µs for an operator "
        f"have a launch of {format_range_ns(low, high)} in them (E1), which is not here; that leaves {left}, the range "
        f"above, and it is {format_ns(here.value / THOUSAND)} here."
    )
    return replace(here, note=note, figures=figures, parts=(part,))


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
    if large.high < TAPE_FRAC[0] or large.low > TAPE_FRAC[1]:
        note += (
            f" That is outside of the {format_frac(TAPE_FRAC[0])} to {format_frac(TAPE_FRAC[1])}, and is not held "
            "against a claim that says “typically”; which of the two steps is the typical one the row cannot tell."
        )
    kept = _kept_bytes(model(few), few, model)
    if kept is not None:
        note += f" The tape of the small layers holds {format_bytes(kept)} until backward or until its output dies."
    teaches = (
        f"What a tape costs depends on the work beside it: {format_frac(small.value)} of a step of small layers here, "
        f"{format_frac(large.value)} of a layer that is work."
    )
    if large.high >= small.low:
        teaches = ""
    figures = {**small.figures, "larger_frac": large.value, "tape_bytes": kept}
    return replace(small, note=note, figures=figures, teaches=teaches)


def _kept_bytes(output: Any, x: Any, model: Any) -> int | None:
    """What the tape behind ``output`` holds beside parameters; ``None`` where there is none to read."""
    if getattr(output, "grad_fn", None) is None:
        return None
    return read_tape(output, inputs=(x,), parameters=model.parameters()).saved_bytes


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
        taken=f"{in_turn(mul)}{_times_taken('references', ways)}",
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
