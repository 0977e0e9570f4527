"""Which chain of work set the time of this trace, or of a stretch of it?"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from referee.graph.build import EdgeKind, Graph, build_graph
from referee.graph.path import Path, longest_path, schedule
from referee.records.critical_path import CriticalPath, PathShare
from referee.trace.columns import NONE, Kind, RowNumbers, Trace

MOST_OWNERS = 20

_ORDER = (EdgeKind.STREAM, EdgeKind.WAIT, EdgeKind.EVENT, EdgeKind.THREAD)


def critical_path(
    trace: Trace, *, begin_ns: int | None = None, end_ns: int | None = None, count_gaps: bool = True
) -> CriticalPath | None:
    """The longest path through what the host began in ``[begin, end)``; ``None`` where nothing is there to order.

    Without ``count_gaps`` host time between rows takes no time, so that the path goes through recorded rows only: the
    definition of HTA's critical path.
    """
    graph = build_graph(trace, begin_ns=begin_ns, end_ns=end_ns)
    if not len(graph):
        return None
    try:
        replayed_ns = schedule(graph).length_ns
        path = longest_path(graph, counts=lambda kind: count_gaps or kind != EdgeKind.GAP)
    except ValueError:
        # Contradictory records (clocks that disagree) can make rows wait for one another in a circle.
        return None
    by_kind = path.by_kind_ns(graph)
    return CriticalPath(
        length_ns=path.length_ns,
        host_ns=by_kind[EdgeKind.HOST],
        gap_ns=by_kind[EdgeKind.GAP] if count_gaps else 0,
        launch_ns=by_kind[EdgeKind.LAUNCH],
        device_ns=by_kind[EdgeKind.DEVICE],
        order_ns=sum(by_kind[kind] for kind in _ORDER),
        rows=int(path.rows(graph).size),
        owners=_owners(trace, graph, path),
        recorded_ns=int(graph.time_ns.max() - graph.time_ns.min()),
        replayed_ns=replayed_ns,
    )


def annotated(trace: Trace, name: str, *, instance: int = 0) -> tuple[int, int] | None:
    """Start and end of the ``instance``-th annotation or step of exactly this name; ``None`` if there is none."""
    rows = trace.rows
    frames: RowNumbers = np.sort(np.concatenate((rows.of(Kind.ANNOTATION), rows.of(Kind.STEP))))
    found = [int(row) for row in frames if trace.name_of(int(row)) == name]
    if instance >= len(found):
        return None
    row = found[instance]
    return int(rows.start_ns[row]), int(rows.end_ns[row])


def _owners(trace: Trace, graph: Graph, path: Path) -> tuple[PathShare, ...]:
    edges = path.edges[graph.owner[path.edges] != NONE]
    time_ns: dict[str, int] = defaultdict(int)
    members: dict[str, set[int]] = defaultdict(set)
    for row, ns in zip(graph.owner[edges].tolist(), graph.weight_ns[edges].tolist(), strict=True):
        name = trace.name_of(row)
        time_ns[name] += ns
        members[name].add(row)
    ranked = sorted(time_ns, key=lambda name: (-time_ns[name], name))[:MOST_OWNERS]
    return tuple(PathShare(name=name, ns=time_ns[name], rows=len(members[name])) for name in ranked)
