"""Which operators of a run on the CPU would make the host wait on a device? Those that hand a value to Python.

On the CPU they cost next to nothing, because every value is there; on an asynchronous device the host waits in each of
them until all work before it is done. What they are is known by name, so a run on the CPU can tell.
"""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from referee.analysis.host_remedies import how_not_to_ask
from referee.analysis.owners import owners_at
from referee.analysis.study import Study
from referee.graph.calls import named
from referee.graph.owner import covering
from referee.records.finding import Finding
from referee.trace.columns import NONE, Kind, RowNumbers, Trace
from referee.trace.totals import top_rows
from referee.units import format_count

_ASKS = re.compile(
    r"^aten::(_local_scalar_dense|nonzero|equal|_?unique\w*|bincount|_linalg_check_errors|masked_select)$"
)
"""Operators whose result, or its shape, the host has to know."""
_REPEATS = re.compile(r"^aten::repeat_interleave$")
"""Asks where its numbers of repeats are a tensor: only then it calls another one of its name."""
_BESIDE = re.compile(r"^Optimizer\.(step|zero_grad)")
"""Frames in which counters are read that stay in host memory wherever the parameters are."""
_MOST_NAMES = 5


def asking_findings(study: Study) -> tuple[Finding, ...]:
    """What a trace without device rows tells of waits on a device."""
    trace = study.trace
    if study.totals.device_rows or study.totals.launches:
        return ()
    asking = _asking(trace)
    if not asking.size:
        return ()
    by = _outermost(trace, asking)
    counts = Counter(trace.name_of(row) for row in by.tolist())
    shown = ", ".join(f"{name} {format_count(count)} times" for name, count in counts.most_common(_MOST_NAMES))
    first = owners_at(trace, trace.rows.thread[asking[:1]], trace.rows.start_ns[asking[:1]])[0].python
    inner = Counter(trace.name_of(row) for row in asking.tolist())
    hows = dict.fromkeys(how for name, _ in inner.most_common() if (how := how_not_to_ask(name)))
    steps = f" in {len(trace.steps)} steps" if trace.steps else ""
    return (
        Finding(
            code="would-wait",
            severity="info",
            message=f"On a device the host would wait {format_count(int(asking.size))} times{steps} for a value or a "
            f"shape that its own tensors hold: {shown}{f'; the first at {first}' if first else ''}.",
            evidence={"waits": int(asking.size), **dict(counts.most_common(_MOST_NAMES))},
            hint="; ".join(hows),
        ),
    )


def _asking(trace: Trace) -> RowNumbers:
    """Rows of such operators, each wait once, apart from those of an optimizer's counters and of a loader."""
    rows = trace.rows
    operators = rows.of(Kind.OPERATOR)
    asking = operators[named(trace, operators, _ASKS)]
    repeats = operators[named(trace, operators, _REPEATS)]
    asking = np.union1d(asking, np.setdiff1d(repeats, top_rows(rows, repeats)))
    if not asking.size:
        return asking
    frames = rows.of(Kind.ANNOTATION, Kind.OPERATOR)
    frames = np.union1d(frames[named(trace, frames, _BESIDE)], rows.of(Kind.LOADER))
    return top_rows(rows, asking[covering(rows, frames, rows.start_ns[asking]) == NONE])


def _outermost(trace: Trace, members: RowNumbers) -> RowNumbers:
    """The operator at the top of the stack around each of these, on its thread."""
    rows = trace.rows
    top = top_rows(rows, rows.of(Kind.OPERATOR))
    found = members.copy()
    for code in np.unique(rows.thread[members]):
        mine = np.flatnonzero(rows.thread[members] == code)
        around = covering(rows, top[rows.thread[top] == code], rows.start_ns[members[mine]])
        found[mine] = np.where(around == NONE, members[mine], around)
    return found
