"""Why was the device idle? Every idle interval's causes, which sum to it exactly.

The rules, for an idle interval [e, s) ended by the row K, whose launch is the call [l0, l1):

1. K has no launch in the file: *other*.
2. K is not the first row of its launch (graph replay) and was submitted by e: *other*, never host-starved.
3. K was already queued at e (submission + bare latency <= e): *dependency* if another stream's row ended at e, or an
   event wait lies between that stream's previous launch and this one; else *other*. Over 50 µs it is also *unseen*,
   unless the event waited for is seen: another device's row ended just before K began.
4. Otherwise the part up to submission + latency belongs to the host: *synchronised* as far as a wait explains it,
   *host-starved* for the rest; the remainder goes by rule 3.
5. *Host-starved* is split exactly into loader, allocator, one-off, pause and per-op.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from referee.analysis.hosts import SILENT_NS, Host, observe_host
from referee.graph.calls import EVENT_WAITS, calls_named
from referee.graph.waits import Waits, find_waits
from referee.graph.work import MOST_LATENCY_NS, Work
from referee.records.trace_report import HostStarved, Idle
from referee.trace.columns import NONE, BoolColumn, IntColumn, RowNumbers, Trace
from referee.trace.intervals import EMPTY, IntervalSet, overlap_ns, union
from referee.units import NS_PER_US

UNSEEN_NS = 50 * NS_PER_US
"""A queued row starts within a few microseconds: beyond this, something ran or was awaited that is not in the file."""

SLACK_NS = 2 * NS_PER_US
"""A wait returns about when the device drains: profilers stamp the two on different clocks, up to 2 µs apart."""

CAUSES = ("per_op", "loader", "allocator", "one_off", "pause", "synchronised", "dependency", "other")
"""The disjoint causes, in the order in which reports list them."""

_PAIRS = 4_000_000
"""Most (gap, wait) pairs held in memory at once."""


@dataclass(frozen=True, eq=False)
class Gaps:
    """Every idle interval of one device; all arrays run over them, and the causes of each sum to its length."""

    device: int
    start_ns: IntColumn
    end_ns: IntColumn
    row: RowNumbers
    """The device row that ended the interval."""
    launch: RowNumbers
    """Its launch, or :data:`NONE`."""
    host_end_ns: IntColumn
    """Up to where the interval belongs to the host: at most its end; its start where nothing does."""
    wait: RowNumbers
    """The wait that explains the synchronised part, or :data:`NONE`."""
    per_op_ns: IntColumn
    loader_ns: IntColumn
    allocator_ns: IntColumn
    one_off_ns: IntColumn
    pause_ns: IntColumn
    synchronised_ns: IntColumn
    dependency_ns: IntColumn
    other_ns: IntColumn
    unseen_ns: IntColumn
    """Part of dependency or other."""
    unlinked_ns: IntColumn
    """Part of other: the row that ended the interval has no launch in the file."""
    elsewhere_ns: IntColumn
    """Part of dependency: the stream was told to wait for an event, and another device's row had just ended."""

    @property
    def length_ns(self) -> IntColumn:
        """Lengths of the intervals."""
        return self.end_ns - self.start_ns

    def cause(self, name: str) -> IntColumn:
        """The part of each interval with this cause, one of :data:`CAUSES`."""
        part: IntColumn = getattr(self, f"{name}_ns")
        return part

    @property
    def main_cause(self) -> IntColumn:
        """Index into :data:`CAUSES` of the largest part of each interval."""
        parts = np.stack([self.cause(name) for name in CAUSES])
        main: IntColumn = np.argmax(parts, axis=0)
        return main


@dataclass(frozen=True, eq=False)
class _Open:
    """The idle intervals of one device before they have causes."""

    work: Work
    position: RowNumbers
    """Position of K among the device's rows."""
    start_ns: IntColumn
    end_ns: IntColumn
    ready_ns: IntColumn
    """Submission of K plus the bare latency."""
    by_host: BoolColumn
    """Rule 4 applies: the row was not yet queued when the device became idle."""

    @property
    def host_end_ns(self) -> IntColumn:
        """Up to where the interval belongs to the host."""
        return np.where(self.by_host, np.minimum(self.end_ns, self.ready_ns), self.start_ns)


def find_gaps(trace: Trace, works: Sequence[Work]) -> tuple[Gaps, ...]:
    """The idle intervals of each device with their causes."""
    opened = [_open(work) for work in works]
    longest = max((int((o.host_end_ns - o.start_ns).max(initial=0)) for o in opened), default=0)
    host = observe_host(trace, silent=longest >= SILENT_NS)
    event_waits = calls_named(trace, EVENT_WAITS)
    return tuple(
        _explain(trace, o, host=host, event_waits=event_waits, ends_elsewhere_ns=_ends_of_others(works, o.work))
        for o in opened
    )


