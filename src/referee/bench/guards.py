"""What limits the number, or forbids it? Checks on a finished measurement; each returns findings with their figures."""

from __future__ import annotations

from collections.abc import Mapping

from referee.bench.clocks import SideClocks
from referee.bench.sampling import (
    KNOWN_STOLEN_FRAC,
    SLICE_NS,
    STOLEN_FRAC,
    Sampled,
    enough_clean,
    stolen_frac,
)
from referee.bench.stopping import CUT_SHORT
from referee.bench.waiting import WAITING_FRAC, Waited
from referee.bench.warmup import WarmedUp, is_compilation
from referee.device.protocol import Device, Settling
from referee.records.estimate import Estimate
from referee.records.finding import Finding, Scalar
from referee.stats.summary import Summary
from referee.units import NS_PER_S, format_frac, format_ns, format_number

DISTURBED_RATIO = 1.03
"""Median over low decile of the clean blocks. In 180 runs, quiet and beside busy processes, this caught every median
that was off by more than 3 %, without a false alarm."""

_MIN_FOR_P5 = 200
"""From so many clean blocks on the twentieth stands on ten, and is held against the median as well: where nearly the
whole run was slow, the low decile was slow with it. In 915 further runs this caught two of the five medians that were
off by more than 3.5 % unnoticed, 6.2 and 3.8 %, for four that were not; limits nearer to the minimum cost more."""

_VARIES_RATIO = 1.25

FEW_SAMPLES = 20
"""Below this the interval of the median leans on the extremes."""

WIDE_FRAC = 0.02
"""An interval wider than this on either side when the budget ended is worth a warning."""

HOST_BOUND_FRAC = 0.9

CHILDREN_FRAC = 0.05
"""Child processes that use less of a processor than this compute nothing to speak of."""

OVERRUN = 1.5
"""More than this many times the budget is told."""

_COUNT_SLACK = 1e-6

COMPILING_CALLS = 5
"""Calls of a warm-up that may compile. Two are usual (one for the first shape, one for all of them), and a change of
grad mode adds another; torch gives up at the eighth version of a frame and then runs it uncompiled without a word."""


def check_blocks(sampled: Sampled, *, summary: Summary | None) -> tuple[Finding, ...]:
    """Was it disturbed, so much that there is no number, or so little sampled that there is hardly one?"""
    findings: list[Finding] = []
    blocks = len(sampled.blocks)
    if summary is None:
        return (_no_clean_block(sampled),)
    if not enough_clean(sampled.blocks):
        findings.append(_mostly_preempted(sampled))
    elif summary.n >= 10:
        findings += _low_and_median(summary, blocks=blocks)
    if summary.n < FEW_SAMPLES:
        findings.append(
            Finding(
                code="few-samples",
                severity="warning" if summary.n < 6 else "info",
                message=f"The number stands on {summary.n} blocks.",
                evidence={"n": summary.n, "wanted": FEW_SAMPLES, "stop_reason": sampled.stop_reason},
                hint="Let it run to its end." if sampled.stop_reason in CUT_SHORT else "Give a longer --budget.",
            )
        )
    return tuple(findings)


def _low_and_median(summary: Summary, *, blocks: int) -> list[Finding]:
    """Do the median and the low end of the clean blocks part?"""
    ends = [("p10_ns", "low decile", summary.p10)]
    if summary.n >= _MIN_FOR_P5:
        ends.append(("p5_ns", "fastest twentieth", summary.p5))
    for key, name, low in ends:
        if low <= 0 or summary.median / low <= DISTURBED_RATIO:
            continue
        ratio = summary.median / low
        return [
            Finding(
                code="disturbed",
                severity="warning",
                message=f"The median is {format_number(ratio, digits=4)}× the {name} of the clean blocks: something "
                "else ran on these cores, or the step itself varies.",
                evidence={
                    "median_ns": summary.median,
                    key: low,
                    "ratio": ratio,
                    "threshold": DISTURBED_RATIO,
                    "clean_blocks": summary.n,
                    "blocks": blocks,
                },
                hint=_disturbed_hint(summary),
            )
        ]
    return []


def _disturbed_hint(summary: Summary) -> str:
    """What to make of it: blocks that differ by so much hardly come from the neighbours alone."""
    if summary.median > _VARIES_RATIO * summary.p10:
        return (
            f"From the fastest tenth, {format_ns(summary.p10)}, to the slowest twentieth, {format_ns(summary.p95)}: "
            "where the step itself varies, neither median nor floor is its cost; look at the samples."
        )
    return f"The floor, {format_ns(summary.floor)}, is less affected; or measure again with a longer budget."


