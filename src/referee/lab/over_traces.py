"""What do several recorded traces say together? The median over them with its interval, or one trace's own."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

import numpy as np

from referee.errors import CannotTell
from referee.lab.laboratory import Reading, Recorded
from referee.stats.interval import median_interval
from referee.stats.summary import FloatArray

_MOST_VALUES = 20_000
_TAIL = 0.025
ENOUGH_TRACES = 6
"""The median of fewer has no interval of 95 %."""


def typical(values: Sequence[tuple[Recorded, FloatArray]], what: str) -> Reading:
    """The median value: of one trace with its interval, of several as the median of their medians."""
    known = [(one, part) for one, part in values if part.size]
    if len(known) != 1:
        return over_traces([(one, float(np.median(part))) for one, part in known], what)
    (one, part), *_ = known
    found = median_interval(part[:_MOST_VALUES])
    figures = {"values": int(part.size)}
    return Reading(
        value=found.point,
        low=found.low,
        high=found.high,
        sources=(one.name,),
        figures=figures,
        taken=f"{part.size:,} rows of one trace",
    )


def over_traces(values: Sequence[tuple[Recorded, float | None]], what: str) -> Reading:
    """The median over traces with its interval; of a few, from the least to the most of them."""
    known = [(one, value) for one, value in values if value is not None]
    if not known:
        raise CannotTell(f"None of the traces has {what}.")
    numbers = np.array([value for _, value in known], dtype=np.float64)
    least, most = float(numbers.min()), float(numbers.max())
    low, high = least, most
    if numbers.size >= ENOUGH_TRACES:
        low, high = _order_interval(np.sort(numbers))
    return Reading(
        value=float(np.median(numbers)),
        low=low,
        high=high,
        sources=tuple(one.name for one, _ in known),
        figures={"traces": len(known), "least": least, "most": most},
        each=tuple((one.name, value) for one, value in known),
        taken=f"{len(known)} traces" if len(known) > 1 else "one trace",
    )


def _order_interval(ordered: FloatArray) -> tuple[float, float]:
    """The 95 % interval of the median of independent numbers: the ranks that a fair coin leaves out with 2.5 % each.

    Traces are samples of their own; they are not neighbours in a series, as blocks of one measurement are.
    """
    n = ordered.size
    below, rank = 0.0, 0
    while below + comb(n, rank) / 2**n <= _TAIL:
        below += comb(n, rank) / 2**n
        rank += 1
    rank = max(0, rank - 1)
    return float(ordered[rank]), float(ordered[n - 1 - rank])