def _ends_of_others(works: Sequence[Work], work: Work) -> IntColumn:
    """When the rows of all other devices ended, in order."""
    none = np.zeros(0, dtype=np.int64)
    return np.sort(np.concatenate([none, *(other.end_ns for other in works if other is not work)]))


def _open(work: Work) -> _Open:
    reach = np.maximum.accumulate(work.end_ns)
    position = np.flatnonzero(work.start_ns[1:] > reach[:-1]) + 1
    start_ns, end_ns = reach[position - 1], work.start_ns[position]
    submission_ns = work.submission_ns[position]
    ready_ns = submission_ns + work.latency_ns
    replayed = ~work.first[position] & (submission_ns <= start_ns)
    return _Open(
        work=work,
        position=position,
        start_ns=start_ns,
        end_ns=end_ns,
        ready_ns=ready_ns,
        by_host=work.linked[position] & ~replayed & (ready_ns > start_ns),
    )


def _explain(trace: Trace, opened: _Open, *, host: Host, event_waits: RowNumbers, ends_elsewhere_ns: IntColumn) -> Gaps:
    work, position = opened.work, opened.position
    host_end_ns = opened.host_end_ns
    blocked_ns, blocked_until_ns, wait = _blocked(opened, find_waits(trace, work))
    host_ns = host_end_ns - opened.start_ns
    synchronised_ns = np.minimum(host_ns, blocked_ns)
    parts = split(
        host, opened.start_ns, host_end_ns, blocked_until_ns=blocked_until_ns, starved_ns=host_ns - synchronised_ns
    )
    rest_ns = opened.end_ns - host_end_ns
    linked = work.linked[position]
    replayed = ~work.first[position] & ~opened.by_host
    told = _waits_for_event(trace, opened, event_waits)
    depends = linked & ~replayed & (_ended_elsewhere(opened) | told)
    elsewhere = depends & told & _another_just_ended(opened, ends_elsewhere_ns)
    return Gaps(
        device=work.device,
        start_ns=opened.start_ns,
        end_ns=opened.end_ns,
        row=work.rows[position],
        launch=work.launch[position],
        host_end_ns=host_end_ns,
        wait=np.where(synchronised_ns > 0, wait, NONE),
        per_op_ns=parts[4],
        loader_ns=parts[0],
        allocator_ns=parts[1],
        one_off_ns=parts[2],
        pause_ns=parts[3],
        synchronised_ns=synchronised_ns,
        dependency_ns=np.where(depends, rest_ns, 0),
        other_ns=np.where(depends, 0, rest_ns),
        unseen_ns=np.where(linked & ~replayed & ~elsewhere & (rest_ns > UNSEEN_NS), rest_ns, 0),
        unlinked_ns=np.where(linked, 0, rest_ns),
        elsewhere_ns=np.where(elsewhere, rest_ns, 0),
    )


def _blocked(opened: _Open, waits: Waits) -> tuple[IntColumn, IntColumn, RowNumbers]:
    """How long a wait kept the host before each interval's launch, when it let go, and which wait it was.

    A wait counts that began before e, ended at e - 2 µs or later and by the end of K's launch, and is not that launch.
    It blocked the host for all of its length (for a call that frees: up to e), also for the part before e: without it
    the host would have come as much earlier. Of several the longest counts.
    """
    count = opened.position.size
    blocked_ns = np.zeros(count, dtype=np.int64)
    until_ns = opened.start_ns.copy()
    wait = np.full(count, NONE, dtype=np.int64)
    chosen = np.flatnonzero(opened.by_host)
    launch_end_ns = opened.work.launch_end_ns[opened.position]
    low = np.searchsorted(waits.end_ns, opened.start_ns[chosen] - SLACK_NS, side="left")
    high = np.searchsorted(waits.end_ns, launch_end_ns[chosen], side="right")
    number = np.maximum(high - low, 0)
    chosen, low, number = chosen[number > 0], low[number > 0], number[number > 0]
    for part in _slices(number):
        gap = np.repeat(chosen[part], number[part])
        first = np.repeat(np.cumsum(number[part]) - number[part], number[part])
        candidate = np.repeat(low[part], number[part]) + np.arange(gap.size) - first
        fits = waits.start_ns[candidate] < opened.start_ns[gap]
        fits &= waits.rows[candidate] != opened.work.launch[opened.position[gap]]
        gap, candidate = gap[fits], candidate[fits]
        limit_ns = np.where(waits.frees[candidate], opened.start_ns[gap], opened.end_ns[gap])
        end_ns = np.minimum(waits.end_ns[candidate], limit_ns)
        length_ns = end_ns - waits.start_ns[candidate]
        np.maximum.at(blocked_ns, gap, length_ns)
        longest = length_ns == blocked_ns[gap]
        wait[gap[longest]] = waits.rows[candidate[longest]]
        np.maximum.at(until_ns, gap, end_ns)
    return blocked_ns, until_ns, wait


