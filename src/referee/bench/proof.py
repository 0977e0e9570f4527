"""Did the work run inside the timed window? The slope between n and 2n calls against one settled call on fresh inputs.

Time that grows in proportion to the number of calls proves nothing: recording a lazy graph grows in proportion too, and
so does looking up a cached result. What proves it is how much each further call adds, held against one call on inputs
that were never used before, settled on its own output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from referee.bench.loop import cutting, issue, keeps_outputs
from referee.bench.plan import Step
from referee.bench.windows import FreshCalls, Pairs, Window, time_window
from referee.device.protocol import Device, Repeat, SeesRepeats, Settling
from referee.records.finding import Finding, Scalar
from referee.units import format_frac, format_ns

CALLS = 4
"""Calls in the shorter window: few, so that windows stay short against a scheduler's slice."""

ROUNDS = 4

CLEAR_FRAC = 0.1
"""Work that did not run adds less than this share of a call, far below the threshold: then one round is enough."""

RAN_FRAC = 0.5
"""A further call must add at least this share of one settled call. On a lazy backend patterns that drop or never run
their work added at most 0.012 of it, patterns that run it 0.67 and more."""

RAN_FRAC_HANDED_OVER = 0.3
"""On a backend that runs graphs handed to it beside the host, two may run at once: 0.52 to 0.55 of a call was seen on
two cores. Loops that hand over and never wait added 0.12 of a call of 0.7 ms: the host's own part of it."""

RAN_FRAC_SYNCHRONOUS = 0.2
"""Where calls are not deferred only a result that is kept can be missing work. A first call on new memory may take
far longer than a repeated one, so that where the device sees what a call runs, that decides and not the time."""

_ANSWERED_FRAC = 0.01
"""Cold caches make a first call that computes nothing some ten times dearer, and not a hundred times."""

KEPT_FRAC = 0.002
"""Where the device could see it and saw nothing (no operator, no tensor), a further call must add less than this to be
taken for a result that is kept: new memory alone has been seen to cost 200 times a repeated call."""

UNSTEADY_RATIO = 0.3
UNSTEADY_FRAC = 1.5
SPREAD_FACTOR = 3.0
"""One call must cost this many times its own spread more than settling alone, or nothing can be concluded."""

_WINDOW_NS = 100_000
_CALLS_MOST = 1024
"""A repeated call of tens of nanoseconds is read in windows of so many, or of that length: where the shorter window is
the colder one too, four of them seemed to add -18 to -99 ns each."""

_READS_VALUE = "aten::_local_scalar_dense"

Outcome = Literal["ran", "part-ran", "did-not-run", "cannot-prove"]

_HEARD: Mapping[str, Outcome] = {"all": "ran", "part": "part-ran", "none": "did-not-run"}


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
    repeat: Repeat | None = None
    """What the device saw a repeated call do, where the time spoke against it."""
    disturbed: bool = False
    """Whether nothing is proved because hardly a reading was free of preemption."""

    @property
    def slope_frac(self) -> float:
        """What a further call adds, as a share of one settled call less the settling."""
        work_ns = self.one_ns - self.settle_ns
        return self.slope_ns / work_ns if work_ns > 0 else float("inf")

    @property
    def least_ns(self) -> float:
        """The least that a call adds whose work ran."""
        return self.threshold_frac * (self.one_ns - self.settle_ns)

    @property
    def clear(self) -> bool:
        """Whether further readings could not change the outcome: as work that ran adds up, or as none does."""
        if self.outcome == "ran":
            return self.steady
        return self.outcome == "did-not-run" and abs(self.slope_frac) < CLEAR_FRAC

    @property
    def evidence(self) -> dict[str, Scalar]:
        """The figures for a finding."""
        seen = {} if self.repeat is None else {"first_ops": self.repeat.first_ops, "again_ops": self.repeat.again_ops}
        return {
            "slope_ns": self.slope_ns,
            "one_ns": self.one_ns,
            "settle_ns": self.settle_ns,
            "one_spread_ns": self.one_spread_ns,
            "slope_frac": self.slope_frac,
            "threshold": self.threshold_frac,
            "ratio_2n_n": self.ratio,
            "calls": self.calls,
            **{name: count for name, count in seen.items() if count is not None},
        }


