"""Does this fix pay on this step? Predict, apply, hold against eager, time side by side, and say what came of it."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any

from referee.bench.compare import COMPARE_PLAN, COMPARED, Candidate, compare
from referee.bench.measure import measure
from referee.bench.plan import Plan, ProgressCallback, no_progress
from referee.device.host import load_torch
from referee.device.memory import measure_memory
from referee.device.observe import Observation, observe
from referee.device.protocol import Device
from referee.device.provenance import collect
from referee.errors import CannotTell, RefereeError
from referee.records.compare import Comparison
from referee.records.finding import Finding
from referee.records.remedy import Counts, FixTried, OutputCheck, Prediction, RemedyReport
from referee.remedy.check import Outcome, hold_against, pin_random, reuses_memory, run_once
from referee.remedy.compiled_costs import time_of
from referee.remedy.compiler import CompilerLog, kernels_made, listening
from referee.remedy.content import Content, read_content
from referee.remedy.fix import Fix, Loaded, Situation, Step
from referee.remedy.predict import Machine, predict
from referee.remedy.reference import hold_by_float64
from referee.remedy.settling import settled_at, settling_words, spent_ns, timed
from referee.target import Target
from referee.target.errors import describe, user_place
from referee.units import NS_PER_MS

Load = Callable[[], Target]
"""Builds the target anew; two that were built after the same seed must hold the same weights."""

_QUICK = Plan(budget_ns=200 * NS_PER_MS, min_ns=100 * NS_PER_MS, clocks=("settled_amortised",))
_NOTHING_COMPILED = "the compiler was given nothing of it: what runs is code that it leaves alone, torch's own say"
_STEADY_CALLS = 10
"""Calls after the first in which a step that recompiles every time gives itself away (the limit is eight)."""


@dataclass(frozen=True)
class _Applied:
    """A fix in place and held against eager; ``eager`` is the side that it was held against."""

    eager: Loaded
    step: Step
    check: OutputCheck | None
    calls_ns: tuple[int, ...]
    """How long the first calls took, where something is compiled."""
    log: CompilerLog
    kernels: int
    steady: bool
    failed: str
    left: tuple[str, ...]
    """What a call has left behind that will fail later."""
    outcomes: tuple[Outcome, Outcome] | None
    """Eager's and the fix's, where they differ."""


def attempt(
    fix: Fix, load: Load, *, device: Device, budget_ns: int, progress: ProgressCallback = no_progress
) -> RemedyReport:
    """Try one fix. What a fix raises is its reason; what the target's own step raises passes through."""
    pin_random()
    probe = Loaded.of(load())
    device.settle(probe.step())
    seen = observe(probe.step, device)
    situation = Situation(device=device, seen=seen, loaded=probe)
    blank = FixTried(name=fix.name, title=fix.title, how=fix.how, attacks=fix.attacks, applied=False)
    why_not = fix.why_not(situation)
    if why_not:
        return _report(replace(blank, why_not=why_not), seen, probe.target, device)
    content, prediction = _first_guess(fix, situation)
    guessed = _with_prediction(replace(blank, notes=fix.finds(situation)), prediction)
    try:
        applied = _apply(fix, load, situation)
    except Exception as error:  # noqa: BLE001 - a fix may fail in any way: the compiler, the user's code under it, CUDA
        return _report(replace(guessed, why_not=_reason(error)), seen, probe.target, device)
    tried = _tried(guessed, applied)
    refused = _refused(applied)
    if refused:
        return _report(replace(tried, why_not=refused), seen, probe.target, device)
    compared = _time(fix, applied, seen, device=device, budget_ns=budget_ns, progress=progress)
    counted = replace(
        tried,
        before=_counts(applied.eager.step, device, operators=content.calls if content else None),
        after=_counts(
            applied.step,
            device,
            operators=None if fix.compiles or content is None else read_content(applied.step, device=device).calls,
            kernels=applied.kernels if fix.compiles else None,
        ),
    )
    return RemedyReport(
        name=probe.target.name,
        fixes=(_measured(counted, compared, fix, prediction, cost_ns=spent_ns(applied.calls_ns)),),
        provenance=compared.provenance,
        findings=tuple(f for f in compared.findings if f.code != "few-samples"),
    )


