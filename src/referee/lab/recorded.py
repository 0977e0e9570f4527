"""What do traces that others recorded say to a claim that needs a device which is not here?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from math import comb

import numpy as np

from referee.errors import CannotTell
from referee.graph.work import work_by_device
from referee.lab.claims.diagnosing import FEW_NS
from referee.lab.claims.measuring import ENDED_FRAC
from referee.lab.claims.operators import GRAPH_NS
from referee.lab.laboratory import Laboratory, Part, Reading, Recorded, counted
from referee.stats.interval import median_interval
from referee.stats.summary import FloatArray
from referee.trace.columns import CALL_KINDS, NONE, Kind
from referee.units import format_frac, format_ns

_ELEMENTWISE = re.compile(r"elementwise", re.IGNORECASE)
_LAUNCH, _GRAPH = re.compile(r"^cu(da)?Launch(Cooperative)?Kernel"), re.compile(r"^cu(da)?GraphLaunch")
"""CUDA's own calls: the claim names one, and other vendors' cost something else."""
_WAIT = re.compile(r"^(cudaDevice|cuCtx|hipDevice)Synchronize")
_CLOCK_SKEW_NS = 2_000
"""By so much the host's and the device's clocks of one trace may be apart: the tolerance of the rule for waits."""

_LOSSES = {
    "per-operator overhead": "per_op_overhead",
    "memory traffic": "memory_traffic",
    "allocator work": "allocator",
}
"""The claim's three losses, and where a trace's report has them."""

_MOST_VALUES = 20_000
_TAIL = 0.025
_ENOUGH_TRACES = 6
"""The median of fewer has no interval of 95 %."""


def _typical(values: Sequence[tuple[Recorded, FloatArray]], what: str) -> Reading:
    """The median value: of one trace with its interval, of several as the median of their medians."""
    known = [(one, part) for one, part in values if part.size]
    if len(known) != 1:
        return _over_traces([(one, float(np.median(part))) for one, part in known], what)
    (one, part), *_ = known
    found = median_interval(part[:_MOST_VALUES])
    figures = {"values": int(part.size)}
    return Reading(
        value=found.point,
        low=found.low,
        high=found.high,
        sources=(one.name,),
        figures=figures,
        taken=f"{part.size:,} rows of one trace",
    )


def _over_traces(values: Sequence[tuple[Recorded, float | None]], what: str) -> Reading:
    """The median over traces with its interval; of a few, from the least to the most of them."""
    known = [(one, value) for one, value in values if value is not None]
    if not known:
        raise CannotTell(f"None of the traces has {what}.")
    numbers = np.array([value for _, value in known], dtype=np.float64)
    least, most = float(numbers.min()), float(numbers.max())
    low, high = least, most
    if numbers.size >= _ENOUGH_TRACES:
        low, high = _order_interval(np.sort(numbers))
    return Reading(
        value=float(np.median(numbers)),
        low=low,
        high=high,
        sources=tuple(one.name for one, _ in known),
        figures={"traces": len(known), "least": least, "most": most},
        taken=f"{len(known)} traces" if len(known) > 1 else "one trace",
    )


def _order_interval(ordered: FloatArray) -> tuple[float, float]:
    """The 95 % interval of the median of independent numbers: the ranks that a fair coin leaves out with 2.5 % each.

    Traces are samples of their own; they are not neighbours in a series, as blocks of one measurement are.
    """
    n = ordered.size
    below, rank = 0.0, 0
    while below + comb(n, rank) / 2**n <= _TAIL:
        below += comb(n, rank) / 2**n
        rank += 1
    rank = max(0, rank - 1)
    return float(ordered[rank]), float(ordered[n - 1 - rank])


def unfinished(lab: Laboratory) -> Reading:
    """M2. The share of linked kernels that ended after their launch call had returned."""

    def one(recorded: Recorded) -> float | None:
        works = work_by_device(recorded.trace)
        late = sum(int((work.end_ns > work.launch_end_ns)[work.linked].sum()) for work in works)
        linked = sum(int(work.linked.sum()) for work in works)
        return late / linked if linked else None

    found = _over_traces([(recorded, one(recorded)) for recorded in lab.recorded], "a device row with its launch")
    mended = _synchronised(lab)
    ended = format_frac(mended.value)
    known = f"When a synchronise returned, {ended} of the kernels launched before it had ended."
    note = "" if mended.value is None else known
    return replace(found, note=note, parts=(mended,))


def _synchronised(lab: Laboratory) -> Part:
    """Of the kernels launched before a device was synchronised, the share that had ended when that call returned."""
    part = Part(
        name="kernels that had ended when a synchronise behind their launch returned",
        claimed_low=ENDED_FRAC,
        claimed_high=1.0,
        unit="frac",
    )
    values = [(recorded, _ended(recorded)) for recorded in lab.recorded]
    if all(value is None for _, value in values):
        return part
    found = _over_traces(values, "a synchronise")
    return replace(part, value=found.value, low=found.low, high=found.high)


def _ended(recorded: Recorded) -> float | None:
    """The share in one trace; ``None`` where no device was synchronised behind a launch."""
    rows, names = recorded.trace.rows, recorded.trace.names
    calls = rows.of(*CALL_KINDS)
    waits = calls[np.array([_WAIT.search(names[code]) is not None for code in rows.name[calls]], dtype=bool)]
    order = np.argsort(rows.start_ns[waits])
    starts, ends = rows.start_ns[waits][order], rows.end_ns[waits][order]
    ended = launched = 0
    for work in work_by_device(recorded.trace):
        launch_ns, end_ns = work.launch_end_ns[work.linked], work.end_ns[work.linked]
        next_wait = np.searchsorted(starts, launch_ns)
        awaited = next_wait < starts.size
        launched += int(awaited.sum())
        ended += int((end_ns[awaited] <= ends[next_wait[awaited]] + _CLOCK_SKEW_NS).sum())
    return ended / launched if launched else None


def linked(lab: Laboratory) -> Reading:
    """M6."""

    def one(recorded: Recorded) -> float | None:
        works = work_by_device(recorded.trace)
        rows = sum(work.rows.size for work in works)
        before = sum(int((work.launch_start_ns <= work.start_ns)[work.linked].sum()) for work in works)
        return before / rows if rows else None

    return _over_traces([(recorded, one(recorded)) for recorded in lab.recorded], "a device row")


def elementwise(lab: Laboratory) -> Reading:
    """E2."""

    def one(recorded: Recorded) -> FloatArray:
        rows, names = recorded.trace.rows, recorded.trace.names
        kernels = rows.of(Kind.KERNEL)
        codes = {code for code, name in enumerate(names) if _ELEMENTWISE.search(name)}
        chosen = kernels[np.isin(rows.name[kernels], list(codes))]
        return np.asarray(rows.end_ns[chosen] - rows.start_ns[chosen], dtype=np.float64)

    return _typical([(recorded, one(recorded)) for recorded in lab.recorded], "an elementwise kernel")


def launch_calls(lab: Laboratory) -> Reading:
    """E7. Calls that launched a kernel; those that replayed a graph apart."""
    found = _typical([(recorded, _calls(recorded, _LAUNCH)) for recorded in lab.recorded], "a launch by CUDA")
    low, high = GRAPH_NS
    part = Part(name="launching a whole graph", claimed_low=low, claimed_high=high)
    replays = [(recorded, calls) for recorded in lab.recorded if (calls := _calls(recorded, _GRAPH)).size]
    if not replays:
        return replace(found, parts=(part,))
    graph = _typical(replays, "a graph launch")
    part = replace(part, value=graph.value, low=graph.low, high=graph.high, above=_dear_graphs(replays))
    note = f"Launching a whole graph took {format_ns(graph.value)} in the median, {_where(replays)}."
    return replace(found, note=note, figures={**found.figures, "graph_launch_ns": graph.value}, parts=(part,))


def _dear_graphs(replays: Sequence[tuple[Recorded, FloatArray]]) -> str:
    """What likely makes a recorded graph launch dear: the profiler's part, and that one trace may be all there is."""
    sizes = [_rows_each(recorded) for recorded, _ in replays]
    least, most = min(int(each.min()) for each in sizes), max(int(each.max()) for each in sizes)
    each = f"{least:,} to {most:,} rows" if least != most else f"{least:,} row{'' if least == 1 else 's'}"
    one = "; and one trace has them all" if len(replays) == 1 else ""
    return f"the profiler's part, which grows with what a graph launches ({each} each){one}"


