"""What do traces that others recorded say to a claim that needs a device which is not here?"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from referee.analysis.occupancy import small_kernels
from referee.analysis.study import DETAILED_EVENTS
from referee.graph.work import work_by_device
from referee.lab.claims.measuring import ENDED_FRAC
from referee.lab.claims.operators import GRAPH_NS, RECOVERABLE
from referee.lab.laboratory import Laboratory, Part, Reading, Recorded, many, told
from referee.lab.over_traces import over_traces, typical
from referee.stats.summary import FloatArray
from referee.trace.columns import CALL_KINDS, NONE, Kind
from referee.trace.details import read_details
from referee.units import format_frac, format_ns

_PROFILED = (
    "a recorded call holds the profiler's own part, of unknown length, so that the call itself took less and the "
    "interval begins at nothing"
)
_ELEMENTWISE = re.compile(r"elementwise", re.IGNORECASE)
_LAUNCH, _GRAPH = re.compile(r"^cu(da)?Launch(Cooperative)?Kernel"), re.compile(r"^cu(da)?GraphLaunch")
"""CUDA's own calls: the claim names one, and other vendors' cost something else."""
_CUDA = re.compile(r"^cu(da)?[A-Z]")
_WAIT = re.compile(r"^(cudaDevice|cuCtx|hipDevice)Synchronize")
_CLOCK_SKEW_NS = 2_000
"""By so much the host's and the device's clocks of one trace may be apart: the tolerance of the rule for waits."""

_LOSSES = {
    "per-operator overhead": "per_op_overhead",
    "memory traffic": "memory_traffic",
    "allocator work": "allocator",
}
"""The claim's three losses, and where a trace's report has them."""


def unfinished(lab: Laboratory) -> Reading:
    """M2. The share of linked kernels that ended after their launch call had returned."""

    cuda = [recorded for recorded in lab.recorded if _by_cuda(recorded)]
    values = [(recorded, _late(recorded)) for recorded in cuda]
    found = over_traces(values, "a kernel with its launch by CUDA")
    mended, over = _synchronised(cuda)
    shares = [(share, recorded) for recorded, share in values if share is not None]
    least, where = min(shares, key=lambda one: one[0])
    others = [share for one in lab.recorded if one not in cuda and (share := _late(one)) is not None]
    note = told(_chips(cuda), over, _why_over(where) if least < ENDED_FRAC else "", _of_others(others))
    return replace(found, note=note, parts=(mended,))


def _chips(traces: Sequence[Recorded]) -> str:
    """The chips that the files name whose launches count, each once."""
    names = dict.fromkeys(device.name for one in traces for device in one.trace.devices if device.name)
    silent = sum(not any(device.name for device in one.trace.devices) for one in traces)
    unnamed = f" ({many(silent, 'trace')} without a name)" if silent else ""
    return f"Chips: {', '.join(names)}{unnamed}." if names else ""


def _by_cuda(recorded: Recorded) -> bool:
    """Whether the launches of a trace are calls of CUDA: the claim is of that, and other makers have their own."""
    rows, links, names = recorded.trace.rows, recorded.trace.links, recorded.trace.names
    launched = np.unique(rows.name[links.launch_of[links.launch_of != NONE]])
    return any(_CUDA.search(names[code]) for code in launched)


def _late(recorded: Recorded) -> float | None:
    """The share of linked kernels that ended after their launch had returned; ``None`` where none is linked."""
    works = work_by_device(recorded.trace)
    late = sum(int((work.end_ns > work.launch_end_ns)[work.linked].sum()) for work in works)
    linked = sum(int(work.linked.sum()) for work in works)
    return late / linked if linked else None


def _why_over(recorded: Recorded) -> str:
    """How long the kernels of a trace took, and the calls that launched them."""
    works = work_by_device(recorded.trace)
    took = np.concatenate([(work.end_ns - work.start_ns)[work.linked] for work in works])
    calls = np.concatenate([(work.launch_end_ns - work.launch_start_ns)[work.linked] for work in works])
    return (
        f"The least is of {recorded.name}: {many(took.size, 'row')} of "
        f"{format_ns(float(np.median(took)))} in the median, launched by calls of {format_ns(float(np.median(calls)))}"
        + (", so that the work was over before its call returned." if np.median(took) < np.median(calls) else ".")
    )


def _of_others(shares: Sequence[float]) -> str:
    """What traces show whose launches are not CUDA's; they do not count."""
    if not shares:
        return ""
    share = format_frac(float(np.median(shares)))
    return f"Launched by another maker's calls, and not counted: {share} in the median of {many(len(shares), 'trace')}."


