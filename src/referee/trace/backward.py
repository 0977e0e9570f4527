"""Which backward operator belongs to which forward one? By the profiler's arrows, else by autograd's sequence number.

Kineto draws an arrow (``fwdbwd``) from the start of each forward operator to the start of the operator that ran its
gradient. Where a file has none, an operator that states a forward thread is matched to the last operator before it
that carries its sequence number and states none. What finds no counterpart is counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import msgspec
import numpy as np

from referee.trace.columns import NONE, IntColumn, Kind, RowNumbers, Trace
from referee.trace.numbers import exact_ns

FLOW = "fwdbwd"


class FlowEvent(Protocol):
    """What is needed of an arrow's end: phase, id, thread and time as the file writes them."""

    ph: Any
    id: Any
    pid: Any
    tid: Any
    ts: msgspec.Raw


@dataclass(frozen=True, eq=False, kw_only=True)
class BackwardLinks:
    """Links between forward and backward operators; arrays run over all rows, :data:`NONE` where there is nothing."""

    forward_of: RowNumbers
    """Of a backward operator: the row number of its forward operator."""
    backward_of: RowNumbers
    """Of a forward operator: the row number of its backward operator, of several the first."""
    sequence: IntColumn
    """Autograd's sequence number."""
    forward_thread: IntColumn
    """The profiler's number of the thread that ran forward; 0 says that this is the forward itself."""
    basis: Literal["flows", "sequence", "none"]
    unmatched: int = 0
    """Arrows with an end that meets no operator, or backward operators without a forward one."""

    @property
    def matched(self) -> int:
        """How many backward operators have their forward one."""
        return int((self.forward_of != NONE).sum())


def link_backward(trace: Trace, *, stated: Mapping[int, tuple[int, int]], flows: Sequence[FlowEvent]) -> BackwardLinks:
    """The links of a trace; ``stated``: operator row → its sequence number and forward thread, as its arguments say."""
    sequence = np.full(len(trace.rows), NONE, np.int64)
    thread = np.full(len(trace.rows), NONE, np.int64)
    for row, (number, forward_thread) in stated.items():
        sequence[row], thread[row] = number, forward_thread
    basis: Literal["flows", "sequence", "none"] = "flows" if flows else ("sequence" if stated else "none")
    pairs, unmatched = _by_flows(trace, flows, sequence) if flows else _by_sequence(trace, sequence, thread)
    forward_of = np.full(len(trace.rows), NONE, np.int64)
    backward_of = np.full(len(trace.rows), NONE, np.int64)
    for forward, backward in sorted(pairs, key=lambda pair: (pair[1], pair[0]), reverse=True):
        # From the last to the first: of several the first stays.
        forward_of[backward], backward_of[forward] = forward, backward
    return BackwardLinks(
        forward_of=forward_of,
        backward_of=backward_of,
        sequence=sequence,
        forward_thread=thread,
        basis=basis,
        unmatched=unmatched,
    )


def _by_flows(trace: Trace, flows: Sequence[FlowEvent], sequence: IntColumn) -> tuple[list[tuple[int, int]], int]:
    """Pairs of forward and backward rows, and how many arrows have an end that meets no operator."""
    starts = _operators_by_start(trace)
    codes = {labels: code for code, labels in enumerate(trace.threads)}
    ends: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for flow in flows:
        begins, meets = ends[str(flow.id)]
        thread, time = codes.get((str(flow.pid), str(flow.tid)), NONE), exact_ns(bytes(flow.ts))
        found = starts.get((thread, time - trace.base_ns), []) if time is not None else []
        # Several operators may start in one nanosecond, each inside the one before: autograd's are those with a number.
        numbered = [row for row in found if sequence[row] != NONE] or found
        (begins if flow.ph == "s" else meets).append(numbered[-1] if numbered else NONE)
    pairs, unmatched = [], 0
    for begins, meets in ends.values():
        if len(begins) != 1 or not meets or NONE in (*begins, *meets):
            unmatched += 1
        pairs += [(begins[0], row) for row in meets if begins and begins[0] != NONE and row != NONE]
    return pairs, unmatched


def _operators_by_start(trace: Trace) -> dict[tuple[int, int], list[int]]:
    """Thread and start → the operators that start there, outer ones first."""
    rows = trace.rows
    operators = rows.of(Kind.OPERATOR)
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    where = zip(rows.thread[operators].tolist(), rows.start_ns[operators].tolist(), operators.tolist(), strict=True)
    for thread, start, row in where:
        found[thread, start].append(row)
    return found


def _by_sequence(trace: Trace, sequence: IntColumn, thread: IntColumn) -> tuple[list[tuple[int, int]], int]:
    """Pairs of forward and backward rows, and how many backward operators have none.

    Row numbers are in order of start, so the last of equal numbers is the innermost. Threads count alike: where two of
    them use one number, it belongs to neither.
    """
    forwards: dict[int, list[int]] = defaultdict(list)
    backwards: dict[int, list[int]] = defaultdict(list)
    for row in np.flatnonzero(sequence != NONE).tolist():
        (forwards if thread[row] == 0 else backwards)[int(sequence[row])].append(row)
    pairs, unmatched = [], 0
    for number, rows in backwards.items():
        before = [row for row in forwards.get(number, ()) if row < rows[0]]
        if before and len({int(trace.rows.thread[row]) for row in before}) == 1:
            pairs.append((before[-1], rows[-1]))
        else:
            unmatched += 1
    return pairs, unmatched
