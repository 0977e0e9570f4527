"""How does the time grow with a parameter? The null experiment: the same method at each value, a law, a knee."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from numbers import Real
from typing import Any

from referee.bench.core_clock import check_clock_between
from referee.bench.interrupts import hold_interrupts
from referee.bench.measure import Seen, measure
from referee.bench.plan import Plan, Progress, ProgressCallback, Step, no_progress
from referee.bench.raised import describe_error
from referee.bench.warmup import FirstCall
from referee.bench.work import check_flat
from referee.device.protocol import Device
from referee.device.provenance import Source
from referee.device.state import kept_state, read_state
from referee.errors import OptionError
from referee.records.finding import Finding, Scalar
from referee.records.measurement import Fit, Measurement, Sweep, SweepPoint
from referee.records.provenance import Difference, differences
from referee.stats.law import fit_law, no_fit
from referee.units import NS_PER_S, format_frac

S_PER_HOUR = 3_600

_SAME_WORK_RATIO = 1.5
"""Times of one and the same work differ by less on a machine that is shared; work that depends on values may differ
by more although the operators are the same."""


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
    build: Callable[[Any], Built],
    *,
    parameter: str,
    values: Sequence[Any],
    device: Device,
    plan: Plan | None = None,
    name: str = "step",
    price_per_hour: float | None = None,
    served: float | None = None,
    explain: Callable[[BaseException], str] = describe_error,
    progress: ProgressCallback = no_progress,
) -> Sweep:
    """Measure ``build(value)`` at each of ``values`` with the same plan, fit both laws, find the knee.

    Numbers must be distinct and above zero; they are measured in the order given and reported in rising order. Other
    values (dtypes, modes) are reported in the order given, under their own words, and no law is fitted. Switches that
    a value sets for the whole process are put back before the next one; a finding names those that the points do not
    share. With ``price_per_hour`` each point gets its items per dollar; ``served`` names the value that will be
    served. The provenance is the first point's. An interrupt gives the sweep over the points that were complete, or
    is raised again if there are none. What ``build`` or a step raises at a later value (memory that does not suffice,
    for example) becomes a finding, put into words by ``explain``, and the other values are measured; where no value
    can be measured the first error is raised.
    """
    numbers = _check(values, parameter=parameter, price_per_hour=price_per_hour, served=served)

    works: list[object] = []

    def at(index: int, value: Any) -> SweepPoint:
        built = build(value)
        works.append(_work(built))
        return _point(
            built,
            value=float(value) if numbers else float(index + 1),
            label="" if numbers else str(value),
            title=f"{name} [{parameter}={value:g}]" if numbers else f"{name} [{parameter}={value}]",
            device=device,
            plan=plan,
            progress=_within(progress, index=index, of=len(values), label=f"{parameter}={value}"),
        )

    points, failed, interrupted = _measure_each(values, at)
    with hold_interrupts():
        points.sort(key=lambda point: point.value)
        fit = fit_points(points) if numbers else no_fit("the values are not numbers")
        return Sweep(
            name=name,
            parameter=parameter,
            points=tuple(priced(point, price_per_hour=price_per_hour) for point in points),
            fit=fit,
            provenance=points[0].measurement.provenance,
            findings=(
                *_failures(failed, parameter=parameter, explain=explain),
                *_findings(points, fit=fit, parameter=parameter, interrupted=interrupted, asked=len(values)),
                *(_unused(points, works, parameter=parameter) if numbers else ()),
            ),
            price_per_hour=price_per_hour,
            served=served,
        )


def _measure_each(
    values: Sequence[Any], at: Callable[[int, Any], SweepPoint]
) -> tuple[list[SweepPoint], list[tuple[Any, BaseException]], bool]:
    """The points that could be measured, what the other values raised, and whether it was interrupted.

    What a value's factory or step sets for the whole process is put back before the next value.
    """
    points: list[SweepPoint] = []
    failed: list[tuple[Any, BaseException]] = []
    for index, value in enumerate(values):
        try:
            with kept_state():
                point = at(index, value)
        except KeyboardInterrupt:
            if not points:
                raise
            return points, failed, True
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code: anything can come out
            failed.append((value, error))
            continue
        points.append(point)
        if point.measurement.stop_reason == "interrupted":
            return points, failed, True
    if not points:
        raise failed[0][1]
    return points, failed, False


def _check(
    values: Sequence[Any], *, parameter: str, price_per_hour: float | None = None, served: float | None = None
) -> bool:
    """Do the values make a sweep, and are they numbers? Raises :class:`~referee.errors.OptionError` where not."""
    if not values:
        raise OptionError("A sweep needs at least one value.", hint="Give for example --values 1,2,4,8.")
    if price_per_hour is not None and not _is_amount(price_per_hour):
        raise OptionError("A price per hour must be a number above zero.")
    numbers = all(isinstance(value, Real) and not isinstance(value, bool) for value in values)
    own = [value if numbers else str(value) for value in values]
    if len(set(own)) < len(own) or (numbers and not all(_is_amount(value) for value in values)):
        raise OptionError(f"The values of {parameter} must be distinct and above zero, and have an end.")
    if served is not None and (not numbers or served not in values):
        raise OptionError(
            f"{parameter}={served} is to be served, but it is not among the values that are measured.",
            hint="Add it to the values.",
        )
    return numbers


def _is_amount(value: object) -> bool:
    return isinstance(value, Real) and 0 < float(value) < inf


def priced(point: SweepPoint, *, price_per_hour: float | None) -> SweepPoint:
    """The point with its items per dollar: throughput over what a second costs."""
    if price_per_hour is None or point.throughput_per_s is None:
        return point
    return replace(point, items_per_dollar=point.throughput_per_s * S_PER_HOUR / price_per_hour)


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
    built: Built,
    *,
    value: float,
    label: str,
    title: str,
    device: Device,
    plan: Plan | None,
    progress: ProgressCallback,
) -> SweepPoint:
    measurement = measure(
        built.step,
        device=device,
        plan=plan,
        name=title,
        first=built.first,
        observation=built.observation,
        target=built.target,
        method=built.method,
        switches=built.switches,
        findings=built.findings,
        progress=progress,
    )
    items = 1.0 if label and built.items_per_call is None else built.items_per_call
    return replace(point_of(measurement, value=value, items_per_call=items), label=label)


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


def _failures(
    failed: Sequence[tuple[Any, BaseException]], *, parameter: str, explain: Callable[[BaseException], str]
) -> tuple[Finding, ...]:
    """One finding for each value that could not be measured."""
    return tuple(
        Finding(
            code="point-failed",
            severity="warning",
            message=f"{parameter}={value} could not be measured: {explain(error).rstrip('.')}.",
            evidence={"value": value if isinstance(value, int | float) else str(value), "error": _kind(error)},
            hint="The other values stand.",
        )
        for value, error in failed
    )


def _kind(error: BaseException) -> str:
    """The kind of what the user's code raised, also where Referee has put it into a sentence of its own."""
    return type(error.__cause__ if error.__cause__ is not None else error).__name__


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
    elif fit.law == "none" and not points[0].label:
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
    if not points[0].label:
        known = [(point.value, point.median_ns) for point in points if point.median_ns is not None]
        findings += check_flat([value for value, _ in known], [ns for _, ns in known], parameter=parameter)
    findings += _other_switches(points, parameter=parameter)
    findings += check_clock_between([point.measurement for point in points])
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


