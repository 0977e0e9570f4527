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
from referee.trace.intervals import measure, overlap_ns, union

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
    resident_ns, peaks = 0, []
    for work in works:
        kernel = np.isin(trace.rows.kind[work.rows], (Kind.KERNEL, Kind.DEVICE_OTHER))
        resident = union(work.start_ns[kernel], work.end_ns[kernel])
        resident_ns += measure(resident)
        edges = np.arange(work.begin_ns, work.finish_ns + 1, SAMPLE_NS, dtype=np.int64)
        if edges.size > 1:
            peaks.append(int(overlap_ns(edges[:-1], edges[1:], within=resident).max()) / SAMPLE_NS)
    return Utilisation(
        any_kernel_frac=resident_ns / total_ns,
        sm_weighted_frac=None if filled is None else filled.sm_weighted_frac,
        useful_frac=roofs.ideal_ns / total_ns if roofs is not None and roofs.covered_ns else None,
        any_kernel_peak_frac=max(peaks, default=None),
        occupancy_frac=None if filled is None else filled.occupancy_frac,
        useful_basis="the rows' arguments were not read" if roofs is None else roofs.basis,
    )
