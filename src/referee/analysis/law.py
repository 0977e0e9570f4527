"""What does the law say? t_step ≈ max(N_ops × t_cpu, Σ t_gpu), held against the window that was measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from referee.graph.threads import launching_threads
from referee.graph.waits import find_waits
from referee.graph.work import Work
from referee.records.trace_report import Idle, Law, Totals
from referee.trace.columns import Trace
from referee.trace.intervals import clip, measure, union


def apply_law(trace: Trace, works: Sequence[Work], *, totals: Totals, idle: Idle) -> Law:
    """Both sides of the law over the whole window, and the residual with the name of its largest part.

    The host side is the span of the launches less the waits inside it (a sum of operators would miss the Python
    between them). The device side counts rows that run side by side once; with several devices it is that of the
    busiest one, and the window runs from the first device row to the last of all.
    """
    device_ns = max((work.busy_ns for work in works), default=0)
    begin_ns = min((work.begin_ns for work in works), default=0)
    measured_ns = max((work.finish_ns for work in works), default=begin_ns) - begin_ns
    host_ns = _host_ns(trace, works)
    predicted_ns = None if host_ns is None else max(host_ns, device_ns)
    residual_ns = None if predicted_ns is None else measured_ns - predicted_ns
    per_op = host_ns is not None and totals.ops_aten_top > 0
    return Law(
        n_ops=totals.ops_aten_top,
        t_cpu_ns=host_ns / totals.ops_aten_top if host_ns is not None and per_op else None,
        host_ns=host_ns,
        device_ns=device_ns,
        predicted_ns=predicted_ns,
        measured_ns=measured_ns,
        residual_ns=residual_ns,
        residual=_name_residual(residual_ns, host_ns=host_ns, device_ns=device_ns, idle=idle),
    )


def _host_ns(trace: Trace, works: Sequence[Work]) -> int | None:
    """From the first launch to the end of the last, less the waits of the launching threads; ``None`` without any."""
    rows = trace.rows
    launches = np.flatnonzero(trace.links.is_launch)
    if not launches.size:
        return None
    start_ns, end_ns = int(rows.start_ns[launches].min()), int(rows.end_ns[launches].max())
    waits = np.unique(np.concatenate([find_waits(trace, work).rows for work in works or (None,)]))
    waits = waits[launching_threads(trace)[rows.thread[waits]]]
    waited = union(rows.start_ns[waits], rows.end_ns[waits])
    return end_ns - start_ns - measure(clip(waited, start=start_ns, end=end_ns))


def _name_residual(residual_ns: int | None, *, host_ns: int | None, device_ns: int, idle: Idle) -> str:
    """The largest part of what the law leaves unexplained."""
    if residual_ns is None or host_ns is None:
        return "no launches: the host's side is not known"
    if residual_ns == 0:
        return "nothing: the law is the window"
    if residual_ns < 0:
        return "the host began before the first device row, or went on after the last"
    if host_ns >= device_ns:
        return "waits and the device's last rows: host and device took turns"
    starved = idle.host_starved
    named = {
        "the device waited for the host although it is the slower: they took turns": starved.per_op_ns,
        "the data loader": starved.loader_ns,
        "allocations that reached the driver": starved.allocator_ns,
        "one-off work": starved.one_off_ns,
        "pauses of the host": starved.pause_ns,
        "waits: host and device took turns": idle.synchronised_ns,
        "dependencies between streams": idle.dependency_ns,
        "gaps between queued rows": idle.other_ns,
    }
    return max(named, key=lambda name: named[name])