def prove(step: Step, *, device: Device, fresh: Callable[[], Step], calls: int = CALLS, seen: object = None) -> Proof:
    """Does the work of ``step`` run when it is timed the way Referee times it?

    ``fresh`` returns a step of the same kind on inputs that were not used before; ``seen`` is what was observed of it:
    a number that it reads back is not had without the work behind it, however dear new inputs are. Takes about
    21 · T(calls) when the outcome is clear.
    """
    keep = keeps_outputs(device)
    # Handed-over calls may run side by side, and the slope of two at once is half a call. That each of them is run is
    # counted by the backend itself (:func:`~referee.bench.guards.check_executions`); that settling waits is shown here.
    cut = None if cutting(device) is None else device.settle

    def window(count: int) -> None:
        device.settle(issue(step, count, keep=keep, cut=cut))

    proof = prove_window(window, device=device, fresh=fresh, calls=calls)
    if proof.outcome == "did-not-run" and isinstance(device, SeesRepeats):
        proof = _read_longer(proof, window, device=device)
    if proof.outcome == "did-not-run" and isinstance(device, SeesRepeats):
        return _hear(proof, device.see_repeat(step, fresh))
    if proof.outcome == "did-not-run" and proof.slope_frac >= CLEAR_FRAC and _reads_back(seen):
        return replace(proof, outcome="cannot-prove")
    return proof


def _read_longer(proof: Proof, window: Window, *, device: Device) -> Proof:
    """The same with windows that are long against what the clock and cold caches add to one."""
    four_ns, _ = time_window(window, CALLS, device=device)
    calls = int(min(_CALLS_MOST, max(proof.calls, _WINDOW_NS * CALLS / max(1.0, four_ns))))
    if calls == proof.calls:
        return proof
    pairs = Pairs(window, calls, device=device)
    pairs.read()
    return judge(
        slope_ns=pairs.slope_ns,
        ratio=pairs.ratio,
        one_ns=proof.one_ns,
        one_spread_ns=proof.one_spread_ns,
        settle_ns=proof.settle_ns,
        calls=calls,
        threshold_frac=proof.threshold_frac,
    )


def _reads_back(seen: object) -> bool:
    """Whether all that a call returns are values read back, each call's own."""
    return _READS_VALUE in getattr(seen, "ops", ()) and not getattr(seen, "outputs", ())


def _hear(proof: Proof, seen: Repeat | None) -> Proof:
    """What the time took for missing work is that only where nothing was seen to contradict it."""
    if seen is None or (seen.again == "none" and seen.first_ops == 0):
        # A first call that runs no operator either is hardly dearer than a repeated one, but for the caches; unless it
        # was answered for new inputs that lie where forgotten ones lay.
        limit = KEPT_FRAC if seen is None else _ANSWERED_FRAC
        kept = proof.slope_frac < limit
        return replace(proof, threshold_frac=limit, outcome=proof.outcome if kept else "cannot-prove")
    return replace(proof, repeat=seen, outcome=_HEARD[seen.again])


def proving_steps(step: Step, fresh: Callable[[], Step] | None, *, device: Device) -> Callable[[], Step] | None:
    """What gives single calls to hold repeated ones against; ``None`` where nothing does.

    Fresh inputs where they can be had. A recording backend runs a call that is settled alone on the same inputs too:
    held against that, calls show whether they are dropped, or merged because they are equal. A result that the step
    itself keeps does not show.
    """
    if fresh is not None:
        return fresh
    return (lambda: step) if device.settling is Settling.LAZY else None


def prove_window(window: Window, *, device: Device, fresh: Callable[[], Step], calls: int = CALLS) -> Proof:
    """Does the work run inside ``window``, whoever wrote it and however it settles?

    Interleaved readings of one fresh call and of windows of n and 2n calls (:class:`~referee.bench.windows.Pairs`);
    further rounds, up to :data:`ROUNDS`, while the outcome is not clear, or the windows, few of which are clean, had
    time for work that seems not to have run. Whatever a window leaves unfinished is finished outside of the timed part,
    so that it cannot fall into the next one.
    """
    ones = FreshCalls(fresh, device=device)
    for count in (calls, 2 * calls):
        window(count)  # pays for the graphs of these sizes
        device.settle()
    pairs = Pairs(window, calls, device=device)
    for _ in range(ROUNDS):
        pairs.read(beside=ones.read)
        proof = judge(
            slope_ns=pairs.slope_ns,
            ratio=pairs.ratio,
            one_ns=ones.calls.typical(),
            one_spread_ns=ones.calls.spread(),
            settle_ns=ones.settles.typical(),
            calls=calls,
            threshold_frac=_threshold(device),
        )
        contested = proof.outcome == "did-not-run" and pairs.had_time_for(proof.least_ns)
        if proof.clear and not contested:
            break
    # What others lengthened is the shorter window, or the call that all is held against.
    lengthened = proof.slope_frac >= CLEAR_FRAC and not ones.calls.undisturbed
    if contested or (proof.outcome == "did-not-run" and lengthened):
        return replace(proof, outcome="cannot-prove", disturbed=True)
    return proof


