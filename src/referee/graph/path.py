"""Which chain of work set the time? Earliest times in the graph, and the longest path through it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from referee.graph.build import EdgeKind, Graph
from referee.trace.columns import NONE, IntColumn, RowNumbers


@dataclass(frozen=True, eq=False)
class Schedule:
    """The earliest time of each moment if every edge takes its time, and the edge that decided it."""

    time_ns: IntColumn
    because: IntColumn
    """Number of the deciding edge, :data:`NONE` where a moment has no predecessor."""

    @property
    def length_ns(self) -> int:
        """From the first moment to the last."""
        return int(self.time_ns.max() - self.time_ns.min()) if self.time_ns.size else 0


@dataclass(frozen=True, eq=False)
class Path:
    """The longest path: its edges in order, and its length."""

    edges: IntColumn
    length_ns: int

    def rows(self, graph: Graph) -> RowNumbers:
        """The rows of which a moment lies on the path."""
        ends = np.concatenate((graph.source[self.edges], graph.target[self.edges]))
        return np.unique(graph.row[ends])

    def by_kind_ns(self, graph: Graph) -> dict[EdgeKind, int]:
        """The path's time by kind of edge."""
        return {kind: int(graph.weight_ns[self.edges[graph.kind[self.edges] == kind]].sum()) for kind in EdgeKind}


def schedule(graph: Graph, *, weight_ns: IntColumn | None = None, anchored: bool = True) -> Schedule:
    """Earliest times under the recorded weights, or under ``weight_ns``.

    ``anchored``: moments without a predecessor keep their recorded time; otherwise all of them begin together.
    Raises ``ValueError`` if the edges run in a circle, which they do only for contradictory records.
    """
    weights = (graph.weight_ns if weight_ns is None else weight_ns).tolist()
    count = len(graph)
    order = np.argsort(graph.source, kind="stable")
    bounds = np.searchsorted(graph.source[order], np.arange(count + 1)).tolist()
    outgoing, target = order.tolist(), graph.target.tolist()
    missing = np.bincount(graph.target, minlength=count).tolist()
    origin = int(graph.time_ns.min()) if count else 0
    start = graph.time_ns.tolist() if anchored else [origin] * count
    earliest: list[int] = [start[node] if not missing[node] else origin for node in range(count)]
    because = [NONE] * count
    ready = [node for node in range(count) if not missing[node]]
    done = 0
    while ready:
        node = ready.pop()
        done += 1
        now = earliest[node]
        for edge in outgoing[bounds[node] : bounds[node + 1]]:
            after = target[edge]
            then = now + weights[edge]
            if then >= earliest[after]:
                earliest[after], because[after] = then, edge
            missing[after] -= 1
            if not missing[after]:
                ready.append(after)
    if done < count:
        raise ValueError(f"{count - done} moments of the graph depend on one another in a circle")
    return Schedule(np.array(earliest, dtype=np.int64), np.array(because, dtype=np.int64))


def longest_path(graph: Graph, *, counts: Callable[[EdgeKind], bool] = lambda kind: True) -> Path:
    """The path that takes longest, where only edges of the kinds that ``counts`` accepts take time."""
    counted = np.array([counts(kind) for kind in EdgeKind])
    weight_ns = np.where(counted[graph.kind], graph.weight_ns, 0) if len(graph.kind) else graph.weight_ns
    plan = schedule(graph, weight_ns=weight_ns, anchored=False)
    path = chain_to(graph, plan, int(np.argmax(plan.time_ns)) if len(graph) else NONE)
    return Path(edges=path, length_ns=int(weight_ns[path].sum()) if path.size else 0)


def chain_to(graph: Graph, plan: Schedule, moment: int) -> IntColumn:
    """The edges, in order, that decided when ``moment`` comes."""
    edges: list[int] = []
    node = moment
    while node != NONE and plan.because[node] != NONE:
        edge = int(plan.because[node])
        edges.append(edge)
        node = int(graph.source[edge])
    return np.array(edges[::-1], dtype=np.int64)
