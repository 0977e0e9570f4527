"""What of the step could be recorded once and replayed, and what stands in the way, at which line?

A graph can hold launches between two points where the host looks at the device: a wait, a copy from pageable memory,
or an operator whose shapes change from step to step ends what can be recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from referee.analysis.owners import owners_at
from referee.graph.threads import launching_threads
from referee.graph.waits import find_waits
from referee.graph.work import Work
from referee.records.tables import Blocker, Graphable, Owner
from referee.trace.columns import Kind, RowNumbers, Trace
from referee.trace.details import Details
from referee.trace.totals import top_rows

MOST_BLOCKERS = 20
MIN_LAUNCHES = 2
"""A region of one launch gains nothing from a graph."""


def graphable(trace: Trace, works: Sequence[Work], details: Details | None) -> Graphable | None:
    """The stretches of launches without a wait between them, and the blockers by call and owner; ``None`` without
    launches. A wait after the last launch of the trace blocks nothing."""
    rows = trace.rows
    launches = np.flatnonzero(trace.links.is_launch)
    if not launches.size:
        return None
    waits = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *(find_waits(trace, work).rows for work in works)]))
    waits = waits[launching_threads(trace)[rows.thread[waits]]]
    waits = waits[rows.start_ns[waits] < rows.start_ns[launches[-1]]]
    region = np.searchsorted(rows.start_ns[waits], rows.start_ns[launches], side="right")
    sizes = np.bincount(region)
    worth = sizes[sizes >= MIN_LAUNCHES]
    blockers = [*_waiting(trace, waits), *_changing_shapes(trace, details)]
    return Graphable(
        regions=int(worth.size),
        launches=int(launches.size),
        launches_inside=int(worth.sum()),
        longest=int(sizes.max()),
        blockers=tuple(sorted(blockers, key=lambda b: -b.count)[:MOST_BLOCKERS]),
    )


def _waiting(trace: Trace, waits: RowNumbers) -> list[Blocker]:
    rows = trace.rows
    copies = set(trace.links.launch_of[rows.of(Kind.MEMCPY)].tolist())
    owners = owners_at(trace, rows.thread[waits], rows.start_ns[waits])
    counts = Counter(
        ("copy" if wait in copies else "wait", trace.name_of(wait), owner)
        for wait, owner in zip(waits.tolist(), owners, strict=True)
    )
    return [Blocker(kind=kind, name=name, owner=owner, count=count) for (kind, name, owner), count in counts.items()]


def _changing_shapes(trace: Trace, details: Details | None) -> list[Blocker]:
    """Top operators at one place of the steps whose input shapes are not the same in all steps."""
    if details is None or len(trace.steps) < 2:
        return []
    rows = trace.rows
    top = top_rows(rows, rows.of(Kind.OPERATOR))
    start_ns = rows.start_ns[top]
    sequences = [top[(start_ns >= step.start_ns) & (start_ns < step.end_ns)] for step in trace.steps if not step.cut]
    usual = Counter(tuple(rows.name[s].tolist()) for s in sequences).most_common(1)
    alike = [s for s in sequences if usual and tuple(rows.name[s].tolist()) == usual[0][0]]
    changing: Counter[str] = Counter()
    for place in zip(*(s.tolist() for s in alike), strict=True):
        shapes = {details.operators[row].dims for row in place if row in details.operators}
        if len(shapes) > 1:
            changing[trace.name_of(place[0])] += 1
    nobody = Owner(operator=None, python=None, annotation=None)
    return [Blocker(kind="shape", name=name, owner=nobody, count=count) for name, count in changing.items()]
