"""What was going on in each step, if every moment counts once? Device work first, then the host's, by priority.

Kernel > copy > fill > communication > runtime call > data loader > operator > other: the partition of Kineto's
TensorBoard plugin, so that its figures can be held side by side. A collective counts as communication only where
nothing of higher priority runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from referee.analysis.kernels import is_collective
from referee.graph.work import Work
from referee.records.trace_report import StepPartition
from referee.trace.columns import CALL_KINDS, DEVICE_KINDS, NONE, IntColumn, Kind, RowNumbers, Trace
from referee.trace.intervals import EMPTY, IntervalSet, overlap_ns, union
from referee.trace.steps import step_of

PRIORITY = ("kernel", "memcpy", "memset", "communication", "runtime", "loader", "cpu")
"""What claims a moment, the first of them that is going on; *other* is what nobody claims."""


def partition_steps(trace: Trace, works: Sequence[Work]) -> tuple[StepPartition, ...]:
    """One partition per step, exact: the parts sum to the step, from its start to the later of its end and the end of
    the last device row that it launched. Where a step reaches into the next one, that one begins where it ended."""
    steps = trace.steps
    if not steps:
        return ()
    start_ns = np.array([step.start_ns for step in steps], dtype=np.int64)
    end_ns = np.array([step.end_ns for step in steps], dtype=np.int64)
    for work in works:
        position = np.where(work.linked, step_of(steps, work.launch_start_ns), NONE)
        np.maximum.at(end_ns, position[position != NONE], work.end_ns[position != NONE])
    start_ns[1:] = np.maximum(start_ns[1:], np.minimum(np.maximum.accumulate(end_ns)[:-1], end_ns[1:]))
    claimed: IntervalSet = EMPTY
    parts: dict[str, IntColumn] = {}
    before = np.zeros_like(start_ns)
    for name, intervals in _claims(trace):
        claimed = union(*(np.concatenate(pair) for pair in zip(claimed, intervals, strict=True)))
        so_far = overlap_ns(start_ns, end_ns, within=claimed)
        parts[name], before = so_far - before, so_far
    return tuple(
        StepPartition(
            name=step.name,
            length_ns=int(end_ns[i] - start_ns[i]),
            other_ns=int(end_ns[i] - start_ns[i] - before[i]),
            **{f"{name}_ns": int(parts[name][i]) for name in PRIORITY},
        )
        for i, step in enumerate(steps)
    )


def _claims(trace: Trace) -> Iterator[tuple[str, IntervalSet]]:
    rows = trace.rows

    def spans(members: RowNumbers) -> IntervalSet:
        return union(rows.start_ns[members], rows.end_ns[members])

    device = rows.of(*DEVICE_KINDS)
    talk = is_collective(trace, device)
    kind = rows.kind[device]
    yield "kernel", spans(device[~talk & np.isin(kind, (Kind.KERNEL, Kind.DEVICE_OTHER))])
    yield "memcpy", spans(device[kind == Kind.MEMCPY])
    yield "memset", spans(device[kind == Kind.MEMSET])
    yield "communication", spans(device[talk])
    yield "runtime", spans(rows.of(*CALL_KINDS))
    yield "loader", spans(rows.of(Kind.LOADER))
    yield "cpu", spans(rows.of(Kind.OPERATOR))
