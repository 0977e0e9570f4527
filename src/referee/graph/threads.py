"""Which host threads matter? Those that launch device work, and those that carry the step frames."""

from __future__ import annotations

import numpy as np

from referee.trace.columns import BoolColumn, Kind, Trace


def launching_threads(trace: Trace) -> BoolColumn:
    """For each thread code: does the thread launch device work or carry step frames?"""
    rows = trace.rows
    flags = np.zeros(max(len(trace.threads), 1), dtype=bool)
    flags[rows.thread[np.flatnonzero(trace.links.is_launch)]] = True
    flags[rows.thread[rows.of(Kind.STEP)]] = True
    return flags
