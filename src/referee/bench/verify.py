"""Does a saved number hold here? Held against the same measurement made again, under the same conditions or not."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from typing import Literal

from referee.bench.core_clock import clock_ratio, ratio_at_one_clock
from referee.bench.follows import broken_figures
from referee.bench.plan import MOST_BUDGET_NS, Plan
from referee.errors import OptionError, UserError
from referee.records.check import Check
from referee.records.finding import fatal
from referee.records.measurement import Measurement, Sweep
from referee.records.provenance import NOT_READ, Difference, Provenance, check_keys, differences
from referee.records.verify import Verification, VerifyAnswer
from referee.units import format_frac

TOLERANCE_FRAC = 0.05
"""Between processes memory layout alone moves a tiny operation by 2-4 %: less cannot be told from two processes."""

_DOUBTFUL = ("disturbed", "not-steady", "few-samples", "drifting", "slow-calls")
"""Warnings under which a ratio that is somewhat off proves nothing."""

_SAME_CLOCK_FRAC = 0.01
"""A core whose clock differs by less than this is not worth a word."""

FAR_FACTOR = 3.0
"""A ratio whose interval lies this many tolerances away is not reproduced even where the rerun was disturbed."""


def saved_measurement(record: object, *, path: str, at: str | None, option: str = "--at ") -> Measurement:
    """The measurement in a record: its own, that of a check, or that of the point ``at`` of a sweep.

    ``option`` is how a point is named where this was asked. Raises :class:`~referee.errors.OptionError` for any other
    record, and for a point that the sweep does not have.
    """
    if isinstance(record, Sweep):
        return _point(record, path=path, at=at, option=option)
    kind = getattr(record, "schema", None) or type(record).__name__
    if at is not None:
        raise OptionError(f"{option.rstrip(' =')} names a point of a sweep, and {path} is a {kind}.")
    if isinstance(record, Check):
        return record.measurement
    if isinstance(record, Measurement):
        return record
    raise OptionError(
        f"{path} is a {kind}; a measurement, a check, or a point of a sweep can be verified.",
        hint="Run the command that wrote it once more, and lay the two side by side.",
    )


def _point(sweep: Sweep, *, path: str, at: str | None, option: str) -> Measurement:
    points = {point.label or f"{point.value:.15g}": point for point in sweep.points}
    numbered = {point.value: point for point in points.values() if not point.label}
    found = points.get(at or "") or numbered.get(_number(at))
    if found is None:
        has = f"has no point {at}" if at is not None else "holds several measurements"
        hint = f"Name one: {' or '.join(option + point for point in points)}." if points else ""
        raise OptionError(f"{path}, a sweep over {sweep.parameter}, {has}.", hint=hint)
    return found.measurement


def _number(text: str | None) -> float:
    """The number that ``text`` writes, however it does; one that is like no other where it writes none."""
    try:
        return float(text or "nan")
    except ValueError:
        return float("nan")


def check_tolerance(tolerance_frac: float) -> None:
    """Can the ratio be held against this? Raises :class:`~referee.errors.OptionError` where not."""
    if not 0 < tolerance_frac < 1:
        raise OptionError("The tolerance must lie between 0 and 100 percent.")


def plan_of(saved: Measurement, *, plan: Plan | None = None) -> Plan:
    """The plan by which ``saved`` was measured, as far as its provenance states it."""
    base = Plan() if plan is None else plan
    budget, target = saved.provenance.value("method.budget_ns"), saved.provenance.value("method.block_target_ns")
    if isinstance(budget, int) and budget > 0:
        if budget > MOST_BUDGET_NS:
            raise UserError(f"The saved measurement {saved.name!r} states a budget of more than a day.")
        base = with_budget(base, budget)
    if isinstance(target, int) and 0 < target <= base.budget_ns:
        base = replace(base, block_target_ns=target)
    return replace(base, level=saved.ci_level)


def with_budget(plan: Plan, budget_ns: int) -> Plan:
    """The plan with another budget."""
    return replace(plan, budget_ns=budget_ns, min_ns=min(plan.min_ns, budget_ns))


def target_of(saved: Measurement) -> str:
    """What was measured, as it was named then. Raises :class:`~referee.errors.UserError` where nothing names it."""
    named = saved.provenance.value("method.target")
    if not isinstance(named, str) or named == NOT_READ:
        raise UserError(
            f"The saved measurement {saved.name!r} does not say what was measured.",
            hint="What `referee bench TARGET --json PATH` wrote can be run again from the file alone; for a callable "
            "of a notebook there is referee.verify(PATH, f, *args).",
        )
    return named


def setup_of(saved: Measurement) -> str | None:
    """What ran once before the statement that was measured; ``None`` where it was no statement."""
    setup = saved.provenance.value("method.setup")
    return setup if isinstance(setup, str) and setup != NOT_READ else None


def cache_of(saved: Measurement) -> Literal["warm", "flushed", "rotated"]:
    """The state of the caches before each call, as it was asked for then."""
    stated = str(saved.provenance.value("method.cache_state"))
    return "flushed" if stated.startswith("flushed") else "rotated" if stated.startswith("rotated") else "warm"


def threads_of(saved: Measurement) -> int | None:
    """How many intra-op threads computed then; ``None`` where that is not stated."""
    threads = saved.provenance.value("chip.threads")
    return threads if isinstance(threads, int) and threads > 0 else None


def parameters_of(saved: Measurement) -> dict[str, str]:
    """The values of the target's parameters then, as text, by name; empty where it declared none."""
    stated = saved.provenance.value("method.parameters")
    if not isinstance(stated, str) or stated == NOT_READ:
        return {}
    try:
        found = json.loads(stated)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UserError(f"The saved measurement {saved.name!r} states parameters that cannot be read: {stated[:80]}.")
    return {str(name): str(value) for name, value in found.items()}


