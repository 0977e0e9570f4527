"""Which regime is a live run on the CPU in? From the null experiment: what does not grow with the batch is overhead.

On a CPU the host is the device, so a step obeys t(b) = intercept + slope·b. ``overhead-bound``: the intercept, or the
operators at their calibrated cost, outweighs slope·b at the batch measured; ``compute-bound``: the other way round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log

from referee.records.measurement import Fit, Sweep, SweepPoint
from referee.records.verdict import Evidence, Regime, Verdict
from referee.units import format_frac, format_ns, format_number

OVERHEAD_FRAC = 0.60
"""From this share of the time per call on, what does not grow with the batch names the regime."""
COMPUTE_FRAC = 0.40
"""Up to this share, arithmetic does. Between the two the verdict is mixed: the shares are within the fit's error."""

GROWTH_SETTLES = 0.60
"""Without a fit: the local exponent d ln t / d ln b from which on time grows with the batch; below 1 minus this not."""


@dataclass(frozen=True, kw_only=True)
class _Reading:
    """What the sweep says at one batch: the share that does not grow, how it was found, and its evidence."""

    fixed_frac: float | None
    evidence: tuple[Evidence, ...]
    why_not: str = ""


def judge_cpu(
    sweep: Sweep | None,
    *,
    at: float | None = None,
    n_ops: int | None = None,
    op_ns: float | None = None,
) -> Verdict:
    """The CPU regime at the value ``at`` of the swept parameter (default: the largest swept).

    ``n_ops`` operators a call at a calibrated ``op_ns`` each bound the overhead from the other side: an intercept may
    also hold arithmetic that does not depend on the batch (an optimizer's update). Where the two disagree the verdict
    is ``mixed``; without a usable sweep it is ``cannot-tell``.
    """
    points = () if sweep is None else tuple(p for p in sweep.points if p.median_ns is not None and p.value > 0)
    if sweep is None or len(points) < 2:
        return Verdict(
            regime="cannot-tell",
            evidence=(Evidence(name="null experiment", value=len(points), unit="points", threshold="2"),),
            undecided_because=_too_few(sweep, usable=len(points)),
            would_change=(
                "a sweep over at least four batch sizes: what does not grow with the batch is overhead"
                if sweep is None or len(sweep.points) < 2
                else "the same sweep on a quieter machine, or with fewer threads than idle cores (--threads 1)"
            ),
        )
    point = _nearest(points, at)
    median_ns = float(point.median_ns or 0.0)
    head = (
        Evidence(name=f"time per call at {sweep.parameter} {format_number(point.value)}", value=median_ns, unit="ns"),
        _per_item(points, point),
    )
    reading = _with_limits(_read(sweep.fit, points, point), points)
    ops = _ops_evidence(n_ops, op_ns, median_ns=median_ns)
    return Verdict(
        regime=(regime := _name(reading.fixed_frac, _ops_frac(n_ops, op_ns, median_ns=median_ns))),
        evidence=(*head, *reading.evidence, *ops),
        undecided_because=_because(regime, reading, ops),
        would_change=_would_change(sweep, point, regime),
    )


def _with_limits(reading: _Reading, points: Sequence[SweepPoint]) -> _Reading:
    """The reading, its first step saying how many of the points it stands on carry a warning of their own."""
    limited = [p for p in points if any(f.severity != "info" for f in p.measurement.findings)]
    if not limited or not reading.evidence:
        return reading
    codes = Counter(f.code for p in limited for f in p.measurement.findings if f.severity != "info")
    first, *rest = reading.evidence
    words = f"{len(limited)} of {len(points)} points limited ({', '.join(code for code, _ in codes.most_common(2))})"
    return replace(reading, evidence=(replace(first, so=f"{first.so}; {words}" if first.so else words), *rest))


def _too_few(sweep: Sweep | None, *, usable: int) -> str:
    """Why is there nothing to compare: was one point asked for, or did the others yield no number?"""
    if sweep is None or len(sweep.points) < 2:
        return "one-batch-size"
    reasons = Counter(
        finding.code
        for point in sweep.points
        if point.median_ns is None
        for finding in point.measurement.findings
        if finding.severity == "fatal"
    )
    why = f" ({', '.join(code for code, _ in reasons.most_common())})" if reasons else ""
    return f"{len(sweep.points) - usable} of the {len(sweep.points)} points of the sweep have no number{why}"


def _nearest(points: Sequence[SweepPoint], at: float | None) -> SweepPoint:
    if at is None or at <= 0:
        return max(points, key=lambda p: p.value)
    return min(points, key=lambda p: abs(log(p.value / at)))


def _per_item(points: Sequence[SweepPoint], point: SweepPoint) -> Evidence:
    """Time per item here against the best over the sweep."""
    per_item = {p.value: float(p.median_ns or 0.0) / p.value for p in points}
    best = min(per_item, key=lambda value: per_item[value])
    ratio = per_item[point.value] / per_item[best] if per_item[best] else None
    return Evidence(
        name="time per item against the best of the sweep",
        value=ratio,
        unit="ratio",
        threshold="1",
        so=f"{format_ns(per_item[point.value])} here, {format_ns(per_item[best])} at {format_number(best)}",
    )


def _read(fit: Fit, points: Sequence[SweepPoint], point: SweepPoint) -> _Reading:
    if fit.law in ("sum", "max") and fit.host_ns is not None and fit.slope_ns is not None:
        return _read_sum(fit, point) if fit.law == "sum" else _read_max(fit, point)
    return _read_growth(fit, points, point)


