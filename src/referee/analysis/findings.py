"""What limits this answer? Findings on a trace that follow from its analysis (the reader adds its own)."""

from __future__ import annotations

from collections import Counter

import numpy as np

from referee.analysis.asking import asking_findings
from referee.analysis.late_rows import lag_ns
from referee.analysis.regime import rows_are_late, what_is_missing
from referee.analysis.steps import lead_findings
from referee.analysis.stray import stray_finding
from referee.analysis.study import DETAILED_EVENTS, Study
from referee.graph.waits import find_waits
from referee.records.finding import Finding, Scalar
from referee.trace.columns import CALL_KINDS, DEVICE_KINDS, NONE, Kind
from referee.units import format_count, format_frac, format_ns

FEWEST_LAUNCHES, BLOCKING_FRAC = 10, 0.9
"""So many launches must be there, and this share of them return only after their kernels, to be told to."""
UNSEEN_FRAC = 0.01
"""Unseen gaps below this share of the window are not worth a sentence."""


def trace_findings(study: Study) -> tuple[Finding, ...]:
    """The reader's findings, then those of the analysis."""
    return (
        *study.trace.findings,
        *_missing(study),
        *asking_findings(study),
        *_stray(study),
        *_blocking_launches(study),
        *_calls_without_rows(study),
        *_unlinked(study),
        *_unseen(study),
        *_late(study),
        *_unmatched_backward(study),
        *lead_findings(study.trace, study.works, study.steps),
        *_left_out(study),
    )


def _stray(study: Study) -> tuple[Finding, ...]:
    if not study.stray.size:
        return ()
    rest_ns = study.judged.totals.window_ns
    return (stray_finding(study.trace, study.stray, window_ns=study.totals.window_ns, rest_ns=rest_ns),)


def _late(study: Study) -> tuple[Finding, ...]:
    if not rows_are_late(study.judged.shares):
        return ()
    late = [(lag, work) for work in study.judged.works if (lag := lag_ns(work)) is not None]
    least_ns, work = max(late, key=lambda pair: pair[0])
    idle_ns = study.judged.shares.late_ns
    return (
        Finding(
            code="rows-late",
            severity="warning",
            message=f"Every row of device {work.device} starts {format_ns(least_ns)} or more after its launch, though "
            f"it was idle for {format_ns(idle_ns)} with its next work launched: its clock is ahead of the host's by "
            "about as much, or every launch takes that long to reach it.",
            evidence={"least_ns": least_ns, "idle_ns": idle_ns, "device": work.device},
            hint="Queue delays and the causes of idle time are off by as much; durations and sums are not.",
        ),
    )


def _left_out(study: Study) -> tuple[Finding, ...]:
    """What a large file's report does not hold, and how to get it."""
    events = study.trace.events
    if events <= DETAILED_EVENTS:
        return ()
    left_out = ["the critical path"]
    if study.details is None:
        left_out += [
            "SM-weighted and useful utilisation",
            "roofs and limits of kernels",
            "memory traffic",
            "the memory timeline",
            "operators whose shapes change",
        ]
    return (
        Finding(
            code="large-trace",
            severity="info",
            message=f"The trace holds {format_count(events)} events, above {format_count(DETAILED_EVENTS)}: left out "
            f"are {', '.join(left_out)}.",
            evidence={"events": events, "most_events": DETAILED_EVENTS},
            hint="Ask for a part of it: --step K, or --range 10ms..25ms.",
        ),
    )


def _recorded_on_cpu(study: Study) -> bool:
    """Whether the provenance beside the file says that the CPU alone took part: no device row is missing then."""
    provenance = study.trace.provenance
    return provenance is not None and provenance.accelerator is None


def _unmatched_backward(study: Study) -> tuple[Finding, ...]:
    """Gradients whose forward operator is not known, of a trace whose arguments were read."""
    links = None if study.details is None else study.details.backward
    if links is None or links.unmatched == 0:
        return ()
    return (
        Finding(
            code="unmatched-backward",
            severity="info",
            message=f"{format_count(links.unmatched)} links between forward and backward operators lead nowhere, "
            f"{format_count(links.matched)} were found.",
            evidence={"unmatched": links.unmatched, "matched": links.matched, "basis": links.basis},
        ),
    )


def _missing(study: Study) -> tuple[Finding, ...]:
    code = what_is_missing(study.trace, study.totals)
    if code is None:
        return ()
    if code == "no-device-rows" and _recorded_on_cpu(study):
        return ()
    totals = study.totals
    evidence: dict[str, Scalar] = {
        "device_rows": totals.device_rows,
        "kernels": totals.kernels,
        "launches": totals.launches,
        "launches_without_device_rows": totals.launches_without_device_rows,
    }
    messages = {
        "no-device-rows": "The trace holds no device row and no launch: there is no device verdict."
        if totals.ops
        else "The trace holds no operator, no launch and no device row: nothing of PyTorch was recorded in it.",
        "no-kernel-rows": f"None of the {format_count(totals.device_rows)} device rows is known to be a kernel.",
        "few-device-rows": "One device row alone has no window in which anything could be idle.",
        "lost-device-rows": f"{format_count(totals.launches_without_device_rows)} of "
        f"{format_count(totals.launches)} launches have no device row: device activity was lost or not recorded.",
    }
    if code not in messages:
        # The reader has said it already.
        return ()
    hints = {
        "no-device-rows": "Record with ProfilerActivity.CUDA (or the device's own), and check that this build of "
        "PyTorch sees the device. An empty device side is not an idle device."
        if totals.ops
        else _why_empty(study),
        "no-kernel-rows": "Record a stretch in which the model computes on the device.",
        "few-device-rows": "Record at least one whole step.",
        "lost-device-rows": "Check the profiler's permissions and the driver, flush before exporting, and do not "
        "record while a graph is being captured.",
    }
    return (Finding(code=code, severity="warning", message=messages[code], evidence=evidence, hint=hints[code]),)


