"""Is B faster than A? Interleaved quads in one process, decided with a practical floor and this run's own A/A reading.

Every third quad compares a side with itself, A and B in turn, in the same slots as the others: what the machine does to
A against A it does to B against A as well, so that reading bounds what may be called a difference. B has its turn so
that both sides are called equally often and after the same things: the order of quads is its own mirror image.

A block that follows another side's is preceded by one untimed call of its own: two sides whose weights push each other
out of the caches are compared warm, as provenance says.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import Literal

from referee.bench.beside import busiest, busy_beside, check_beside
from referee.bench.comparable import (
    check_layouts,
    check_outputs,
    findings_of,
    make_ready,
    what_differs,
    why_forbidden,
)
from referee.bench.compared import corrected, kept_by, raised_by, unanswered, varying_calls
from referee.bench.guards import check_counters
from referee.bench.interrupts import hold_interrupts
from referee.bench.loop import quiet_collector
from referee.bench.plan import Plan, Progress, ProgressCallback, no_progress
from referee.bench.sides import Candidate, Ready
from referee.bench.warmup import moved_counters
from referee.device.protocol import Device
from referee.device.provenance import mark_machine
from referee.device.state import kept_state
from referee.errors import OptionError
from referee.records.compare import Comparison, Pair, Side
from referee.records.finding import Finding, fatal
from referee.records.provenance import Difference, check_keys
from referee.stats.paired import (
    LEVEL,
    MIN_LONG_QUADS,
    MIN_QUADS,
    Decision,
    QuadBlock,
    balanced_ratios,
    decide,
    decide_medians,
    quad_ratios,
    ratio_estimate,
    ratio_of_medians,
)
from referee.stats.summary import FloatArray, summarise
from referee.units import NS_PER_S

__all__ = ["COMPARED", "COMPARE_PLAN", "Candidate", "compare", "not_comparable"]

COMPARED = ("switches.compile",)
"""What two candidates may differ in without being asked: whether the code is compiled is what is compared most."""

COMPARE_PLAN = Plan(budget_ns=NS_PER_S, clocks=("settled_amortised",))
"""One second is the shortest budget to promise for two candidates that are separate objects."""

_ORDER: tuple[tuple[Literal["pair", "a", "b"], bool], ...] = (
    ("pair", False),
    ("pair", True),
    ("a", False),
    ("pair", True),
    ("pair", False),
    ("b", True),
)
"""What is taken in turn, and whether mirrored: A B B A, B A A B, A A A A, B A A B, A B B A, B B B B. Exchanging A and B
gives the same order again, half a turn later: no side is favoured by what came before it."""

_CHECK_QUADS = 200
"""Quads before an answer may end the comparison early: each look is another chance of a wrong answer, and few quads
are what a busy machine leaves."""

_LEAST_QUADS = 2
"""Quads of each pair that are always taken, however short the budget."""

_DECIDED_SHARE = 0.5
"""An answer may end the comparison early once half of the budget is used."""


def compare(
    candidates: Sequence[Candidate],
    *,
    device: Device,
    plan: Plan | None = None,
    name: str = "",
    ignoring: Collection[str] = COMPARED,
    progress: ProgressCallback = no_progress,
) -> Comparison:
    """Compare each further candidate with the first, interleaved, within ``plan.budget_ns`` after the warm-ups.

    ``ignoring`` names the provenance keys that may differ (:data:`COMPARED` by default). Sides that differ in any
    other key that must match are not compared: the answer is then *cannot tell*, with a fatal finding that lists the
    differences. Ends early, after half of the budget, when every pair has an answer. An interrupt keeps the quads
    that were complete; so does what a step raises once each pair has two, before that it passes through.
    """
    plan = COMPARE_PLAN if plan is None else plan
    if len(candidates) < 2:
        raise OptionError("A comparison needs two candidates.")
    if len({candidate.name for candidate in candidates}) < len(candidates):
        raise OptionError("Each candidate of a comparison needs a name of its own.")
    check_keys(ignoring)
    mark = mark_machine()
    with quiet_collector():
        unmet = None if candidates[0].first is None else candidates[0].first.children_frac
        sides = _distinct(side.device or device for side in candidates)
        busy = busiest(busy_beside(each, children=unmet) for each in sides)
        ready = make_ready(candidates, device=device, plan=plan, before=mark, progress=progress)
        differing = [what_differs(ready[0].provenance, side.provenance, ignoring=ignoring) for side in ready[1:]]
        quads = _Quads(pairs=[[] for _ in ready[1:]])
        findings = [*findings_of(ready, ignoring=ignoring), *_not_comparable(ready, differing)]
        findings += [*check_outputs(ready, ignoring=ignoring), *check_layouts(ready, ignoring=ignoring)]
        devices = _distinct(side.device for side in ready)
        before = [each.counters() for each in devices]
        if not fatal(tuple(findings)):
            with kept_state():
                _take_quads(ready, quads, device=device, plan=plan, progress=progress)
        moved = [moved_counters(then, each.counters()) for then, each in zip(before, devices, strict=True)]
    with hold_interrupts():
        findings += check_beside(busy, busiest(busy_beside(each) for each in devices))
        # Some counts are of the process: moved by the same, they are told once.
        findings += check_counters({name: by for each in moved for name, by in each.items()})
        for side in ready:
            findings += kept_by(side)
        return _record(ready, quads, plan=plan, name=name, differing=differing, findings=tuple(findings))


def _distinct(devices: Iterable[Device]) -> tuple[Device, ...]:
    """Each device once: sides mostly share theirs, and what is asked of one takes time."""
    return tuple({id(device): device for device in devices}.values())


@dataclass
class _Quads:
    """The quads of each pair, those of a side against itself, and why the taking ended."""

    pairs: list[list[tuple[QuadBlock, ...]]]
    aa: list[tuple[QuadBlock, ...]] = field(default_factory=list)
    stop_reason: str = "not started"
    last: Ready | None = None
    """What was called last: the caches hold what belongs to it."""
    calling: Ready | None = None
    """What is being called."""
    raised: Exception | SystemExit | None = None
    """What a step raised, where that ended the taking."""

    def take(self, a: Ready, b: Ready, *, mirrored: bool) -> tuple[QuadBlock, ...]:
        """One more quad of ``a`` and ``b``: A B B A, or B A A B."""
        order: tuple[Literal["a", "b"], ...] = ("b", "a", "a", "b") if mirrored else ("a", "b", "b", "a")
        quad = []
        for name in order:
            side = self.calling = a if name == "a" else b
            side.take_over(self.last)
            self.last = side
            quad.append(side.block(side=name))
        return tuple(quad)


def _take_quads(
    ready: Sequence[Ready], quads: _Quads, *, device: Device, plan: Plan, progress: ProgressCallback
) -> None:
    """Take quads in the order of :data:`_ORDER`, for each pair in turn, until there is an answer or no time."""
    first, *others = ready
    start_ns = device.now_ns()
    until_ns = start_ns + plan.budget_ns
    check_at = _CHECK_QUADS
    taken = 0
    try:
        for kind, mirrored in cycle(_ORDER):
            for index, other in enumerate(others):
                if kind == "pair":
                    quads.pairs[index].append(quads.take(first, other, mirrored=mirrored))
                else:
                    itself = first if kind == "a" else other
                    quads.aa.append(quads.take(itself, itself, mirrored=mirrored))
            taken += kind == "pair"
            now_ns = device.now_ns()
            used = (now_ns - start_ns) / plan.budget_ns
            if now_ns >= until_ns and taken >= _LEAST_QUADS:
                quads.stop_reason = "budget"
                return
            if taken >= check_at:
                check_at = int(taken * 1.25) + 1
                progress(Progress(stage="comparing", frac=min(1.0, used), blocks=4 * taken))
                if used >= _DECIDED_SHARE and _all_decided(quads, sides=ready):
                    quads.stop_reason = "precise"
                    return
    except KeyboardInterrupt:
        if not quads.pairs[-1]:
            raise
        quads.stop_reason = "interrupted"
    except (Exception, SystemExit) as error:  # the user's code: anything can come out
        if taken < _LEAST_QUADS:
            raise
        quads.stop_reason, quads.raised = "raised", error


def _least_quads(ready: Sequence[Ready]) -> int:
    """How many clean quads an answer needs: fewer where a single call is longer than a slice."""
    return MIN_LONG_QUADS if all(side.long for side in ready) else MIN_QUADS


def _ratios(quads: Sequence[Sequence[QuadBlock]], *, sides: Sequence[Ready]) -> FloatArray:
    """The ratios an answer stands on: balanced over both orders where blocks after the other side's are colder."""
    return quad_ratios(quads) if all(side.primed or side.long for side in sides) else balanced_ratios(quads)


