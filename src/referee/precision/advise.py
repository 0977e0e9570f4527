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
from referee.precision.findings import range_findings, static_findings, watch_step
from referee.precision.forecast import forecast
from referee.precision.gradients import Gradients, measure_gradients, report_gradients
from referee.precision.passes import Pass, run_pass
from referee.precision.pays import BATCH_SIZES, find_pays_from, hopeful, measure_points, not_tried
from referee.precision.policy import policies
from referee.precision.rows import timing_rows
from referee.precision.subject import Subject, make_subject, restored
from referee.precision.timing import in_setting, settings_for, time_casts, time_settings
from referee.precision.updates import count_lost_updates
from referee.precision.verdict import judge
from referee.precision.waits import count_scaler_waits
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
Builder: TypeAlias = Callable[[int], tuple[Step, Any, Any]]
"""Batch size → step, model and optimizer (``None`` where the step carries none)."""

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
    build: Builder | None = None,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    stage: Callable[[str], None] = lambda _: None,
    progress: ProgressCallback = no_progress,
) -> PrecisionReport:
    """Answer for ``step`` on ``device``: audit, ranges, scaler, timing, verdict. The step's state is put back.

    ``low`` are the low precisions considered; the first that runs is the one audited. ``own_sites`` says that the step
    enters autocast itself. ``build`` gives step, model and optimizer at another batch size; with it, it is found out
    from which of ``batch_sizes`` a lower precision pays. ``stage`` is told what is being done. What the step raises as
    it stands passes through; what it raises in a low precision is the reason why that one is left out.
    """
    subject = make_subject(
        step, device_type=device.name.partition(":")[0], model=model, optimizer=optimizer, own_sites=own_sites
    )
    clock = Clock(device, budget_ns)
    stage("wrong use")
    misused = watch_step(subject)
    failed = {name: why for name in low if (why := why_not_run(subject, name))}
    stage("gradients")
    gradients = measure_gradients(subject)
    ranges = _ranges(subject, gradients, clock) if gradients.reference.trained else None
    activations = measure_activations(subject)
    stage("autocast")
    recorded = _audit(subject, low, failed)
    audited = None if recorded is None else _audit_record(subject, recorded)
    stage("error against float64")
    wrong, why_no_errors = _errors(subject, gradients, ranges, [name for name in low if name not in failed])
    stage("timing")
    settings = [setting for setting in settings_for(device, names=low) if setting.name not in failed]
    plan = Plan(budget_ns=int(_TIMING_FRAC * budget_ns), clocks=("settled_amortised",))
    compared = time_settings(
        subject,
        settings,
        device=device,
        plan=plan,
        seen=seen,
        target=target,
        method=method,
        name=name,
        progress=progress,
    )
    casts_ns = None if recorded is None else time_casts(cast_shapes(recorded.recording.casts), device=device)
    timing = timing_rows(
        compared,
        wrong,
        audited=audited.dtype if audited else "",
        casts_ns=casts_ns,
        failed=failed,
        why_no_errors=why_no_errors,
    )
    stage("batch sizes")
    sweep = _Sweep(subject=subject, settings=settings, timing=timing, sizes=batch_sizes, clock=clock, progress=progress)
    return PrecisionReport(
        name=name,
        verdict=judge(timing=timing, gradients=ranges, activations=activations, autocast=audited),
        autocast=None if audited is None else replace(audited, casts_ns=casts_ns),
        gradients=ranges,
        activations=activations,
        scaler=None if ranges is None else _forecast(subject, ranges),
        timing=timing,
        pays_from=() if build is None or len(settings) < 2 else sweep.run(build),
        provenance=compared.provenance,
        findings=(
            *findings,
            *misused,
            *static_findings(subject),
            *range_findings(ranges, activations),
            *(elsewhere_findings(audited.elsewhere) if audited else ()),
            *compared.findings,
        ),
    )


@dataclass(frozen=True, kw_only=True)
class _Sweep:
    """The comparison at several batch sizes."""

    subject: Subject
    settings: Sequence[Setting]
    timing: Sequence[PrecisionTiming]
    sizes: Sequence[int]
    clock: Clock
    progress: ProgressCallback

    def run(self, build: Builder) -> tuple[PaysFrom, ...]:
        """From which batch size does each low precision pay?"""
        tried = hopeful(self.settings, self.timing)
        if not self.sizes:
            return ()
        if len(tried) < 2:
            return tuple(not_tried(row.name, row.ratio) for row in self.timing[1:] if row.ratio is not None)
        points = measure_points(
            lambda size: self._built(build, size),
            tried,
            sizes=self.sizes,
            device=self.clock.device,
            budget_ns=int(_SWEEP_FRAC * self.clock.budget_ns),
            go_on=self.clock.before(1.0),
            progress=self.progress,
        )
        found = {row.name: row for row in find_pays_from(points, [setting.name for setting in tried[1:]])}
        ratios = {row.name: row.ratio for row in self.timing}
        return tuple(found.get(s.name) or not_tried(s.name, ratios.get(s.name)) for s in self.settings[1:])

    def _built(self, build: Builder, size: int) -> Subject:
        step, model, optimizer = build(size)
        own_sites = self.subject.own_sites
        return make_subject(
            step, device_type=self.subject.device_type, model=model, optimizer=optimizer, own_sites=own_sites
        )


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
    derived, not_derived = derived_differences(recorded.recording, recorded.tape, found)
    return replace(
        record,
        elsewhere=(*rows, *derived),
        elsewhere_device=there,
        elsewhere_casts=group_casts(casts_elsewhere(found)),
        not_compared=reason,
        not_derived=not_derived,
    )
