"""How does the time grow with a parameter? The null experiment: the same method at each value, a law, a knee."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from referee.bench.measure import Seen, measure
from referee.bench.plan import Plan, Progress, ProgressCallback, Step, no_progress
from referee.bench.warmup import FirstCall
from referee.device.protocol import Device
from referee.device.provenance import Source
from referee.errors import OptionError
from referee.records.finding import Finding, Scalar
from referee.records.measurement import Fit, Measurement, Sweep, SweepPoint
from referee.stats.law import fit_law
from referee.units import NS_PER_S


@dataclass(frozen=True, kw_only=True)
class Built:
    """The step at one value of the parameter, and what was observed of it.

    ``items_per_call``: how many items one call processes (the batch size, unless the caller knows better).
    """

    step: Step
    first: FirstCall | None = None
    observation: Seen | None = None
    target: Source | None = None
    items_per_call: float | None = None
    findings: tuple[Finding, ...] = ()
    method: Mapping[str, Scalar] = field(default_factory=dict)
    switches: Mapping[str, Scalar] = field(default_factory=dict)


def sweep(
    build: Callable[[float], Built],
    *,
    parameter: str,
    values: Sequence[float],
    device: Device,
    plan: Plan | None = None,
    name: str = "step",
    progress: ProgressCallback = no_progress,
) -> Sweep:
    """Measure ``build(value)`` at each of ``values`` with the same plan, fit both laws, find the knee.

    Values must be distinct and above zero; they are measured in the order given and reported in rising order. The
    provenance is the first point's. An interrupt gives the sweep over the points that were complete, or is raised
    again if there are none. Errors of ``build`` and of the steps pass through.
    """
    if not values:
        raise OptionError("A sweep needs at least one value.", hint="Give for example --values 1,2,4,8.")
    if len(set(values)) < len(values) or min(values) <= 0:
        raise OptionError(f"The values of {parameter} must be distinct and above zero.")
    points: list[SweepPoint] = []
    interrupted = False
    for index, value in enumerate(values):
        try:
            point = _point(
                build,
                value=value,
                parameter=parameter,
                device=device,
                plan=plan,
                name=name,
                progress=_within(progress, index=index, of=len(values), label=f"{parameter}={value:g}"),
            )
        except KeyboardInterrupt:
            if not points:
                raise
            interrupted = True
            break
        points.append(point)
        if point.measurement.stop_reason == "interrupted":
            interrupted = True
            break
    points.sort(key=lambda point: point.value)
    fit = fit_points(points)
    findings = _findings(points, fit=fit, parameter=parameter, interrupted=interrupted, asked=len(values))
    provenance = points[0].measurement.provenance
    return Sweep(
        name=name, parameter=parameter, points=tuple(points), fit=fit, provenance=provenance, findings=findings
    )


def fit_points(points: Sequence[SweepPoint]) -> Fit:
    """The law of the points that have a number."""
    known = [
        (p.value, p.median_ns, p.ci_low_ns, p.ci_high_ns)
        for p in points
        if p.median_ns is not None and p.ci_low_ns is not None and p.ci_high_ns is not None
    ]
    return fit_law(
        [k[0] for k in known],
        [k[1] for k in known],
        low_ns=[k[2] for k in known],
        high_ns=[k[3] for k in known],
    )


def _point(
    build: Callable[[float], Built],
    *,
    value: float,
    parameter: str,
    device: Device,
    plan: Plan | None,
    name: str,
    progress: ProgressCallback,
) -> SweepPoint:
    built = build(value)
    measurement = measure(
        built.step,
        device=device,
        plan=plan,
        name=f"{name} [{parameter}={value:g}]",
        first=built.first,
        observation=built.observation,
        target=built.target,
        method=built.method,
        switches=built.switches,
        findings=built.findings,
        progress=progress,
    )
    return point_of(measurement, value=value, items_per_call=built.items_per_call)


def point_of(measurement: Measurement, *, value: float, items_per_call: float | None = None) -> SweepPoint:
    """The measurement as a point of a sweep; ``items_per_call`` defaults to the value itself."""
    items = value if items_per_call is None else items_per_call
    median_ns = measurement.median_ns
    return SweepPoint(
        value=value,
        median_ns=median_ns,
        ci_low_ns=measurement.ci_low_ns,
        ci_high_ns=measurement.ci_high_ns,
        throughput_per_s=items * NS_PER_S / median_ns if median_ns else None,
        measurement=measurement,
    )


def _findings(
    points: Sequence[SweepPoint], *, fit: Fit, parameter: str, interrupted: bool, asked: int
) -> tuple[Finding, ...]:
    findings: list[Finding] = []
    if len(points) == 1:
        findings.append(
            Finding(
                code="one-batch-size",
                severity="warning",
                message=f"One value of {parameter} alone is not a benchmark: it cannot show what the time depends on.",
                evidence={"points": 1, "value": points[0].value},
                hint="Sweep at least four values, for example 1,2,4,8,16,32.",
            )
        )
    elif fit.law == "none":
        findings.append(
            Finding(
                code="no-fit",
                severity="warning",
                message=f"No law was fitted to the sweep: {fit.why_no_knee}.",
                evidence={
                    "points": len(points),
                    "error_max_frac": fit.error_max_frac,
                    "error_sum_frac": fit.error_sum_frac,
                },
            )
        )
    if interrupted:
        findings.append(
            Finding(
                code="interrupted",
                severity="warning",
                message=f"Interrupted after {len(points)} of {asked} values of {parameter}.",
                evidence={"points": len(points), "asked": asked},
            )
        )
    return tuple(findings)


def _within(progress: ProgressCallback, *, index: int, of: int, label: str) -> ProgressCallback:
    """Progress of one point as progress of the whole sweep."""

    def report(inner: Progress) -> None:
        progress(replace(inner, stage=f"{label}: {inner.stage}", frac=(index + inner.frac) / of))

    return report
