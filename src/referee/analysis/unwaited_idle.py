"""Why would the device be idle if the host had never waited for it? The causes of what is idle in a replay.

The rules of the causes of idle time, on the replayed run: what the host did before each row, it does as much earlier as
it comes. A row that was launched late costs its own latency, as it does when the regime is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from referee.analysis.hosts import Host
from referee.analysis.idle import split
from referee.graph.unwaited import Clock, Unwaited
from referee.graph.work import MOST_LATENCY_NS, Work
from referee.trace.columns import IntColumn, RowNumbers, Trace
from referee.trace.intervals import IntervalSet, union

STARVED = ("loader", "allocator", "one_off", "pause", "per_op")
"""The causes among which the host's part is shared out, in the order of :func:`referee.analysis.idle.split`."""


@dataclass(frozen=True, eq=False)
class Left:
    """What is still idle in a run without waits."""

    before_ns: IntColumn
    """For each row of the work, in its order: how long the device was idle before it."""
    cause_ns: Mapping[str, int]
    """The host's part by cause; the rest is no one's."""


def idle_left(trace: Trace, work: Work, run: Unwaited, host: Host) -> Left:
    """What is idle in ``run``, the replay of ``work``, and how much of it the host caused."""
    order = np.lexsort((run.end_ns, run.start_ns))
    reach_ns = np.maximum.accumulate(run.end_ns[order])
    late = np.flatnonzero(run.start_ns[order[1:]] > reach_ns[:-1])
    row, begin_ns = order[late + 1], reach_ns[late]
    before_ns = np.zeros(order.size, dtype=np.int64)
    before_ns[row] = run.start_ns[row] - begin_ns
    until_ns = _host_end(work, run, row, begin_ns)
    cause_ns = dict.fromkeys(STARVED, 0)
    thread = trace.rows.thread[np.maximum(work.launch[row], 0)]
    mine = until_ns > begin_ns
    for code in np.unique(thread[mine]):
        chosen = mine & (thread == code)
        start_ns, end_ns = begin_ns[chosen], until_ns[chosen]
        doing = _moved(host, run.clocks[int(code)])
        parts = split(doing, start_ns, end_ns, blocked_until_ns=start_ns, starved_ns=end_ns - start_ns)
        for name, part in zip(STARVED, parts, strict=True):
            cause_ns[name] += int(part.sum())
    return Left(before_ns=before_ns, cause_ns=cause_ns)


def _host_end(work: Work, run: Unwaited, row: RowNumbers, begin_ns: IntColumn) -> IntColumn:
    """Up to where each idle interval belongs to the host; its beginning where nothing of it does."""
    submission_ns = work.submission_ns[row] - run.early_ns[row]
    ready_ns = submission_ns + work.latency_ns
    by_host = work.linked[row] & (ready_ns > begin_ns) & (work.first[row] | (submission_ns > begin_ns))
    end_ns = run.start_ns[row]
    own = end_ns - submission_ns <= MOST_LATENCY_NS
    return np.where(by_host, np.where(own, end_ns, np.minimum(end_ns, ready_ns)), begin_ns)


def _moved(host: Host, clock: Clock) -> Host:
    """What the host did, when it does it in the replay."""

    def moved(spans: IntervalSet) -> IntervalSet:
        return union(*(clock.at(edge_ns) for edge_ns in spans))

    return Host(
        loader=moved(host.loader),
        allocator=moved(host.allocator),
        one_off=moved(host.one_off),
        pause=moved(host.pause),
    )