def _synchronised(traces: Sequence[Recorded]) -> tuple[Part, str]:
    """Of the kernels launched before a device was synchronised, the share that had ended when that call returned."""
    part = Part(
        name="kernels that had ended when a synchronise behind their launch returned",
        claimed_low=ENDED_FRAC,
        claimed_high=1.0,
        unit="frac",
    )
    counts = [(recorded, *_ended(recorded)) for recorded in traces]
    values = [(recorded, ended / launched if launched else None) for recorded, ended, launched in counts]
    if all(value is None for _, value in values):
        return part, ""
    found = over_traces(values, "a synchronise")
    awaited = sum(launched for _, _, launched in counts)
    words = f"When a synchronise returned, {format_frac(found.value)} of the kernels launched before it had ended: "
    words += f"{found.taken}, {awaited:,} kernels."
    return replace(part, value=found.value, low=found.low, high=found.high), words


def _ended(recorded: Recorded) -> tuple[int, int]:
    """How many kernels of one trace had ended when a synchronise behind them returned, and of how many."""
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
    return ended, launched


def linked(lab: Laboratory) -> Reading:
    """M6."""

    def one(recorded: Recorded) -> float | None:
        works = work_by_device(recorded.trace)
        rows = sum(work.rows.size for work in works)
        before = sum(int((work.launch_start_ns <= work.start_ns)[work.linked].sum()) for work in works)
        return before / rows if rows else None

    found = over_traces([(recorded, one(recorded)) for recorded in lab.recorded], "a device row")
    works = [work for recorded in lab.recorded for work in work_by_device(recorded.trace)]
    rows, known = sum(work.rows.size for work in works), sum(int(work.linked.sum()) for work in works)
    late = sum(int((work.launch_start_ns > work.start_ns)[work.linked].sum()) for work in works)
    note = (
        f"Of {rows:,} device rows in all, {rows - known:,} have no launch in their file and {late:,} begin before it."
    )
    return replace(found, note=note)


def elementwise(lab: Laboratory) -> Reading:
    """E2. Small: no more blocks than multiprocessors, so that one more would need no further room."""
    values = [(recorded, *_elementwise(recorded)) for recorded in lab.recorded]
    found = typical([(recorded, small) for recorded, small, _ in values], "an elementwise kernel with its blocks")
    count = sum(small.size for _, small, _ in values)
    every = typical([(recorded, sizes) for recorded, _, sizes in values], "an elementwise kernel")
    total = sum(sizes.size for _, _, sizes in values)
    note = (
        f"{count:,} of {total:,} elementwise kernels are known to be small. Those of any size take "
        f"{format_ns(every.value)} in the median ({every.taken})."
    )
    return replace(found, note=note)


def _elementwise(recorded: Recorded) -> tuple[FloatArray, FloatArray]:
    """How long the small elementwise kernels of a trace took, and all of them."""
    trace = recorded.trace
    codes = [code for code, name in enumerate(trace.names) if _ELEMENTWISE.search(name)]
    kernels = trace.rows.of(Kind.KERNEL)
    chosen = kernels[np.isin(trace.rows.name[kernels], codes)]
    lasted_ns = np.asarray(trace.rows.end_ns - trace.rows.start_ns, dtype=np.float64)
    if trace.events > DETAILED_EVENTS:
        return np.empty(0), lasted_ns[chosen]
    fits = small_kernels(trace, read_details(trace))
    return lasted_ns[np.intersect1d(chosen, fits)], lasted_ns[chosen]


def launch_calls(lab: Laboratory) -> Reading:
    """E7. Calls that launched a kernel; those that replayed a graph apart. Both hold the profiler's own part."""
    found = typical([(recorded, _calls(recorded, _LAUNCH)) for recorded in lab.recorded], "a launch by CUDA")
    found = replace(found, low=0.0)
    low, high = GRAPH_NS
    part = Part(name="launching a whole graph", claimed_low=low, claimed_high=high)
    known = f"As recorded, launching a kernel took {format_ns(found.value)} in the median; {_PROFILED}."
    replays = [(recorded, calls) for recorded in lab.recorded if (calls := _calls(recorded, _GRAPH)).size]
    if not replays:
        return replace(found, note=known, parts=(part,))
    graph = typical(replays, "a graph launch")
    part = replace(part, value=graph.value, low=0.0, high=graph.high)
    note = (
        f"{known} Launching a whole graph took {format_ns(graph.value)}, {_where(replays)}, of {_sizes(replays)}: a "
        "profiler's part grows with what a graph launches."
    )
    return replace(found, note=note, figures={**found.figures, "graph_launch_ns": graph.value}, parts=(part,))


