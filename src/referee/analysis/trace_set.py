"""What do several traces say together? The null experiment over batch sizes, or the ranks of one job side by side."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath

import numpy as np

from referee.analysis.ranks import judge_ranks, rank_findings
from referee.graph.calls import WAITS, calls_named
from referee.records.finding import Finding
from referee.records.trace_report import NullExperiment, NullPoint, TraceReport, TraceSet
from referee.stats.law import fit_law
from referee.trace.columns import Kind, Trace
from referee.trace.totals import top_rows
from referee.units import format_count, format_ns, format_number

_BATCH = re.compile(r"(?:^|[^a-z0-9])(?:b|bs|batch|batch[_-]?size)[_=-]?(\d+)(?![0-9a-z])", re.IGNORECASE)
"""A batch size in a file's name: ``model_b32.json``, ``bs=8``, ``batch_size-128``."""


def judge_set(
    traces: Sequence[Trace], reports: Sequence[TraceReport], *, values: Sequence[float] | None = None
) -> TraceSet:
    """The reports with what follows from seeing them together; ``reports[i]`` is the one on ``traces[i]``.

    ``values`` are the batch sizes; without them they are looked for in the files' names. Ranks are told by the files'
    own ``distributedInfo``.
    """
    sizes = list(values) if values is not None else batch_sizes(traces)
    experiment = null_experiment(traces, reports, sizes) if sizes is not None else None
    findings = () if experiment is None else _operator_findings(traces, experiment)
    job = judge_ranks(traces)
    ranks = () if job is None else (*_regimes_differ(reports), *rank_findings(job))
    return TraceSet(reports=tuple(reports), findings=(*findings, *ranks), null_experiment=experiment, job=job)


def batch_sizes(traces: Sequence[Trace]) -> list[float] | None:
    """The batch sizes that the files' names state, if all of them state one and no two the same."""
    found = [_BATCH.findall(PurePath(trace.source).name) for trace in traces]
    sizes = [float(numbers[-1]) for numbers in found if numbers]
    return sizes if len(sizes) == len(traces) >= 2 and len(set(sizes)) == len(sizes) else None


def null_experiment(
    traces: Sequence[Trace], reports: Sequence[TraceReport], values: Sequence[float]
) -> NullExperiment | None:
    """Both sides of the law against the batch size; ``None`` with fewer than two traces that have a window."""
    points = sorted(
        (
            _point(trace, report, value)
            for trace, report, value in zip(traces, reports, values, strict=True)
            if report.totals.window_ns > 0
        ),
        key=lambda point: point.value,
    )
    if len(points) < 2:
        return None
    fit = fit_law([p.value for p in points], [float(p.window_ns) for p in points])
    if fit.slope_ns is not None and fit.slope_ns <= 0:
        # What does not grow tells no law from the other, as it has no knee.
        fit = replace(fit, law="none")
    knee, reached = find_knee(points)
    return NullExperiment(
        parameter="batch_size",
        points=tuple(points),
        fit=fit,
        knee_estimate=knee,
        knee_reached=reached,
        so=_so(points, knee, reached=reached),
    )


def _point(trace: Trace, report: TraceReport, value: float) -> NullPoint:
    return NullPoint(
        value=value,
        source=report.source,
        regime=report.verdict.regime,
        window_ns=report.totals.window_ns,
        busy_ns=report.totals.busy_ns,
        host_ns=report.law.host_ns,
        ops_top=report.totals.ops_top,
        synchronises=int(calls_named(trace, WAITS).size),
    )


def find_knee(points: Sequence[NullPoint]) -> tuple[float | None, bool]:
    """Where busy time reaches the host's time, by straight lines between neighbours, past the last by its line.

    The host's time is the median of the host side over the points where it is the longer one: there it is the window,
    and above the knee full queues hold the host up.
    """
    hosts = [float(p.host_ns) for p in points if p.host_ns is not None and p.host_ns > p.busy_ns]
    if not hosts:
        return None, True
    host_ns = float(np.median(hosts))
    value = np.array([p.value for p in points])
    busy_ns = np.array([float(p.busy_ns) for p in points])
    above = np.flatnonzero(busy_ns >= host_ns)
    if above.size and above[0] == 0:
        return None, True
    last = int(above[0]) if above.size else value.size - 1
    rise = busy_ns[last] - busy_ns[last - 1]
    if rise <= 0:
        return None, False
    knee = value[last] + (host_ns - busy_ns[last]) * (value[last] - value[last - 1]) / rise
    return float(knee), bool(above.size)


def _so(points: Sequence[NullPoint], knee: float | None, *, reached: bool) -> str:
    first, last = points[0], points[-1]
    grows = (
        f"from {format_number(first.value)} to {format_number(last.value)} the window goes from "
        f"{format_ns(first.window_ns)} to {format_ns(last.window_ns)}, the busy time from {format_ns(first.busy_ns)} "
        f"to {format_ns(last.busy_ns)}"
    )
    if knee is None:
        return f"{grows}; the device is the longer side everywhere" if reached else f"{grows}; busy time does not grow"
    if reached:
        return f"{grows}; busy time reaches the host's at about {format_number(round(knee))}"
    return (
        f"{grows}; the knee is not reached by {format_number(last.value)}: "
        f"extrapolated, busy time equals the host's at about {format_number(round(knee))}"
    )


def _operator_findings(traces: Sequence[Trace], experiment: NullExperiment) -> tuple[Finding, ...]:
    """Say so where the traces do not run the same operators in the same order: then more than the batch differs."""
    sequences = {trace.source: _sequence(trace) for trace in traces}
    usual = Counter(sequences.values()).most_common(1)[0][0]
    common = next(p for p in experiment.points if sequences[p.source] == usual)
    return tuple(
        Finding(
            code="different-operators",
            severity="warning",
            message=f"At {experiment.parameter} {format_number(point.value)} another sequence of operators runs: "
            f"{format_count(point.ops_top)} top operators against {format_count(common.ops_top)} at "
            f"{format_number(common.value)}, {point.synchronises} synchronising calls against {common.synchronises}.",
            evidence={
                "value": point.value,
                "ops_top": point.ops_top,
                "ops_top_elsewhere": common.ops_top,
                "synchronises": point.synchronises,
                "synchronises_elsewhere": common.synchronises,
            },
            hint="Times may differ for more than the batch: look for code that depends on the batch size.",
        )
        for point in experiment.points
        if sequences[point.source] != usual
    )


def _sequence(trace: Trace) -> tuple[str, ...]:
    """The names of the top operators in order."""
    rows = trace.rows
    return tuple(trace.names[int(code)] for code in rows.name[top_rows(rows, rows.of(Kind.OPERATOR))])


def _regimes_differ(reports: Sequence[TraceReport]) -> tuple[Finding, ...]:
    """One rank does not speak for a job: say so where the ranks' regimes differ."""
    regimes = Counter(report.verdict.regime for report in reports)
    if len(regimes) < 2:
        return ()
    named = ", ".join(f"{count} {regime}" for regime, count in regimes.most_common())
    return (
        Finding(
            code="ranks-differ",
            severity="warning",
            message=f"The {len(reports)} ranks are not in one regime: {named}.",
            evidence={str(regime): count for regime, count in regimes.items()},
            hint="A rank that waits for a late one shows communication; look for the rank that waits least.",
        ),
    )
