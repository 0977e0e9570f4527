"""What had to happen before what? A trace as a graph of moments, with edges that take time.

Moments are starts and ends of host rows and device rows. Edges carry the work between two moments (a row's own time,
a gap between rows, a launch's latency) or order alone. Waits are never stored as durations: a call that waits ends
when the device row that it waits for has ended.

==========  ==========================================================  =====================================
kind        from, to                                                    time
==========  ==========================================================  =====================================
``host``    moment, next moment of the thread, inside a row             as recorded; 0 inside a wait that blocked
``gap``     moment, next moment of the thread, between rows             as recorded; 0 while another thread worked
``launch``  end of the launch (its start if it blocks), device row      as recorded onto an idle stream, else the
                                                                        bare latency
``device``  start, end of a device row                                  as recorded
``stream``  end of a row, start of the next on its stream               as recorded if that was queued, else 0
``wait``    end of a device row, end of the call that waits for it      what remained of the call after the last one
``event``   end of a row of another stream, start of the row            0
``thread``  a moment of one thread, a moment of another                 as recorded
``room``    start of a row, start of a row of another stream that       as recorded; shrinks with the first row
            waited for room on the device (added for a what-if alone)
==========  ==========================================================  =====================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from referee.graph.calls import EVENT_WAITS, calls_named
from referee.graph.moments import Chain, make_chains
from referee.graph.threads import launching_threads
from referee.graph.waits import Waits, find_waits
from referee.graph.work import Work, work_by_device
from referee.trace.columns import NONE, BoolColumn, IntColumn, RowNumbers, Trace
from referee.units import NS_PER_US

BURST_NS = 50 * NS_PER_US
"""A thread without a row for this long waits for something: what another thread does meanwhile comes first."""

SLACK_NS = 2 * NS_PER_US
"""Device and host stamps differ by up to this: a row that ended that much after a wait's end may have been awaited."""


class EdgeKind(IntEnum):
    """What an edge stands for; see the table above."""

    HOST = 0
    GAP = 1
    LAUNCH = 2
    DEVICE = 3
    STREAM = 4
    WAIT = 5
    EVENT = 6
    THREAD = 7
    ROOM = 8


@dataclass(frozen=True, eq=False, kw_only=True)
class Graph:
    """Moments and edges; edge arrays are parallel, as are moment arrays."""

    time_ns: IntColumn
    """When each moment was recorded."""
    row: RowNumbers
    """The row that starts or ends then."""
    is_end: BoolColumn
    source: IntColumn
    target: IntColumn
    weight_ns: IntColumn
    kind: IntColumn
    owner: RowNumbers
    """The row whose time an edge carries; :data:`NONE` for gaps and order."""

    def __len__(self) -> int:
        return len(self.time_ns)


@dataclass
class _Draft:
    """A graph in the making."""

    time_ns: list[IntColumn] = field(default_factory=list)
    row: list[RowNumbers] = field(default_factory=list)
    is_end: list[BoolColumn] = field(default_factory=list)
    count: int = 0
    edges: list[tuple[IntColumn, IntColumn, IntColumn, int, RowNumbers]] = field(default_factory=list)

    def add_moments(self, time_ns: IntColumn, row: RowNumbers, is_end: BoolColumn) -> int:
        """Append moments; answers the number of the first."""
        first = self.count
        self.time_ns.append(time_ns)
        self.row.append(row)
        self.is_end.append(is_end)
        self.count += time_ns.size
        return first

    def add_edges(
        self,
        source: IntColumn,
        target: IntColumn,
        weight_ns: IntColumn,
        kind: EdgeKind,
        owner: RowNumbers | None = None,
    ) -> None:
        """Append edges of one kind."""
        nobody = np.full(source.size, NONE, dtype=np.int64)
        self.edges.append((source, target, weight_ns, int(kind), nobody if owner is None else owner))

    def finish(self) -> Graph:
        """The graph."""
        none = np.zeros(0, dtype=np.int64)
        parts = [(s, t, w, np.full(s.size, k, dtype=np.int64), o) for s, t, w, k, o in self.edges]
        source, target, weight, kind, owner = (
            np.concatenate([none, *column]) for column in (zip(*parts, strict=True) if parts else [()] * 5)
        )
        return Graph(
            time_ns=np.concatenate([none, *self.time_ns]),
            row=np.concatenate([none, *self.row]),
            is_end=np.concatenate([none.astype(bool), *self.is_end]),
            source=source,
            target=target,
            weight_ns=weight,
            kind=kind,
            owner=owner,
        )