def _mostly_preempted(sampled: Sampled) -> Finding:
    blocks, clean, stolen = len(sampled.blocks), sum(sampled.clean), stolen_frac(sampled.blocks)
    what = (
        f"other processes had {format_frac(stolen)} of the time, which is subtracted; their trace in the caches is not."
        if sampled.corrected
        else f"the others, which may have lost {format_frac(stolen)} of their time, count as well."
    )
    return Finding(
        code="disturbed",
        severity="warning",
        message=f"{f'Only {clean}' if clean else 'None'} of {blocks} blocks {'was' if clean < 2 else 'were'} free of "
        f"preemption: {what}",
        evidence={
            "clean_blocks": clean,
            "blocks": blocks,
            "stolen_frac": stolen,
            "subtracted": sampled.corrected,
        },
        hint="Measure on a machine with an idle core.",
    )


def _no_clean_block(sampled: Sampled) -> Finding:
    blocks = len(sampled.blocks)
    stolen = stolen_frac(sampled.blocks)
    return Finding(
        code="no-clean-block",
        severity="fatal",
        message=f"{blocks - sum(sampled.clean)} of {blocks} blocks were preempted, which could be "
        f"{format_frac(stolen)} of their time: the undisturbed time is not in these samples.",
        evidence={
            "blocks": blocks,
            "clean_blocks": sum(sampled.clean),
            "stolen_frac": stolen,
            "threshold": KNOWN_STOLEN_FRAC if sampled.corrected else STOLEN_FRAC,
            "slice_ns": SLICE_NS,
        },
        hint="More threads compute than cores are idle: let fewer compute (--threads 1), or use an idle machine.",
    )


def check_precision(estimate: Estimate | None, *, stop_reason: str, budget_ns: int) -> tuple[Finding, ...]:
    """Did the budget end before the interval was narrow?"""
    if estimate is None or stop_reason != "budget" or estimate.half_width_frac <= WIDE_FRAC:
        return ()
    return (
        Finding(
            code="budget-exhausted",
            severity="warning",
            message=f"The budget of {format_ns(budget_ns)} ended with the median known to "
            f"± {format_frac(estimate.half_width_frac)} only.",
            evidence={
                "half_width_frac": estimate.half_width_frac,
                "threshold": WIDE_FRAC,
                "budget_ns": budget_ns,
                "n_eff": estimate.n_eff,
            },
            hint="Give a longer --budget.",
        ),
    )


def check_budget(spent_ns: int, *, budget_ns: int, call_ns: int) -> tuple[Finding, ...]:
    """Did it take longer than it was given? The calls that no number does without may take more than the budget."""
    if spent_ns <= OVERRUN * budget_ns:
        return ()
    took = f"It took {format_ns(spent_ns)} of a budget of {format_ns(budget_ns)}"
    if FEW_SAMPLES * call_ns <= budget_ns:
        why = (
            f", though a call takes {format_ns(call_ns)} alone: other processes held it up, or what is done between "
            "calls takes long."
        )
        hint = "Measure on a machine with an idle core, or give a longer --budget."
    else:
        why = f": one call takes {format_ns(call_ns)}, and a warm-up and three blocks are always made."
        hint = f"For a number on {FEW_SAMPLES} blocks give --budget {_round_budget(call_ns)}."
    return (
        Finding(
            code="over-budget",
            severity="info",
            message=took + why,
            evidence={"spent_ns": spent_ns, "budget_ns": budget_ns, "call_ns": call_ns, "threshold": OVERRUN},
            hint=hint,
        ),
    )


def _round_budget(call_ns: int) -> str:
    """A budget for enough blocks of one call and the warm-up, in whole seconds."""
    return f"{-(-call_ns * (FEW_SAMPLES + 4) // NS_PER_S)}s"


def check_warmup(warmed: WarmedUp) -> tuple[Finding, ...]:
    """Did the series become steady before the clock counted, and did compiling come to an end by itself?"""
    warmup, findings = warmed.record, list[Finding]()
    if warmed.compiling_calls >= COMPILING_CALLS:
        findings.append(
            Finding(
                code="recompiled",
                severity="fatal",
                message=f"{warmed.compiling_calls} calls of the warm-up compiled something: each new input is compiled "
                "again, until the compiler gives up and runs the code as it is.",
                evidence={
                    "compiling_calls": warmed.compiling_calls,
                    "compiles": warmup.compiles,
                    "threshold": COMPILING_CALLS,
                    "calls": warmup.calls,
                },
                hint="A shape or a Python value changes from call to call: fix it, or mark it as dynamic.",
            )
        )
    if not warmup.steady:
        findings.append(
            Finding(
                code="not-steady",
                severity="warning",
                message=f"After {warmup.calls} calls of warm-up ({format_ns(warmup.total_ns)}) the series was not "
                "steady.",
                evidence={
                    "calls": warmup.calls,
                    "total_ns": warmup.total_ns,
                    "first_call_ns": warmup.first_call_ns,
                    "last_call_ns": warmed.series_ns[-1],
                },
                hint="Something still changes from call to call: shapes, compilation, or load on this machine.",
            )
        )
    return tuple(findings)