def _rows_each(recorded: Recorded) -> FloatArray:
    """How many device rows each graph launch put there."""
    rows, links, names = recorded.trace.rows, recorded.trace.links, recorded.trace.names
    launched = links.launch_of[links.launch_of != NONE]
    calls, counts = np.unique(launched, return_counts=True)
    of_graphs = np.array([_GRAPH.search(names[code]) is not None for code in rows.name[calls]], dtype=bool)
    return np.asarray(counts[of_graphs], dtype=np.float64)


def _where(replays: Sequence[tuple[Recorded, FloatArray]]) -> str:
    """The one trace that graph launches come from, with its chip, or how many there are."""
    if len(replays) > 1:
        return f"over the {len(replays)} traces with one"
    (recorded, calls), *_ = replays
    chip = next((device.name for device in recorded.trace.devices if device.name), "a chip that it does not state")
    return f"over {calls.size:,} in the one trace that has any, {recorded.name} ({chip})"


def _calls(recorded: Recorded, name: re.Pattern[str]) -> FloatArray:
    """How long the calls of this name took that put rows on a device."""
    rows, links, names = recorded.trace.rows, recorded.trace.links, recorded.trace.names
    calls = rows.of(*CALL_KINDS)
    launched = calls[links.is_launch[calls] & np.isin(calls, links.launch_of[links.launch_of != NONE])]
    chosen = launched[np.array([name.search(names[code]) is not None for code in rows.name[launched]], dtype=bool)]
    return np.asarray(rows.end_ns[chosen] - rows.start_ns[chosen], dtype=np.float64)


