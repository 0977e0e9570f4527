"""What did the host do once a wait had let it go? Idle time that the wait and a second cause make together.

A step that reads its loss and then fetches a batch leaves the device idle while it fetches. Without the read the host
would have fetched meanwhile; with a loader that is ready there would be nothing to fetch. Either alone takes that time
off. The causes give it to the wait, once; a reader who cannot do without the wait needs the other half.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from referee.analysis.hosts import SILENT_NS, observe_host
from referee.analysis.idle import Gaps
from referee.trace.columns import NONE, IntColumn, Trace
from referee.trace.intervals import IntervalSet, overlap_ns

CAUSES = ("loader", "allocator", "one_off", "pause")
"""What else the host can be at; a moment that several claim counts for the first."""


def behind_waits(trace: Trace, gaps: Sequence[Gaps]) -> dict[str, int]:
    """By second cause: how much of the synchronised idle time it would take off alone, in ns."""
    found = dict.fromkeys(CAUSES, 0)
    if not any((g.wait != NONE).any() for g in gaps):
        return found
    longest_ns = max((int((g.host_end_ns - g.start_ns).max(initial=0)) for g in gaps), default=0)
    host = observe_host(trace, silent=longest_ns >= SILENT_NS)
    for g in gaps:
        left_ns = np.where(g.wait == NONE, 0, g.synchronised_ns)
        for name in CAUSES:
            part_ns = np.minimum(_after_wait(trace, g, getattr(host, name)), left_ns)
            left_ns = left_ns - part_ns
            found[name] += int(part_ns.sum())
    return found


def _after_wait(trace: Trace, gaps: Gaps, doing: IntervalSet) -> IntColumn:
    """How much of each interval lies in ``doing``, from when its wait let go."""
    let_go_ns = trace.rows.end_ns[np.maximum(gaps.wait, 0)]
    begin_ns = np.minimum(np.maximum(gaps.start_ns, let_go_ns), gaps.host_end_ns)
    return overlap_ns(begin_ns, gaps.host_end_ns, within=doing)
