"""Does a recording device run all that a step records? What it drops or merges is not in the time.

Calls of a step are kept apart by the loop (:mod:`referee.bench.loop`). Inside of one call nothing can keep equal
operators apart: they are in one graph, and a number for that graph is right for the step and wrong for whoever divides
it by the length of the loop in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from referee.bench.plan import Step
from referee.bench.proof import CALLS, Proof, prove_window
from referee.bench.windows import REPEATS
from referee.device.protocol import Device, Settling
from referee.device.redundancy import Redundancy, Repeated
from referee.records.finding import Finding, Scalar
from referee.units import format_frac

UNRUN_FRAC = 0.02
"""A smaller share of the work is within the interval that a headline may have without a warning."""

_TRIALS = 4
"""So often calls must seem to run before nothing is said: noise adds time to a window, and never takes it away.
Beside two busy processes one of three trials took merged calls for run, and one of six pairs of trials."""

_HINT = (
    "The time is that of the step as it runs. Return all that is to count, gradients too; a loop that is there to "
    "repeat the work has to give each round inputs of its own, as y = y @ x does."
)


@runtime_checkable
class KnowsRedundancy(Protocol):
    """An observation of a step that knows what need not run (see ``referee.device.observe``)."""

    @property
    def redundancy(self) -> Redundancy | None:
        """What a call records and need not run; ``None`` if nothing, or where nothing is recorded."""


@dataclass(frozen=True)
class _Tried:
    """What the clock said of the costliest repeated operator, and what recording it alone takes."""

    proof: Proof
    recording_ns: float

    @property
    def each_ran(self) -> bool:
        """Whether each further call added work: not the host's recording of it alone, nor a busy machine's noise."""
        added_ns = self.proof.slope_ns - self.recording_ns
        ran = self.proof.outcome == "ran" and self.proof.steady
        return ran and self.work_ns > 0 and added_ns >= self.proof.threshold_frac * self.work_ns

    @property
    def work_ns(self) -> float:
        """What one call computes, without settling and recording."""
        return self.proof.one_ns - self.proof.settle_ns - self.recording_ns


def check_unrun(seen: object, *, device: Device, prove: bool = True) -> tuple[Finding, ...]:
    """Is less timed than the step records? What no output needs never runs; what is repeated is tried on this device.

    The costliest repeated operator is recorded n and 2n times on the same inputs and settled whole, against single
    calls on fresh inputs (:func:`~referee.bench.proof.prove_window`): further calls that add nothing were merged.
    Nothing is said where each was seen to run. Without ``prove``, and where the operator is too small for the clock,
    that is left open.
    """
    known = seen.redundancy if isinstance(seen, KnowsRedundancy) else None
    if device.settling is not Settling.LAZY or known is None:
        return ()
    return (*_dropped(known), *_merged(known.repeated, device=device, prove=prove))


def _dropped(known: Redundancy) -> Iterable[Finding]:
    if known.dropped_frac < UNRUN_FRAC:
        return
    yield Finding(
        code="work-dropped",
        severity="warning",
        message=f"No output needs {_list(known.dropped)} of what the step records, {format_frac(known.dropped_frac)} "
        "of its work: a recording device does not run them with it, and they are not in the time.",
        evidence={
            "calls": sum(known.dropped.values()),
            "work_frac": known.dropped_frac,
            "threshold": UNRUN_FRAC,
        },
        hint=_HINT,
    )


def _merged(repeated: Repeated | None, *, device: Device, prove: bool) -> Iterable[Finding]:
    if repeated is None or repeated.work_frac < UNRUN_FRAC:
        return
    for _ in range(_TRIALS):
        tried = _try(repeated, device) if prove else None
        if tried is None or not tried.each_ran:
            break
    else:
        return
    proof = None if tried is None else tried.proof
    merged = proof is not None and proof.outcome == "did-not-run"
    more = sum(repeated.operators.values()) - (repeated.times - 1)
    evidence: dict[str, Scalar] = {
        "operator": repeated.operator,
        "recorded": repeated.times,
        "further_repeats": more,
        "work_frac": repeated.work_frac,
        "threshold": UNRUN_FRAC,
    }
    recorded = (
        f"The step records `{repeated.operator}` {repeated.times} times on the same inputs"
        f"{f', and {more} other calls that repeat one' if more else ''}: {format_frac(repeated.work_frac)} of its work "
        "is there already."
    )
    answer = "The compiler merges them: what is timed is one." if merged else _left_open(repeated, tried)
    yield Finding(
        code="repeats-merged" if merged else "repeats-recorded",
        severity="warning",
        message=f"{recorded} {answer}",
        evidence=evidence if proof is None else {**evidence, **proof.evidence},
        hint=_HINT,
    )


def _list(counts: Mapping[str, int]) -> str:
    names = list(counts)
    shown = ", ".join(f"{counts[name]} `{name}`" for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {sum(counts[name] for name in names[3:])} other calls"


def _left_open(repeated: Repeated, tried: _Tried | None) -> str:
    what = "Whether the compiler merges them cannot be told here"
    if tried is not None and tried.proof.outcome == "ran" and not tried.proof.steady and tried.work_ns > 0:
        return f"{what}: the time of several is too unsteady."
    if tried is not None and tried.proof.disturbed:
        return f"{what}: hardly a single one was free of preemption."
    if tried is not None:
        return f"{what}: one of them alone is too short for the clock."
    if repeated.again is None:
        return f"{what}: inputs of their kind cannot be made up."
    return f"{what}: it was not tried."


def _try(repeated: Repeated, device: Device) -> _Tried | None:
    """The costliest one on made-up inputs; ``None`` where it cannot be built or does not take them."""
    build = repeated.again
    if build is None:
        return None
    try:
        same = build()
        proof = prove_window(lambda count: device.settle([same() for _ in range(count)]), device=device, fresh=build)
        return _Tried(proof, min(_recording_ns(same, device) for _ in range(REPEATS)))
    except (RuntimeError, KeyboardInterrupt):  # made-up inputs need not be valid ones; the number stands all the same
        return None


def _recording_ns(same: Step, device: Device) -> float:
    """What one call costs the host, nothing awaited."""
    start_ns = device.now_ns()
    outputs = [same() for _ in range(CALLS)]
    spent_ns = device.now_ns() - start_ns
    device.settle(outputs)
    return spent_ns / CALLS
