"""What would the device not have waited for? Idle time charged as a rerun would show it, for naming the regime.

The causes of idle time look at one gap at a time. Two things need more than that, and count here:

* A wait costs more than the gap right behind it. If the device is busy for long meanwhile (a collective, a large
  kernel), the host would have used that time to run ahead: the gaps of many later launches come from the wait, too.
  They are *per-op* among the causes and *synchronised* here: what a run without waits would not show. What it does
  show has the cause that it has there: what the host does then is not always what it did behind the wait.
* A launch that came late costs its own latency, not the median of all. What a row took beyond the bare latency is
  *other* or *dependency* among the causes and *per-op* here, as long as it took no longer than a launch can: an earlier
  launch would have hidden it. (With the median alone half of all launches would count for less than they cost.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from referee.analysis.hosts import SILENT_NS, Host, observe_host
from referee.analysis.idle import Gaps
from referee.analysis.unwaited_idle import idle_left
from referee.graph.unwaited import removable, unwaited
from referee.graph.waits import find_waits
from referee.graph.work import MOST_LATENCY_NS, Work
from referee.trace.columns import IntColumn, Trace

GIVES_WAY = ("per_op", "pause", "one_off", "allocator", "loader")
"""Host-starved causes, in the order in which they give way to a wait: as for the gap right behind it."""


def charge_latency(works: Sequence[Work], gaps: Sequence[Gaps]) -> tuple[Gaps, ...]:
    """The same gaps with the latency of late launches charged to them. Sums over causes stay what they were."""
    return tuple(_charge_latency(work, g) for work, g in zip(works, gaps, strict=True))


def most_owed_ns(trace: Trace, works: Sequence[Work], gaps: Sequence[Gaps]) -> int:
    """At most how much of the host's idle time :func:`charge_waits` can charge to waits, over all devices."""
    return sum(_most_owed_ns(trace, work, g) for work, g in zip(works, gaps, strict=True))


def charge_waits(trace: Trace, works: Sequence[Work], gaps: Sequence[Gaps]) -> tuple[Gaps, ...]:
    """The same gaps with the lead that waits took charged to them. Sums over causes stay what they were.

    Assumes that the host would have done the same work without the waits, in the same time.
    """
    longest_ns = max((int((g.host_end_ns - g.start_ns).max(initial=0)) for g in gaps), default=0)
    host = observe_host(trace, silent=longest_ns >= SILENT_NS)
    return tuple(_charge_waits(trace, work, g, host) for work, g in zip(works, gaps, strict=True))


def _charge_latency(work: Work, gaps: Gaps) -> Gaps:
    """Rows that were launched when the device was idle already: all that they took from there is the launch's."""
    submission_ns = work.submission_ns[np.searchsorted(work.rows, gaps.row)]
    late = (gaps.host_end_ns > gaps.start_ns) & (gaps.end_ns - submission_ns <= MOST_LATENCY_NS)
    rest_ns = np.where(late, gaps.other_ns + gaps.dependency_ns, 0)
    return replace(
        gaps,
        per_op_ns=gaps.per_op_ns + rest_ns,
        other_ns=np.where(late, 0, gaps.other_ns),
        dependency_ns=np.where(late, 0, gaps.dependency_ns),
    )


def _most_owed_ns(trace: Trace, work: Work, gaps: Gaps) -> int:
    starved_ns = sum(int(gaps.cause(name).sum()) for name in GIVES_WAY)
    waits = find_waits(trace, work)
    without = removable(work, waits)
    # Behind the last launch nothing is left to be late.
    counts = without & (waits.start_ns < work.launch_start_ns.max(initial=0))
    waited_ns = int((waits.end_ns - waits.start_ns)[counts].sum())
    explained_ns = int(gaps.synchronised_ns[np.isin(gaps.wait, waits.rows[without])].sum())
    return max(0, min(waited_ns - explained_ns, starved_ns))


def _charge_waits(trace: Trace, work: Work, gaps: Gaps, host: Host) -> Gaps:
    waits = find_waits(trace, work)
    without = removable(work, waits)
    if not without.any():
        return gaps
    left = idle_left(trace, work, unwaited(trace, work, waits, without=without), host)
    saved_ns = int(gaps.length_ns.sum() - left.before_ns.sum())
    hidden_ns = np.maximum(gaps.length_ns - left.before_ns[np.searchsorted(work.rows, gaps.row)], 0)
    return _deal(gaps, left.cause_ns, saved_ns=saved_ns, hidden_ns=hidden_ns)


def _deal(gaps: Gaps, cause_ns: Mapping[str, int], *, saved_ns: int, hidden_ns: IntColumn) -> Gaps:
    """The gaps with the host's causes as large, all in all, as in the run without waits: the rest is synchronised.

    Of what goes to the waits, each gap gives what is ``hidden_ns`` of it there first. No more goes to them than is
    saved.
    """
    parts = {name: gaps.cause(name) for name in (*GIVES_WAY, "synchronised")}
    goal = dict(cause_ns)
    whole_ns = sum(int(part.sum()) for part in parts.values())
    goal["per_op"] += max(0, whole_ns - sum(goal.values()) - max(saved_ns, 0))
    for name in GIVES_WAY:
        give_ns = _portions(int(parts[name].sum()) - goal[name], np.minimum(parts[name], hidden_ns))
        give_ns = give_ns + _portions(int(parts[name].sum() - give_ns.sum()) - goal[name], parts[name] - give_ns)
        parts[name], parts["synchronised"] = parts[name] - give_ns, parts["synchronised"] + give_ns
        hidden_ns = np.maximum(hidden_ns - give_ns, 0)
    for name in GIVES_WAY:
        take_ns = _portions(goal[name] - int(parts[name].sum()), parts["synchronised"])
        parts[name], parts["synchronised"] = parts[name] + take_ns, parts["synchronised"] - take_ns
    return replace(
        gaps,
        per_op_ns=parts["per_op"],
        pause_ns=parts["pause"],
        one_off_ns=parts["one_off"],
        allocator_ns=parts["allocator"],
        loader_ns=parts["loader"],
        synchronised_ns=parts["synchronised"],
    )


def _portions(total_ns: int, shown_ns: IntColumn) -> IntColumn:
    """``total_ns`` dealt out in proportion to ``shown_ns``, and no more than that to anybody."""
    sum_ns = np.cumsum(shown_ns)
    if total_ns <= 0 or not sum_ns.size or not sum_ns[-1]:
        return np.zeros_like(shown_ns)
    if total_ns >= sum_ns[-1]:
        return shown_ns
    dealt_ns = np.rint(sum_ns * (total_ns / int(sum_ns[-1]))).astype(np.int64)
    portions: IntColumn = np.minimum(np.diff(dealt_ns, prepend=0), shown_ns)
    return portions
