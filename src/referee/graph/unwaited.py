"""When would the device have worked if the host had never waited for it? A replay without the waits.

A wait takes the host's lead over the device away. The gap right behind it shows a part of that alone: where the device
is kept busy meanwhile by something long, the lead that the host would have won is missing at many later launches.

The replay keeps everything as recorded but the waits: the host comes earlier by what it waited so far; each row starts
when it was handed over, when its stream is free and when the row of another stream that it followed has ended, and
keeps what it waited beyond that. Streams that take turns keep doing so, where the record shows that they have to: what
follows a copy that the host waited for still follows it. Streams that were apart only because the host came to one
after the other are free to work side by side. With no wait left out every row starts as recorded, by construction.

A call that synchronises is left out whole, also where it found the device idle; a copy is still called, and what its
call took after the copy's end stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from referee.graph.calls import EVENT_WAITS, calls_named
from referee.graph.waits import Waits
from referee.graph.work import CLEAR_GAP_NS, Work
from referee.trace.columns import NONE, BoolColumn, IntColumn, RowNumbers, Trace
from referee.trace.intervals import IntervalSet, intersect, overlap_ns, union

MOST_STREAMS = 16
"""Of more streams than this it is not asked which of them ever worked side by side."""
QUEUE_LENGTH = 1024
"""So many launches may wait for the device before the next call blocks: about 1,024 on CUDA. A record in which the host
waits often does not show how many there are."""
_FARTHEST_NS = (1 << 62) - 1


@dataclass(frozen=True, eq=False)
class Unwaited:
    """Starts and ends of a device's rows, in the order of the work's rows, in a run without its waits."""

    start_ns: IntColumn
    end_ns: IntColumn
    early_ns: IntColumn
    """By how much each row was handed over earlier than recorded."""
    clocks: Mapping[int, Clock]
    """For each launching thread (its code) when it did there what it did in the record."""
    removed: RowNumbers
    """The waits that are left out."""


@dataclass(frozen=True, eq=False)
class Clock:
    """How much earlier than recorded a thread is, from each of these moments of the record on."""

    from_ns: IntColumn
    early_ns: IntColumn

    def at(self, recorded_ns: IntColumn) -> IntColumn:
        """When the thread comes to what it did at these moments of the record; a wait left out takes no time."""
        before = np.searchsorted(self.from_ns, recorded_ns, side="right")
        early_ns = np.concatenate(([0], self.early_ns))
        # Up to the next moment at which the thread has won time, it can be no later than it is then.
        won_ns = np.concatenate((self.from_ns - self.early_ns, [_FARTHEST_NS]))
        latest_ns = np.minimum.accumulate(won_ns[::-1])[::-1]
        moved: IntColumn = np.minimum(recorded_ns - early_ns[before], latest_ns[before])
        return moved


def removable(work: Work, waits: Waits) -> BoolColumn:
    """Which waits might be left out: those with the device at work meanwhile, and all calls that do nothing but wait.

    Calls that free memory stay.
    """
    worked = overlap_ns(waits.start_ns, waits.end_ns, within=work.busy) > 0
    mask: BoolColumn = ~waits.frees & (worked | waits.only)
    return mask


def unwaited(trace: Trace, work: Work, waits: Waits, *, without: BoolColumn) -> Unwaited:
    """The device's rows in a run without these waits."""
    bounds = _bounds(work)
    player = _Player(trace, work, bounds, _apart(work, _turns(trace, work, bounds, waits)))
    _replay(player, _host_events(trace, work, waits, without=without), key_ns=_keys(work), start_ns=work.start_ns)
    try:
        start_ns = np.array(player.start_ns, dtype=np.int64)
    except OverflowError:
        # Times of a hostile file: they end where both a start and an end still fit.
        start_ns = np.array([min(max(one, -_FARTHEST_NS), _FARTHEST_NS) for one in player.start_ns], dtype=np.int64)
    return Unwaited(
        start_ns=start_ns,
        end_ns=start_ns + work.end_ns - work.start_ns,
        early_ns=np.array(player.handed_early_ns, dtype=np.int64),
        clocks=player.clocks(),
        removed=waits.rows[without],
    )


@dataclass(frozen=True, eq=False)
class _Bounds:
    """What each row waits for; positions of rows, :data:`NONE` where there is nothing to wait for."""

    ready_ns: IntColumn
    """When the host had handed the row over and its latency had passed: never after its start."""
    before: RowNumbers
    """The row before it on its stream."""
    after_before_ns: IntColumn
    """From that row's end; below 0 where they overlap."""
    other: RowNumbers
    """The row of another stream that it followed."""
    after_other_ns: IntColumn
    leader: RowNumbers
    """The first row of its launch: a replayed graph starts as a whole."""


