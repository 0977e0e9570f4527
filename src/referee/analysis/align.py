"""Which items of two sequences are the same? The shortest edit script, with runs of equal items taken together."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Sequence

MOST_EDITS = 1_500
"""Beyond this many edits two sequences have little order in common: what is left is paired by name, in order."""


def align(a: Sequence[Hashable], b: Sequence[Hashable], *, most_edits: int = MOST_EDITS) -> list[tuple[int, int]]:
    """Pairs of positions of equal items, in order on both sides (Myers' shortest edit script); every position once.

    Common beginnings and ends are taken first. Sequences too different for that are paired by name in order of
    occurrence, which may cross.
    """
    head = 0
    while head < min(len(a), len(b)) and a[head] == b[head]:
        head += 1
    tail = 0
    while tail < min(len(a), len(b)) - head and a[len(a) - 1 - tail] == b[len(b) - 1 - tail]:
        tail += 1
    middle_a, middle_b = a[head : len(a) - tail], b[head : len(b) - tail]
    found = _shortest_edit(middle_a, middle_b, most_edits=most_edits)
    if found is None:
        found = _by_occurrence(middle_a, middle_b)
    pairs = [(i, i) for i in range(head)]
    pairs += [(head + i, head + j) for i, j in found]
    pairs += [(len(a) - tail + i, len(b) - tail + i) for i in range(tail)]
    return pairs


def _by_occurrence(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    waiting: dict[Hashable, deque[int]] = defaultdict(deque)
    for j, item in enumerate(b):
        waiting[item].append(j)
    return [(i, waiting[item].popleft()) for i, item in enumerate(a) if waiting[item]]


def _shortest_edit(a: Sequence[Hashable], b: Sequence[Hashable], *, most_edits: int) -> list[tuple[int, int]] | None:
    """Myers' greedy algorithm; ``None`` where more than ``most_edits`` edits are needed."""
    n, m = len(a), len(b)
    if not n or not m:
        return []
    common = sum((Counter(a) & Counter(b)).values())
    if n + m - 2 * common > most_edits:
        return None
    reach = {1: 0}
    history: list[dict[int, int]] = []
    for edits in range(min(n + m, most_edits) + 1):
        history.append(dict(reach))
        for k in range(-edits, edits + 1, 2):
            down = k == -edits or (k != edits and reach.get(k - 1, -1) < reach.get(k + 1, -1))
            x = reach.get(k + 1, 0) if down else reach.get(k - 1, 0) + 1
            y = x - k
            while x < n and y < m and a[x] == b[y]:
                x, y = x + 1, y + 1
            reach[k] = x
            if x >= n and y >= m:
                return _walk_back(history, n, m)
    return None


def _walk_back(history: list[dict[int, int]], n: int, m: int) -> list[tuple[int, int]]:
    """The diagonal steps of the shortest edit script, from its end to its beginning."""
    pairs: list[tuple[int, int]] = []
    x, y = n, m
    for edits in range(len(history) - 1, -1, -1):
        reach, k = history[edits], x - y
        down = k == -edits or (k != edits and reach.get(k - 1, -1) < reach.get(k + 1, -1))
        before_k = k + 1 if down else k - 1
        before_x = reach.get(before_k, 0)
        before_y = before_x - before_k
        while x > before_x and y > before_y and x > 0 and y > 0:
            x, y = x - 1, y - 1
            pairs.append((x, y))
        if edits:
            x, y = before_x, before_y
    return pairs[::-1]
