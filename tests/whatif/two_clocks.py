"""How short can a window get with the device twice as fast? Bounds from a trace's rows alone, without graph or replay.

Both let the host take the time that it did not wait, in the order that it was recorded in, on whichever thread.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from referee.graph.waits import Waits, find_waits
from referee.graph.work import Work, work_by_device
from referee.trace.columns import NONE, IntColumn, Trace
from referee.trace.intervals import covered_before, union

_SLACK_NS = 2_000


def never_waiting(trace: Trace) -> float:
    """For a host that waits for nothing before its last launch: it comes to each launch when it came to it.

    Then what is launched from there on takes half its time, one row of a stream after the other. Share of the window.
    """
    (work,) = work_by_device(trace)
    waits = find_waits(trace, work)
    assert not (waits.start_ns < work.launch_start_ns.max()).any()
    bound_ns = 0.0
    for code in np.unique(work.stream):
        mine = (work.stream == code) & work.linked
        took_ns = (work.end_ns - work.start_ns)[mine]
        rest_ns = np.cumsum(took_ns[::-1])[::-1] / 2
        bound_ns = max(bound_ns, float((work.launch_start_ns[mine] - work.begin_ns + rest_ns).max(initial=0)))
    return bound_ns / work.window_ns


def taking_turns(trace: Trace) -> float:
    """For a host that waits: one clock for it and one for the device, each held up by the other alone.

    The device begins no row before the host has come to its launch; it does its rows in the recorded order and side by
    side no more than recorded, in half the time. A wait ends no earlier than the last row that it waited for. Share of
    the window.
    """
    (work,) = work_by_device(trace)
    waits = find_waits(trace, work)
    awaited, let_go_ns = _awaited(work, waits)
    blocked = union(waits.start_ns[awaited != NONE], let_go_ns[awaited != NONE])

    def own_ns(at_ns: IntColumn) -> IntColumn:
        """The host's own time from the window's beginning to these moments."""
        begin = np.array([work.begin_ns])
        waited_ns = covered_before(at_ns, within=blocked) - covered_before(begin, within=blocked)
        own: IntColumn = at_ns - begin - waited_ns
        return own

    launched, woken_ns = own_ns(work.launch_start_ns), own_ns(let_go_ns)
    starts, ends = (covered_before(at, within=work.busy) / 2 for at in (work.start_ns, work.end_ns))
    events = [(int(at), 0, k) for k, at in enumerate(work.start_ns)]
    events += [(int(let_go_ns[k]), 1, k) for k in np.flatnonzero(awaited != NONE).tolist()]
    # By how much the host comes later than its own time says, from which recorded moment on; and the device likewise.
    since_ns, late_ns, behind_ns, held_ns = [-(1 << 62)], [0.0], 0.0, np.zeros(work.rows.size)
    for at, is_wait, k in sorted(events):
        if is_wait:
            since_ns.append(at)
            late_ns.append(max(late_ns[-1], ends[awaited[k]] + held_ns[awaited[k]] - woken_ns[k]))
            continue
        if work.linked[k]:
            known_ns = late_ns[bisect_right(since_ns, int(work.launch_start_ns[k])) - 1]
            behind_ns = max(behind_ns, launched[k] + known_ns - starts[k])
        held_ns[k] = behind_ns
    return float((ends + held_ns).max()) / work.window_ns


def _awaited(work: Work, waits: Waits) -> tuple[IntColumn, IntColumn]:
    """For each wait the last row to end in it that had been handed over before, and when that let go of the host."""
    awaited, let_go_ns = np.full(waits.rows.size, NONE, dtype=np.int64), waits.start_ns.copy()
    given_ns = np.where(work.linked, work.launch_start_ns, work.begin_ns - 1)
    for k, (begin, end) in enumerate(zip(waits.start_ns, waits.end_ns, strict=True)):
        inside = np.flatnonzero((work.end_ns > begin) & (work.end_ns <= end + _SLACK_NS) & (given_ns <= begin))
        if inside.size:
            awaited[k] = inside[np.argmax(work.end_ns[inside])]
            let_go_ns[k] = min(end, work.end_ns[awaited[k]])
    return awaited, let_go_ns