def _why_empty(study: Study) -> str:
    """Why nothing of PyTorch is in a file: another program wrote it, or the profiler had nothing left to write."""
    rows = study.trace.rows
    strange = len(rows.of(Kind.UNKNOWN))
    if 2 * strange > len(rows):
        return (
            f"None of its {format_count(strange)} rows without a known category says what it is: give a trace of "
            "torch.profiler, an export of Nsight Systems, or one of XLA's profiler."
        )
    return (
        "Export in the schedule's on_trace_ready: after the loop a new cycle has begun, and what the active one "
        "recorded is gone."
    )


def _blocking_launches(study: Study) -> tuple[Finding, ...]:
    """Launches that return only once their kernel has ended: somebody told the driver to."""
    trace = study.trace
    kernels = trace.rows.of(Kind.KERNEL)
    launches = np.unique(trace.links.launch_of[kernels])
    launches = launches[launches != NONE]
    waits = np.concatenate([launches[:0], *(find_waits(trace, work).rows for work in study.works)])
    waiting = int(np.isin(launches, waits).sum())
    if launches.size < FEWEST_LAUNCHES or waiting < BLOCKING_FRAC * launches.size:
        return ()
    return (
        Finding(
            code="launch-blocking",
            severity="warning",
            message=f"{format_count(waiting)} of {format_count(launches.size)} calls that launch kernels return only "
            "once their kernel has ended: the host waits in each of them.",
            evidence={"waiting": waiting, "launches": int(launches.size)},
            hint="Unset CUDA_LAUNCH_BLOCKING (HIP_LAUNCH_BLOCKING, AMD_SERIALIZE_KERNEL), or detach the debugger: "
            "with it nothing here is what the program does without.",
        ),
    )


def _calls_without_rows(study: Study) -> tuple[Finding, ...]:
    """Calls that hand work to a device, judged by their names' other calls, without a device row of their own."""
    trace = study.trace
    rows = trace.rows
    launched = trace.links.launch_of[rows.of(*DEVICE_KINDS)]
    launched = launched[launched != NONE]
    if not launched.size:
        return ()
    calls = rows.of(*CALL_KINDS)
    with_rows = np.zeros(len(rows), dtype=bool)
    with_rows[launched] = True
    hands_over = np.zeros(len(trace.names), dtype=bool)
    hands_over[rows.name[launched]] = True
    hands_over |= np.fromiter((_fills(name) for name in trace.names), dtype=bool, count=len(trace.names))
    bare = calls[~with_rows[calls] & hands_over[rows.name[calls]]]
    if not bare.size:
        return ()
    counts = Counter(trace.names[int(code)] for code in rows.name[bare])
    named = ", ".join(f"{name} {count:,} times" for name, count in counts.most_common(4))
    return (
        Finding(
            code="launch-without-rows",
            severity="info",
            message=f"Calls that can hand over work have no device row of their own: {named}.",
            evidence=dict(counts.most_common(8)),
            hint="In a healthy trace some of these do nothing on the device, such as a fill of nothing.",
        ),
    )


def _fills(name: str) -> bool:
    """A call of the fill family: it may have no device row even where every other call has one."""
    return name.startswith(("cudaMemset", "hipMemset", "cuMemset"))


def _unlinked(study: Study) -> tuple[Finding, ...]:
    totals = study.totals
    if not totals.device_rows_without_launch:
        return ()
    linked = totals.device_rows - totals.device_rows_without_launch
    return (
        Finding(
            code="unlinked-rows",
            severity="warning",
            message=f"{format_count(totals.device_rows_without_launch)} of {format_count(totals.device_rows)} device "
            "rows have no launch in the file: they count in the totals, not per step and not in the queue.",
            evidence={"unlinked": totals.device_rows_without_launch, "linked": linked},
            hint="They were launched before recording began, or the file carries no correlation ids; "
            "a warm-up phase of the profiler's schedule, ended by a synchronise, avoids the former.",
        ),
    )


def _unseen(study: Study) -> tuple[Finding, ...]:
    idle, window_ns = study.idle, study.totals.window_ns
    if not window_ns or idle.unseen_ns < UNSEEN_FRAC * window_ns:
        return ()
    return (
        Finding(
            code="unseen",
            severity="warning",
            message=f"For {format_ns(idle.unseen_ns)} ({format_frac(idle.unseen_ns / window_ns)} of the window) the "
            "device did nothing although its next work was queued.",
            evidence={"unseen_ns": idle.unseen_ns, "window_ns": window_ns},
            hint="Another process or stream may have held the device, or its work was not recorded.",
        ),
    )