def check_counters(moved: Mapping[str, int]) -> tuple[Finding, ...]:
    """Did something move in the timed window that must stand still? Compilations forbid the number."""
    return tuple(counter_finding(name, by) for name, by in sorted(moved.items()))


def counter_finding(name: str, by: int) -> Finding:
    """The finding for a counter that moved ``by`` inside the timed window."""
    evidence: dict[str, Scalar] = {"counter": name, "by": by}
    if is_compilation(name):
        return Finding(
            code="recompiled",
            severity="fatal",
            message=f"{by:,} compilation{'s' if by != 1 else ''} ran inside the timed window ({name}).",
            evidence=evidence,
            hint="A shape, a dtype, a grad mode or a Python value changes from call to call; fix it, or mark it as "
            "dynamic, and measure again.",
        )
    return Finding(
        code="counter-moved",
        severity="warning",
        message=f"The counter {name} moved by {by:,} inside the timed window.",
        evidence=evidence,
        hint="In a steady state it stands still: the warm-up was not over, or the step does this each time.",
    )


def check_executions(stages: Mapping[str, float] | None) -> tuple[Finding, ...]:
    """By the backend's own count: did each call of the timed blocks run something?"""
    executions = (stages or {}).get("executions")
    if executions is None or executions >= 1 - _COUNT_SLACK:
        return ()
    return (
        Finding(
            code="work-did-not-run",
            severity="fatal",
            message=f"The backend ran {executions:.2g} graphs per call: not every call's work ran in the timed window.",
            evidence={"executions_per_call": executions, "threshold": 1.0},
            hint="Use the result of every call, and see that none is answered from a cache.",
        ),
    )


def check_waiting(waited: Waited | None, *, compared: bool = False) -> tuple[Finding, ...]:
    """Does the step wait instead of computing? Then the time is not this processor's, and grows with nothing here.

    ``compared``: it is one side of a comparison, whose ratio holds the waiting too.
    """
    if waited is None:
        return ()
    children = waited.children_frac
    if not waited.much:
        return () if children < CHILDREN_FRAC else (_children_compute(children),)
    ratio = " The ratio is of the waiting as well as of the computing." if compared else ""
    beside = f" Child processes used {format_frac(children)} of a processor meanwhile." * (children >= CHILDREN_FRAC)
    return (
        Finding(
            code="host-waits",
            severity="warning",
            message=f"During {format_frac(waited.frac)} of the time the thread that calls the step neither computed "
            "nor wanted a processor: the step sleeps, or waits for input, a lock, another thread or another process."
            f"{beside}{ratio}",
            evidence={"waited_frac": waited.frac, "limit_frac": WAITING_FRAC, "children_frac": children},
            hint="`referee profile` shows the line that waits (--stacks).",
        ),
    )


def _children_compute(frac: float) -> Finding:
    return Finding(
        code="children-compute",
        severity="info",
        message=f"Child processes used {format_frac(frac)} of a processor during the timed blocks, and this process "
        "did not wait for them to speak of: the number is the time until a call returns, beside their work.",
        evidence={"children_frac": frac, "limit_frac": CHILDREN_FRAC},
        hint="If a call's result comes from them, wait for it in the step: future.result(), queue.get().",
    )


def check_enqueue(side: SideClocks, *, device: Device) -> tuple[Finding, ...]:
    """May the enqueue clock be held against the settled one?"""
    if not side.enqueue_blocked or device.settling is not Settling.ASYNCHRONOUS:
        return ()
    return (
        Finding(
            code="enqueue-blocked",
            severity="info",
            message="Enqueueing was blocked: the call returned only after work queued before it.",
            evidence={"enqueue_ns": side.clocks.enqueue_ns, "settled_per_call_ns": side.clocks.settled_per_call_ns},
            hint="The step reads a value back or waits inside, or it queues more launches than the queue holds.",
        ),
    )


def enqueue_rule(side: SideClocks) -> str | None:
    """Which side is the limit, in a sentence, from enqueue against amortised; ``None`` where that cannot be said."""
    enqueue_ns, amortised_ns = side.clocks.enqueue_ns, side.clocks.settled_amortised_ns
    if enqueue_ns is None or amortised_ns is None or side.enqueue_blocked:
        return None
    if enqueue_ns >= HOST_BOUND_FRAC * amortised_ns:
        return "Enqueueing takes as long as the settled call: the host is the limit."
    if enqueue_ns <= amortised_ns / 2:
        return "Enqueueing takes less than half of the settled call: the device is the limit."
    return None
