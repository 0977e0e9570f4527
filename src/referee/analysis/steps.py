"""What did each step do? Host wall time, the device work it launched, and the device's idle ends inside its wall."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from referee.analysis.hosts import SILENT_NS, observe_host
from referee.graph.work import Work
from referee.records.finding import Finding
from referee.records.trace_report import StepReport
from referee.trace.columns import IntColumn, Kind, Trace
from referee.trace.intervals import IntervalSet, measure, overlap_ns, union
from referee.trace.steps import step_of
from referee.trace.totals import kernels_per_step
from referee.units import format_ns

OUTSIDE_FRAC = 0.24
"""A lead outside the window of this share of it would name a regime inside."""
LONG_LEAD_FRAC = 0.20
"""A host lead of this share of a step makes shares of the step misleading: a trace 99 % busy over its window was 41 %
busy over its only step."""


def step_reports(trace: Trace, works: Sequence[Work]) -> tuple[StepReport, ...]:
    """One report per step of the trace.

    ``kernels`` and ``busy_ns`` are of the work that the step launched, wherever it ran; ``busy_in_step_ns`` is the
    device time inside the step's wall, whoever launched it. Lead and tail idle are the device's idle time from the
    step's start to the first work in its wall (all of it where there is none) and from the last work to its end. Busy
    figures add over devices; lead and tail look at all devices together.
    """
    steps = trace.steps
    if not steps:
        return ()
    start_ns = np.array([step.start_ns for step in steps], dtype=np.int64)
    end_ns = np.array([step.end_ns for step in steps], dtype=np.int64)
    launched_ns, inside_ns = np.zeros(len(steps), dtype=np.int64), np.zeros(len(steps), dtype=np.int64)
    for work in works:
        launched_ns += _launched(work, step_of(steps, work.launch_start_ns), len(steps))
        inside_ns += overlap_ns(start_ns, end_ns, within=work.busy)
    lead_ns, tail_ns = _ends(start_ns, end_ns, _together(works))
    kernels = kernels_per_step(trace)
    ops = trace.rows.start_ns[trace.rows.of(Kind.OPERATOR)]
    ops_in = np.searchsorted(ops, end_ns) - np.searchsorted(ops, start_ns)
    return tuple(
        StepReport(
            name=step.name,
            wall_ns=step.end_ns - step.start_ns,
            kernels=kernels[i],
            busy_ns=int(launched_ns[i]),
            busy_in_step_ns=int(inside_ns[i]),
            lead_idle_ns=int(lead_ns[i]),
            tail_idle_ns=int(tail_ns[i]),
            ops=int(ops_in[i]),
        )
        for i, step in enumerate(steps)
    )


def _launched(work: Work, step: IntColumn, count: int) -> IntColumn:
    """Busy time of the work that each step launched."""
    step = np.where(work.linked, step, -1)
    order = np.argsort(step, kind="stable")
    bounds = np.searchsorted(step[order], np.arange(count + 1))
    busy = [
        measure(union(work.start_ns[members], work.end_ns[members]))
        for members in (order[bounds[i] : bounds[i + 1]] for i in range(count))
    ]
    return np.array(busy, dtype=np.int64)


def _together(works: Sequence[Work]) -> IntervalSet:
    """When any device was busy."""
    none = np.zeros(0, dtype=np.int64)
    return union(
        np.concatenate([none, *(work.busy[0] for work in works)]),
        np.concatenate([none, *(work.busy[1] for work in works)]),
    )


def _ends(start_ns: IntColumn, end_ns: IntColumn, busy: IntervalSet) -> tuple[IntColumn, IntColumn]:
    wall_ns = end_ns - start_ns
    if not busy[0].size:
        return wall_ns, np.zeros_like(wall_ns)
    first = np.searchsorted(busy[1], start_ns, side="right")
    last = np.searchsorted(busy[0], end_ns, side="left") - 1
    something = (first <= last) & (first < busy[0].size)
    first, last = np.minimum(first, busy[0].size - 1), np.maximum(last, 0)
    lead_ns = np.where(something, np.maximum(busy[0][first] - start_ns, 0), wall_ns)
    tail_ns = np.where(something, np.maximum(end_ns - busy[1][last], 0), 0)
    return lead_ns, tail_ns


def lead_findings(trace: Trace, works: Sequence[Work], steps: Sequence[StepReport]) -> tuple[Finding, ...]:
    """Say so where a step begins with a long stretch in which the device has nothing, and what the host does there.

    A lead before the first device row of all is outside the window: if it is long against that, no share shows it.
    """
    leads = [
        (report.lead_idle_ns / report.wall_ns, report, step.start_ns)
        for report, step in zip(steps, trace.steps, strict=True)
        if report.wall_ns > 0 and report.busy_in_step_ns
    ]
    long = [lead for lead in leads if lead[0] >= LONG_LEAD_FRAC]
    if not long:
        return ()
    frac, worst, start_ns = max(long, key=lambda lead: lead[0])
    busy = _together(works)
    begin_ns, end_ns = int(busy[0][0]), int(busy[1][-1])
    before = max(long, key=lambda lead: min(lead[2] + lead[1].lead_idle_ns, begin_ns) - lead[2])
    outside_ns = min(before[2] + before[1].lead_idle_ns, begin_ns) - before[2]
    unseen = outside_ns >= OUTSIDE_FRAC * (end_ns - begin_ns)
    if unseen:
        frac, worst, start_ns = before
    return (
        Finding(
            code="long-lead",
            severity="warning" if unseen else "info",
            message=f"{len(long)} of {len(steps)} steps begin with the device idle for at least "
            f"{LONG_LEAD_FRAC:.0%} of the step; the longest lead is {frac:.0%} of {worst.name}, "
            f"{format_ns(worst.lead_idle_ns)}{_in_what(trace, start_ns, worst.lead_idle_ns)}.",
            evidence={"steps": len(long), "lead_idle_ns": worst.lead_idle_ns, "wall_ns": worst.wall_ns},
            hint="It lies before the first device row, so no share of the window holds it. What is paid once (loader "
            "workers that start, persistent_workers=True keeps them; compilation) belongs in a warm-up step; what each "
            "step pays shows in a recording of several."
            if unseen
            else "Shares of the window, from the first device row to the last, are the ones to go by.",
        ),
    )


def _in_what(trace: Trace, start_ns: int, length_ns: int) -> str:
    """What the host does for most of a lead, in words; nothing where no row says so."""
    host = observe_host(trace, silent=length_ns >= SILENT_NS)
    spans = {
        "the data loader": host.loader,
        "allocations that reach the driver": host.allocator,
        "first-time work": host.one_off,
    }
    begin, end = np.array([start_ns]), np.array([start_ns + length_ns])
    took_ns = {words: int(overlap_ns(begin, end, within=span)[0]) for words, span in spans.items()}
    words, ns = max(took_ns.items(), key=lambda item: item[1])
    return f", {format_ns(ns)} of it in {words}" if 2 * ns >= length_ns > 0 else ""