def _slices(number: IntColumn) -> list[slice]:
    """Cut a list of pair counts so that no piece holds many more than :data:`_PAIRS` pairs."""
    if not number.size:
        return []
    piece = np.cumsum(number) // _PAIRS
    bounds = np.flatnonzero(np.concatenate(([True], np.diff(piece) > 0, [True])))
    return [slice(int(low), int(high)) for low, high in pairwise(bounds)]


def split(
    host: Host, start_ns: IntColumn, end_ns: IntColumn, *, blocked_until_ns: IntColumn, starved_ns: IntColumn
) -> list[IntColumn]:
    """Loader, allocator, one-off, pause and per-op of each interval's host-starved part, exactly.

    What the host did is looked at from where it was free to go on. A moment that several claim belongs to the first of
    them; where a wait before the interval explains part of the lateness, the last of them gives way first.
    """
    begin_ns = np.minimum(np.maximum(start_ns, blocked_until_ns), end_ns)
    left_ns = starved_ns.copy()
    parts: list[IntColumn] = []
    claimed: IntervalSet = EMPTY
    covered_ns = np.zeros_like(left_ns)
    for doing in (host.loader, host.allocator, host.one_off, host.pause):
        claimed = union(*(np.concatenate(pair) for pair in zip(claimed, doing, strict=True)))
        so_far_ns = overlap_ns(begin_ns, end_ns, within=claimed)
        part = np.minimum(so_far_ns - covered_ns, left_ns)
        covered_ns = so_far_ns
        left_ns = left_ns - part
        parts.append(part)
    return [*parts, left_ns]


def _another_just_ended(opened: _Open, ends_elsewhere_ns: IntColumn) -> BoolColumn:
    """A row of another device ended within the interval, at most a launch's latency before K began."""
    at = np.searchsorted(ends_elsewhere_ns, opened.end_ns, side="right") - 1
    if not ends_elsewhere_ns.size:
        return np.zeros(at.size, dtype=bool)
    last_ns = ends_elsewhere_ns[np.maximum(at, 0)]
    near: BoolColumn = (at >= 0) & (last_ns > opened.start_ns) & (opened.end_ns - last_ns <= MOST_LATENCY_NS)
    return near


def _ended_elsewhere(opened: _Open) -> BoolColumn:
    """Another stream's row ended as the interval began."""
    work = opened.work
    elsewhere = np.zeros(opened.position.size, dtype=bool)
    if not elsewhere.size:
        return elsewhere
    gap = np.searchsorted(opened.start_ns, work.end_ns)
    gap = np.minimum(gap, elsewhere.size - 1)
    ended = opened.start_ns[gap] == work.end_ns
    gap = gap[ended]
    elsewhere[gap[work.stream[ended] != work.stream[opened.position[gap]]]] = True
    return elsewhere


def _waits_for_event(trace: Trace, opened: _Open, event_waits: RowNumbers) -> BoolColumn:
    """An event wait was issued between the stream's previous launch and K's, on the thread that launched K."""
    work, rows = opened.work, trace.rows
    waits = np.zeros(opened.position.size, dtype=bool)
    launched = np.flatnonzero(work.first & work.linked)
    if not event_waits.size or not launched.size:
        return waits
    order = launched[np.lexsort((work.launch_start_ns[launched], work.stream[launched]))]
    previous_ns = np.full(work.rows.size, np.iinfo(np.int64).max, dtype=np.int64)
    same = work.stream[order[1:]] == work.stream[order[:-1]]
    previous_ns[order[1:][same]] = work.launch_start_ns[order[:-1][same]]
    asked = np.flatnonzero(work.first[opened.position] & work.linked[opened.position])
    thread = rows.thread[work.launch[opened.position[asked]]]
    for code in np.unique(rows.thread[event_waits]):
        moments = rows.start_ns[event_waits[rows.thread[event_waits] == code]]
        mine = asked[thread == code]
        k = opened.position[mine]
        before = np.searchsorted(moments, work.launch_start_ns[k])
        waits[mine] = before > np.searchsorted(moments, previous_ns[k])
    return waits


def sum_idle(gaps: Sequence[Gaps]) -> Idle:
    """The causes over all devices."""

    def total(name: str) -> int:
        return sum(int(getattr(g, f"{name}_ns").sum()) for g in gaps)

    starved = HostStarved(
        per_op_ns=total("per_op"),
        loader_ns=total("loader"),
        allocator_ns=total("allocator"),
        one_off_ns=total("one_off"),
        pause_ns=total("pause"),
    )
    return Idle(
        host_starved_ns=starved.per_op_ns
        + starved.loader_ns
        + starved.allocator_ns
        + starved.one_off_ns
        + starved.pause_ns,
        synchronised_ns=total("synchronised"),
        dependency_ns=total("dependency"),
        other_ns=total("other"),
        host_starved=starved,
        unseen_ns=total("unseen"),
    )