def _bounds(work: Work) -> _Bounds:
    far = np.iinfo(np.int64).min
    free_ns, start_ns = work.stream_free_ns, work.start_ns
    ready_ns = np.where(work.linked, np.minimum(work.submission_ns + work.latency_ns, start_ns), far)
    base_ns = np.maximum(free_ns, ready_ns)
    other, ended_ns = _last_ended(work)
    follows = (other != NONE) & (start_ns - base_ns > CLEAR_GAP_NS) & (ended_ns > base_ns)
    follows &= work.stream[np.maximum(other, 0)] != work.stream
    # Onto a free stream: what it took is latency. Behind another row: what it took is the device's.
    late = ~follows & work.linked & (ready_ns >= free_ns)
    before = _before(work)
    behind = before != NONE
    kept_ns = np.where(late | follows, np.minimum(start_ns - free_ns, 0), start_ns - free_ns)
    return _Bounds(
        ready_ns=np.where(late, start_ns, ready_ns),
        before=before,
        after_before_ns=np.where(behind, kept_ns, 0),
        other=np.where(follows, other, NONE),
        after_other_ns=np.where(follows, start_ns - ended_ns, 0),
        leader=_leader(work),
    )


def _leader(work: Work) -> RowNumbers:
    first = np.flatnonzero(work.linked & work.first)
    first = first[np.argsort(work.launch[first], kind="stable")]
    rest = np.flatnonzero(work.linked & ~work.first)
    leader = np.full(work.rows.size, NONE, dtype=np.int64)
    if first.size:
        at = np.minimum(np.searchsorted(work.launch[first], work.launch[rest]), first.size - 1)
        # The first row of a launch may be one of another device, or no work: then none here leads.
        leader[rest] = np.where(work.launch[first[at]] == work.launch[rest], first[at], NONE)
    return leader


def _last_ended(work: Work) -> tuple[RowNumbers, IntColumn]:
    """The last row to end by the start of each row, and when."""
    order = np.argsort(work.end_ns, kind="stable")
    index = np.searchsorted(work.end_ns[order], work.start_ns, side="right") - 1
    last = np.where(index >= 0, order[np.maximum(index, 0)], NONE)
    return last, work.end_ns[np.maximum(last, 0)]


def _by_stream(work: Work) -> list[RowNumbers]:
    """The positions of each stream's rows, in order of start."""
    order = np.argsort(work.stream, kind="stable")
    cuts = np.flatnonzero(np.diff(work.stream[order])) + 1
    return np.split(order, cuts)


def _before(work: Work) -> RowNumbers:
    """Of the rows that started earlier on a row's stream the one that ended last."""
    before = np.full(work.rows.size, NONE, dtype=np.int64)
    for members in _by_stream(work):
        end_ns = work.end_ns[members]
        reach_ns = np.maximum.accumulate(end_ns)
        holder = np.maximum.accumulate(np.where(end_ns == reach_ns, np.arange(members.size), 0))
        before[members[1:]] = members[holder[:-1]]
    return before


def _keys(work: Work) -> IntColumn:
    """When the host comes to each row: at its launch, or at that of a later row of its stream, if earlier."""
    key_ns = np.where(work.linked, work.launch_start_ns, work.start_ns)
    for members in _by_stream(work):
        key_ns[members] = np.minimum.accumulate(key_ns[members][::-1])[::-1]
    return key_ns


@dataclass(frozen=True, kw_only=True)
class _Event:
    """The end of a wait on the host."""

    end_ns: int
    moved: tuple[int, ...]
    """The threads (codes) that go on from there."""
    saved_ns: int
    awaited: int
    """The row that is still waited for; :data:`NONE` if the wait is left out."""


