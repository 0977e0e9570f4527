"""Which kernels would be one if pointwise work were fused, and which host time goes with those that are no more?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from referee.graph.build import EdgeKind, Graph
from referee.trace.columns import DEVICE_KINDS, NONE, BoolColumn, IntColumn, Kind, RowNumbers, Trace
from referee.trace.intervals import union


@dataclass(frozen=True, eq=False)
class Chains:
    """Runs of at least two pointwise kernels that follow one another on a stream; arrays run over their kernels."""

    rows: RowNumbers
    chain: IntColumn
    """The number of the run that each belongs to."""
    first: BoolColumn
    """Begins its run: what stays of it."""

    @property
    def gone(self) -> RowNumbers:
        """The kernels that are no more."""
        return self.rows[~self.first]


def find_chains(trace: Trace, pointwise: RowNumbers) -> Chains:
    """The runs among all device rows; ``pointwise`` are the rows that may be joined."""
    rows = trace.rows
    device_rows = rows.of(*DEVICE_KINDS)
    order = device_rows[np.lexsort((rows.start_ns[device_rows], rows.stream[device_rows], rows.device[device_rows]))]
    joins = np.isin(order, pointwise)
    again = np.zeros(order.size, dtype=bool)
    again[1:] = (np.diff(rows.stream[order]) == 0) & (np.diff(rows.device[order]) == 0) & joins[:-1] & joins[1:]
    chain = np.cumsum(~again)
    member = joins & (np.bincount(chain, minlength=1)[chain] > 1 if order.size else joins)
    return Chains(rows=order[member], chain=chain[member], first=~again[member])


def host_of(graph: Graph, trace: Trace, gone: RowNumbers) -> BoolColumn:
    """The host time that only served these device rows: their launches, and operators that launched nothing else."""
    rows, launch_of = trace.rows, trace.links.launch_of
    launches = np.flatnonzero(trace.links.is_launch)
    served = np.unique(launch_of[gone][launch_of[gone] != NONE])
    kept = np.isin(launches, launch_of[np.setdiff1d(np.flatnonzero(launch_of != NONE), gone)])
    found = np.zeros(graph.source.size, dtype=bool)
    host = np.isin(graph.kind, (EdgeKind.HOST, EdgeKind.GAP))
    thread_of_edge = rows.thread[graph.row[graph.source]]
    operators = rows.of(Kind.OPERATOR)
    for thread in np.unique(rows.thread[served]):
        mine = rows.thread[launches] == thread
        going_ns = rows.start_ns[served[rows.thread[served] == thread]]
        staying_ns = rows.start_ns[launches[mine & kept]]
        own = operators[rows.thread[operators] == thread]
        begin_ns, end_ns = rows.start_ns[own], rows.end_ns[own]
        serves = _count(going_ns, begin_ns, end_ns) > 0
        serves &= _count(staying_ns, begin_ns, end_ns) == 0
        alone = served[rows.thread[served] == thread]
        opens_ns, closes_ns = union(
            np.concatenate((begin_ns[serves], rows.start_ns[alone])),
            np.concatenate((end_ns[serves], rows.end_ns[alone])),
        )
        edges = np.flatnonzero(host & (thread_of_edge == thread))
        at_ns = graph.time_ns[graph.source[edges]]
        slot = np.searchsorted(opens_ns, at_ns, side="right") - 1
        found[edges] = (slot >= 0) & (at_ns < closes_ns[np.maximum(slot, 0)])
    return found


def _count(moments_ns: IntColumn, begin_ns: IntColumn, end_ns: IntColumn) -> IntColumn:
    """How many of the sorted moments lie in each ``[begin, end)``."""
    found: IntColumn = np.searchsorted(moments_ns, end_ns) - np.searchsorted(moments_ns, begin_ns)
    return found
