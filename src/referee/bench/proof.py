"""Did the work run inside the timed window? The slope between n and 2n calls against one settled call on fresh inputs.

Time that grows in proportion to the number of calls proves nothing: recording a lazy graph grows in proportion too, and
so does looking up a cached result. What proves it is how much each further call adds, held against one call on inputs
that were never used before, settled on its own output.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from referee.bench.loop import issue, keeps_outputs
from referee.bench.plan import Step
from referee.device.protocol import Device, Settling
from referee.records.finding import Finding, Scalar
from referee.units import format_frac, format_ns

Window: TypeAlias = Callable[[int], object]
"""A way of timing: makes that many calls and settles them as it thinks fit."""

CALLS = 8
REPEATS = 7

RAN_FRAC = 0.5
"""A further call must add at least this share of one settled call. On a lazy backend patterns that drop or never run
their work added at most 0.012 of it, patterns that run it 0.67 and more."""

RAN_FRAC_SYNCHRONOUS = 0.2
"""Where calls are not deferred only a result that is kept can be missing work; it adds next to nothing, while a first
call on new memory may well take twice as long as a repeated one."""

UNSTEADY_RATIO = 0.3
UNSTEADY_FRAC = 1.5
SPREAD_FACTOR = 3.0
"""One call must cost this many times its own spread more than settling alone, or nothing can be concluded."""

_FRESH_BLOCK_NS = 100_000
_FRESH_MOST = 8

Outcome = Literal["ran", "did-not-run", "cannot-prove"]


@dataclass(frozen=True, kw_only=True)
class Proof:
    """The outcome and its figures, in nanoseconds per call.

    ``one_ns``: one call on fresh inputs, settled. ``settle_ns``: the same with nothing to compute. ``slope_ns``: what
    each further call adds to the window. ``ratio``: T(2n)/T(n). ``steady``: ratio near 2 and slope near one call.
    """

    outcome: Outcome
    slope_ns: float
    one_ns: float
    one_spread_ns: float
    settle_ns: float
    ratio: float
    calls: int
    steady: bool
    threshold_frac: float

    @property
    def slope_frac(self) -> float:
        """What a further call adds, as a share of one settled call less the settling."""
        work_ns = self.one_ns - self.settle_ns
        return self.slope_ns / work_ns if work_ns > 0 else float("inf")

    @property
    def evidence(self) -> dict[str, Scalar]:
        """The figures for a finding."""
        return {
            "slope_ns": self.slope_ns,
            "one_ns": self.one_ns,
            "settle_ns": self.settle_ns,
            "one_spread_ns": self.one_spread_ns,
            "slope_frac": self.slope_frac,
            "threshold": self.threshold_frac,
            "ratio_2n_n": self.ratio,
            "calls": self.calls,
        }


def prove(step: Step, *, device: Device, fresh: Callable[[], Step], calls: int = CALLS) -> Proof:
    """Does the work of ``step`` run when it is timed the way Referee times it?

    ``fresh`` returns a step of the same kind on inputs that were not used before. Takes about 21 · T(calls).
    """
    keep = keeps_outputs(device)

    def window(count: int) -> None:
        device.settle(issue(step, count, keep=keep))

    return prove_window(window, device=device, fresh=fresh, calls=calls)


def prove_window(window: Window, *, device: Device, fresh: Callable[[], Step], calls: int = CALLS) -> Proof:
    """Does the work run inside ``window``, whoever wrote it and however it settles?

    Medians of :data:`REPEATS` interleaved windows of n and 2n calls. Whatever a window leaves unfinished is finished
    outside of the timed part, so that it cannot fall into the next one.
    """
    one_ns, spread_ns, settle_ns = _one_call(fresh, device=device)
    for count in (calls, 2 * calls):
        window(count)  # pays for the graphs of these sizes
        device.settle()
    single, double = [], []
    for _ in range(REPEATS):
        single.append(_timed(window, calls, device=device))
        double.append(_timed(window, 2 * calls, device=device))
    t_n, t_2n = float(np.median(single)), float(np.median(double))
    return judge(
        slope_ns=(t_2n - t_n) / calls,
        ratio=t_2n / t_n if t_n else float("inf"),
        one_ns=one_ns,
        one_spread_ns=spread_ns,
        settle_ns=settle_ns,
        calls=calls,
        synchronous=device.settling is Settling.SYNCHRONOUS,
    )


def judge(
    *,
    slope_ns: float,
    ratio: float,
    one_ns: float,
    one_spread_ns: float,
    settle_ns: float,
    calls: int,
    synchronous: bool,
) -> Proof:
    """The outcome from the figures. A low slope means no work; a high one means noise, never missing work."""
    threshold = RAN_FRAC_SYNCHRONOUS if synchronous else RAN_FRAC
    work_ns = one_ns - settle_ns
    outcome: Outcome
    if work_ns <= 0 or work_ns < SPREAD_FACTOR * one_spread_ns:
        outcome = "cannot-prove"
    else:
        outcome = "did-not-run" if slope_ns < threshold * work_ns else "ran"
    steady = abs(ratio - 2) <= UNSTEADY_RATIO and slope_ns <= UNSTEADY_FRAC * work_ns
    return Proof(
        outcome=outcome,
        slope_ns=slope_ns,
        one_ns=one_ns,
        one_spread_ns=one_spread_ns,
        settle_ns=settle_ns,
        ratio=ratio,
        calls=calls,
        steady=steady,
        threshold_frac=threshold,
    )


def proof_findings(proof: Proof, *, device: Device) -> tuple[Finding, ...]:
    """What the proof means for the number."""
    if proof.outcome == "cannot-prove":
        if device.settling is Settling.SYNCHRONOUS:
            return ()  # nothing is deferred there: a result that is kept would have shown, a slow machine need not
        return (
            Finding(
                code="work-not-proved",
                severity="info",
                message="One call cannot be told from settling alone, so nothing proves that the work ran.",
                evidence=proof.evidence,
                hint="Measure a larger step, or on a quieter machine.",
            ),
        )
    if proof.outcome == "ran":
        return ()
    cached = device.settling is Settling.SYNCHRONOUS
    return (
        Finding(
            code="cached-result" if cached else "work-did-not-run",
            severity="fatal",
            message=f"Each further call adds {format_ns(proof.slope_ns)}, {format_frac(max(0.0, proof.slope_frac))} of "
            f"one call on fresh inputs ({format_ns(proof.one_ns)}): "
            + ("its result is kept somewhere." if cached else "the work did not run in the timed window."),
            evidence=proof.evidence,
            hint="Use the result of every call, and see that none is answered from a cache.",
        ),
    )


def _one_call(fresh: Callable[[], Step], *, device: Device) -> tuple[float, float, float]:
    """One call on fresh inputs: its median, its spread (twice median less lower quartile), and the cost of settling.

    The spread is that of the lower half, because what disturbs a reading only ever lengthens it.

    On a synchronous device several fresh calls make one reading: a single cold call of a few microseconds would be
    mostly the cost of being cold.
    """
    several, alive = 1, list[Step]()
    if device.settling is Settling.SYNCHRONOUS:
        several = min(
            _FRESH_MOST, max(1, _FRESH_BLOCK_NS // max(1, round(_fresh_block(fresh, 1, device=device, alive=alive)[0])))
        )
    readings, settles = [], []
    for _ in range(REPEATS):
        one_ns, settle_ns = _fresh_block(fresh, several, device=device, alive=alive)
        readings.append(one_ns)
        settles.append(settle_ns)
    low, middle = np.quantile(readings, (0.25, 0.5))
    return float(middle), float(2 * (middle - low)), float(np.median(settles)) / several


def _fresh_block(fresh: Callable[[], Step], count: int, *, device: Device, alive: list[Step]) -> tuple[float, float]:
    """Time per call of ``count`` calls, each on inputs of its own, and the cost of settling their outputs once more.

    The steps are kept in ``alive``: a cache that goes by identity would take a new input for one that has died.
    """
    steps = [fresh() for _ in range(count)]
    alive += steps
    device.settle()
    start_ns = device.now_ns()
    outputs = [step() for step in steps]
    device.settle(outputs)
    done_ns = device.now_ns()
    device.settle(outputs)
    return (done_ns - start_ns) / count, device.now_ns() - done_ns


def _timed(window: Window, count: int, *, device: Device) -> int:
    start_ns = device.now_ns()
    kept = window(count)
    elapsed_ns = device.now_ns() - start_ns
    del kept  # an output that only this harness would keep alive must not be run by the settle below
    device.settle()
    return elapsed_ns