def _host_events(trace: Trace, work: Work, waits: Waits, *, without: BoolColumn) -> list[_Event]:
    """What moves the host against the record: waits that are left out, and waits that stay."""
    rows = trace.rows
    launches = np.unique(work.launch[work.linked])
    thread = rows.thread[launches]
    launched_ns = {int(code): rows.start_ns[launches[thread == code]] for code in np.unique(thread)}
    order = np.argsort(work.end_ns, kind="stable")
    awaited = np.searchsorted(work.end_ns[order], waits.end_ns, side="right") - 1
    last = np.where(awaited >= 0, order[np.maximum(awaited, 0)], NONE)
    saved, events = _saved_ns(work, waits), list[_Event]()
    for k in range(waits.rows.size):
        begin_ns, end_ns, row = int(waits.start_ns[k]), int(waits.end_ns[k]), int(last[k])
        if without[k]:
            saved_ns, row = int(saved[k]), NONE
        elif row != NONE and work.end_ns[row] > begin_ns:
            saved_ns = 0
        else:
            continue
        own = int(rows.thread[waits.rows[k]])
        # A thread that launches while another one waits goes its own way.
        moved = (code for code, at_ns in launched_ns.items() if code == own or not _any(at_ns, begin_ns, end_ns))
        events.append(_Event(end_ns=end_ns, moved=tuple(moved), saved_ns=saved_ns, awaited=row))
    return events


def _saved_ns(work: Work, waits: Waits) -> IntColumn:
    """What leaving each wait out saves: all of it, or up to the end of its own row."""
    linked = np.flatnonzero(work.linked)
    order = linked[np.lexsort((work.end_ns[linked], work.launch[linked]))]
    at = np.searchsorted(work.launch[order], waits.rows, side="right") - 1
    last = order[np.maximum(at, 0)] if order.size else np.zeros(waits.rows.size, dtype=np.int64)
    own = (at >= 0) & (work.launch[last] == waits.rows)
    until_ns = np.where(own, np.clip(work.end_ns[last], waits.start_ns, waits.end_ns), waits.end_ns)
    return until_ns - waits.start_ns


def _any(moments_ns: IntColumn, begin_ns: int, end_ns: int) -> bool:
    low, high = np.searchsorted(moments_ns, (begin_ns, end_ns))
    return bool(high > low)


def _apart(work: Work, turns: set[tuple[int, int]]) -> dict[int, list[int]]:
    """For each stream those that take turns with it: they never worked at the same time, and not by chance."""
    members_of = {int(work.stream[members[0]]): members for members in _by_stream(work)}
    if len(members_of) > MOST_STREAMS:
        return {code: [] for code in members_of}
    busy: dict[int, IntervalSet] = {
        code: union(work.start_ns[members], work.end_ns[members]) for code, members in members_of.items()
    }
    return {
        code: [
            other
            for other in members_of
            if ((code, other) in turns or (other, code) in turns) and not intersect(busy[code], busy[other])[0].size
        ]
        for code in members_of
    }


def _turns(trace: Trace, work: Work, bounds: _Bounds, waits: Waits) -> set[tuple[int, int]]:
    """Pairs of streams of which one was seen to wait for the other.

    A row that had been handed over started only when one of the other stream had ended; or the stream was told to wait
    for an event, or carries a copy for which the host waited (what is called next may use it): then for any stream.
    """
    behind = np.flatnonzero(bounds.other != NONE)
    pairs = np.stack((work.stream[behind], work.stream[bounds.other[behind]]), axis=1)
    awaited = np.isin(work.launch, waits.rows[~waits.only & ~waits.frees]) | _told_to_wait(trace, work)
    streams = np.unique(work.stream).tolist()
    seen = {(code, other) for code in np.unique(work.stream[awaited]).tolist() for other in streams if code != other}
    return seen | {(int(one), int(other)) for one, other in np.unique(pairs, axis=0)}


def _told_to_wait(trace: Trace, work: Work) -> BoolColumn:
    """Rows before whose launch the thread made a stream wait for an event, and launched nothing in between."""
    told = np.zeros(work.rows.size, dtype=bool)
    rows, asked = trace.rows, calls_named(trace, EVENT_WAITS)
    linked = np.flatnonzero(work.linked)
    thread = rows.thread[work.launch[linked]]
    for code in np.unique(rows.thread[asked]):
        mine = linked[thread == code]
        mine = mine[np.argsort(work.launch_start_ns[mine], kind="stable")]
        before = np.searchsorted(rows.start_ns[asked[rows.thread[asked] == code]], work.launch_start_ns[mine])
        told[mine] = np.diff(before, prepend=0) > 0
    return told


def _replay(player: _Player, events: Sequence[_Event], *, key_ns: IntColumn, start_ns: IntColumn) -> None:
    """Play the rows in the order in which the host came to them, between its events."""
    order = np.lexsort((start_ns, key_ns))
    cuts = np.searchsorted(key_ns[order], [event.end_ns for event in events], side="left")
    pieces = pairwise([0, *cuts.tolist(), order.size])
    for (low, high), event in zip(pieces, [*events, None], strict=True):
        player.play(order[low:high].tolist())
        if event is not None:
            player.move(event)