@dataclass(frozen=True, eq=False)
class _Placed:
    """A device's rows that are in the graph: positions in the work, and the number of the first start moment."""

    work: Work
    chosen: IntColumn
    first: int

    @property
    def starts(self) -> IntColumn:
        return np.arange(self.first, self.first + self.chosen.size, dtype=np.int64)

    @property
    def ends(self) -> IntColumn:
        return self.starts + self.chosen.size


def build_graph(trace: Trace, *, begin_ns: int | None = None, end_ns: int | None = None) -> Graph:
    """The graph of a trace, or of what the host began in ``[begin, end)`` and the device rows launched there.

    Device rows launched elsewhere are left out of a stretch. In the graph of a whole trace, rows without a launch in
    the file are there with their stream's order alone.
    """
    rows, whole = trace.rows, begin_ns is None and end_ns is None
    begin_ns = int(rows.start_ns[0]) if begin_ns is None and len(rows) else begin_ns or 0
    end_ns = int(rows.end_ns.max(initial=0)) + 1 if end_ns is None else end_ns
    draft = _Draft()
    chains = make_chains(trace, launching_threads(trace), begin_ns=begin_ns, end_ns=end_ns)
    firsts = [draft.add_moments(chain.time_ns, chain.row, chain.is_end) for chain in chains]
    start_of, end_of = _moments_of_rows(len(rows), chains, firsts)
    placed = [_place(draft, work, start_of, unlinked=whole) for work in work_by_device(trace)]
    blocked_ns = np.full(len(rows), NONE, dtype=np.int64)
    awaited = []
    for device in placed:
        held = _event_edges(draft, device, trace)
        _launch_edges(draft, device, held, start_of=start_of, end_of=end_of)
        _stream_edges(draft, device)
        awaited.append(_awaited(device, find_waits(trace, device.work), end_of=end_of, blocked_ns=blocked_ns))
    _wait_edges(draft, awaited, end_of=end_of, blocked_ns=blocked_ns, end_ns=rows.end_ns)
    _chain_edges(draft, chains, firsts, blocked_ns=blocked_ns)
    return draft.finish()


def _moments_of_rows(count: int, chains: Sequence[Chain], firsts: Sequence[int]) -> tuple[IntColumn, IntColumn]:
    """For each row of the trace the moments of its start and end, :data:`NONE` where it is not in the graph."""
    start_of, end_of = np.full(count, NONE, dtype=np.int64), np.full(count, NONE, dtype=np.int64)
    for chain, first in zip(chains, firsts, strict=True):
        number = np.arange(first, first + chain.row.size, dtype=np.int64)
        start_of[chain.row[~chain.is_end]] = number[~chain.is_end]
        end_of[chain.row[chain.is_end]] = number[chain.is_end]
    return start_of, end_of


def _place(draft: _Draft, work: Work, start_of: IntColumn, *, unlinked: bool) -> _Placed:
    there = work.linked & (start_of[np.maximum(work.launch, 0)] != NONE)
    chosen = np.flatnonzero(there | ~work.linked if unlinked else there)
    row = work.rows[chosen]
    nothing = np.zeros(chosen.size, dtype=bool)
    first = draft.add_moments(work.start_ns[chosen], row, nothing)
    draft.add_moments(work.end_ns[chosen], row, ~nothing)
    placed = _Placed(work=work, chosen=chosen, first=first)
    duration_ns = work.end_ns[chosen] - work.start_ns[chosen]
    draft.add_edges(placed.starts, placed.ends, duration_ns, EdgeKind.DEVICE, row)
    return placed


