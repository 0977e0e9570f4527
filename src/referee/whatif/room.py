"""Which rows waited for room on a device that rows of other streams filled?

A row that has been handed over, whose stream is free and which follows nothing that has just ended, starts late all the
same while kernels of another stream fill the device: it gets in when one of them leaves blocks free, near its end. Kept
as a duration that would hold a replay back however fast the device became. Here it becomes a share of the time of the
row in whose midst the late one started.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from referee.graph.build import SLACK_NS, EdgeKind, Graph
from referee.graph.work import MOST_LATENCY_NS, Work, work_by_device
from referee.trace.columns import NONE, BoolColumn, IntColumn, RowNumbers, Trace
from referee.trace.intervals import overlap_ns

FULL_SHARE = 0.9
"""The device was at work for at least this share of what the row waited: else something else held the row."""


def wait_for_room(graph: Graph, trace: Trace, ends: IntColumn, *, latency_ns: IntColumn) -> Graph:
    """The same graph with such late starts behind the row that was running then; its replay is the record still.

    ``ends``: the moments at which device rows end, in order. ``latency_ns``: for each edge the bare launch latency of
    the device that it leads to.
    """
    launched = graph.kind == EdgeKind.LAUNCH
    late = (launched | (graph.kind == EdgeKind.STREAM)) & ~graph.is_end[graph.target]
    own_ns = np.where(launched, latency_ns, 0)
    edges = np.flatnonzero(late & (graph.weight_ns > np.maximum(own_ns, MOST_LATENCY_NS) + SLACK_NS))
    if not edges.size:
        return graph
    holder, held = _holders(graph, trace, edges, own_ns=own_ns[edges])
    # A row that had just ended elsewhere is what was waited for.
    ended_ns, start_ns = graph.time_ns[ends], graph.time_ns[graph.target[edges]]
    last = np.searchsorted(ended_ns, start_ns, side="right") - 1
    held &= (last < 0) | (start_ns - ended_ns[np.maximum(last, 0)] > own_ns[edges] + SLACK_NS)
    edges, holder = edges[held], holder[held]
    device = np.flatnonzero(graph.kind == EdgeKind.DEVICE)
    start_of = np.full(len(trace.rows), NONE, dtype=np.int64)
    start_of[graph.owner[device]] = graph.source[device]
    weight_ns = graph.weight_ns.copy()
    weight_ns[edges] = own_ns[edges]
    source, target = start_of[holder], graph.target[edges]
    return replace(
        graph,
        source=np.concatenate((graph.source, source)),
        target=np.concatenate((graph.target, target)),
        weight_ns=np.concatenate((weight_ns, graph.time_ns[target] - graph.time_ns[source])),
        kind=np.concatenate((graph.kind, np.full(edges.size, int(EdgeKind.ROOM), dtype=np.int64))),
        owner=np.concatenate((graph.owner, holder)),
    )


def follow_rows(graph: Graph) -> tuple[IntColumn, IntColumn]:
    """The edges of rows that waited for room, and for each the edge of the row's time of which it is a share."""
    room = np.flatnonzero(graph.kind == EdgeKind.ROOM)
    device = np.flatnonzero(graph.kind == EdgeKind.DEVICE)
    order = device[np.argsort(graph.owner[device], kind="stable")]
    return room, order[np.searchsorted(graph.owner[order], graph.owner[room])] if room.size else room


def _holders(graph: Graph, trace: Trace, edges: IntColumn, *, own_ns: IntColumn) -> tuple[RowNumbers, BoolColumn]:
    """For each late edge the row that was running when the late one started, and whether that held it."""
    rows = graph.row[graph.target[edges]]
    start_ns, ready_ns = graph.time_ns[graph.target[edges]], graph.time_ns[graph.source[edges]] + own_ns
    holder, held = np.full(edges.size, NONE, dtype=np.int64), np.zeros(edges.size, dtype=bool)
    placed = np.zeros(len(trace.rows), dtype=bool)
    placed[graph.row[graph.source[graph.kind == EdgeKind.DEVICE]]] = True
    for work in work_by_device(trace):
        mine = np.flatnonzero(trace.rows.device[rows] == work.device)
        row = _first_to_end(work, placed, start_ns[mine], stream=trace.rows.stream[rows[mine]])
        waited_ns = start_ns[mine] - ready_ns[mine]
        busy_ns = overlap_ns(ready_ns[mine], start_ns[mine], within=work.busy)
        holder[mine], held[mine] = row, (row != NONE) & (waited_ns > 0) & (busy_ns >= FULL_SHARE * waited_ns)
    return holder, held


def _first_to_end(work: Work, placed: BoolColumn, at_ns: IntColumn, *, stream: IntColumn) -> RowNumbers:
    """Of the rows of other streams that are running at each moment the one that ends first; :data:`NONE` if none is."""
    found = np.full(at_ns.size, NONE, dtype=np.int64)
    ends_ns = np.full(at_ns.size, np.iinfo(np.int64).max, dtype=np.int64)
    for code in np.unique(work.stream):
        members = np.flatnonzero((work.stream == code) & placed[work.rows])
        if not members.size:
            continue
        last = np.searchsorted(work.start_ns[members], at_ns, side="left") - 1
        candidate = members[np.maximum(last, 0)]
        runs = (last >= 0) & (stream != code) & (work.end_ns[candidate] > at_ns)
        sooner = runs & (work.end_ns[candidate] < ends_ns)
        found[sooner], ends_ns[sooner] = work.rows[candidate[sooner]], work.end_ns[candidate[sooner]]
    return found