def _decide(quads: _Quads, index: int, *, sides: Sequence[Ready]) -> Decision:
    """The answer for one pair: from its quads' ratios, or from medians where a side's calls differ by themselves."""
    pair, least = quads.pairs[index], _least_quads(sides)
    if sides[0].varies or sides[index + 1].varies:
        return decide_medians(pair, aa_quads=quads.aa, min_quads=least)
    return decide(_ratios(pair, sides=sides), aa_log_ratios=quad_ratios(quads.aa), min_quads=least)


def _all_decided(quads: _Quads, *, sides: Sequence[Ready]) -> bool:
    return all(_decide(quads, index, sides=sides).answer != "cannot-tell" for index in range(len(quads.pairs)))


def _raised(quads: _Quads) -> tuple[Finding, ...]:
    """What ended it, if a step did, by the name of its side."""
    if quads.raised is None or quads.calling is None:
        return ()
    blocks = 4 * sum(map(len, (*quads.pairs, quads.aa)))
    return (raised_by(quads.calling, quads.raised, blocks=blocks),)


def _record(
    ready: Sequence[Ready],
    quads: _Quads,
    *,
    plan: Plan,
    name: str,
    differing: Sequence[tuple[Difference, ...]],
    findings: tuple[Finding, ...],
) -> Comparison:
    varying = any(side.varies for side in ready)
    aa = ratio_of_medians(quads.aa) if varying else ratio_estimate(quad_ratios(quads.aa))
    forbidden = fatal(findings)
    pairs = _pairs(ready, quads, differing=differing, forbidden=forbidden)
    return Comparison(
        name=name or " / ".join(side.candidate.name for side in (ready[1], ready[0])),
        ratio=pairs[0].ratio,
        ci_low=pairs[0].ci_low,
        ci_high=pairs[0].ci_high,
        ci_level=LEVEL,
        aa_ratio=None if aa is None else aa.point,
        aa_ratio_low=None if aa is None else aa.low,
        aa_ratio_high=None if aa is None else aa.high,
        answer=pairs[0].answer,
        why=pairs[0].why,
        sides=tuple(_side(side) for side in ready),
        pairs=tuple(pairs),
        stop_reason=quads.stop_reason,
        processes=0,
        provenance=ready[0].provenance,
        findings=(
            *findings,
            *_raised(quads),
            *corrected(ready),
            *varying_calls(ready),
            *([] if forbidden else unanswered(pairs, ready=ready, least=_least_quads(ready), plan=plan)),
        ),
    )