def device_of(saved: Measurement) -> str:
    """Where it was measured: as the target was told, else where the tensors lived that entered, else on the CPU."""
    told = parameters_of(saved).get("device")
    lived = (spec.device for spec in saved.provenance.shapes if spec.device and spec.device != "cpu")
    return told or next(lived, "cpu")


def verify(
    saved: Measurement,
    again: Measurement,
    *,
    tolerance_frac: float = TOLERANCE_FRAC,
    ignoring: Collection[str] = (),
) -> Verification:
    """Hold ``again``, measured here, against ``saved``.

    Not comparable: the saved figures do not follow from the saved samples, or a key that must match differs (another
    chip, dtype, shape, thread count, torch, switch), except those in ``ignoring``. Keys that the saved file does not
    state ("not read") are not held against it. Cannot tell: one of the two has no headline; or one of them was
    disturbed, or stands on too few samples, while the ratio is outside of the tolerance but not far from it; or the
    interval of the ratio straddles the tolerance. Otherwise reproduced if the whole interval of the ratio lies within
    the tolerance, which is two-sided: much faster is not the same number either. Raises
    :class:`~referee.errors.OptionError` for a key in ``ignoring`` that provenance does not know.
    """
    check_keys(ignoring)
    check_tolerance(tolerance_frac)
    differing = tuple(
        d for d in differences(saved.provenance, again.provenance, ignoring=ignoring) if NOT_READ not in (d.a, d.b)
    )
    ratio, low, high = _ratio(saved, again)
    broken = broken_figures(saved)
    answer, why = _answer(
        saved, again, differing, broken, ratio=ratio, low=low, high=high, tolerance_frac=tolerance_frac
    )
    slower, at_one = (None, None) if broken else (clock_ratio(saved, again), ratio_at_one_clock(saved, again))
    why += _clock_words(slower, at_one) + _code_words(saved.provenance, again.provenance)
    return Verification(
        name=saved.name,
        answer=answer,
        why=why,
        ratio=ratio,
        ci_low=low,
        ci_high=high,
        tolerance_frac=tolerance_frac,
        saved=saved,
        again=again,
        differences=differing,
        provenance=again.provenance,
        findings=again.findings,
        core_clock_ratio=slower,
        ratio_at_one_clock=at_one,
    )