class _Player:
    """Plays rows one after another; knows by how much each thread comes earlier than it was recorded."""

    def __init__(self, trace: Trace, work: Work, bounds: _Bounds, apart: dict[int, list[int]]) -> None:
        self.start_ns: list[int] = work.start_ns.tolist()
        self._end_ns: list[int] = work.end_ns.tolist()
        self._recorded: tuple[list[int], list[int]] = (work.start_ns.tolist(), work.end_ns.tolist())
        self._ready_ns: list[int] = bounds.ready_ns.tolist()
        self._before, self._after_before_ns = bounds.before.tolist(), bounds.after_before_ns.tolist()
        self._other, self._after_other_ns = bounds.other.tolist(), bounds.after_other_ns.tolist()
        self._leader: list[int] = bounds.leader.tolist()
        self._stream: list[int] = work.stream.tolist()
        self._thread: list[int] = np.where(work.linked, trace.rows.thread[np.maximum(work.launch, 0)], NONE).tolist()
        self.handed_early_ns: list[int] = [0] * work.rows.size
        self._early_ns: dict[int, int] = {}
        self._history: dict[int, list[tuple[int, int]]] = {code: [] for code in set(self._thread)}
        self._launched_ns: list[int] = np.where(work.linked & work.first, work.launch_start_ns, NONE).tolist()
        self._queued: list[int] = []
        self._apart = apart
        self._last: dict[int, int] = {}

    def play(self, rows: Sequence[int]) -> None:
        """The host hands these rows over, in order."""
        recorded_start_ns, recorded_end_ns = self._recorded
        for row in rows:
            self.handed_early_ns[row] = early_ns = self._early(row)
            start_ns = self._ready_ns[row] - early_ns
            if self._before[row] != NONE:
                start_ns = max(start_ns, self._end_ns[self._before[row]] + self._after_before_ns[row])
            elif self._thread[row] == NONE:
                start_ns = recorded_start_ns[row]
            if self._other[row] != NONE:
                start_ns = max(start_ns, self._end_ns[self._other[row]] + self._after_other_ns[row])
            if self._leader[row] != NONE:
                start_ns = max(start_ns, self.start_ns[self._leader[row]])
            stream = self._stream[row]
            for code in self._apart[stream]:
                last = self._last.get(code, NONE)
                if last != NONE and recorded_end_ns[last] <= recorded_start_ns[row]:
                    start_ns = max(start_ns, self._end_ns[last])
            self.start_ns[row] = start_ns
            self._end_ns[row] = start_ns + recorded_end_ns[row] - recorded_start_ns[row]
            self._last[stream] = row

    def _early(self, row: int) -> int:
        """By how much the row is handed over earlier than recorded: no earlier than the queue has room for it."""
        early_ns = self._early_ns.get(self._thread[row], 0)
        if self._launched_ns[row] == NONE:
            return early_ns
        if early_ns and len(self._queued) >= QUEUE_LENGTH:
            room_ns = self.start_ns[self._queued[-QUEUE_LENGTH]]
            early_ns = min(early_ns, max(self._launched_ns[row] - room_ns, 0))
            self._goes(self._thread[row], self._launched_ns[row], early_ns)
        self._queued.append(row)
        return early_ns

    def move(self, event: _Event) -> None:
        """The host comes to the end of a wait: one that is left out, or one that stays."""
        if event.awaited == NONE:
            for code in event.moved:
                self._goes(code, event.end_ns, self._early_ns.get(code, 0) + event.saved_ns)
            return
        # What is waited for still comes as much earlier as it comes, and the host with it: not more.
        early_ns = self._recorded[1][event.awaited] - self._end_ns[event.awaited]
        for code in event.moved:
            self._goes(code, event.end_ns, min(self._early_ns.get(code, 0), early_ns))

    def _goes(self, thread: int, from_ns: int, early_ns: int) -> None:
        """From a moment of the record on a thread is so much earlier; times of a hostile file end somewhere."""
        early_ns = min(max(early_ns, -_FARTHEST_NS), _FARTHEST_NS)
        if early_ns != self._early_ns.get(thread, 0):
            self._early_ns[thread] = early_ns
            self._history.setdefault(thread, []).append((from_ns, early_ns))

    def clocks(self) -> dict[int, Clock]:
        """How much earlier each thread was, once all has been played."""
        return {
            code: Clock(*np.array(sorted(history), dtype=np.int64).reshape(-1, 2).T)
            for code, history in self._history.items()
        }
