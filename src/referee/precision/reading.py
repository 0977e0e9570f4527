"""What can be learned of a step without timing it? Gradients, activations, autocast's casts, errors against float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from referee.precision.accuracy import Errors, errors, float64_pass
from referee.precision.activations import measure_activations
from referee.precision.audit import Audit, audit
from referee.precision.autocast import audit_record
from referee.precision.budget import USED_UP, Clock
from referee.precision.control import FP16, Setting
from referee.precision.errors import first_sentence
from referee.precision.findings import finite_findings, zero_findings
from referee.precision.forecast import forecast
from referee.precision.gradients import Gradients, measure_gradients, report_gradients
from referee.precision.overflow import Overflow, first_overflow
from referee.precision.passes import Pass, run_pass
from referee.precision.policy import policies
from referee.precision.refused import Refusal, refusal_of
from referee.precision.standing import Still, standing_still
from referee.precision.subject import Subject, restored
from referee.precision.timing import in_setting
from referee.precision.updates import count_lost_updates
from referee.precision.waits import count_scaler_waits
from referee.records.finding import Finding
from referee.records.precision import ActivationRange, AutocastAudit, GradientRange, ScalerForecast

_RANGE_FRAC = 0.2
"""By when, as a share of the budget, gradient ranges are to be done."""

_WRONG = 0.5
"""An error of this share of the right result, or none that is a number, is not rounding: fp16 keeps eleven bits. An
infinity that is divided by leaves zeros behind."""

_WITHOUT_RANGES = ("gradients-not-finite", "gradients-zero")
"""Findings of a float32 backward against which no range can be held."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What was learned of a step before it is timed."""

    refusals: Mapping[str, Refusal]
    """By low precision: why the step does not run in it."""
    ranges: GradientRange | None
    not_finite: tuple[Finding, ...]
    activations: tuple[ActivationRange, ...]
    recorded: Audit | None
    audited: AutocastAudit | None
    scaler: ScalerForecast | None
    errors: Mapping[str, Errors]
    why_no_errors: str
    overflow: Overflow | None = None
    standing: tuple[Still, ...] = ()
    """What the step keeps in few bits and updates in vain."""


def read_step(subject: Subject, low: Sequence[str], *, clock: Clock, stage: Callable[[str], None]) -> Reading:
    """Everything that needs no clock. What the ``clock`` leaves no time for is left out, with the reason."""
    refusals = {name: found for name in low if (found := why_not_run(subject, name))}
    stage("gradients")
    gradients = measure_gradients(subject)
    ranges = _ranges(subject, gradients, clock) if gradients.reference.trained else None
    not_finite = (*finite_findings(gradients.reference, subject), *zero_findings(gradients.reference, subject))
    if ranges is not None and any(finding.code in _WITHOUT_RANGES for finding in not_finite):
        # Shares of what is no number, or zero, say nothing: not that nothing vanishes, and not which scales are good.
        ranges = replace(ranges, zero_frac=None, scale_low=None, scale_high=None)
    scaler = None if ranges is None or not_finite else _forecast(subject, ranges, low, refusals, clock)
    activations = measure_activations(subject)
    stage("autocast")
    recorded = _audit(subject, low, refusals)
    audited = None if recorded is None else audit_record(subject, recorded, clock=clock)
    stage("error against float64")
    runs = [name for name in low if name not in refusals]
    wrong, why_no_errors = _errors(subject, gradients, ranges, runs, clock)
    return Reading(
        refusals=refusals,
        ranges=ranges,
        not_finite=not_finite,
        activations=activations,
        recorded=recorded,
        audited=audited,
        scaler=scaler,
        errors=wrong,
        why_no_errors=why_no_errors,
        overflow=_overflow(subject, runs, ranges, wrong.get("float16"), not_finite),
        standing=standing_still(subject),
    )


def why_not_run(subject: Subject, name: str) -> Refusal | None:
    """Why the step does not run in the low precision ``name`` here, if it does not. One whole step is tried."""
    setting = Setting(name=name, autocast=name)
    try:
        with restored(subject):
            in_setting(subject, setting)()
    except Exception as error:  # noqa: BLE001 - a missing kernel, or the user's own code: anything can come out
        return refusal_of(error)
    return None


def _overflow(
    subject: Subject,
    runs: Sequence[str],
    ranges: GradientRange | None,
    wrong: Errors | None,
    not_finite: Sequence[Finding],
) -> Overflow | None:
    """What overflows in an fp16 forward, looked for where the ranges or the errors say that something does."""
    codes = {finding.code for finding in not_finite}
    if "float16" not in runs or codes - {"gradients-zero"} or subject.compiled:
        return None
    if codes:  # weights in half may overflow into a constant
        return first_overflow(subject)
    nothing_good = ranges is not None and ranges.scale_low is None
    given = () if wrong is None else (wrong.loss, wrong.output, wrong.gradient)
    if nothing_good or any(error is not None and not error < _WRONG for error in given):
        return first_overflow(subject)
    return None


def _ranges(subject: Subject, gradients: Gradients, clock: Clock) -> GradientRange:
    return report_gradients(
        subject, gradients, lost_updates=count_lost_updates(subject), go_on=clock.before(_RANGE_FRAC)
    )


def _forecast(
    subject: Subject, ranges: GradientRange, low: Sequence[str], refusals: Mapping[str, Refusal], clock: Clock
) -> ScalerForecast | None:
    found = forecast(ranges)
    if found is None or not subject.optimizers or subject.compiled or clock.is_up:
        return found
    if "float16" in refusals or ("float16" not in low and why_not_run(subject, "float16")):
        return found
    return replace(found, waits_per_step=count_scaler_waits(subject))


def _audit(subject: Subject, low: Sequence[str], refusals: Mapping[str, Refusal]) -> Audit | None:
    """The audit in the first of the low precisions that runs here; ``None`` where none does, and for compiled code."""
    runs = [name for name in low if name not in refusals]
    if not runs or subject.compiled:
        return None
    return audit(subject, Setting(name=runs[0], autocast=runs[0]), policies=policies(subject.device_type))


def _errors(
    subject: Subject, gradients: Gradients, ranges: GradientRange | None, low: Sequence[str], clock: Clock
) -> tuple[dict[str, Errors], str]:
    """The errors of each precision by name, or why there are none."""
    if subject.compiled:
        return {}, "no float64 reference: compiled code cannot be widened from outside"
    if clock.is_up:
        return {}, f"no float64 reference: {USED_UP}"
    try:
        reference = float64_pass(subject)
    except Exception as error:  # noqa: BLE001 - user code that insists on float32: anything can come out
        return {}, f"no float64 reference: {first_sentence(error)}"
    found = {"float32": errors(gradients.reference, reference)}
    found.update((name, errors(_low_pass(subject, name, ranges), reference)) for name in low)
    return found, ""


def _low_pass(subject: Subject, name: str, ranges: GradientRange | None) -> Pass:
    """The pass in a low precision; fp16 at the highest good loss scale, as a scaler would have it."""
    if name == "float16" and ranges is not None and ranges.scale_high is not None:
        return run_pass(subject, replace(FP16, scale=ranges.scale_high))
    return run_pass(subject, Setting(name=name, autocast=name))