def _tried(guessed: FixTried, applied: _Applied) -> FixTried:
    """The fix with what applying it has shown, before it is timed."""
    check = applied.check
    return replace(
        guessed,
        applied=True,
        outputs_match=None if check is None else check.match,
        check=check,
        first_call_ns=applied.calls_ns[0] if applied.calls_ns else None,
        settled_at_call=settled_at(applied.calls_ns),
        notes=(
            *guessed.notes,
            *applied.left,
            *settling_words(applied.calls_ns),
            *applied.log.words(),
            *(() if check is None else check.notes),
        ),
    )


def _refused(applied: _Applied) -> str:
    """Why a fix that could be applied is not timed; empty where it is."""
    if applied.check is not None and applied.check.match is False:
        return "outputs differ from eager's: " + "; ".join(applied.check.differences[:3])
    if applied.failed:
        return applied.failed
    if not applied.steady:
        words = applied.log.words()[:2] or ("no guard was named",)
        return "it compiles again in every call, up to the limit: " + "; ".join(words)
    return ""


def first_guess(fix: Fix, load: Load, *, device: Device) -> Prediction | None:
    """What ``fix`` should gain on this target, before it is tried; ``None`` where only trying says."""
    pin_random()
    loaded = Loaded.of(load())
    device.settle(loaded.step())
    return _first_guess(fix, Situation(device=device, seen=observe(loaded.step, device), loaded=loaded))[1]


def refusals(fixes: Sequence[Fix], load: Load, *, device: Device) -> dict[str, FixTried]:
    """Which fixes make no sense for this target, by name? Builds and watches the step once; tries nothing."""
    pin_random()
    loaded = Loaded.of(load())
    device.settle(loaded.step())
    situation = Situation(device=device, seen=observe(loaded.step, device), loaded=loaded)
    reasons = {fix: fix.why_not(situation) for fix in fixes}
    return {fix.name: declined(fix, why_not) for fix, why_not in reasons.items() if why_not}


def declined(fix: Fix, why_not: str) -> FixTried:
    """A fix that was not applied, and why."""
    return FixTried(
        name=fix.name, title=fix.title, how=fix.how, attacks=fix.attacks, applied=False, why_not=why_not.rstrip(".")
    )


def _first_guess(fix: Fix, situation: Situation) -> tuple[Content | None, Prediction | None]:
    """What the step is made of, and the range written down before anything is tried."""
    if situation.seen.compiled != "no" or situation.device.name == "lazy":
        return None, None
    content = read_content(situation.loaded.step, device=situation.device)
    try:
        step_ns = time_of(measure(situation.loaded.step, device=situation.device, plan=_QUICK, name="eager"))
    except CannotTell:
        return content, None
    return content, predict(fix, situation, content, step_ns=step_ns, machine=Machine(situation.device))


def _with_prediction(tried: FixTried, prediction: Prediction | None) -> FixTried:
    if prediction is None:
        return replace(tried, predicted_basis="only trying says")
    return replace(
        tried,
        predicted_ratio=prediction.ratio,
        predicted_low=prediction.low,
        predicted_high=prediction.high,
        predicted_basis=prediction.basis,
        measure_it=prediction.measure_it,
    )


def _reason(error: BaseException) -> str:
    """The error in one line; errors of our own say it themselves."""
    if isinstance(error, RefereeError):
        return error.message
    text, place = describe(error), user_place(error.__traceback__, users_alone=True)
    return " ".join(text.split())[:400] + (f" at {place}" if place else "")


def _pair(load: Load, other: Load) -> tuple[Loaded, Loaded]:
    """Both sides, built from the same seed."""
    pin_random()
    eager = Loaded.of(load())
    pin_random()
    return eager, Loaded.of(other())


