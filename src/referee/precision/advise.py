"""Which precision for this step? All questions asked in order, within a budget: the whole of ``referee precision``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from referee.bench.measure import Seen
from referee.bench.plan import Plan, ProgressCallback, no_progress
from referee.device.provenance import Source
from referee.precision.accuracy import Errors, errors, float64_pass
from referee.precision.activations import measure_activations
from referee.precision.audit import Audit, audit, cast_shapes
from referee.precision.control import FP16, Setting
from referee.precision.elsewhere import (
    differences,
    elsewhere_findings,
    first_sentence,
    other_device,
    record_elsewhere,
)
from referee.precision.findings import range_findings, static_findings, watch_step
from referee.precision.forecast import forecast
from referee.precision.gradients import Gradients, measure_gradients, report_gradients
from referee.precision.passes import Pass, run_pass
from referee.precision.pays import BATCH_SIZES, find_pays_from, measure_points
from referee.precision.policy import policies
from referee.precision.subject import Subject, make_subject
from referee.precision.timing import settings_for, time_casts, time_settings
from referee.precision.updates import count_lost_updates
from referee.precision.verdict import judge
from referee.precision.waits import count_scaler_waits
from referee.records.compare import Comparison
from referee.records.finding import Finding, Scalar
from referee.records.precision import (
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

BUDGET_NS = 25 * NS_PER_S
"""Wall clock for everything. The first backward of each kind is made whatever it takes."""

_RANGE_FRAC, _TIMING_FRAC, _SWEEP_FRAC = 0.3, 0.35, 0.3
"""Shares of the budget for gradient ranges (by then), the comparison, and the batch sizes."""


@dataclass
class Clock:
    """How much of the budget is used?"""

    device: Device
    budget_ns: int
    begin_ns: int = field(init=False)

    def __post_init__(self) -> None:
        self.begin_ns = self.device.now_ns()

    def before(self, frac: float) -> Callable[[], bool]:
        """A test whether less than ``frac`` of the budget is used."""
        return lambda: self.device.now_ns() - self.begin_ns < frac * self.budget_ns


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
    build: Callable[[int], tuple[Step, Any, Any]] | None = None,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    stage: Callable[[str], None] = lambda _: None,
    progress: ProgressCallback = no_progress,
) -> PrecisionReport:
    """Answer for ``step`` on ``device``: audit, ranges, scaler, timing, verdict. The step's state is put back.

    ``low`` are the low precisions considered; the first is the one audited. ``own_sites`` says that the step enters
    autocast itself. ``build`` gives step, model and optimizer at another batch size; with it, it is found out from
    which of ``batch_sizes`` a lower precision pays. ``stage`` is told what is being done. What the step raises passes
    through.
    """
    subject = make_subject(
        step, device_type=device.name.partition(":")[0], model=model, optimizer=optimizer, own_sites=own_sites
    )
    clock = Clock(device, budget_ns)
    stage("wrong use")
    misused = watch_step(subject)
    stage("gradients in float32")
    gradients = measure_gradients(subject)
    stage("autocast audit")
    recorded, audited = _audit(subject, low)
    stage("gradient ranges")
    ranges = _ranges(subject, gradients, clock) if gradients.reference.trained else None
    activations = measure_activations(subject)
    stage("error against float64")
    wrong, why_not = _errors(subject, gradients, ranges, low)
    stage("timing")
    settings = settings_for(device, names=low)
    timed = time_settings(
        subject,
        settings,
        device=device,
        plan=Plan(budget_ns=int(_TIMING_FRAC * budget_ns), clocks=("settled_amortised",)),
        seen=seen,
        target=target,
        method=method,
        name=name,
        progress=progress,
    ).comparison
    casts_ns = None if recorded is None else time_casts(cast_shapes(recorded.recording.casts), device=device)
    timing = timing_rows(timed, wrong, audited=audited.dtype if audited else "", casts_ns=casts_ns, why_not=why_not)
    audited = None if audited is None else replace(audited, casts_ns=casts_ns)
    return PrecisionReport(
        name=name,
        verdict=judge(timing=timing, gradients=ranges, activations=activations, autocast=audited),
        autocast=audited,
        gradients=ranges,
        activations=activations,
        scaler=None if ranges is None else _forecast(subject, ranges),
        timing=timing,
        pays_from=_pays_from(
            subject, settings, build=build, sizes=batch_sizes, clock=clock, stage=stage, progress=progress
        ),
        provenance=timed.provenance,
        findings=(
            *findings,
            *misused,
            *static_findings(subject),
            *range_findings(ranges, activations),
            *(elsewhere_findings(audited.elsewhere) if audited else ()),
            *timed.findings,
        ),
    )


def _pays_from(
    subject: Subject,
    settings: Sequence[Setting],
    *,
    build: Callable[[int], tuple[Step, Any, Any]] | None,
    sizes: Sequence[int],
    clock: Clock,
    stage: Callable[[str], None],
    progress: ProgressCallback,
) -> tuple[PaysFrom, ...]:
    """The batch sizes, where the step can be built at others."""
    if build is None or not sizes:
        return ()
    stage("batch sizes")

    def made(size: int) -> Subject:
        step, model, optimizer = build(size)
        return make_subject(
            step, device_type=subject.device_type, model=model, optimizer=optimizer, own_sites=subject.own_sites
        )

    points = measure_points(
        made,
        settings,
        sizes=sizes,
        device=clock.device,
        budget_ns=int(_SWEEP_FRAC * clock.budget_ns),
        go_on=clock.before(1.0),
        progress=progress,
    )
    return find_pays_from(points, [setting.name for setting in settings[1:]])


def _forecast(subject: Subject, ranges: GradientRange) -> ScalerForecast | None:
    found = forecast(ranges)
    if found is None or not subject.optimizers:
        return found
    try:
        return replace(found, waits_per_step=count_scaler_waits(subject))
    except (RuntimeError, NotImplementedError):  # an operator without an fp16 kernel here
        return found


def _ranges(subject: Subject, gradients: Gradients, clock: Clock) -> GradientRange:
    lost = count_lost_updates(subject)
    return report_gradients(subject, gradients, lost_updates=lost, go_on=clock.before(_RANGE_FRAC))


def _errors(
    subject: Subject, gradients: Gradients, ranges: GradientRange | None, low: Sequence[str]
) -> tuple[dict[str, Errors], str]:
    """The errors of each precision by name, or why there are none."""
    try:
        reference = float64_pass(subject)
    except (RuntimeError, TypeError, NotImplementedError) as error:  # code that insists on float32
        return {}, f"no float64 reference: {first_sentence(error)}"
    found = {"float32": errors(gradients.reference, reference)}
    for name in low:
        try:
            found[name] = errors(_low_pass(subject, name, ranges), reference)
        except (RuntimeError, NotImplementedError) as error:  # an operator without a kernel for it here
            return found, f"{name} does not run here: {first_sentence(error)}"
    return found, ""


def _low_pass(subject: Subject, name: str, ranges: GradientRange | None) -> Pass:
    """The pass in a low precision; fp16 at the highest good loss scale, as a scaler would have it."""
    if name == "float16" and ranges is not None and ranges.scale_high is not None:
        return run_pass(subject, replace(FP16, scale=ranges.scale_high))
    return run_pass(subject, Setting(name=name, autocast=name))


def timing_rows(
    compared: Comparison, wrong: dict[str, Errors], *, audited: str, casts_ns: float | None, why_not: str = ""
) -> tuple[PrecisionTiming, ...]:
    """One row for each precision; the cast cost stands with the one that was audited."""
    pairs = {pair.name: pair for pair in compared.pairs}
    base_ns = compared.sides[0].median_ns
    rows = []
    for side in compared.sides:
        pair = pairs.get(side.name)
        error = wrong.get(side.name)
        casts = casts_ns if side.name == audited else None
        gain = None
        if casts is not None and pair is not None and pair.ratio is not None and base_ns is not None:
            gain = base_ns - (pair.ratio * base_ns - casts)
        rows.append(
            PrecisionTiming(
                name=side.name,
                median_ns=side.median_ns,
                ratio=None if pair is None else pair.ratio,
                ci_low=None if pair is None else pair.ci_low,
                ci_high=None if pair is None else pair.ci_high,
                answer="base" if pair is None else pair.answer,
                casts_ns=casts,
                kernel_gain_ns=gain,
                loss_error=error.loss if error else None,
                output_error=error.output if error else None,
                gradient_error=error.gradient if error else None,
                worst_gradient_error=error.worst_gradient if error else None,
                worst_parameter=error.worst_parameter if error else "",
                why_not=(pair.why if pair is not None and pair.ratio is None else "") or ("" if error else why_not),
            )
        )
    return tuple(rows)


def _audit(subject: Subject, low: Sequence[str]) -> tuple[Audit | None, AutocastAudit | None]:
    """The audit in the first of the low precisions that runs here, compared with another device; else nothing."""
    for name in low:
        try:
            recorded = audit(subject, Setting(name=name, autocast=name), policies=policies(subject.device_type))
        except (RuntimeError, NotImplementedError):  # an operator without a kernel for it here
            continue
        return recorded, _audit_record(subject, recorded)
    return None, None


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
    rows, reason = differences(recorded.recording, record_elsewhere(subject, there, record.dtype))
    return replace(record, elsewhere=rows, elsewhere_device=there, not_compared=reason)
