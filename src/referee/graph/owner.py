"""Who owned the host at this moment? The row, of any thread, that covers a moment and began last."""

from __future__ import annotations

import numpy as np

from referee.trace.columns import NONE, IntColumn, RowNumbers


class Enclosing:
    """Which interval, the one that began last, covers a moment? Built once, asked for many moments at a time.

    The intervals are sorted by start, enclosing ones before enclosed ones; they need not nest. A tree of maxima over
    the ends is descended for all moments at once: about 20 array steps for a million intervals.
    """

    def __init__(self, start_ns: IntColumn, end_ns: IntColumn) -> None:
        self._start_ns = start_ns
        levels = [end_ns]
        while levels[-1].size > 1:
            ends = levels[-1]
            if ends.size % 2:
                ends = np.append(ends, np.iinfo(np.int64).min)
            levels.append(np.maximum(ends[0::2], ends[1::2]))
        self._levels = levels

    def at(self, moment_ns: IntColumn) -> RowNumbers:
        """Position of the last interval with start <= moment < end, or :data:`NONE`."""
        count = np.searchsorted(self._start_ns, moment_ns, side="right").astype(np.int64)
        if not self._start_ns.size:
            return np.full(count.shape, NONE, dtype=np.int64)
        return self._last_reaching(count, np.asarray(moment_ns))

    def _last_reaching(self, count: IntColumn, moment_ns: IntColumn) -> RowNumbers:
        """The last position below ``count`` whose end lies after the moment."""
        node = np.full(count.shape, NONE, dtype=np.int64)
        node_level = np.zeros(count.shape, dtype=np.int64)
        left = count.copy()
        # Upwards: the prefix [0, count) is a set of whole nodes, one at most per level, the rightmost at the bottom.
        for level, ends in enumerate(self._levels):
            odd = (left % 2 == 1) & (node == NONE)
            candidate = np.maximum(left - 1, 0)
            hit = odd & (ends[np.minimum(candidate, ends.size - 1)] > moment_ns)
            node = np.where(hit, candidate, node)
            node_level = np.where(hit, level, node_level)
            left //= 2
        # Downwards: into the right child where it reaches, else into the left one.
        for level in range(len(self._levels) - 1, 0, -1):
            here = (node != NONE) & (node_level == level)
            if not here.any():
                continue
            ends = self._levels[level - 1]
            right = node * 2 + 1
            reaches = (right < ends.size) & (ends[np.minimum(right, ends.size - 1)] > moment_ns)
            node = np.where(here, np.where(reaches, right, node * 2), node)
            node_level = np.where(here, level - 1, node_level)
        return node