def _launch_edges(draft: _Draft, placed: _Placed, held: BoolColumn, *, start_of: IntColumn, end_of: IntColumn) -> None:
    """From each launch to its rows. ``held``: another stream's event, not the launch, set the row's start."""
    work = placed.work
    mine = np.flatnonzero(work.linked[placed.chosen])
    chosen, launch = placed.chosen[mine], work.launch[placed.chosen[mine]]
    # A row that began before its call returned was submitted inside the call: its latency counts from the start.
    early = work.start_ns[chosen] < work.launch_end_ns[chosen]
    source = np.where(early, start_of[launch], end_of[launch])
    waited_ns = work.start_ns[chosen] - draft_time(draft, source)
    # Where the stream was free before the row could have come, what it waited beyond that was not its stream.
    queued = _ready_ns(work)[chosen] <= work.stream_free_ns[chosen]
    bare_ns = np.minimum(np.maximum(waited_ns, 0), work.latency_ns)
    weight_ns = np.where(queued | held[mine] | ~work.first[chosen], bare_ns, np.maximum(waited_ns, 0))
    draft.add_edges(source, placed.starts[mine], weight_ns, EdgeKind.LAUNCH)


def draft_time(draft: _Draft, moments: IntColumn) -> IntColumn:
    """When the moments of a graph in the making were recorded."""
    return np.concatenate(draft.time_ns)[moments]


def _ready_ns(work: Work) -> IntColumn:
    """When each row could have begun on an idle stream: its latency after what its launch edge comes from."""
    return np.where(work.start_ns < work.launch_end_ns, work.launch_start_ns, work.launch_end_ns) + work.latency_ns


def _stream_edges(draft: _Draft, placed: _Placed) -> None:
    work, chosen = placed.work, placed.chosen
    order = np.argsort(work.stream[chosen], kind="stable")
    same = work.stream[chosen][order[1:]] == work.stream[chosen][order[:-1]]
    before, after = order[:-1][same], order[1:][same]
    ended_ns = work.end_ns[chosen][before]
    # Rows of one stream may overlap by a little (programmatic launches): then order alone is kept.
    gap_ns = np.maximum(work.start_ns[chosen][after] - ended_ns, 0)
    linked = work.linked[chosen][after]
    queued = ~linked | (_ready_ns(work)[chosen][after] <= ended_ns)
    overlap = work.start_ns[chosen][after] < ended_ns
    target = np.where(overlap, placed.ends[after], placed.starts[after])
    draft.add_edges(placed.ends[before], target, np.where(queued & ~overlap, gap_ns, 0), EdgeKind.STREAM)


def _event_edges(draft: _Draft, placed: _Placed, trace: Trace) -> BoolColumn:
    """A row launched after its thread told a stream to wait for an event follows what other streams were given before.

    The record does not say which event: of each other stream the last row that was handed over before the event wait
    counts, if it had ended by the time the row started. Answers which rows were handed over before such a row ended.
    """
    work, chosen = placed.work, placed.chosen
    held = np.zeros(chosen.size, dtype=bool)
    waits = calls_named(trace, EVENT_WAITS)
    if not waits.size or not chosen.size:
        return held
    launch_ns, stream = _handed_over(work, chosen), work.stream[chosen]
    asked_ns, previous_ns = _last_event_wait(trace, work, chosen, waits)
    for other in np.unique(stream):
        members = np.flatnonzero(stream == other)
        members = members[np.argsort(launch_ns[members], kind="stable")]
        given = np.searchsorted(launch_ns[members], asked_ns, side="left") - 1
        candidate = members[np.maximum(given, 0)]
        fits = (given >= 0) & (stream != other) & (asked_ns > previous_ns)
        fits &= work.end_ns[chosen][candidate] <= work.start_ns[chosen]
        target = np.flatnonzero(fits)
        draft.add_edges(
            placed.ends[candidate[target]],
            placed.starts[target],
            np.zeros(target.size, dtype=np.int64),
            EdgeKind.EVENT,
        )
        ended_ns = work.end_ns[chosen][candidate[target]]
        # An event that had come long before the row started is not what the row waited for.
        just = work.start_ns[chosen][target] - ended_ns <= work.latency_ns + SLACK_NS
        held[target] |= just & (ended_ns > work.launch_end_ns[chosen][target])
    return held


