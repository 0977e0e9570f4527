"""Can the rows be believed? What contradicts itself in a trace: ids, clocks, overlaps, durations, the profiler's cost.

Each contradiction is a finding with its counts and the share of the window that it touches, so that a verdict can be
held to what is left. Times rounded to whole microseconds, as older profilers wrote them, contradict each other by up to
one; that much is not reported.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from referee.records.finding import Finding
from referee.trace.columns import (
    CALL_KINDS,
    DEVICE_KINDS,
    NONE,
    BoolColumn,
    CodeColumn,
    IntColumn,
    Kind,
    Links,
    RowNumbers,
    Rows,
)
from referee.trace.intervals import clip, measure, union
from referee.trace.kinds import name_flags

ROUNDING_NS = 1_000
"""Whole microseconds: what two rounded times may contradict each other by."""
_QUEUE_FULL = re.compile(r"(?i)command buffer full")
_DRIVER = re.compile(r"(?i)command buffer full|lazy function loading|runtime triggered module loading|driver compiler")
"""What CUPTI lists as overhead although it is there without a profiler: a full queue, loading and compiling code."""
OVERHEAD_FRAC = 0.01
"""Overhead of the profiler that touches less of the window than this is not worth a sentence."""


def audit(rows: Rows, links: Links, *, names: Sequence[str]) -> tuple[Finding, ...]:
    """The contradictions in a trace, of which ``names`` are the rows' names."""
    device_rows = rows.of(*DEVICE_KINDS)
    found = (
        _duplicate_ids(rows, links),
        _before_launch(rows, links, device_rows),
        _stream_overlaps(rows, device_rows),
        _zero_durations(rows, device_rows),
        *_overhead(rows, device_rows, names),
    )
    return tuple(finding for finding in found if finding is not None)


def _window_frac(rows: Rows, device_rows: RowNumbers, touching: RowNumbers) -> float:
    """The share of the window, first device start to last device end, that some rows touch."""
    if len(device_rows) == 0 or len(touching) == 0:
        return 0.0
    low, high = int(rows.start_ns[device_rows].min()), int(rows.end_ns[device_rows].max())
    touched = union(rows.start_ns[touching], rows.end_ns[touching])
    return measure(clip(touched, start=low, end=high)) / max(high - low, 1)


def _duplicate_ids(rows: Rows, links: Links) -> Finding | None:
    """Several launches of one id: the device rows of all of them were given to one."""
    calls = rows.of(*CALL_KINDS)
    launches = calls[links.is_launch[calls] & (rows.correlation[calls] > 0)]
    ids, counts = np.unique(rows.correlation[launches], return_counts=True)
    shared = ids[counts > 1]
    if len(shared) == 0:
        return None
    device_rows = rows.of(*DEVICE_KINDS)
    affected = device_rows[np.isin(rows.correlation[device_rows], shared)]
    return Finding(
        code="duplicate-correlation",
        severity="warning",
        message=f"{len(shared)} correlation ids belong to several launches each: their {len(affected)} device rows "
        "were given to the earliest.",
        evidence={
            "ids": len(shared),
            "launches": int(counts[counts > 1].sum()),
            "device_rows": len(affected),
            "window_frac": _window_frac(rows, device_rows, affected),
        },
        hint="Several processes or recordings in one file number their launches alike: give each its own file.",
    )


def _before_launch(rows: Rows, links: Links, device_rows: RowNumbers) -> Finding | None:
    """Device rows that start before their launch was called."""
    linked = device_rows[links.launch_of[device_rows] != NONE]
    early = rows.start_ns[links.launch_of[linked]] - rows.start_ns[linked]
    wrong = early > ROUNDING_NS
    if not wrong.any():
        return None
    return Finding(
        code="rows-before-launch",
        severity="warning",
        message=f"{int(wrong.sum())} of {len(linked)} device rows start before their launch, by up to "
        f"{int(early.max())} ns: the clocks of host and device do not agree.",
        evidence={
            "rows": int(wrong.sum()),
            "linked_rows": len(linked),
            "most_ns": int(early.max()),
            "median_ns": float(np.median(early[wrong])),
            "window_frac": _window_frac(rows, device_rows, linked[wrong]),
        },
        hint="Queue delays and the causes of idle time are off by as much; durations and sums are not.",
    )