def recoverable(lab: Laboratory) -> Reading:
    """E17. The three losses together, over the window."""

    def one(recorded: Recorded) -> float | None:
        losses, window_ns = recorded.report.losses, recorded.report.totals.window_ns
        parts = (losses.per_op_overhead, losses.memory_traffic, losses.allocator)
        known = [loss.recoverable_ns for loss in parts if loss.recoverable_ns is not None]
        return sum(known) / window_ns if known and window_ns else None

    found = _over_traces([(recorded, one(recorded)) for recorded in lab.recorded], "a loss that could be priced")
    return replace(found, note=_split(lab.recorded))


def _split(traces: Sequence[Recorded]) -> str:
    """Each loss by itself: the median over the traces that priced it, and how many these are."""
    words = []
    for name, field in _LOSSES.items():
        priced = [
            loss.recoverable_ns / recorded.report.totals.window_ns
            for recorded in traces
            if (loss := getattr(recorded.report.losses, field)).recoverable_ns is not None
            and recorded.report.totals.window_ns
        ]
        median = format_frac(float(np.median(priced))) if priced else "n/a"
        by = f"{len(priced)} trace{'' if len(priced) == 1 else 's'}"
        words.append(f"{name} {median} (median of {by})" if priced else f"{name} priced by none")
    return f"By loss: {', '.join(words)}."