def _apply(fix: Fix, load: Load, situation: Situation) -> _Applied:
    applied = _apply_once(fix, load, situation)
    check = applied.check
    if check is None or check.match is not False:
        return applied
    if not _eager_repeats(load, situation):
        words = "eager's own outputs differ from build to build: seed it, so that they can be compared"
        check = replace(check, match=None, differences=(), notes=(*check.notes, words))
        return replace(applied, check=check, outcomes=None)
    if fix.compiles and situation.seen.random_ops:
        return _with_eagers_random_numbers(applied, fix, load, situation)
    assert applied.outcomes is not None
    by_float64 = hold_by_float64(check, *applied.outcomes, fix=fix, load=load, situation=situation)
    return replace(applied, check=by_float64, outcomes=None)


def _apply_once(fix: Fix, load: Load, situation: Situation) -> _Applied:
    device = situation.device
    eager, own = _pair(load, fix.build or load)
    shared = [m for m in own.held.modules if any(m is other for other in eager.held.modules)]
    if shared and fix.name not in _WRAPPERS:
        name = type(shared[0]).__name__
        raise RuntimeError(f"the target hands out the same {name} each time: let it be a factory that builds one")
    made = kernels_made()
    if fix.compiles:
        load_torch().compiler.reset()  # what an earlier try compiled would be found again, and cost nothing
    frames = device.counters().get("compile.frames")
    with listening(own.step) if fix.compiles else nullcontext(CompilerLog()) as log:
        step = fix.apply(own, situation)
        check, outcomes, calls_ns = None, None, list[int]()
        called = timed(step, device, calls_ns) if fix.compiles else step
        if fix.items == 1:
            expected = run_once(eager.step, eager, device=device)
            found = run_once(called, own, device=device)
            expected, found = _with_reuse(expected, eager.step, device), _with_reuse(found, called, device)
            check = hold_against(expected, found, fix=fix, dtype=situation.seen.dtype)
            outcomes = None if check.match is not False else (expected, found)
        steady = _is_steady(called, device) if fix.compiles else True
    return _Applied(
        eager=eager,
        step=step,
        check=check,
        calls_ns=tuple(calls_ns),
        log=log,
        kernels=kernels_made() - made,
        steady=steady,
        failed=_NOTHING_COMPILED
        if fix.compiles and frames is not None and device.counters().get("compile.frames") == frames
        else fix.failed(step, situation),
        left=fix.leaves(own),
        outcomes=outcomes,
    )


_WRAPPERS = ("inference-mode", "no-grad", "larger-batch", "cuda-graph", "keep-layout")
"""Fixes that leave what the step holds as it is."""


def _with_reuse(outcome: Outcome, step: Step, device: Device) -> Outcome:
    return replace(outcome, reuses_memory=reuses_memory(step, device=device))


def _is_steady(step: Step, device: Device) -> bool:
    """Whether compilation stops: a few calls may compile, as shapes become dynamic, but not most of them.

    At its limit of eight the compiler gives up and runs eager for good, so the last calls alone would look steady.
    """
    compiled = 0
    for _ in range(_STEADY_CALLS):
        before = device.counters()
        device.settle(step())
        compiled += device.counters().get("compile.frames", 0) > before.get("compile.frames", 0)
    return compiled <= _STEADY_CALLS // 3


def _eager_repeats(load: Load, situation: Situation) -> bool:
    """Whether eager agrees with itself when it is built and called again."""
    one, two = _pair(load, load)
    a = run_once(one.step, one, device=situation.device)
    b = run_once(two.step, two, device=situation.device)
    plain = Fix(name="eager", title="", how="", attacks="", apply=lambda loaded, _: loaded.step, update_tolerance=1e-3)
    return hold_against(a, b, fix=plain, dtype=situation.seen.dtype).match is True


def _with_eagers_random_numbers(applied: _Applied, fix: Fix, load: Load, situation: Situation) -> _Applied:
    """Compiled code draws other random numbers from the same seed: compared again with eager's generator in it."""
    torch = load_torch()
    torch.compiler.reset()
    config: Any = importlib.import_module("torch._inductor.config")
    with config.patch(fallback_random=True):
        check = _apply_once(fix, load, situation).check
    torch.compiler.reset()
    if check is None or not check.match:
        return applied
    ops = ", ".join(situation.seen.random_ops)
    words = f"outputs differ by random numbers alone ({ops}); with eager's generator (fallback_random) they are equal"
    again = _apply_once(fix, load, situation)
    return replace(again, check=replace(check, notes=(*check.notes, words)), outcomes=None)


