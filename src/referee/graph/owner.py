"""Who owned the host at this moment? The row, of any thread, that covers a moment and began last."""

from __future__ import annotations

import numpy as np

from referee.trace.columns import NONE, CodeColumn, IntColumn, RowNumbers, Rows

_BLOCK = 32
"""Rows looked at one by one where a few moments are asked about: a tree is kept over blocks of them."""
_CHUNK = 1 << 11
"""Blocks, or moments, looked at together: temporary arrays of half a megabyte."""


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
        return self.last_reaching(count, np.asarray(moment_ns))

    def last_reaching(self, count: IntColumn, moment_ns: IntColumn) -> RowNumbers:
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


def covering(rows: Rows, members: RowNumbers | CodeColumn, moment_ns: IntColumn) -> RowNumbers:
    """Which of ``members``, row numbers in order, covers each moment and began last? :data:`NONE` where none does.

    The answer of :class:`Enclosing` in a small part of its memory, for few moments among many rows.
    """
    found = np.full(moment_ns.size, NONE, dtype=np.int64)
    if not members.size:
        return found
    begun = np.searchsorted(rows.start_ns, moment_ns, side="right")
    count = np.searchsorted(members, begun.astype(members.dtype)).astype(np.int64)
    tree = Enclosing(np.empty(0, dtype=np.int64), _latest_ends(rows, members))
    for at in range(0, moment_ns.size, _CHUNK):
        part = slice(at, at + _CHUNK)
        moment, first = moment_ns[part], count[part] // _BLOCK
        position = _last_in_block(rows, members, first, limit=count[part], moment_ns=moment)
        open_ = np.flatnonzero(position == NONE)
        block = tree.last_reaching(first[open_], moment[open_])
        whole = open_[block != NONE]
        block = block[block != NONE]
        position[whole] = _last_in_block(rows, members, block, limit=(block + 1) * _BLOCK, moment_ns=moment[whole])
        found[part] = np.where(position == NONE, NONE, members[np.maximum(position, 0)])
    return found


def _latest_ends(rows: Rows, members: RowNumbers | CodeColumn) -> IntColumn:
    """The latest end of each block of members."""
    step = _BLOCK * _CHUNK
    parts = (rows.end_ns[members[at : at + step]] for at in range(0, members.size, step))
    return np.concatenate([np.maximum.reduceat(part, np.arange(0, part.size, _BLOCK)) for part in parts])


def _last_in_block(
    rows: Rows, members: RowNumbers | CodeColumn, block: IntColumn, *, limit: IntColumn, moment_ns: IntColumn
) -> RowNumbers:
    """The last position in each block, and below its limit, that ends after the moment; else :data:`NONE`."""
    position = block[:, None] * _BLOCK + np.arange(_BLOCK)[None, :]
    inside = position < np.minimum(limit, members.size)[:, None]
    ends_ns = rows.end_ns[members[np.minimum(position, members.size - 1)]]
    reaches = inside & (ends_ns > moment_ns[:, None])
    last = _BLOCK - 1 - np.argmax(reaches[:, ::-1], axis=1)
    return np.where(reaches.any(axis=1), block * _BLOCK + last, NONE)
