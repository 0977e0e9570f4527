"""Which recorded times are waits in disguise? Full queues and other streams, turned from durations into dependencies.

A record shows two waits as plain time: a launch call that stood before a full queue, and a row that was queued but
started only when a row of another stream had ended. Kept as durations they would hold a replay back however fast the
device became.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from referee.graph.build import SLACK_NS, EdgeKind, Graph
from referee.graph.work import MOST_LATENCY_NS, work_by_device
from referee.trace.columns import DEVICE_KINDS, NONE, BoolColumn, IntColumn, Trace
from referee.units import NS_PER_US
from referee.whatif.room import wait_for_room

LONG_LAUNCH = 3.0
"""A launch call this many times as long as the usual one did more than launch."""
LEAST_LONG_NS = 15 * NS_PER_US
DEEP = 64
"""Rows handed over and not finished: with so many waiting, a long launch call waits for room (queues hold about 1,024
on CUDA, fewer elsewhere; short records begin with a queue whose length is not known)."""

LEAST_SHORT_NS = 5 * NS_PER_US
LEAST_FULL = 8
"""A call that waits for a short row is short itself: then it counts where as many rows stand before it as ever do
(eight at least) and it ends with one of them. Waits shorter than two usual calls are not told from the calls."""

LEAST_REGULAR = 8
REGULAR_SHARE = 0.8
"""So many long calls, so great a share of which end with a row, are no coincidence: a row ends within 2 µs of a given
moment by chance only where rows are as short as that."""


def tighten(graph: Graph, trace: Trace) -> Graph:
    """The same graph with these waits as edges from the row that was waited for; its replay is the record still."""
    device = graph.kind == EdgeKind.DEVICE
    ends = graph.target[device]
    order = np.argsort(graph.time_ns[ends], kind="stable")
    ends = ends[order]
    if not ends.size:
        return _rooted(graph, trace)
    graph = _full_queues(graph, trace, ends)
    graph = wait_for_room(graph, trace, ends, latency_ns=_latencies(graph, trace))
    return _rooted(_other_streams(graph, trace, ends), trace)


def _rooted(graph: Graph, trace: Trace) -> Graph:
    """One beginning: what nothing recorded comes before follows the first moment after as long as it did.

    So no moment keeps a time of its own: a thread's first row is behind a gap, as its later ones are.
    """
    follows = np.zeros(len(graph), dtype=bool)
    follows[graph.target] = True
    roots = np.flatnonzero(~follows)
    if roots.size < 2:
        return graph
    first = roots[np.argmin(graph.time_ns[roots])]
    roots = roots[roots != first]
    on_device = np.isin(trace.rows.kind[graph.row[roots]], DEVICE_KINDS)
    kind = np.where(on_device, int(EdgeKind.LAUNCH), int(EdgeKind.GAP))
    return _joined(
        graph,
        graph.weight_ns,
        np.full(roots.size, first),
        roots,
        graph.time_ns[roots] - graph.time_ns[first],
        kind=kind,
    )


def _full_queues(graph: Graph, trace: Trace, ends: IntColumn) -> Graph:
    """Launch calls that waited for room end when the row that made room had ended."""
    ended_ns = graph.time_ns[ends]
    edges = long_calls(graph, trace)
    if not edges.size:
        return graph
    usual_ns = _usual(_durations(graph, trace))
    at_ns = graph.time_ns[graph.target[edges]]
    last = np.searchsorted(ended_ns, at_ns + SLACK_NS, side="right") - 1
    rest_ns = at_ns - ended_ns[np.maximum(last, 0)]
    long = graph.weight_ns[edges] >= LEAST_LONG_NS
    in_time = _in_time(rest_ns, long, usual_ns=usual_ns)
    # Within the stamps' slack only where the calls go with the rows; else the row before it.
    last = np.where(in_time | (rest_ns >= 0), last, np.searchsorted(ended_ns, at_ns, side="right") - 1)
    fits = (last >= 0) & (ended_ns[np.maximum(last, 0)] > graph.time_ns[graph.source[edges]])
    depth = _depth(graph, trace, at_ns)
    full = (depth >= _most(graph, trace) - 1) & (rest_ns >= -SLACK_NS) & (rest_ns <= usual_ns + SLACK_NS)
    fits &= (long & (in_time | (depth >= DEEP))) | full
    # Room was made by a row that had been handed over before the call, never by the call's own or a later one.
    fits &= _handed_over_ns(graph, trace, ends)[np.maximum(last, 0)] < trace.rows.start_ns[graph.owner[edges]]
    edges, last, at_ns = edges[fits], last[fits], at_ns[fits]
    weight_ns = graph.weight_ns.copy()
    weight_ns[edges] = np.minimum(weight_ns[edges], usual_ns)
    return _joined(graph, weight_ns, ends[last], graph.target[edges], np.maximum(at_ns - ended_ns[last], 0))


def _handed_over_ns(graph: Graph, trace: Trace, ends: IntColumn) -> IntColumn:
    """When the rows that end at these moments were launched; without a launch when they started."""
    rows = graph.row[ends]
    launch = trace.links.launch_of[rows]
    found: IntColumn = np.where(launch == NONE, trace.rows.start_ns[rows], trace.rows.start_ns[np.maximum(launch, 0)])
    return found


def launch_calls(graph: Graph, trace: Trace) -> IntColumn:
    """Edges of the host's time in launch calls."""
    owned = (graph.kind == EdgeKind.HOST) & (graph.owner != NONE)
    found: IntColumn = np.flatnonzero(owned & trace.links.is_launch[np.maximum(graph.owner, 0)])
    return found