def _threshold(device: Device) -> float:
    if device.settling is Settling.SYNCHRONOUS:
        return RAN_FRAC_SYNCHRONOUS
    return RAN_FRAC if cutting(device) is None else RAN_FRAC_HANDED_OVER


def judge(
    *,
    slope_ns: float,
    ratio: float,
    one_ns: float,
    one_spread_ns: float,
    settle_ns: float,
    calls: int,
    threshold_frac: float,
) -> Proof:
    """The outcome from the figures. A low slope means no work; a high one means noise, never missing work."""
    work_ns = one_ns - settle_ns
    outcome: Outcome
    if work_ns <= 0 or work_ns < SPREAD_FACTOR * one_spread_ns:
        outcome = "cannot-prove"
    else:
        outcome = "did-not-run" if slope_ns < threshold_frac * work_ns else "ran"
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
        threshold_frac=threshold_frac,
    )


def proof_findings(proof: Proof, *, device: Device, anew: bool = True) -> tuple[Finding, ...]:
    """What the proof means for the number. ``anew``: the single calls were on fresh inputs."""
    if proof.outcome == "cannot-prove":
        if device.settling is Settling.SYNCHRONOUS:
            return ()  # nothing is deferred there: a result that is kept would have shown, a slow machine need not
        return (
            Finding(
                code="work-not-proved",
                severity="info",
                message=_why_not_proved(proof, single=_SINGLE[anew]),
                evidence=proof.evidence,
                hint="Measure a larger step, or on a quieter machine.",
            ),
        )
    if proof.outcome == "ran":
        return ()
    if proof.outcome == "part-ran" and proof.repeat is not None:
        return (_part_kept(proof, proof.repeat),)
    cached = device.settling is Settling.SYNCHRONOUS
    return (
        Finding(
            code="cached-result" if cached else "work-did-not-run",
            severity="fatal",
            message=f"Each further call adds {format_ns(proof.slope_ns)}, {format_frac(max(0.0, proof.slope_frac))} of "
            f"{_SINGLE[anew]} ({format_ns(proof.one_ns)}): "
            + ("its result is kept somewhere." if cached else "the work did not run in the timed window."),
            evidence=proof.evidence,
            hint="Use the result of every call, and see that none is answered from a cache."
            if cached
            else "Use the result of every call, and give each one inputs of its own: equal calls that are recorded "
            "together may be merged. What one call takes by itself is the clock that is settled per call.",
        ),
    )


_SINGLE = {True: "one call on fresh inputs", False: "one call that is settled alone"}


def _why_not_proved(proof: Proof, *, single: str) -> str:
    if proof.disturbed:
        return "Hardly a reading was free of preemption, so nothing proves that the work ran."
    work_ns = proof.one_ns - proof.settle_ns
    if proof.slope_ns < proof.least_ns and work_ns >= SPREAD_FACTOR * proof.one_spread_ns:
        return (
            f"Each further call adds {format_frac(max(0.0, proof.slope_frac))} of {single} "
            f"({format_ns(proof.one_ns)}), and reads a value back: that was computed, whether the rest was cannot be "
            "told."
        )
    return "One call cannot be told from settling alone, so nothing proves that the work ran."


def _part_kept(proof: Proof, seen: Repeat) -> Finding:
    return Finding(
        code="part-kept",
        severity="warning",
        message=f"A first call on fresh inputs runs {seen.first_ops} operators in {format_ns(proof.one_ns)}, "
        f"a repeated one {seen.again_ops} and adds {format_ns(proof.slope_ns)}: the number is of a call that finds "
        "the rest done.",
        evidence=proof.evidence,
        hint="Where real calls do not find it done, build the step so that each call does it again.",
    )