def _handed_over(work: Work, chosen: IntColumn) -> IntColumn:
    """When rows were launched; those without a launch in the file before everything else."""
    return np.where(work.linked[chosen], work.launch_start_ns[chosen], np.iinfo(np.int64).min)


def _last_event_wait(trace: Trace, work: Work, chosen: IntColumn, waits: RowNumbers) -> tuple[IntColumn, IntColumn]:
    """For each row: the last event wait on its launching thread before its launch, and its stream's previous launch."""
    rows, never = trace.rows, np.iinfo(np.int64).min
    asked_ns = np.full(chosen.size, never, dtype=np.int64)
    launch_ns, thread = _handed_over(work, chosen), rows.thread[np.maximum(work.launch[chosen], 0)]
    for code in np.unique(rows.thread[waits]):
        moments = rows.start_ns[waits[rows.thread[waits] == code]]
        mine = np.flatnonzero(thread == code)
        index = np.searchsorted(moments, launch_ns[mine], side="left") - 1
        asked_ns[mine] = np.where(index >= 0, moments[np.maximum(index, 0)], never)
    previous_ns = np.full(chosen.size, never, dtype=np.int64)
    stream = work.stream[chosen]
    order = np.lexsort((launch_ns, stream))
    same = stream[order[1:]] == stream[order[:-1]]
    previous_ns[order[1:][same]] = launch_ns[order[:-1][same]]
    return asked_ns, previous_ns


def _awaited(
    placed: _Placed, waits: Waits, *, end_of: IntColumn, blocked_ns: IntColumn
) -> tuple[IntColumn, RowNumbers]:
    """A wait ends after the last row of each stream that was handed over before it began and had ended when it ended.

    Answers the ends of those rows and the calls that waited for them. ``blocked_ns`` learns, for each waiting row, when
    the device let go of it; a wait that found the device idle keeps its own time.
    """
    work, chosen = placed.work, placed.chosen
    present = end_of[waits.rows] != NONE
    rows, start_ns, end_ns = waits.rows[present], waits.start_ns[present], waits.end_ns[present]
    launch_ns, stream = _handed_over(work, chosen), work.stream[chosen]
    moments, calls = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for code in np.unique(stream):
        members = np.flatnonzero(stream == code)
        members = members[np.argsort(launch_ns[members], kind="stable")]
        # A call that covers its own row waits for it: what it launched itself counts.
        given = np.searchsorted(launch_ns[members], start_ns, side="right") - 1
        candidate = members[np.maximum(given, 0)]
        ended_ns = work.end_ns[chosen][candidate]
        awaited = np.flatnonzero((given >= 0) & (ended_ns > start_ns) & (ended_ns <= end_ns + SLACK_NS))
        moments.append(placed.ends[candidate[awaited]])
        calls.append(rows[awaited])
        np.maximum.at(blocked_ns, rows[awaited], ended_ns[awaited])
    return np.concatenate(moments), np.concatenate(calls)


def _wait_edges(
    draft: _Draft,
    awaited: Sequence[tuple[IntColumn, RowNumbers]],
    *,
    end_of: IntColumn,
    blocked_ns: IntColumn,
    end_ns: IntColumn,
) -> None:
    """From every row that a call waited for to the call's end: what remained of the call after the last of them.

    A row that ended before the last one was not what the rest of the call waited for.
    """
    for moments, calls in awaited:
        rest_ns = np.maximum(end_ns[calls] - blocked_ns[calls], 0)
        draft.add_edges(moments, end_of[calls], rest_ns, EdgeKind.WAIT, calls)