def _time(
    fix: Fix, applied: _Applied, seen: Observation, *, device: Device, budget_ns: int, progress: ProgressCallback
) -> Comparison:
    plan = replace(COMPARE_PLAN, budget_ns=budget_ns, min_ns=min(COMPARE_PLAN.min_ns, budget_ns))
    sides = [
        Candidate(
            name=name,
            step=step,
            observation=of_side,
            target=applied.eager.target,
            method=seen.method,
            switches=seen.switches,
        )
        for name, step, of_side in (
            ("eager", applied.eager.step, observe(applied.eager.step, device)),
            # Watching would compile once more; what eager keeps from call to call is not the fix's.
            (fix.name, applied.step, replace(seen, kept=None)),
        )
    ]
    return compare(
        sides, device=device, plan=plan, name=fix.name, ignoring=(*COMPARED, *fix.changes), progress=progress
    )


def _measured(
    tried: FixTried, compared: Comparison, fix: Fix, prediction: Prediction | None, *, cost_ns: int | None
) -> FixTried:
    """The measured ratio per item, beside the predicted one, and what compiling costs."""
    eager, fixed = compared.sides
    if compared.ratio is None:
        return replace(tried, answer="cannot-tell", why_not=f"not timed: {compared.why}", eager_ns=eager.median_ns)
    ratio, low, high = (
        None if value is None else value / fix.items for value in (compared.ratio, compared.ci_low, compared.ci_high)
    )
    assert ratio is not None
    answer = compared.answer
    if fix.items != 1 and answer != "cannot-tell" and low is not None and high is not None:
        answer = "faster" if high < 1 else "slower" if low > 1 else "same"
    gained = "" if answer == "faster" else _no_gain(answer, compared.why)
    return replace(
        tried,
        measured_ratio=ratio,
        ci_low=low,
        ci_high=high,
        pairs=compared.pairs[0].clean_quads,
        answer=answer,
        error_frac=None if prediction is None else ratio / prediction.ratio - 1,
        inside_range=None if prediction is None else prediction.low <= ratio <= prediction.high,
        eager_ns=eager.median_ns,
        fixed_ns=None if fixed.median_ns is None else fixed.median_ns / fix.items,
        pays_after_steps=_pays_after(cost_ns, eager.median_ns, ratio),
        why_not=gained,
    )


def _no_gain(answer: str, why: str) -> str:
    words = {"slower": "it is slower here", "same": "no difference here", "cannot-tell": f"cannot tell: {why}"}
    return words[answer]


def _pays_after(cost_ns: int | None, eager_ns: float | None, ratio: float) -> int | None:
    """Steps after which what was spent before the step was steady has been won back."""
    if cost_ns is None or not eager_ns or ratio >= 1:
        return None
    return math.ceil(max(0, cost_ns) / (eager_ns * (1 - ratio)))


def _counts(step: Step, device: Device, *, operators: int | None = None, kernels: int | None = None) -> Counts:
    use = None
    with suppress(RefereeError, RuntimeError):  # no allocator that can be watched on this device
        use = measure_memory(step, device)
    return Counts(
        operators=operators,
        kernels=kernels,
        allocations=None if use is None else use.allocations,
        allocated_bytes=None if use is None else use.allocated_bytes,
    )


def _report(
    tried: FixTried, seen: Observation, target: Target, device: Device, findings: tuple[Finding, ...] = ()
) -> RemedyReport:
    """The report of a fix that was not timed."""
    provenance = collect(
        device,
        dtype=seen.dtype,
        shapes=seen.shapes,
        method={"clock": "none: not timed", **seen.method},
        target=target,
        switches=seen.switches,
    )
    return RemedyReport(name=target.name, fixes=(tried,), provenance=provenance, findings=findings)
