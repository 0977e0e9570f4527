"""Does the device's work repeat, and where does each round begin? Steps of a trace that marks none.

The names of the kernels, in order of their launches, form a sequence; a step is a period of it. Layers of a model
repeat as well, but what stands before and behind them does not: a period counts as a step if the sequence repeats from
its very first kernel to its last, and if the host copies or waits in each round, as training and serving loops do. This
is a heuristic, and ``steps_from`` says that it was used.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from referee.trace.columns import CALL_KINDS, CodeColumn, IntColumn, Kind, Links, Rows, Step
from referee.trace.kinds import name_flags

MIN_ROUNDS = 3
MIN_PERIOD = 5
"""Fewer kernels than this repeat inside a single operator."""
MATCH_FRAC = 0.9
"""Share of kernels that equal the one a period later: the rest are choices such as another algorithm for the first."""
EDGE_FRAC = 0.95
"""The same share in the first round and in the last. Of recorded traces, steps reach 1.00 and layers 0.27 to 0.89."""
MARKED_FRAC = 0.8
"""Share of rounds in which the host must copy or wait."""
MAX_CANDIDATES = 8
_WAIT = re.compile(r"\w*Synchronize")


def periodic_steps(rows: Rows, links: Links, *, names: Sequence[str]) -> tuple[Step, ...]:
    """The rounds of the kernel sequence, each from its first launch to the next round's; none if it does not repeat."""
    kernels = rows.of(Kind.KERNEL)
    kernels = kernels[links.launch_of[kernels] >= 0]
    order = np.argsort(rows.start_ns[links.launch_of[kernels]], kind="stable")
    launched = rows.start_ns[links.launch_of[kernels[order]]]
    sequence = rows.name[kernels[order]]
    marks = _marks(rows, links, names)
    for period in _periods(sequence):
        starts = launched[::period]
        if _is_marked(starts, marks):
            return _as_steps(rows, starts, last_is_whole=len(sequence) % period == 0)
    return ()


def _periods(sequence: CodeColumn) -> list[int]:
    """Periods at which the sequence repeats from end to end, longest first.

    Looked for between occurrences of the kernels that occur least often, but often enough.
    """
    counts = np.bincount(sequence) if len(sequence) else np.empty(0, np.int64)
    rare = np.flatnonzero(counts >= MIN_ROUNDS)
    found: set[int] = set()
    for name in rare[np.argsort(counts[rare], kind="stable")][:MAX_CANDIDATES]:
        period = int(np.median(np.diff(np.flatnonzero(sequence == name))))
        if period < MIN_PERIOD or len(sequence) < MIN_ROUNDS * period:
            continue
        same = sequence[:-period] == sequence[period:]
        if same.mean() >= MATCH_FRAC and min(same[:period].mean(), same[-period:].mean()) >= EDGE_FRAC:
            found.add(period)
    return sorted(found, reverse=True)


def _marks(rows: Rows, links: Links, names: Sequence[str]) -> IntColumn:
    """When the host launched copies or waited."""
    copies = links.launch_of[rows.of(Kind.MEMCPY)]
    calls = rows.of(*CALL_KINDS)
    waits = calls[name_flags(names, _WAIT)[rows.name[calls]]]
    return np.sort(rows.start_ns[np.concatenate((copies[copies >= 0], waits))])


def _is_marked(starts: IntColumn, marks: IntColumn) -> bool:
    per_round = np.diff(np.searchsorted(marks, starts))
    return bool((per_round > 0).mean() >= MARKED_FRAC)


def _as_steps(rows: Rows, starts: IntColumn, *, last_is_whole: bool) -> tuple[Step, ...]:
    """The rounds as steps; the last one ends with the last call, and is cut if it has fewer kernels than the others."""
    last = int(rows.end_ns[rows.of(*CALL_KINDS)].max())
    ends = [*starts[1:].tolist(), max(last, int(starts[-1]) + 1)]
    return tuple(
        Step(name=f"round {number}", start_ns=start, end_ns=end, cut=number == len(ends) - 1 and not last_is_whole)
        for number, (start, end) in enumerate(zip(starts.tolist(), ends, strict=True))
    )