def _chain_edges(draft: _Draft, chains: Sequence[Chain], firsts: Sequence[int], *, blocked_ns: IntColumn) -> None:
    """Each thread's own order, with the time between its moments; gaps in which another thread worked become order."""
    weights, waiting = [], []
    for chain in chains:
        inside = chain.owner[:-1] != NONE
        waiting.append(inside & (blocked_ns[np.maximum(chain.owner[:-1], 0)] != NONE))
        weights.append(np.where(waiting[-1], 0, np.diff(chain.time_ns)))
    _thread_edges(draft, chains, firsts, weights, waiting)
    for chain, first, weight_ns in zip(chains, firsts, weights, strict=True):
        number = np.arange(first, first + max(chain.time_ns.size - 1, 0), dtype=np.int64)
        owner = chain.owner[:-1]
        for kind, mine in ((EdgeKind.HOST, owner != NONE), (EdgeKind.GAP, owner == NONE)):
            draft.add_edges(number[mine], number[mine] + 1, weight_ns[mine], kind, owner[mine])


def _thread_edges(
    draft: _Draft,
    chains: Sequence[Chain],
    firsts: Sequence[int],
    weights: list[IntColumn],
    waiting: Sequence[BoolColumn],
) -> None:
    """A burst of one thread that lies inside a long step of another was started by it, and was waited for.

    That is how ``backward`` looks: the calling thread records nothing while the engine's thread issues operators. It
    may go on before that thread is done: then what it waited for is what the other did just before. A
    step in which the thread waits for the device (``waiting``) is explained already: what other threads do meanwhile
    is their own affair.
    """
    for mine, chain in enumerate(chains):
        if chain.time_ns.size < 2:
            continue
        quiet = np.flatnonzero((np.diff(chain.time_ns) >= BURST_NS) & (chain.owner[:-1] == NONE))
        begin = np.concatenate(([0], quiet + 1))
        finish = np.concatenate((quiet, [chain.time_ns.size - 1]))
        for other, around in enumerate(chains):
            if other == mine or around.time_ns.size < 2:
                continue
            slot = np.searchsorted(around.time_ns, chain.time_ns[begin], side="right") - 1
            inside = (slot >= 0) & (slot < around.time_ns.size - 1)
            slot = np.clip(slot, 0, around.time_ns.size - 2)
            # A burst that goes on when the step ends let go of it in passing: the step's thread wakes right then.
            passed = np.searchsorted(chain.time_ns, around.time_ns[slot + 1], side="right") - 1
            woke = around.time_ns[slot + 1] - chain.time_ns[passed] <= BURST_NS
            let_go = np.minimum(finish, passed)
            inside &= (let_go == finish) | (woke & (around.owner[slot] == NONE))
            inside &= (chain.time_ns[let_go] > chain.time_ns[begin]) & ~waiting[other][slot]
            hosts = np.flatnonzero(inside)
            if not hosts.size:
                continue
            # Of several bursts inside one step the first was started by it and the last was waited for; between them
            # the thread keeps its own gaps, which do not grow or shrink with what the bursts before them awaited.
            again = np.concatenate(([False], (np.diff(hosts) == 1) & (np.diff(slot[hosts]) == 0)))
            first, last = hosts[~again], hosts[np.concatenate((~again[1:], [True]))]
            source, target = firsts[other] + slot[first], firsts[mine] + begin[first]
            lag_ns = chain.time_ns[begin[first]] - around.time_ns[slot[first]]
            draft.add_edges(source, target, lag_ns, EdgeKind.THREAD)
            back_ns = around.time_ns[slot[last] + 1] - chain.time_ns[let_go[last]]
            draft.add_edges(firsts[mine] + let_go[last], firsts[other] + slot[last] + 1, back_ns, EdgeKind.THREAD)
            weights[other][slot[hosts]] = 0
            before = begin[first] - 1
            weights[mine][before[before >= 0]] = 0