def _work(built: Built) -> object:
    """What a call was seen to read and to run; ``None`` where that could not be watched."""
    seen = built.observation
    ops: Mapping[str, int] = getattr(seen, "ops", {})
    if seen is None or not ops:
        return None
    amount = getattr(seen, "elements", 0), tuple(getattr(seen, "outputs", ()))
    return (seen.dtype, tuple(seen.shapes), *amount, tuple(sorted(ops.items())))


def _unused(points: Sequence[SweepPoint], works: Sequence[object], *, parameter: str) -> tuple[Finding, ...]:
    """Is it the same work at every value, and the same time? Then the parameter is declared and not used."""
    known = [point.median_ns for point in points if point.median_ns]
    if len(known) < 2 or parameter == "threads" or None in works or any(work != works[0] for work in works):
        return ()
    spread = max(known) / min(known)
    if spread > _SAME_WORK_RATIO:
        return ()
    return (
        Finding(
            code="parameter-unused",
            severity="warning",
            message=f"The step reads the same inputs and runs the same operators at every value of {parameter}, and "
            f"takes the same time (within {format_frac(spread - 1)}): a throughput that counts it means nothing.",
            evidence={"points": len(points), "spread": spread, "threshold": _SAME_WORK_RATIO},
            hint=f"Let the target use {parameter} where it makes its inputs.",
        ),
    )


def _other_switches(points: Sequence[SweepPoint], *, parameter: str) -> tuple[Finding, ...]:
    """Which switches do the points not share? What a parameter of that name is there to set is not told."""
    first, *others = points
    process_wide = read_state().values.keys()
    found: dict[str, Difference] = {}
    for point in others:
        for difference in differences(first.measurement.provenance, point.measurement.provenance):
            if difference.path in process_wide and difference.path.partition(".")[2] != parameter:
                found.setdefault(difference.path, difference)
    if not found:
        return ()
    words = "; ".join(f"{d.path}: {d.a} at the first, {d.b} at another" for d in found.values())
    return (
        Finding(
            code="switches-differ",
            severity="info" if first.label else "warning",
            message=f"The values of {parameter} are not measured under the same switches ({words}): the time depends "
            "on more than one thing.",
            evidence={d.path: f"{d.a} / {d.b}" for d in found.values()},
            hint="Set switches before the sweep, to the same at each value.",
        ),
    )


def _within(progress: ProgressCallback, *, index: int, of: int, label: str) -> ProgressCallback:
    """Progress of one point as progress of the whole sweep."""

    def report(inner: Progress) -> None:
        progress(replace(inner, stage=f"{label}: {inner.stage}", frac=(index + inner.frac) / of))

    return report
