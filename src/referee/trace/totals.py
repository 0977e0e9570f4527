"""How much of everything is there? Counts of rows and sums of time, over the file and for each device.

Times are integer nanoseconds. *Busy* is the union of device rows over streams, *sum* their total, *window* the first
device start to the last device end, *idle* window minus busy; each per device, and totals add over devices.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from referee.records.trace_report import DeviceTotals, Totals
from referee.trace.columns import CALL_KINDS, DEVICE_KINDS, NONE, IntColumn, Kind, RowNumbers, Rows, Step, Trace
from referee.trace.intervals import measure, union
from referee.trace.kinds import graph_launch_names, names_beginning
from referee.trace.nesting import per_thread, top_level
from referee.trace.steps import step_of


def totals(trace: Trace) -> Totals:
    """The totals of a trace."""
    rows, links = trace.rows, trace.links
    ops = rows.of(Kind.OPERATOR)
    calls = rows.of(*CALL_KINDS)
    kernels = rows.of(Kind.KERNEL)
    device_rows = rows.of(*DEVICE_KINDS)
    launched = np.zeros(len(rows), np.bool_)
    launched[links.launch_of[device_rows][links.launch_of[device_rows] >= 0]] = True
    devices = device_totals(trace)
    return Totals(
        events=trace.events,
        ops=len(ops),
        ops_top=len(top_rows(rows, ops)),
        ops_aten_top=len(aten_top_rows(trace)),
        runtime_calls=len(calls),
        launches=int(links.is_launch.sum()),
        launches_without_device_rows=int((links.is_launch & ~launched).sum()),
        kernels=len(kernels),
        device_rows=len(device_rows),
        device_rows_without_launch=int((links.launch_of[device_rows] < 0).sum()),
        graph_launches=int((links.is_launch & graph_launch_names(trace.names)[rows.name]).sum()) if len(rows) else 0,
        streams=sum(device.streams for device in devices),
        busy_ns=sum(device.busy_ns for device in devices),
        sum_ns=sum(device.sum_ns for device in devices),
        window_ns=sum(device.window_ns for device in devices),
        idle_ns=sum(device.idle_ns for device in devices),
        median_kernel_ns=float(np.median(durations(rows, kernels))) if len(kernels) else None,
        self_cpu_ns=self_time_ns(rows, ops) if len(ops) else None,
        self_device_ns=total_ns(durations(rows, device_rows)) if len(device_rows) else None,
    )


def device_totals(trace: Trace) -> tuple[DeviceTotals, ...]:
    """The totals of each device that has rows, by its number.

    Of a file without device rows: those that its device properties name, with nothing on them, so that a reader sees
    what was to be recorded. Otherwise every idle neighbour in the machine would be listed.
    """
    rows = trace.rows
    device_rows = rows.of(*DEVICE_KINDS)
    named = {device.ordinal: device.name for device in trace.devices}
    return tuple(
        _one_device(
            rows, device_rows[rows.device[device_rows] == device], device=int(device), name=named.get(int(device))
        )
        for device in (np.unique(rows.device[device_rows]) if len(device_rows) else sorted(named))
    )


def _one_device(rows: Rows, own: RowNumbers, *, device: int, name: str | None) -> DeviceTotals:
    start, end = rows.start_ns[own], rows.end_ns[own]
    busy, window = measure(union(start, end)), int(end.max()) - int(start.min()) if len(own) else 0
    return DeviceTotals(
        device=device,
        name=name,
        kernels=int((rows.kind[own] == Kind.KERNEL).sum()),
        device_rows=len(own),
        streams=len(np.unique(rows.stream[own])),
        busy_ns=busy,
        sum_ns=total_ns(end - start),
        window_ns=window,
        idle_ns=window - busy,
    )


def durations(rows: Rows, chosen: RowNumbers) -> IntColumn:
    """The durations of some rows."""
    return rows.end_ns[chosen] - rows.start_ns[chosen]


def total_ns(values: IntColumn) -> int:
    """The sum, exact also where it would not fit in int64."""
    largest = int(values.max()) if len(values) else 0
    return int(values.sum()) if largest * len(values) < 1 << 63 else sum(values.tolist())


def top_rows(rows: Rows, chosen: RowNumbers) -> RowNumbers:
    """Which of some rows are top-level: those that start, on their thread, at or after the end of the last counted?"""
    return chosen[top_level(rows.thread[chosen], rows.start_ns[chosen], rows.end_ns[chosen])]


def aten_top_rows(trace: Trace) -> RowNumbers:
    """The ``aten::`` operators with no ``aten::`` operator around them: the N_ops of the law."""
    rows = trace.rows
    ops = rows.of(Kind.OPERATOR)
    return top_rows(rows, ops[names_beginning(trace.names, "aten::")[rows.name[ops]]])


def self_time_ns(rows: Rows, chosen: RowNumbers) -> int:
    """The time of some host rows, each without what nests in it: per thread, their union."""
    start, end = per_thread(rows.thread[chosen], rows.start_ns[chosen], rows.end_ns[chosen])
    if np.array_equal(end - start, durations(rows, chosen)):
        return measure(union(start, end))
    threads = (chosen[rows.thread[chosen] == thread] for thread in np.unique(rows.thread[chosen]))
    return sum(measure(union(rows.start_ns[own], rows.end_ns[own])) for own in threads)


def kernels_per_step(trace: Trace, *, steps: Sequence[Step] | None = None) -> tuple[int, ...]:
    """How many kernels did each step launch, wherever they ran? Unlinked kernels belong to no step."""
    chosen = trace.steps if steps is None else steps
    kernels = trace.rows.of(Kind.KERNEL)
    launches = trace.links.launch_of[kernels]
    launches = launches[launches != NONE]
    position = step_of(chosen, trace.rows.start_ns[launches])
    return tuple(int(count) for count in np.bincount(position[position >= 0], minlength=len(chosen)))
