"""Which side of the roof is each kernel on, and what limits it? Achieved rates against the device's dense peaks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from referee.analysis.opcost import Cost, cost_of
from referee.analysis.peaks import peak_of
from referee.records.peaks import Peak
from referee.records.trace_report import TopKernel
from referee.trace.columns import DEVICE_KINDS, NONE, Kind, RowNumbers, Trace
from referee.trace.details import Details
from referee.trace.totals import aten_top_rows

LATENCY_FRAC = 0.15
"""Under this share of both roofs neither arithmetic nor memory is what a kernel waits for."""


@dataclass(kw_only=True)
class _Sum:
    """What the calls behind one kernel name did in all."""

    flops: int = 0
    size_bytes: int = 0
    time_ns: int = 0
    ideal_ns: float = 0.0
    dtypes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Roofline:
    """Rates of the kernels whose operators' costs are known, by name, and the share of the window they needed."""

    kernels: dict[str, TopKernel]
    ideal_ns: float
    covered_ns: int
    basis: str


def roofline(trace: Trace, kernels: tuple[TopKernel, ...], details: Details) -> Roofline:
    """Roof and limit for each of ``kernels`` (others unchanged); needs operator inputs and a device that is known.

    A call's FLOPs and bytes come from its operator's input shapes, its time from all kernels that the operator
    launched; they count for the kernel that took most of that time. The ridge is the FLOP rate over the memory rate of
    the device; ``limit`` is ``latency`` under 15 % of both roofs, or where the grid does not fill one wave.
    """
    sums: dict[str, _Sum] = defaultdict(_Sum)
    peaks: dict[int, Peak | None] = {}
    covered_ns, ideal_ns = 0, 0.0
    for operator, members in _by_operator(trace):
        given = details.operators.get(operator)
        cost = cost_of(trace.name_of(operator), given) if given is not None else None
        if cost is None:
            continue
        device = int(trace.rows.device[members[0]])
        if device not in peaks:
            peaks[device] = peak_of(trace, device)
        peak = peaks[device]
        if peak is None:
            continue
        time_ns = trace.rows.end_ns[members] - trace.rows.start_ns[members]
        longest = trace.name_of(int(members[int(np.argmax(time_ns))]))
        ideal = ideal_time_ns(cost, peak)
        _add(sums[longest], cost, time_ns=int(time_ns.sum()), ideal_ns=ideal)
        covered_ns += int(time_ns.sum())
        ideal_ns += ideal
    known = {peak.product: peak for peak in peaks.values() if peak is not None}
    if not sums or not known:
        return Roofline(kernels={}, ideal_ns=0.0, covered_ns=0, basis=_why_not(details, known))
    waves, first = _waves(trace, details), next(iter(known.values()))
    return Roofline(
        kernels={k.name: _judge(k, sums[k.name], first, waves.get(k.name)) for k in kernels if k.name in sums},
        ideal_ns=ideal_ns,
        covered_ns=covered_ns,
        basis=f"dense peaks of {' and '.join(known)}",
    )


def ideal_time_ns(cost: Cost, peak: Peak) -> float:
    """The least time that the device's peaks allow."""
    return 1e9 * max(cost.flops / peak.flop_per_s(cost.dtype), cost.size_bytes / peak.bandwidth)


def _why_not(details: Details, known: dict[str, Peak]) -> str:
    if not details.operators:
        return "the operators' input shapes are not recorded"
    return "no operator's cost is known from its shapes" if known else "the device's peaks are not known"


def _add(total: _Sum, cost: Cost, *, time_ns: int, ideal_ns: float) -> None:
    total.flops += cost.flops
    total.size_bytes += cost.size_bytes
    total.time_ns += time_ns
    total.ideal_ns += ideal_ns
    total.dtypes[cost.dtype] = total.dtypes.get(cost.dtype, 0) + cost.flops


def _judge(kernel: TopKernel, total: _Sum, peak: Peak, waves: float | None) -> TopKernel:
    dtype = max(total.dtypes, key=lambda name: total.dtypes[name])
    top = peak.flop_per_s(dtype)
    flop_per_s = 1e9 * total.flops / total.time_ns if total.time_ns else 0.0
    bytes_per_s = 1e9 * total.size_bytes / total.time_ns if total.time_ns else 0.0
    intensity = total.flops / total.size_bytes if total.size_bytes else None
    roof = "compute" if intensity is None or intensity >= top / peak.bandwidth else "memory"
    fracs = (flop_per_s / top, bytes_per_s / peak.bandwidth)
    slow = max(fracs) < LATENCY_FRAC or (waves is not None and waves < 1)
    return replace(
        kernel,
        roof=roof,
        limit="latency" if slow else roof,
        flop_per_byte=intensity,
        flop_per_s=flop_per_s,
        bytes_per_s=bytes_per_s,
        of_roof_frac=fracs[0] if roof == "compute" else fracs[1],
    )


def _by_operator(trace: Trace) -> Iterator[tuple[int, RowNumbers]]:
    """Operator rows with the kernels that they launched themselves."""
    rows = trace.rows
    kernels = rows.of(Kind.KERNEL)
    launch = trace.links.launch_of[kernels]
    operator = np.where(launch == NONE, NONE, trace.links.operator_of[np.maximum(launch, 0)])
    if kernels.size and (launch == NONE).all():
        operator = _by_order(trace, kernels)
    order = np.argsort(operator, kind="stable")
    found, begin = np.unique(operator[order], return_index=True)
    for index, row in enumerate(found):
        if row != NONE:
            end = begin[index + 1] if index + 1 < found.size else order.size
            yield int(row), kernels[order[begin[index] : end]]


def _by_order(trace: Trace, kernels: RowNumbers) -> RowNumbers:
    """Without any link: if the kernels repeat with one period for each top operator, they belong to them in order."""
    operators = aten_top_rows(trace)
    nobody = np.full(kernels.size, NONE, dtype=np.int64)
    others = trace.rows.of(*DEVICE_KINDS).size != kernels.size
    if not operators.size or kernels.size % operators.size or others:
        return nobody
    period = kernels.size // operators.size
    names = trace.rows.name[kernels].reshape(operators.size, period)
    if np.any(names != names[0]) or np.unique(trace.rows.name[operators]).size != 1:
        return nobody
    return np.repeat(operators, period)


def _waves(trace: Trace, details: Details) -> dict[str, float]:
    """Blocks over multiprocessors per kernel name, at the median launch: below one the device is not filled once."""
    launches = details.launches
    counts = {d.ordinal: d.sm_count for d in trace.devices}
    sms = np.array([counts.get(int(d)) or 0 for d in trace.rows.device[launches.rows]], dtype=np.float64)
    known = (launches.grid > 0) & (sms > 0)
    rows, per_sm = launches.rows[known], launches.grid[known] / sms[known]
    return {
        trace.names[int(code)]: float(np.median(per_sm[trace.rows.name[rows] == code]))
        for code in np.unique(trace.rows.name[rows])
    }