def _stream_overlaps(rows: Rows, device_rows: RowNumbers) -> Finding | None:
    """Device rows that start before an earlier one on their stream ended, though a stream runs in order."""
    order = device_rows[np.lexsort((rows.start_ns[device_rows], rows.stream[device_rows], rows.device[device_rows]))]
    if len(order) < 2:
        return None
    same = _same_as_before(rows.device[order]) & _same_as_before(rows.stream[order])
    behind = rows.end_ns[order][:-1] - rows.start_ns[order][1:]
    wrong = same[1:] & (behind > ROUNDING_NS) & (rows.end_ns[order][1:] > rows.start_ns[order][1:])
    if not wrong.any():
        return None
    overlapping = order[1:][wrong]
    return Finding(
        code="stream-overlap",
        severity="info",
        message=f"{len(overlapping)} device rows start before the one ahead of them on their stream ended, by up to "
        f"{int(behind[wrong].max())} ns.",
        evidence={
            "rows": len(overlapping),
            "most_ns": int(behind[wrong].max()),
            "window_frac": _window_frac(rows, device_rows, overlapping),
        },
        hint="Programmatic dependent launches and parallel branches of a graph do this; busy time is the union.",
    )


def _same_as_before(values: IntColumn | CodeColumn) -> BoolColumn:
    return np.append(False, values[1:] == values[:-1])


def _zero_durations(rows: Rows, device_rows: RowNumbers) -> Finding | None:
    empty = int((rows.end_ns[device_rows] == rows.start_ns[device_rows]).sum())
    if not empty:
        return None
    return Finding(
        code="zero-duration",
        severity="info",
        message=f"{empty} of {len(device_rows)} device rows have no duration: they count as rows, not as time.",
        evidence={"rows": empty, "device_rows": len(device_rows)},
        hint="Times in whole microseconds lose short kernels: a newer profiler records nanoseconds.",
    )


def _overhead(rows: Rows, device_rows: RowNumbers, names: Sequence[str]) -> tuple[Finding | None, ...]:
    """The rows that the profiler calls overhead: its own, and those of the driver, which are none of it."""
    listed = rows.of(Kind.OVERHEAD)
    own = listed[~name_flags(names, _DRIVER)[rows.name[listed]]]
    full = listed[name_flags(names, _QUEUE_FULL)[rows.name[listed]]]
    return _profilers_own(rows, device_rows, own), _queue_full(rows, device_rows, full)


def _profilers_own(rows: Rows, device_rows: RowNumbers, own: RowNumbers) -> Finding | None:
    share = _window_frac(rows, device_rows, own)
    if share < OVERHEAD_FRAC:
        return None
    total = measure(union(rows.start_ns[own], rows.end_ns[own]))
    return Finding(
        code="profiler-overhead",
        severity="warning",
        message=f"The profiler's own work touches {100 * share:.1f} % of the window ({total} ns in all): "
        "part of the idle time is its doing.",
        evidence={"rows": len(own), "total_ns": total, "window_frac": share},
        hint="Record a warm-up phase, fewer activities, or no stacks and shapes.",
    )


def _queue_full(rows: Rows, device_rows: RowNumbers, full: RowNumbers) -> Finding | None:
    """Launches that stood before a full queue, as the driver says."""
    share = _window_frac(rows, device_rows, full)
    if share < OVERHEAD_FRAC:
        return None
    total = measure(union(rows.start_ns[full], rows.end_ns[full]))
    return Finding(
        code="queue-full",
        severity="info",
        message=f"For {100 * share:.1f} % of the window the driver says that launches stood before a full queue "
        f"({len(full)} times, {total} ns in all): the host was ahead, and its launch calls look long for it.",
        evidence={"rows": len(full), "total_ns": total, "window_frac": share},
        hint="What the host spends on launches does not matter there: the device is behind.",
    )
