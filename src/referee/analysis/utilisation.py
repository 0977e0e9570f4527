"""How busy was the device? Figures side by side that disagree on purpose."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from referee.analysis.occupancy import filling
from referee.analysis.roofline import Roofline
from referee.graph.work import Work, window_ns
from referee.records.trace_report import Utilisation
from referee.trace.columns import Kind, Trace
from referee.trace.details import Details
from referee.trace.intervals import IntervalSet, measure, overlap_ns, union

SAMPLE_NS = 1_000_000_000 // 6
"""``nvidia-smi`` reports the share of a sampling period in which any kernel ran: between 1 s and 1/6 s by product."""


def utilisation(trace: Trace, works: Sequence[Work], *, details: Details | None, roofs: Roofline | None) -> Utilisation:
    """The window's shares: any kernel resident, multiprocessors that had a block, and time that the roofs required.

    Copies and fills are no kernels. *Useful* is the least time that the device's dense peaks allow for the operators
    whose FLOPs and bytes follow from their input shapes; other kernels count as no use, so that it is a lower bound.
    Figures that need arguments of rows are ``None`` where those were not read or are not in the file.
    """
    total_ns = window_ns(works)
    if total_ns <= 0:
        return Utilisation(any_kernel_frac=None, sm_weighted_frac=None, useful_frac=None)
    filled = filling(trace, works, details) if details is not None else None
    resident_ns = 0
    peaks: list[float | None] = []
    for work in works:
        kernel = np.isin(trace.rows.kind[work.rows], (Kind.KERNEL, Kind.DEVICE_OTHER))
        resident = union(work.start_ns[kernel], work.end_ns[kernel])
        resident_ns += measure(resident)
        peaks.append(_fullest(resident, begin_ns=work.begin_ns, finish_ns=work.finish_ns))
    return Utilisation(
        any_kernel_frac=resident_ns / total_ns,
        sm_weighted_frac=None if filled is None else filled.sm_weighted_frac,
        useful_frac=roofs.ideal_ns / total_ns if roofs is not None and roofs.covered_ns else None,
        any_kernel_peak_frac=max((peak for peak in peaks if peak is not None), default=None),
        occupancy_frac=None if filled is None else filled.occupancy_frac,
        useful_basis="the rows' arguments were not read" if roofs is None else roofs.basis,
    )


def _fullest(resident: IntervalSet, *, begin_ns: int, finish_ns: int) -> float | None:
    """The largest share of a sampling period in the window that kernels cover; ``None`` of a shorter window.

    Nobody knows when a tool samples: periods may begin anywhere. A fullest one begins with an interval or ends with
    one, or lies at an edge of the window.
    """
    if finish_ns - begin_ns < SAMPLE_NS or not resident[0].size:
        return None
    last_ns = finish_ns - SAMPLE_NS
    starts_ns = np.clip(np.concatenate((resident[0], resident[1] - SAMPLE_NS)), begin_ns, last_ns)
    return int(overlap_ns(starts_ns, starts_ns + SAMPLE_NS, within=resident).max()) / SAMPLE_NS
