"""What was the host doing, if it was neither waiting nor launching? Loader, allocator, one-off work, pauses.

Only the threads that launch device work, and those that carry the step frames, count: a loader or an allocator in a
helper thread holds nobody up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from referee.graph.calls import ALLOCATIONS, WAITS, calls_named, named
from referee.graph.owner import covering
from referee.graph.threads import launching_threads
from referee.trace.columns import CALL_KINDS, NONE, BoolColumn, IntColumn, Kind, RowNumbers, Trace
from referee.trace.intervals import EMPTY, IntervalSet, union
from referee.units import NS_PER_MS

HOST_KINDS = (
    Kind.OPERATOR,
    Kind.STEP,
    Kind.LOADER,
    Kind.ANNOTATION,
    Kind.PYTHON,
    Kind.RUNTIME,
    Kind.DRIVER,
)
"""The kinds of rows that show a host thread at work."""

SILENT_NS = 2 * NS_PER_MS
"""Eager Python starts or ends a row every few tens of microseconds; two milliseconds without one are something else."""

BLOCK_ROWS = 1 << 16
"""Rows looked at together: temporary arrays of a few megabytes whatever the size of the trace."""

SHRINKS = 10
"""An operator that takes ten times as long as it does later was doing something for the first time."""

FOLLOWERS = 5
"""How many rows after a silent stretch are looked at for signs of compilation."""

RECURS = 3
"""A stretch that is followed by the same compiled code this often is no compilation."""

COMPILED = re.compile(
    r"fused|fallback|compile|inductor|_dynamo|triton|tensorexpr|fusiongroup|nvrtc|cuModuleLoad|cuLibraryLoad",
    re.IGNORECASE,
)
"""Names of fused, fallback and compilation rows: what runs just after it was built."""


COMPILING = re.compile(r"dynamo_timed|compile_inner|compile_fx|compile_file|autotun", re.IGNORECASE)
"""Marks around compilation itself, whatever kind of row they are; what is compiled runs under other names."""


@dataclass(frozen=True, eq=False)
class Stretches:
    """Silent stretches of the launching threads, in order, and which of them are one-off costs."""

    start_ns: IntColumn
    end_ns: IntColumn
    one_off: BoolColumn


@dataclass(frozen=True, eq=False)
class Host:
    """What the launching threads did, as unions of intervals; later ones may overlap earlier ones."""

    loader: IntervalSet
    allocator: IntervalSet
    one_off: IntervalSet
    pause: IntervalSet


def observe_host(trace: Trace, *, silent: bool) -> Host:
    """The unions for the launching threads; silent stretches are looked for only if ``silent``."""
    rows = trace.rows
    threads = launching_threads(trace)

    def spans(members: RowNumbers) -> IntervalSet:
        members = members[threads[rows.thread[members]]]
        return union(rows.start_ns[members], rows.end_ns[members])

    stretches = silent_stretches(trace, threads) if silent else None
    return Host(
        loader=spans(rows.of(Kind.LOADER)),
        allocator=spans(calls_named(trace, ALLOCATIONS)),
        one_off=_part(stretches, of_one_off=True) if stretches else EMPTY,
        pause=_part(stretches, of_one_off=False) if stretches else EMPTY,
    )


def _part(stretches: Stretches, *, of_one_off: bool) -> IntervalSet:
    chosen = stretches.one_off == of_one_off
    return union(stretches.start_ns[chosen], stretches.end_ns[chosen])


def silent_stretches(trace: Trace, threads: BoolColumn) -> Stretches:
    """Stretches of 2 ms or more in which no row of the threads starts or ends, between their first and last row.

    Python's frames do not end a stretch: it is the same whether they were recorded or not. What holds it they may tell.

    A heuristic: a stretch is a *one-off* cost if a launch or another call that is no wait holds it, if the operator
    that holds it takes at most a tenth of the time later, or if compiled code follows it for the first time; every
    other stretch is a *pause*.
    """
    rows = trace.rows
    loud = _of_kinds(trace, threads, [kind for kind in HOST_KINDS if kind is not Kind.PYTHON])
    start_ns, end_ns = _quiet(rows.start_ns[loud], lambda: (rows.end_ns[block] for block in _blocks(loud)))
    one_off = np.zeros(start_ns.size, dtype=bool)
    if start_ns.size:
        middle_ns = (start_ns + end_ns) // 2
        one_off = (
            _held_by_call(trace, _of_kinds(trace, threads, HOST_KINDS), middle_ns)
            | _held_by_shrinking_operator(trace, loud, middle_ns)
            | _compiled_after(trace, loud, middle_ns=middle_ns, end_ns=end_ns)
        )
    return Stretches(start_ns=start_ns, end_ns=end_ns, one_off=one_off)


def _of_kinds(trace: Trace, threads: BoolColumn, kinds: Sequence[Kind]) -> RowNumbers:
    """The rows of these kinds on these threads."""
    wanted = np.zeros(256, dtype=bool)
    wanted[[int(kind) for kind in kinds]] = True
    return np.flatnonzero(wanted[trace.rows.kind] & threads[trace.rows.thread])


def _blocks(values: RowNumbers) -> list[RowNumbers]:
    """The rows of a large trace are many, and those that are wanted few: they are looked for in blocks."""
    return [values[at : at + BLOCK_ROWS] for at in range(0, values.size, BLOCK_ROWS)]


def _quiet(start_ns: IntColumn, ends_ns: Callable[[], Iterator[IntColumn]]) -> tuple[IntColumn, IntColumn]:
    """Stretches of at least 2 ms without a start or an end; ``start_ns`` is sorted, ``ends_ns`` hands out blocks."""
    if not start_ns.size:
        return start_ns, start_ns
    wide = np.concatenate(
        [at + _wide(start_ns[at : at + BLOCK_ROWS + 1]) for at in range(0, start_ns.size, BLOCK_ROWS)]
    )
    last_ns = max(*(int(block.max()) for block in ends_ns()), int(start_ns[-1]))
    low, high = start_ns[wide], start_ns[wide + 1]
    if last_ns - int(start_ns[-1]) >= SILENT_NS:
        low, high = np.append(low, start_ns[-1]), np.append(high, last_ns)
    # Only ends that fall into a wide stretch between starts can cut it: sort those alone.
    marks = np.unique(np.concatenate((low, high, *(_inside(block, low, high) for block in ends_ns()))))
    begin, finish = marks[:-1], marks[1:]
    slot = np.searchsorted(low, begin, side="right") - 1
    keep = (finish - begin >= SILENT_NS) & (slot >= 0)
    keep &= finish <= high[np.maximum(slot, 0)] if low.size else False
    return begin[keep], finish[keep]


def _wide(start_ns: IntColumn) -> IntColumn:
    return np.flatnonzero(np.diff(start_ns) >= SILENT_NS)


def _inside(times_ns: IntColumn, low: IntColumn, high: IntColumn) -> IntColumn:
    """The times that lie in one of the sorted intervals."""
    if not low.size:
        return times_ns[:0]
    slot = np.searchsorted(low, times_ns, side="right") - 1
    return times_ns[(slot >= 0) & (times_ns < high[np.maximum(slot, 0)])]


def _innermost(trace: Trace, host: RowNumbers, moment_ns: IntColumn) -> RowNumbers:
    """The row that covers each moment and began last, over all threads of ``host``, or :data:`NONE`."""
    return covering(trace.rows, host, moment_ns)


def _held_by_call(trace: Trace, host: RowNumbers, moment_ns: IntColumn) -> BoolColumn:
    """The innermost row is a call that is no wait, a frame of a compiler, or a mark that a compiler sets."""
    holder = _innermost(trace, host, moment_ns)
    safe = np.maximum(holder, 0)
    call = np.isin(trace.rows.kind[safe], CALL_KINDS) & ~named(trace, safe, WAITS)
    frame = (trace.rows.kind[safe] == Kind.PYTHON) & named(trace, safe, COMPILED)
    held: BoolColumn = (holder != NONE) & (call | frame | named(trace, safe, COMPILING))
    return held


def _held_by_shrinking_operator(trace: Trace, host: RowNumbers, moment_ns: IntColumn) -> BoolColumn:
    """The innermost operator is at least ten times as long as the median of its later instances."""
    rows = trace.rows
    operators = host[rows.kind[host] == Kind.OPERATOR]
    holder = _innermost(trace, operators, moment_ns) if operators.size else np.full(moment_ns.size, NONE)
    shrinks = np.zeros(moment_ns.size, dtype=bool)
    by_name = operators[np.argsort(rows.name[operators], kind="stable")]
    names = rows.name[by_name]
    for row in np.unique(holder[holder != NONE]):
        low, high = np.searchsorted(names, (rows.name[row], rows.name[row] + 1))
        twins = by_name[low:high]
        twins = twins[np.searchsorted(rows.start_ns[twins], rows.end_ns[row]) :]
        if twins.size:
            later_ns = float(np.median(rows.end_ns[twins] - rows.start_ns[twins]))
            shrinks[holder == row] = rows.end_ns[row] - rows.start_ns[row] >= SHRINKS * later_ns
    return shrinks


def _compiled_after(trace: Trace, host: RowNumbers, *, middle_ns: IntColumn, end_ns: IntColumn) -> BoolColumn:
    """One of the next rows is compiled code that does not follow such stretches again and again."""
    rows = trace.rows
    after = np.searchsorted(rows.start_ns[host], end_ns, side="left")[:, None] + np.arange(FOLLOWERS)[None, :]
    follower_rows = host[np.minimum(after, host.size - 1)]
    compiled = named(trace, follower_rows.ravel(), COMPILED).reshape(after.shape) & (after < host.size)
    found = compiled.any(axis=1)
    follower = rows.name[follower_rows[np.arange(middle_ns.size), compiled.argmax(axis=1)]]
    _, code, times = np.unique(np.where(found, follower, NONE), return_inverse=True, return_counts=True)
    once: BoolColumn = found & (times[code] < RECURS)
    return once
