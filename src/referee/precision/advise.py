"""Which precision for this step? All questions asked in order, within a budget: the whole of ``referee precision``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from referee.bench.measure import Seen
from referee.bench.plan import ProgressCallback, no_progress
from referee.device.provenance import Source
from referee.precision.accuracy import Errors, errors, float64_pass
from referee.precision.activations import measure_activations
from referee.precision.audit import Audit, audit, cast_shapes, group_casts
from referee.precision.control import FP16, Setting
from referee.precision.elsewhere import (
    casts_elsewhere,
    derived_differences,
    differences,
    elsewhere_findings,
    other_device,
    record_elsewhere,
)
from referee.precision.errors import first_sentence
from referee.precision.findings import finite_findings, range_findings, static_findings, watch_step
from referee.precision.forecast import forecast
from referee.precision.gradients import Gradients, measure_gradients, report_gradients
from referee.precision.passes import Pass, run_pass
from referee.precision.pays import BATCH_SIZES, find_pays_from, hopeful, measure_points, not_tried
from referee.precision.pilot import threads_for
from referee.precision.policy import policies
from referee.precision.rows import timing_rows
from referee.precision.subject import Subject, make_subject, restored
from referee.precision.timing import Conditions, Timed, in_setting, settings_for, time_casts, time_settings
from referee.precision.updates import count_lost_updates
from referee.precision.verdict import judge
from referee.precision.waits import count_scaler_waits
from referee.records.finding import Finding, Scalar
from referee.records.precision import (
    ActivationRange,
    AutocastAudit,
    GradientRange,
    PaysFrom,
    PrecisionReport,
    PrecisionTiming,
    ScalerForecast,
)
from referee.units import NS_PER_S

if TYPE_CHECKING:
    from referee.device.protocol import Device

Step: TypeAlias = Callable[[], object]
Builder: TypeAlias = Callable[[int], tuple[Step, Any, Any]]
"""Batch size → step, model and optimizer (``None`` where the step carries none)."""

BUDGET_NS = 40 * NS_PER_S
"""Wall clock for everything, of which no more is taken than the answers need. The first backward of each kind is made
whatever it takes."""

_RANGE_FRAC, _TIMING_FRAC = 0.2, 0.8
"""By when, as shares of the budget, gradient ranges and the comparison at the step's own batch size are to be done."""


