"""What limits the answer of a comparison? Checks on its sides and pairs once the quads are taken."""

from __future__ import annotations

import math
from collections.abc import Sequence

from referee.bench.comparable import of_side
from referee.bench.kept import check_kept
from referee.bench.plan import Plan
from referee.bench.raised import step_raised
from referee.bench.sides import Ready
from referee.records.compare import Pair
from referee.records.finding import Finding
from referee.stats.summary import summarise
from referee.units import NS_PER_S, format_ns

_QUADS_A_PAIR = 1.5
"""Quads taken for each that compares two sides: every third compares one with itself."""


def raised_by(side: Ready, error: BaseException, *, blocks: int) -> Finding:
    """What a side raised, by its name, once there were ``blocks`` to keep."""
    return of_side(step_raised(error, blocks=blocks, number="answer"), side.candidate.name)


def kept_by(side: Ready) -> tuple[Finding, ...]:
    """What a side keeps from call to call, by its name."""
    calls = side.warmup.calls + sum(block.calls for block in side.blocks)
    kept = check_kept(side.candidate.observation, calls=calls)
    return tuple(of_side(finding, side.candidate.name) for finding in kept)


def corrected(ready: Sequence[Ready]) -> tuple[Finding, ...]:
    """Does the answer stand mostly on blocks that others had a part of?"""
    blocks, corrected = sum(len(side.blocks) for side in ready), sum(side.corrected for side in ready)
    if corrected * 2 <= blocks:
        return ()
    return (
        Finding(
            code="disturbed",
            severity="warning",
            message=f"{corrected:,} of {blocks:,} blocks were preempted: what other processes had of them is "
            "subtracted; their trace in the caches is not.",
            evidence={"blocks": blocks, "corrected": corrected, "subtracted": True},
            hint="Measure on a machine with an idle core.",
        ),
    )


def varying_calls(ready: Sequence[Ready]) -> tuple[Finding, ...]:
    """Which sides' calls differ by themselves? Then medians of calls are compared, and not the lesser of two blocks."""
    found = []
    for side in ready:
        if not side.varies or len(side.usable_ns) < 2:
            continue
        summary = summarise(side.usable_ns)
        found.append(
            Finding(
                code="varying-calls",
                severity="warning",
                message=f"The calls of {side.candidate.name} differ by themselves: from {format_ns(summary.p10)} "
                f"(fastest tenth) to {format_ns(summary.p95)} (slowest twentieth). Median calls are compared.",
                evidence={
                    "side": side.candidate.name,
                    "p10_ns": summary.p10,
                    "median_ns": summary.median,
                    "p95_ns": summary.p95,
                },
                hint="Pin what varies (data, shapes, seeds), or compare the means of whole epochs.",
            )
        )
    return tuple(found)


def unanswered(pairs: Sequence[Pair], *, ready: Sequence[Ready], least: int, plan: Plan) -> tuple[Finding, ...]:
    """Which pairs have too few undisturbed quads, and what would mend it? ``least``: how many are needed."""
    return tuple(
        Finding(
            code="few-samples",
            severity="warning",
            message=f"{pair.name}: {pair.clean_quads:,} of {pair.quads:,} quads were undisturbed: too few to answer.",
            evidence={"clean_quads": pair.clean_quads, "quads": pair.quads, "budget_ns": plan.budget_ns},
            hint=_longer(pair, ready=ready, least=least),
        )
        for pair in pairs
        if pair.answer == "cannot-tell" and pair.why.startswith("only ")
    )


def _longer(pair: Pair, *, ready: Sequence[Ready], least: int) -> str:
    """What would give it enough quads: time, where all were undisturbed."""
    if pair.clean_quads < pair.quads:
        return "Give a longer --budget, or an idle core."
    round_ns = sum(4 * max(1.0, side.call_ns) * side.calls for side in ready) * _QUADS_A_PAIR
    return f"Give --budget {math.ceil(least * round_ns / NS_PER_S)}s."