def _sizes(replays: Sequence[tuple[Recorded, FloatArray]]) -> str:
    """How many rows a graph launch of these traces put on a device."""
    sizes = [_rows_each(recorded) for recorded, _ in replays]
    least, most = min(int(each.min()) for each in sizes), max(int(each.max()) for each in sizes)
    return f"{least:,} to {most:,} rows each" if least != most else f"{least:,} row{'' if least == 1 else 's'} each"


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
    """E17. The three losses together, over the window; and each by itself."""

    def one(recorded: Recorded) -> float | None:
        known = [share for name in _LOSSES if (share := _priced(recorded, name)) is not None]
        return sum(known) if known else None

    found = over_traces([(recorded, one(recorded)) for recorded in lab.recorded], "a loss that could be priced")
    parts = tuple(_loss(lab.recorded, name) for name in _LOSSES)
    notes = (_told(lab.recorded, name) for name in _LOSSES)
    known = {part.name: part.value for part in parts if part.value is not None}
    largest = max(known, key=lambda name: known[name])
    teaches = (
        f"Price each loss before you mend it: in the median of these traces {largest} is the largest, "
        f"{format_frac(known[largest])} of the window."
    )
    note = told(_apart(parts), f"By loss: {'; '.join(notes)}.", _unpriced(lab.recorded), _why_nothing(lab.recorded))
    return replace(found, note=note, parts=parts, teaches=teaches)


def _apart(parts: Sequence[Part]) -> str:
    if any(part.value is None for part in parts):
        return ""
    sums = " + ".join(format_frac(part.value) for part in parts)
    return f"Together and by loss these are medians over traces, which need not add up: {sums} is not the number."


def _unpriced(traces: Sequence[Recorded]) -> str:
    """Which losses some traces do not price, and what their reports give for the reason."""
    words = []
    for name in _LOSSES:
        whole = [one for one in traces if one.report.totals.window_ns]
        lacking = [one for one in whole if _priced(one, name) is None]
        reasons = Counter(
            getattr(one.report.losses, _LOSSES[name]).basis.partition(": ")[2].partition(": ")[0] for one in lacking
        )
        told_of = "; ".join(f"in {count} {reason}" for reason, count in reasons.most_common() if reason)
        if lacking:
            words.append(f"{name} in {len(lacking)} of {len(whole)} traces" + f" ({told_of})" * bool(told_of))
    return f"Not priced: {'; '.join(words)}. Such a trace enters the number with its other losses." if words else ""


def _why_nothing(traces: Sequence[Recorded]) -> str:
    """Why a price is nothing in most traces: what reports say of requests, and what a price of traffic counts."""
    still = [
        one
        for one in traces
        if one.report.totals.window_ns and one.report.losses.allocator.basis.startswith("no allocation reached")
    ]
    most = [
        one.report.losses.memory_traffic.high_ns / one.report.totals.window_ns
        for one in traces
        if one.report.totals.window_ns and one.report.losses.memory_traffic.high_ns is not None
    ]
    words = []
    if still:
        words.append(
            f"In {many(len(still), 'trace')} no allocation reached the driver, and requests that torch's cache served "
            "are not in a trace: there allocator work is nothing."
        )
    if most:
        words.append(
            "Memory traffic is priced by what one reader alone certainly reads; with every pair of neighbours whose "
            f"shapes fit it would be {format_frac(float(np.median(most)))} of the window in the median, "
            f"{format_frac(max(most))} at most."
        )
    return " ".join(words)


def _priced(recorded: Recorded, name: str) -> float | None:
    """A loss over the window; ``None`` where the trace does not price it."""
    window_ns = recorded.report.totals.window_ns
    ns: int | None = getattr(recorded.report.losses, _LOSSES[name]).recoverable_ns
    return ns / window_ns if ns is not None and window_ns else None


def _loss(traces: Sequence[Recorded], name: str) -> Part:
    """The median of one loss over the traces that priced it."""
    part = Part(name=name, claimed_low=RECOVERABLE[0], claimed_high=RECOVERABLE[1], unit="frac")
    values = [(recorded, _priced(recorded, name)) for recorded in traces]
    if all(value is None for _, value in values):
        return part
    found = over_traces(values, name)
    return replace(part, value=found.value, low=found.low, high=found.high)


def _told(traces: Sequence[Recorded], name: str) -> str:
    """In how many traces a loss is there to be recovered, and where it is largest."""
    shares = {recorded.name: share for recorded in traces if (share := _priced(recorded, name)) is not None}
    if not shares:
        return f"{name} priced by none"
    enough, largest = (
        sum(share >= RECOVERABLE[0] for share in shares.values()),
        max(shares, key=lambda key: shares[key]),
    )
    return (
        f"{name} at least {format_frac(RECOVERABLE[0])} in {enough} of {len(shares)} traces, at most "
        f"{format_frac(shares[largest])} ({largest})"
    )