@dataclass
class Clock:
    """How much of the budget is used?"""

    device: Device
    budget_ns: int
    begin_ns: int = field(init=False)

    def __post_init__(self) -> None:
        self.begin_ns = self.device.now_ns()

    def at(self, frac: float) -> int:
        """When ``frac`` of the budget is used, on the device's clock."""
        return self.begin_ns + int(frac * self.budget_ns)

    def before(self, frac: float) -> Callable[[], bool]:
        """A test whether less than ``frac`` of the budget is used."""
        return lambda: self.device.now_ns() < self.at(frac)


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Where to look from which batch size a precision pays: how the step is built, its own size, and the sizes."""

    build: Builder
    own: int | None = None
    sizes: Sequence[int] = BATCH_SIZES


def advise(
    step: Step,
    *,
    device: Device,
    name: str = "step",
    model: Any = None,
    optimizer: Any = None,
    low: Sequence[str] = ("bfloat16", "float16"),
    budget_ns: int = BUDGET_NS,
    seen: Seen | None = None,
    own_sites: bool = False,
    target: Source | None = None,
    method: Mapping[str, Scalar] | None = None,
    findings: Sequence[Finding] = (),
    sizes: Sizes | None = None,
    stage: Callable[[str], None] = lambda _: None,
    progress: ProgressCallback = no_progress,
) -> PrecisionReport:
    """Answer for ``step`` on ``device``: audit, ranges, scaler, timing, verdict. The step's state is put back.

    ``low`` are the low precisions considered; the first that runs is the one audited. ``own_sites`` says that the step
    enters autocast itself. With ``sizes`` it is found out from which batch size a lower precision pays. ``stage`` is
    told what is being done. What the step raises as it stands passes through; what it raises in a low precision is the
    reason why that one is left out.
    """
    clock = Clock(device, budget_ns)
    subject = make_subject(
        step, device_type=device.name.partition(":")[0], model=model, optimizer=optimizer, own_sites=own_sites
    )
    stage("wrong use")
    misused = watch_step(subject)
    known = _learn(subject, low, clock=clock, stage=stage)
    stage("timing")
    conditions = Conditions(
        device=device,
        until_ns=clock.at(_TIMING_FRAC),
        seen=seen,
        target=target,
        method=method or {},
        progress=progress,
    )
    settings = [setting for setting in settings_for(device, names=low) if setting.name not in known.failed]
    timed = time_settings(subject, settings, conditions=conditions, name=name)
    timing, casts_ns = _rows(known, timed, device=device)
    stage("batch sizes")
    conditions = replace(conditions, until_ns=clock.at(1.0), one_thread=timed.one_thread)
    pays = () if sizes is None else _pays(subject, settings, timing, timed, sizes=sizes, conditions=conditions)
    return PrecisionReport(
        name=name,
        verdict=judge(timing=timing, gradients=known.ranges, activations=known.activations, autocast=known.audited),
        autocast=None if known.audited is None else replace(known.audited, casts_ns=casts_ns),
        gradients=known.ranges,
        activations=known.activations,
        scaler=None if known.ranges is None or known.not_finite else _forecast(subject, known.ranges),
        timing=timing,
        pays_from=pays,
        provenance=timed.provenance,
        findings=(
            *findings,
            *misused,
            *static_findings(subject),
            *known.not_finite,
            *range_findings(known.ranges, known.activations),
            *(elsewhere_findings(known.audited.elsewhere) if known.audited else ()),
            *timed.findings,
        ),
    )


@dataclass(frozen=True, kw_only=True)
class _Known:
    """What was learned of a step before it is timed."""

    failed: Mapping[str, str]
    """By low precision: why the step does not run in it."""
    ranges: GradientRange | None
    not_finite: tuple[Finding, ...]
    activations: tuple[ActivationRange, ...]
    recorded: Audit | None
    audited: AutocastAudit | None
    errors: Mapping[str, Errors]
    why_no_errors: str


def _learn(subject: Subject, low: Sequence[str], *, clock: Clock, stage: Callable[[str], None]) -> _Known:
    """Everything that needs no clock: gradients, activations, autocast's casts, errors."""
    failed = {name: why for name in low if (why := why_not_run(subject, name))}
    stage("gradients")
    gradients = measure_gradients(subject)
    ranges = _ranges(subject, gradients, clock) if gradients.reference.trained else None
    not_finite = finite_findings(gradients.reference)
    if ranges is not None and any(finding.code == "gradients-not-finite" for finding in not_finite):
        # Shares of what is no number say nothing: not that nothing vanishes, and not which scales are good.
        ranges = replace(ranges, zero_frac=None, scale_low=None, scale_high=None)
    activations = measure_activations(subject)
    stage("autocast")
    recorded = _audit(subject, low, failed)
    audited = None if recorded is None else _audit_record(subject, recorded)
    stage("error against float64")
    wrong, why_no_errors = _errors(subject, gradients, ranges, [name for name in low if name not in failed])
    return _Known(
        failed=failed,
        ranges=ranges,
        not_finite=not_finite,
        activations=activations,
        recorded=recorded,
        audited=audited,
        errors=wrong,
        why_no_errors=why_no_errors,
    )


def _rows(known: _Known, timed: Timed, *, device: Device) -> tuple[tuple[PrecisionTiming, ...], float | None]:
    """The precisions side by side, and what the casts of the audited one cost, timed with as many threads."""
    casts_ns = None
    if known.recorded is not None:
        with threads_for(one=timed.one_thread):
            casts_ns = time_casts(cast_shapes(known.recorded.recording.casts), device=device)
    rows = timing_rows(
        timed,
        known.errors,
        audited=known.audited.dtype if known.audited else "",
        casts_ns=casts_ns,
        failed=known.failed,
        why_no_errors=known.why_no_errors,
    )
    return rows, casts_ns


