"""What do the three losses of eager mode cost here, between which bounds, and on what do the figures stand?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from referee.analysis.host_work import of_per_op
from referee.analysis.idle import Gaps
from referee.graph.calls import ALLOCATIONS, calls_named
from referee.records.trace_report import Idle, Loss, Losses
from referee.trace.columns import NONE, Kind, Trace
from referee.trace.intervals import measure, overlap_ns, union
from referee.units import NS_PER_US, format_ns

REPLAY_GAP_NS = 1 * NS_PER_US
"""What remains of a gap between two kernels when a recorded graph replays them: at most about 1 µs (0.06 µs between
the kernels of a recorded decode step on MI300)."""

PROFILED_NS = 4 * NS_PER_US
"""What recording adds to an operator on the host, where the capture did not calibrate it: a dispatch-bound model took
30.5 ms profiled and 17.8 ms not, about 4 µs an operator (public report to PyTorch)."""

PROFILED_MOST_FRAC = 0.5
"""Recording is never taken for more than half of the per-op loss: the rest of the operator was there before."""


def price_losses(
    trace: Trace, gaps: Sequence[Gaps], *, idle: Idle, traffic: Loss, unprofiled_step_ns: float | None = None
) -> Losses:
    """The three losses over the window, summed over devices.

    ``traffic`` is the memory traffic as priced from shapes; ``unprofiled_step_ns`` the time of a step without the
    profiler: then what recording cost is measured, not estimated.
    """
    return Losses(
        per_op_overhead=_per_op(trace, gaps, idle=idle, step_ns=unprofiled_step_ns or _stated_step_ns(trace)),
        memory_traffic=traffic,
        allocator=_allocator(trace, idle=idle),
    )


def _per_op(trace: Trace, gaps: Sequence[Gaps], *, idle: Idle, step_ns: float | None) -> Loss:
    """Low: the launch calls inside per-op gaps. High: all of the gaps, less what replaying the kernels still costs.

    The recoverable figure takes from the high bound what the profiler itself put between the kernels.
    """
    total_ns = idle.host_starved.per_op_ns
    if not total_ns:
        return Loss(recoverable_ns=0, low_ns=0, high_ns=0, basis="no device waited for an operator to be issued")
    rows = trace.rows
    launches = np.flatnonzero(trace.links.is_launch)
    calls = union(rows.start_ns[launches], rows.end_ns[launches])
    operators = rows.start_ns[rows.of(Kind.OPERATOR)]
    cost_ns = _profiler_cost_ns(trace)
    low_ns = high_ns = profiled_ns = 0
    for device_gaps in gaps:
        waits_for_op = device_gaps.per_op_ns > 0
        # What operators compute on the host, no graph replays.
        per_op_ns = (device_gaps.per_op_ns - of_per_op(trace, device_gaps))[waits_for_op]
        begin_ns, end_ns = device_gaps.start_ns[waits_for_op], device_gaps.host_end_ns[waits_for_op]
        low_ns += int(np.minimum(overlap_ns(begin_ns, end_ns, within=calls), per_op_ns).sum())
        high_ns += int(np.maximum(per_op_ns - REPLAY_GAP_NS, 0).sum())
        issued = np.searchsorted(operators, end_ns) - np.searchsorted(operators, begin_ns)
        profiled_ns += int(np.minimum(issued * cost_ns, per_op_ns * PROFILED_MOST_FRAC).sum())
    low_ns = min(low_ns, high_ns)
    cost = f"taken as {format_ns(cost_ns)} an operator"
    whole = [step.end_ns - step.start_ns for step in trace.steps if not step.cut]
    if step_ns is not None and whole:
        profiled_ns = round(max(0.0, sum(whole) - len(whole) * step_ns))
        cost = f"measured: a step takes {format_ns(step_ns)} unprofiled"
        if step_ns > sum(whole) / len(whole):
            cost = (
                f"nothing: a step is said to take {format_ns(step_ns)} unprofiled, and takes "
                f"{format_ns(sum(whole) / len(whole))} here"
            )
    elif step_ns is not None:
        cost += f", since no whole step is there to hold {format_ns(step_ns)} unprofiled against"
    return Loss(
        recoverable_ns=max(low_ns, high_ns - profiled_ns),
        low_ns=low_ns,
        high_ns=high_ns,
        basis="per-op idle: low is the launch calls in it, high all of it less 1 µs a gap for replay; recoverable also "
        f"less what recording cost, {cost}",
    )


def _stated_step_ns(trace: Trace) -> float | None:
    """One step without the profiler, as the capture timed it beside the trace."""
    stated = None if trace.provenance is None else trace.provenance.method.get("unprofiled_step_ns")
    return float(stated) if isinstance(stated, int | float) and stated > 0 else None


def _profiler_cost_ns(trace: Trace) -> float:
    """What recording added to each operator: as calibrated by the capture, else a published figure."""
    stated = None if trace.provenance is None else trace.provenance.method.get("profiler_cost_ns")
    return float(stated) if isinstance(stated, int | float) and stated >= 0 else float(PROFILED_NS)


def _allocator(trace: Trace, *, idle: Idle) -> Loss:
    """Low: the device idle behind calls that reached the driver. High: all the time inside those calls."""
    rows = trace.rows
    calls = calls_named(trace, ALLOCATIONS)
    calls = calls[trace.links.operator_of[calls] != NONE] if trace.rows.of(Kind.OPERATOR).size else calls
    idle_ns = idle.host_starved.allocator_ns
    if not calls.size and not idle_ns:
        return Loss(
            recoverable_ns=0,
            low_ns=0,
            high_ns=0,
            basis="no allocation reached the driver; requests that the cache served are not in a trace",
        )
    inside_ns = measure(union(rows.start_ns[calls], rows.end_ns[calls]))
    return Loss(
        recoverable_ns=idle_ns,
        low_ns=idle_ns,
        high_ns=max(idle_ns, inside_ns),
        basis=f"{calls.size:,} allocation calls that reached the driver: low is the device idle behind them, "
        "high all the time inside them",
    )