def long_calls(graph: Graph, trace: Trace) -> IntColumn:
    """Edges that end launch calls which took far longer than usual.

    The last part of a call, whose end is the call's: what lies before it inside the call is work of its own.
    """
    edges = launch_calls(graph, trace)
    if not edges.size:
        return edges
    duration_ns = _durations(graph, trace)
    edges = edges[duration_ns >= max(LONG_LAUNCH * _usual(duration_ns), LEAST_SHORT_NS)]
    found: IntColumn = edges[graph.is_end[graph.target[edges]] & (graph.row[graph.target[edges]] == graph.owner[edges])]
    return found


def _durations(graph: Graph, trace: Trace) -> IntColumn:
    """How long the calls took to which the edges of launch calls belong."""
    ours = graph.owner[launch_calls(graph, trace)]
    found: IntColumn = trace.rows.end_ns[ours] - trace.rows.start_ns[ours]
    return found


def _in_time(rest_ns: IntColumn, long: BoolColumn, *, usual_ns: int) -> BoolColumn:
    """Which long calls end a launch's time after a row's end, where nearly all do: a full queue of any length."""
    near: BoolColumn = long & (rest_ns >= -SLACK_NS) & (rest_ns <= usual_ns + SLACK_NS)
    regular = long.sum() >= LEAST_REGULAR and float(near[long].mean()) >= REGULAR_SHARE
    return near if regular else np.zeros_like(near)


def _usual(duration_ns: IntColumn) -> int:
    """What a launch call takes that finds room: a host far ahead of its device makes mostly calls that do not."""
    quick = duration_ns[duration_ns < max(LONG_LAUNCH * int(duration_ns.min()), LEAST_SHORT_NS)]
    return int(np.median(quick))


def _most(graph: Graph, trace: Trace) -> int:
    """The most rows that ever stood before a launch call's end; out of reach where that is no queue."""
    calls = launch_calls(graph, trace)
    most = int(_depth(graph, trace, graph.time_ns[graph.target[calls]]).max(initial=0))
    return most if most >= LEAST_FULL else 1 << 62


def _depth(graph: Graph, trace: Trace, at_ns: IntColumn) -> IntColumn:
    """How many rows had been handed over and not ended at each moment."""
    device = graph.kind == EdgeKind.DEVICE
    rows = graph.owner[device]
    launch = trace.links.launch_of[rows]
    linked = launch != NONE
    given_ns = np.sort(trace.rows.start_ns[launch[linked]])
    ended_ns = np.sort(trace.rows.end_ns[rows[linked]])
    depth: IntColumn = np.searchsorted(given_ns, at_ns, side="right") - np.searchsorted(ended_ns, at_ns, side="right")
    return depth


def _other_streams(graph: Graph, trace: Trace, ends: IntColumn) -> Graph:
    """A row that waited although its own stream was free started after the last row that ended elsewhere.

    So does one that was queued behind another of its stream, and one that was launched onto an idle stream and started
    later than any launch takes (a copy on the default stream, a collective that follows the computation).
    """
    latency_ns = _latencies(graph, trace)
    launched = (graph.kind == EdgeKind.LAUNCH) & (graph.weight_ns > MOST_LATENCY_NS + SLACK_NS)
    waited: BoolColumn = launched | ((graph.kind == EdgeKind.STREAM) & (graph.weight_ns > SLACK_NS))
    edges = np.flatnonzero(waited)
    own_ns = np.where(launched[edges], latency_ns[edges], 0)
    start_ns = graph.time_ns[graph.target[edges]]
    last = np.searchsorted(ended_ns := graph.time_ns[ends], start_ns, side="right") - 1
    rest_ns = start_ns - ended_ns[np.maximum(last, 0)]
    fits = (last >= 0) & (ends[np.maximum(last, 0)] != graph.source[edges]) & (rest_ns < graph.weight_ns[edges])
    fits &= ~launched[edges] | (rest_ns <= own_ns + SLACK_NS)
    # A moment that is not before the row's own start in the graph's order would close a circle.
    fits &= ended_ns[np.maximum(last, 0)] > graph.time_ns[graph.source[edges]]
    edges, last, rest_ns, own_ns = edges[fits], last[fits], rest_ns[fits], own_ns[fits]
    weight_ns = graph.weight_ns.copy()
    weight_ns[edges] = np.where(launched[edges], own_ns, rest_ns)
    return _joined(graph, weight_ns, ends[last], graph.target[edges], rest_ns)


def _latencies(graph: Graph, trace: Trace) -> IntColumn:
    """For each edge the bare launch latency of the device of the row that it leads to."""
    works = work_by_device(trace)
    latency_ns = np.zeros(max((work.device for work in works), default=0) + 2, dtype=np.int64)
    for work in works:
        latency_ns[work.device] = work.latency_ns
    found: IntColumn = latency_ns[trace.rows.device[graph.row[graph.target]]]
    return found


def _joined(
    graph: Graph,
    weight_ns: IntColumn,
    source: IntColumn,
    target: IntColumn,
    added_ns: IntColumn,
    *,
    kind: IntColumn | None = None,
) -> Graph:
    """The graph with other weights and more edges, which stand for order unless they are of another ``kind``."""
    size = source.size
    if kind is None:
        kind = np.full(size, int(EdgeKind.EVENT), dtype=np.int64)
    return replace(
        graph,
        source=np.concatenate((graph.source, source)),
        target=np.concatenate((graph.target, target)),
        weight_ns=np.concatenate((weight_ns, added_ns)),
        kind=np.concatenate((graph.kind, kind)),
        owner=np.concatenate((graph.owner, np.full(size, NONE, dtype=np.int64))),
    )


def device_moments(graph: Graph) -> tuple[IntColumn, IntColumn]:
    """Moments at which device rows start and end; empty where there are none."""
    device = graph.kind == EdgeKind.DEVICE
    return graph.source[device], graph.target[device]
