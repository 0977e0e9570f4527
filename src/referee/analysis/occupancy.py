"""How much of the device did the resident kernels fill? Blocks per multiprocessor, waves, tails, occupancy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from referee.graph.work import Work, window_ns
from referee.records.trace_report import TopKernel
from referee.trace.columns import DeviceProperties, IntColumn, Kind, RowNumbers, Trace
from referee.trace.details import Details, FloatColumn

COVERED_FRAC = 0.5
"""Launch shapes must be known for this share of kernel time, or no figure is given."""
MOST_BLOCKS = 32
"""Blocks that a multiprocessor holds at most, on every architecture since 2014."""


@dataclass(frozen=True, kw_only=True)
class Filling:
    """How full the device was: over the window, and the profiler's occupancy over kernel time."""

    sm_weighted_frac: float | None
    occupancy_frac: float | None


@dataclass(frozen=True, eq=False)
class _Shapes:
    """Launch shapes of kernels; arrays over ``rows``, NaN where not known."""

    rows: RowNumbers
    blocks_per_sm: FloatColumn
    waves: FloatColumn
    occupancy_frac: FloatColumn


def filling(trace: Trace, works: Sequence[Work], details: Details) -> Filling:
    """Kernels weighted by the share of multiprocessors that have a block of theirs: min(blocks / SMs, 1) over time.

    Kernels side by side add up to at most 1. The definition is that of Kineto's "estimated SM efficiency", over the
    window.
    """
    shapes = _shapes(trace, details)
    kernels = trace.rows.of(Kind.KERNEL)
    kernel_ns = int((trace.rows.end_ns[kernels] - trace.rows.start_ns[kernels]).sum())
    duration_ns = trace.rows.end_ns[shapes.rows] - trace.rows.start_ns[shapes.rows]
    known = ~np.isnan(shapes.blocks_per_sm)
    enough = kernel_ns > 0 and int(duration_ns[known].sum()) >= COVERED_FRAC * kernel_ns
    total_ns = window_ns(works)
    weighted_ns = 0.0
    if enough:
        for work in works:
            mine = known & np.isin(shapes.rows, work.rows)
            rows = shapes.rows[mine]
            share = np.minimum(shapes.blocks_per_sm[mine], 1.0)
            weighted_ns += _capped_area(trace.rows.start_ns[rows], trace.rows.end_ns[rows], share)
    return Filling(
        sm_weighted_frac=weighted_ns / total_ns if enough and total_ns else None,
        occupancy_frac=_weighted(shapes.occupancy_frac, duration_ns),
    )


def small_kernels(trace: Trace, details: Details) -> RowNumbers:
    """The kernels that have no more blocks than their device has multiprocessors, of those whose row states them."""
    shapes = _shapes(trace, details)
    return shapes.rows[shapes.blocks_per_sm <= 1]


def with_shapes(trace: Trace, kernels: Sequence[TopKernel], details: Details) -> tuple[TopKernel, ...]:
    """The kernels with their blocks per multiprocessor, tail and occupancy where rows state launch shapes."""
    shapes = _shapes(trace, details)
    names = trace.rows.name[shapes.rows]
    duration_ns = trace.rows.end_ns[shapes.rows] - trace.rows.start_ns[shapes.rows]
    code_of = {name: code for code, name in enumerate(trace.names)}
    filled = []
    for kernel in kernels:
        mine = names == code_of[kernel.name]
        waves = _median(shapes.waves[mine])
        filled.append(
            replace(
                kernel,
                blocks_per_sm=_median(shapes.blocks_per_sm[mine]),
                tail_frac=None if not waves else 1 - waves / np.ceil(waves).item(),
                occupancy_frac=_weighted(shapes.occupancy_frac[mine], duration_ns[mine]),
            )
        )
    return tuple(filled)


def _shapes(trace: Trace, details: Details) -> _Shapes:
    launches = details.launches
    kernel = trace.rows.kind[launches.rows] == Kind.KERNEL
    rows, grid, block = launches.rows[kernel], launches.grid[kernel], launches.block[kernel]
    devices = {d.ordinal: d for d in trace.devices}
    ordinals = trace.rows.device[rows]
    sms = np.array([_sms(devices.get(int(o))) for o in ordinals], dtype=np.float64)
    threads = np.array([_threads(devices.get(int(o))) for o in ordinals], dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        computed = np.where((grid > 0) & (sms > 0), grid / sms, np.nan)
        stated = launches.blocks_per_sm[kernel]
        per_sm = np.where(np.isnan(stated), computed, stated)
        resident = np.clip(np.floor(threads / np.maximum(block, 1)), 1, MOST_BLOCKS)
        waves = np.where((block > 0) & (threads > 0), per_sm / resident, np.nan)
    return _Shapes(rows, per_sm, waves, launches.occupancy_frac[kernel])


def _sms(device: DeviceProperties | None) -> int:
    return 0 if device is None or device.sm_count is None else device.sm_count


def _threads(device: DeviceProperties | None) -> int:
    value = None if device is None else device.raw.get("maxThreadsPerMultiprocessor")
    return value if isinstance(value, int) else 0


def _capped_area(start_ns: IntColumn, end_ns: IntColumn, share: FloatColumn) -> float:
    """The integral over time of the sum of shares, capped at 1."""
    if not start_ns.size:
        return 0.0
    times = np.concatenate((start_ns, end_ns))
    steps = np.concatenate((share, -share))
    order = np.argsort(times, kind="stable")
    level = np.minimum(np.cumsum(steps[order])[:-1], 1.0)
    return float((level * np.diff(times[order])).sum())


def _median(values: FloatColumn) -> float | None:
    values = values[~np.isnan(values)]
    return float(np.median(values)) if values.size else None


def _weighted(values: FloatColumn, weight_ns: IntColumn) -> float | None:
    """The mean weighted by time over what is known."""
    known = ~np.isnan(values)
    total = int(weight_ns[known].sum())
    return float((values[known] * weight_ns[known]).sum()) / total if total else None