def _pairs(
    ready: Sequence[Ready],
    quads: _Quads,
    *,
    differing: Sequence[tuple[Difference, ...]],
    forbidden: tuple[Finding, ...],
) -> list[Pair]:
    """Each further side against the first; without an answer where something forbids it."""
    pairs = []
    for index, (side, taken, different) in enumerate(zip(ready[1:], quads.pairs, differing, strict=True)):
        name = side.candidate.name
        decision = _decide(quads, index, sides=ready)
        ratios = _ratios(taken, sides=ready)
        pair = pair_of(name, decision, log_ratios=ratios, taken=len(taken), differing=different)
        if forbidden:
            why = why_forbidden(ready[0].candidate.name, name, forbidden)
            pair = replace(pair, answer="cannot-tell", ratio=None, ci_low=None, ci_high=None, why=why)
        pairs.append(pair)
    return pairs


def pair_of(
    name: str,
    decision: Decision,
    *,
    log_ratios: Sequence[float] | FloatArray,
    taken: int,
    differing: tuple[Difference, ...] = (),
) -> Pair:
    """The record of one pair from its answer and the log ratios of its quads."""
    ratio = decision.ratio
    return Pair(
        name=name,
        ratio=None if ratio is None else ratio.point,
        ci_low=None if ratio is None else ratio.low,
        ci_high=None if ratio is None else ratio.high,
        answer=decision.answer,
        why=decision.why,
        quads=taken,
        clean_quads=decision.quads,
        n_eff=0.0 if ratio is None else ratio.n_eff,
        floor_frac=decision.floor_frac,
        ratios=tuple(math.exp(float(value)) for value in log_ratios),
        differences=differing,
    )


def _side(ready: Ready) -> Side:
    summary = summarise(ready.usable_ns) if ready.usable_ns else None
    return Side(
        name=ready.candidate.name,
        median_ns=None if summary is None else summary.median,
        floor_ns=None if summary is None else summary.floor,
        blocks=len(ready.blocks),
        clean_blocks=len(ready.usable_ns) - ready.corrected,
        calls_per_block=ready.calls,
        warmup=ready.warmup,
        provenance=ready.provenance,
    )


def _not_comparable(ready: Sequence[Ready], differing: Sequence[tuple[Difference, ...]]) -> list[Finding]:
    return [
        not_comparable(ready[0].candidate.name, side.candidate.name, different)
        for side, different in zip(ready[1:], differing, strict=True)
        if different
    ]


def not_comparable(a: str, b: str, differing: Sequence[Difference]) -> Finding:
    """The finding that forbids an answer because the sides differ elsewhere."""
    words = "; ".join(f"{d.path}: {d.a} against {d.b}" for d in differing)
    return Finding(
        code="not-comparable",
        severity="fatal",
        message=f"{a} and {b} differ in more than what is being compared ({words}).",
        evidence={"a": a, "b": b, **{d.path: f"{d.a} / {d.b}" for d in differing}},
        hint="Make these equal on both sides, or say that they are what is being compared.",
    )