def _read_sum(fit: Fit, point: SweepPoint) -> _Reading:
    fixed_ns = max(0.0, (fit.host_ns or 0.0) + (fit.fixed_ns or 0.0))
    growing_ns = max(0.0, (fit.slope_ns or 0.0) * point.value)
    frac = fixed_ns / (fixed_ns + growing_ns) if fixed_ns + growing_ns else None
    return _Reading(fixed_frac=frac, evidence=_law_evidence(fit, frac, fixed_ns=fixed_ns, growing_ns=growing_ns))


def _read_max(fit: Fit, point: SweepPoint) -> _Reading:
    """The larger of the two sides is the time: the other one is hidden, so sides are compared, not added."""
    host_ns = max(0.0, fit.host_ns or 0.0)
    growing_ns = max(0.0, (fit.slope_ns or 0.0) * point.value)
    other_ns = max(0.0, fit.fixed_ns or 0.0) + growing_ns
    total_ns = max(host_ns, other_ns)
    # Where the host is the longer side nothing of the time grows; else only slope·b of it does.
    grows_ns = growing_ns if other_ns > host_ns else 0.0
    frac = (total_ns - grows_ns) / total_ns if total_ns else None
    evidence = _law_evidence(fit, frac, fixed_ns=total_ns - grows_ns, growing_ns=grows_ns)
    return _Reading(fixed_frac=frac, evidence=evidence)


def _law_evidence(fit: Fit, frac: float | None, *, fixed_ns: float, growing_ns: float) -> tuple[Evidence, ...]:
    error = f", held-out error {format_frac(fit.error_frac)}" if fit.error_frac is not None else ""
    knee = (
        Evidence(name="null experiment: knee", value=fit.knee, so="where what grows equals what does not")
        if fit.knee is not None
        else Evidence(name="null experiment: knee", value=None, so=fit.why_no_knee)
    )
    share = Evidence(
        name="null experiment: share that does not grow with the batch",
        value=frac,
        unit="frac",
        threshold=f"overhead from {format_frac(OVERHEAD_FRAC)}, arithmetic up to {format_frac(COMPUTE_FRAC)}",
        so=f"law {fit.law}{error}: {format_ns(fixed_ns)} does not grow, {format_ns(growing_ns)} grows",
    )
    return share, knee


def _read_growth(fit: Fit, points: Sequence[SweepPoint], point: SweepPoint) -> _Reading:
    """Without a law: how steeply does time grow between the neighbours of the batch?"""
    ordered = sorted(points, key=lambda p: p.value)
    index = ordered.index(point)
    low, high = ordered[max(index - 1, 0)], ordered[min(index + 1, len(ordered) - 1)]
    growth = log(float(high.median_ns or 1.0) / float(low.median_ns or 1.0)) / log(high.value / low.value)
    so = f"from {format_number(low.value)} to {format_number(high.value)}; no law fits: {fit.why_no_knee}"
    evidence = Evidence(
        name="null experiment: local growth d ln t / d ln b",
        value=growth,
        threshold=f"{GROWTH_SETTLES:.2f} grows with the batch, {1 - GROWTH_SETTLES:.2f} does not",
        so=so,
    )
    return _Reading(fixed_frac=min(1.0, max(0.0, 1 - growth)), evidence=(evidence,), why_not=fit.why_no_knee)


def _ops_frac(n_ops: int | None, op_ns: float | None, *, median_ns: float) -> float | None:
    if not n_ops or not op_ns or median_ns <= 0:
        return None
    return min(1.0, n_ops * op_ns / median_ns)


def _ops_evidence(n_ops: int | None, op_ns: float | None, *, median_ns: float) -> tuple[Evidence, ...]:
    frac = _ops_frac(n_ops, op_ns, median_ns=median_ns)
    if frac is None:
        return ()
    return (
        Evidence(
            name="host: N_ops × calibrated cost per operator",
            value=frac,
            unit="frac",
            threshold=f"overhead from {format_frac(OVERHEAD_FRAC)}, arithmetic up to {format_frac(COMPUTE_FRAC)}",
            so=f"{n_ops:,} × {format_ns(op_ns)} of {format_ns(median_ns)}",
        ),
    )


def _name(fixed_frac: float | None, ops_frac: float | None) -> Regime:
    """One side alone decides; where both are known they must agree."""
    known = [_side(frac) for frac in (fixed_frac, ops_frac) if frac is not None]
    if not known:
        return "cannot-tell"
    return known[0] if len(set(known)) == 1 else "mixed"


def _side(fixed_frac: float) -> Regime:
    if fixed_frac >= OVERHEAD_FRAC:
        return "overhead-bound"
    return "compute-bound" if fixed_frac <= COMPUTE_FRAC else "mixed"


def _because(regime: Regime, reading: _Reading, ops: Sequence[Evidence]) -> str | None:
    if regime == "cannot-tell":
        return "no-fit"
    if regime != "mixed":
        return None
    if ops:
        return "the sweep and the operators' own cost do not name the same side"
    return f"overhead is {format_frac(reading.fixed_frac)} of the time per call"


def _would_change(sweep: Sweep, point: SweepPoint, regime: Regime) -> str:
    knee = sweep.fit.knee
    if knee is None:
        return f"a sweep that reaches further on both sides of {sweep.parameter} {format_number(point.value)}"
    ratio = OVERHEAD_FRAC / (1 - OVERHEAD_FRAC)
    if regime == "overhead-bound":
        return f"{sweep.parameter} above {format_number(knee * ratio)} (compute-bound there), or fewer operators a call"
    if regime == "compute-bound":
        return f"{sweep.parameter} below {format_number(knee / ratio)} (overhead-bound there)"
    return f"{sweep.parameter} well above or well below the knee at {format_number(knee)}"
