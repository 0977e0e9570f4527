"""What would the step give without rounding? Built anew from the same seed and called once in float64.

Only where a fix's values differ from eager's. The float64 run is the one that ``referee precision`` holds each
precision against: all that the step holds is widened, and operators that ask for a narrower dtype get float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from referee.records.remedy import OutputCheck
from referee.remedy.check import Outcome, differs_by_values, hold_against, pin_random, run_once
from referee.remedy.fix import Fix, Loaded, Situation
from referee.target import Target
from referee.target.errors import describe

_NARROW = ("float32", "float16", "bfloat16", "complex64", "complex32")


def hold_by_float64(
    check: OutputCheck,
    eager: Outcome,
    fixed: Outcome,
    *,
    fix: Fix,
    load: Callable[[], Target],
    situation: Situation,
) -> OutputCheck:
    """``check`` again, with what the step gives in float64; as it is, with the reason, where there is no float64."""
    if not differs_by_values(check):
        return check
    why_not = _why_not(eager, fix, situation)
    if not why_not:
        exact = _exact(load, situation)
        why_not = exact if isinstance(exact, str) else _unlike(eager, exact)
        if isinstance(exact, Outcome) and not why_not:
            return hold_against(eager, fixed, fix=fix, dtype=situation.seen.dtype, exact=exact)
    return replace(check, notes=(*check.notes, f"not held against float64: {why_not}"))


def _why_not(eager: Outcome, fix: Fix, situation: Situation) -> str:
    """Why the step in float64 would say nothing of rounding; else an empty text."""
    seen = situation.seen
    if fix.precision:
        return f"the fix computes in {fix.precision} by design"
    if seen.dtype == "float64":
        return "the step computes in float64 already"
    if seen.random_ops:
        return f"the step draws random numbers ({', '.join(seen.random_ops)})"
    if seen.compiled != "no":
        return "compiled code cannot be widened from outside"
    if eager.written:
        return "the step writes to its inputs"
    return ""


def _exact(load: Callable[[], Target], situation: Situation) -> Outcome | str:
    """One call in float64 of the step that is built as both sides were, or why there is none."""
    from referee.precision.accuracy import in_float64
    from referee.precision.subject import make_subject

    pin_random()
    loaded = Loaded.of(load())
    target = loaded.target
    try:
        subject = make_subject(
            loaded.step, device_type=situation.device_type, model=target.model, optimizer=target.optimizer
        )
        with in_float64(subject) as called:
            return run_once(lambda: called(loaded.step), loaded, device=situation.device)
    except Exception as error:  # noqa: BLE001 - user code that insists on its dtype: anything can come out
        return f"it does not run in float64: {' '.join(describe(error).split())[:160]}"


def _unlike(eager: Outcome, exact: Outcome) -> str:
    """Why ``exact`` is not the same step without rounding; else an empty text."""
    narrow = next((view.dtype for view in exact.outputs if view.dtype in _NARROW), "")
    narrow = narrow or next((str(g.dtype) for g in exact.gradients.values() if str(g.dtype)[6:] in _NARROW), "")
    if narrow:
        return f"run in float64, it still returns {narrow.removeprefix('torch.')}"
    if exact.nesting != eager.nesting or len(exact.outputs) != len(eager.outputs):
        return f"run in float64, it returns {exact.nesting}"
    if exact.gradients.keys() != eager.gradients.keys() or exact.buffers.keys() != eager.buffers.keys():
        return "run in float64, it leaves other gradients or buffers"
    return ""
