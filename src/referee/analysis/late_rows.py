"""Does every row start equally long after its launch, with the device idle meanwhile? Then its clock is ahead.

A launch onto an idle device starts within 20 µs. Where the host is ahead rows start later, each by its own place in the
queue. Rows that are all late by the same time, on a device that had nothing else to do, are stamped by another clock,
or launches take a way that is longer than any known: what the device waited for cannot be told. (A device's clock that
is behind shows as rows before their launch.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from referee.analysis.idle import Gaps
from referee.graph.work import MOST_LATENCY_NS, Work
from referee.trace.columns import BoolColumn

FEWEST_ROWS = 10
"""Fewer launches may all have been late for a reason of their own."""
MOST_FRAC = 0.75
"""So many of the rows must be late by the same time: those behind another row have waited for it as well."""


def lag_ns(work: Work) -> int | None:
    """How long after its launch returned each row starts at least; ``None`` where that is no sign of another clock."""
    delay_ns = (work.start_ns - work.launch_end_ns)[work.first & work.linked]
    if delay_ns.size < FEWEST_ROWS or (least_ns := int(delay_ns.min())) <= MOST_LATENCY_NS:
        return None
    return least_ns if float(np.quantile(delay_ns, MOST_FRAC)) - least_ns <= MOST_LATENCY_NS else None


def late_ns(works: Sequence[Work], gaps: Sequence[Gaps]) -> int:
    """The idle time before rows that were launched by then, on devices whose rows are all late by the same time.

    Further rows of a launch are left out: what lies between the kernels of a graph is the graph's.
    """
    late = ((work, g) for work, g in zip(works, gaps, strict=True) if lag_ns(work) is not None)
    return sum(int((g.other_ns + g.dependency_ns)[_first(work, g)].sum()) for work, g in late)


def _first(work: Work, gaps: Gaps) -> BoolColumn:
    """Which intervals the first row of a launch ended."""
    position = np.searchsorted(work.rows, gaps.row)
    first: BoolColumn = (work.first & work.linked)[position]
    return first