def any_against_weighted(lab: Laboratory) -> Reading:
    """D1."""

    def one(recorded: Recorded) -> float | None:
        use = recorded.report.utilisation
        return use.any_kernel_frac / use.sm_weighted_frac if use.any_kernel_frac and use.sm_weighted_frac else None

    values = [(recorded, one(recorded)) for recorded in lab.recorded]
    found = _over_traces(values, "grid sizes and the number of multiprocessors")
    used = [recorded.report.utilisation for recorded, value in values if value is not None]
    shares = [use.any_kernel_frac for use in used if use.any_kernel_frac is not None]
    weighted = [use.sm_weighted_frac for use in used if use.sm_weighted_frac is not None]
    sampled = sum(use.any_kernel_peak_frac is not None for use in used)
    note = (
        f"Any kernel {format_frac(float(np.median(shares)))} of the window in the median, weighted "
        f"{format_frac(float(np.median(weighted)))}: medians over traces, as the number is, so that they need not "
        f"divide to it; {sampled} of these traces are longer than one period of 1/6 s."
    )
    return replace(found, note=note)


def questions(lab: Laboratory) -> Reading:
    """D2. Timeline, self totals, kernels per step, occupancy; the null experiment is none that a trace answers."""

    answers = [(recorded, _answered(recorded)) for recorded in lab.recorded]
    found = _over_traces([(recorded, sum(given.values()) / len(given)) for recorded, given in answers], "anything")
    counts = {name: sum(given[name] for _, given in answers) for name in answers[0][1]}
    parts = ", ".join(f"{name} in {count}" for name, count in counts.items())
    return replace(found, note=f"Answered, of {len(answers)}: {parts}.")


def _answered(recorded: Recorded) -> dict[str, bool]:
    """Which of the four questions one trace answers."""
    report = recorded.report
    return {
        "a device window": report.totals.window_ns > 0,
        "self totals of both sides": None not in (report.totals.self_cpu_ns, report.totals.self_device_ns),
        "kernels in a step": any(step.kernels for step in report.steps or ()),
        "occupancy": report.utilisation.occupancy_frac is not None,
    }


def gaps(lab: Laboratory) -> Reading:
    """D3."""

    def one(recorded: Recorded) -> FloatArray:
        if recorded.report.verdict.regime != "launch-bound":
            return np.empty(0)
        works = work_by_device(recorded.trace)
        between = [work.busy[0][1:] - work.busy[1][:-1] for work in works]
        return np.concatenate([np.asarray(gap, dtype=np.float64) for gap in between])

    found = _typical([(recorded, one(recorded)) for recorded in lab.recorded], "a launch-bound window")
    bound = [recorded for recorded in lab.recorded if recorded.report.verdict.regime == "launch-bound"]
    kernels = _over_traces([(recorded, recorded.report.totals.median_kernel_ns) for recorded in bound], "a kernel")
    part = Part(
        name="the median kernel of launch-bound traces",
        value=kernels.value,
        low=kernels.low,
        high=kernels.high,
        claimed_low=FEW_NS[0],
        claimed_high=FEW_NS[1],
    )
    counts = sorted(recorded.report.totals.kernels for recorded in bound)
    note = f"Their median kernel takes {format_ns(kernels.value)}; they hold {counts[0]:,} to {counts[-1]:,} kernels."
    return replace(found, note=note, parts=(part,))


def totals(lab: Laboratory) -> Reading:
    """D4."""
    larger = [
        recorded
        for recorded in lab.recorded
        if recorded.report.totals.self_cpu_ns is not None
        and recorded.report.totals.self_device_ns
        and recorded.report.totals.self_cpu_ns > recorded.report.totals.self_device_ns
        and recorded.report.verdict.regime != "cannot-tell"
    ]
    if not larger:
        raise CannotTell("In none of the traces is the CPU total larger than the GPU total, with a regime known.")
    against = [recorded.name for recorded in larger if recorded.report.verdict.regime == "compute-bound"]
    found = counted(1 - len(against) / len(larger), traces=len(larger), compute_bound=len(against))
    note = f"{len(larger) - len(against)} of {len(larger)} are not compute-bound."
    if against:
        note += f" Compute-bound all the same: {', '.join(against[:3])}."
    names = tuple(recorded.name for recorded in larger)
    return replace(found, note=note, sources=names, taken=f"{len(larger)} traces")