def _ratio(saved: Measurement, again: Measurement) -> tuple[float | None, float | None, float | None]:
    """Time here / time saved of the floors (else the medians), with the relative widths of both medians' intervals."""
    then, now = saved.floor_ns, again.floor_ns
    if then is None or now is None:
        then, now = saved.median_ns, again.median_ns
    if not then or now is None:
        return None, None, None
    ratio = now / then
    width = (_half_width(saved) ** 2 + _half_width(again) ** 2) ** 0.5
    return ratio, ratio * max(0.0, 1 - width), ratio * (1 + width)


def _half_width(measurement: Measurement) -> float:
    """Half of the interval as a share of the median, no more than 1."""
    low, high, median = measurement.ci_low_ns, measurement.ci_high_ns, measurement.median_ns
    if low is None or high is None or not median:
        return 0.0
    return min(1.0, (high - low) / 2 / median)


def _answer(
    saved: Measurement,
    again: Measurement,
    differing: tuple[Difference, ...],
    broken: tuple[str, ...],
    *,
    ratio: float | None,
    low: float | None,
    high: float | None,
    tolerance_frac: float,
) -> tuple[VerifyAnswer, str]:
    if broken:
        return "not-comparable", f"the saved figures do not follow from the saved samples ({'; '.join(broken[:3])})"
    if differing:
        words = "; ".join(f"{d.path}: {d.a} then, {d.b} here" for d in differing)
        return "not-comparable", f"it was measured under other conditions ({words})"
    if ratio is None or low is None or high is None:
        which = "the saved measurement" if saved.median_ns is None else "the measurement here"
        reasons = fatal(saved.findings if saved.median_ns is None else again.findings)
        return "cannot-tell", f"{which} has no headline number" + (f": {reasons[0].message}" if reasons else "")
    within = 1 / (1 + tolerance_frac), 1 + tolerance_frac
    far = 1 / (1 + FAR_FACTOR * tolerance_frac), 1 + FAR_FACTOR * tolerance_frac
    percent = format_frac(tolerance_frac)
    if within[0] <= low and high <= within[1]:
        return "reproduced", f"the time here is {ratio:.3f} of the saved one, within {percent}"
    doubts = [*_doubts("then", saved), *_doubts("here", again)]
    outside = low > within[1] or high < within[0]
    if outside and (not doubts or low > far[1] or high < far[0]):
        return "not-reproduced", f"the time here is {ratio:.3f} of the saved one, further off than {percent}"
    if outside:
        return "cannot-tell", f"the ratio is {ratio:.3f}, but it may not be the step's ({', '.join(doubts)})"
    return (
        "cannot-tell",
        f"the ratio's interval, {low:.3f} to {high:.3f}, reaches over the tolerance of {percent}: a longer --budget "
        "may tell",
    )


def _doubts(when: str, measurement: Measurement) -> list[str]:
    """What makes a ratio that is somewhat off prove nothing: ``disturbed then``, ``few-samples here``."""
    codes = dict.fromkeys(f.code for f in measurement.findings if f.severity == "warning" and f.code in _DOUBTFUL)
    return [f"{code} {when}" for code in codes]


def _clock_words(slower: float | None, at_one: float | None) -> str:
    """How much of the ratio is the core's clock, where it was read then and here? In times, as the ratio is."""
    if slower is None or at_one is None or abs(slower - 1) <= _SAME_CLOCK_FRAC:
        return ""
    word = "slower" if slower > 1 else "faster"
    return (
        f"; the core itself ran {word} here (the same instructions took {slower:.3f} of their time then), at one clock "
        f"the ratio is {at_one:.3f}"
    )


def _code_words(then: Provenance, here: Provenance) -> str:
    """Is it other code that is measured here, by what both state of it?"""
    for path, words in (
        ("software.source_digest", "the target's file has been edited since"),
        ("software.git_commit", "the code is at another commit"),
    ):
        if NOT_READ not in (then.value(path), here.value(path)) and then.value(path) != here.value(path):
            return f"; {words}"
    return ""