def _pays(
    subject: Subject,
    settings: Sequence[Setting],
    timing: Sequence[PrecisionTiming],
    timed: Timed,
    *,
    sizes: Sizes,
    conditions: Conditions,
) -> tuple[PaysFrom, ...]:
    """From which batch size does each low precision pay?"""
    if len(settings) < 2 or not sizes.sizes:
        return ()
    tried = hopeful(settings, timing)
    ratios = {row.name: row.ratio for row in timing}
    if len(tried) < 2:
        return tuple(not_tried(setting.name, ratios.get(setting.name)) for setting in settings[1:])

    def built(size: int) -> Subject:
        step, model, optimizer = sizes.build(size)
        return make_subject(
            step,
            device_type=subject.device_type,
            model=model,
            optimizer=optimizer,
            own_sites=subject.own_sites,
        )

    known = {} if sizes.own is None else {sizes.own: timed}
    points = measure_points(built, tried, sizes=sizes.sizes, conditions=conditions, known=known)
    found = {row.name: row for row in find_pays_from(points, [setting.name for setting in tried[1:]])}
    return tuple(found.get(s.name) or not_tried(s.name, ratios.get(s.name)) for s in settings[1:])


def why_not_run(subject: Subject, name: str) -> str:
    """Why the step does not run in the low precision ``name`` here; empty where it does. One whole step is tried."""
    setting = Setting(name=name, autocast=name)
    try:
        with restored(subject):
            in_setting(subject, setting)()
    except Exception as error:  # noqa: BLE001 - a missing kernel, or the user's own code: anything can come out
        return f"{type(error).__name__}: {first_sentence(error)}"
    return ""


def _forecast(subject: Subject, ranges: GradientRange) -> ScalerForecast | None:
    found = forecast(ranges)
    if found is None or not subject.optimizers or subject.compiled or why_not_run(subject, "float16"):
        return found
    return replace(found, waits_per_step=count_scaler_waits(subject))


def _ranges(subject: Subject, gradients: Gradients, clock: Clock) -> GradientRange:
    return report_gradients(
        subject, gradients, lost_updates=count_lost_updates(subject), go_on=clock.before(_RANGE_FRAC)
    )


def _errors(
    subject: Subject, gradients: Gradients, ranges: GradientRange | None, low: Sequence[str]
) -> tuple[dict[str, Errors], str]:
    """The errors of each precision by name, or why there are none."""
    if subject.compiled:
        return {}, "no float64 reference: compiled code cannot be widened from outside"
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


def _audit(subject: Subject, low: Sequence[str], failed: Mapping[str, str]) -> Audit | None:
    """The audit in the first of the low precisions that runs here; ``None`` where none does, and for compiled code."""
    runs = [name for name in low if name not in failed]
    if not runs or subject.compiled:
        return None
    return audit(subject, Setting(name=runs[0], autocast=runs[0]), policies=policies(subject.device_type))


def _audit_record(subject: Subject, recorded: Audit) -> AutocastAudit:
    groups = recorded.groups
    inside = any(call.autocast for call in recorded.recording.calls)
    site = "where the step enters it" if subject.own_sites else "put round forward and loss"
    record = AutocastAudit(
        dtype=recorded.setting.autocast or "",
        site=site if inside else "nowhere",
        ops=recorded.ops,
        casts=recorded.casts,
        cast_groups=groups,
        casts_bytes=sum(group.bytes for group in groups if group.who != "explicit"),
        casts_ns=None,
        weight_casts_kept=recorded.kept,
    )
    there = other_device(subject.device_type)
    if there is None:
        return replace(record, not_compared=f"no other device is simulated from {subject.device_type}")
    found = record_elsewhere(subject, there, record.dtype)
    rows, reason = differences(recorded.recording, found)
    losses = len(recorded.tape.losses)
    if losses > 1 and not reason:
        reason = f"the step is followed to the first of its {losses} losses there"
    derived, not_derived = derived_differences(recorded.recording, recorded.tape, found)
    return replace(
        record,
        elsewhere=(*rows, *derived),
        elsewhere_device=there,
        elsewhere_casts=group_casts(casts_elsewhere(found)),
        not_compared=reason,
        not_derived=not_derived,
    )
