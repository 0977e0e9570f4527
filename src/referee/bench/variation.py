"""Does the cost of the step itself vary? Calls that differ, calls that are slow now and then, a cost that drifts.

A block of several calls gives their mean. Where calls differ, the median of such means is the cost of no call, so that
the block is then a single call; what the rare slow calls take is told beside a median that does not see them; and a
cost that only grows has no median worth printing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from referee.device.protocol import Device, Settling
from referee.records.finding import Finding
from referee.records.measurement import CoreClock
from referee.stats.summary import FloatArray, Summary
from referee.units import format_frac, format_ns, format_ratio

VARIES_RATIO = 1.15
"""Upper over lower quartile of single calls from which on the calls themselves differ. What runs beside a steady step
lengthens some of its calls, not a quarter of them."""

_SINGLE_NS = 5_000
"""Shorter calls are not timed one by one: reading the clock would be more than one percent of them."""

_FEW_CALLS = 20
_MOST_CALLS = 400

_SLOW_FACTOR = 2.0
_SLOW_FRAC = 0.1
"""Blocks of twice the median and more that take this share of the time are worth a word."""

_DRIFT_PARTS = 5
_DRIFT_RATIO = 1.1
_DRIFT_FATAL_RATIO = 1.5
_DRIFT_LEAST = 50
_CLOCK_SHARE = 0.5
"""The core's clock that explains this share of a drift (of its logarithm) is what is named."""


def varies(series_ns: Sequence[int], *, device: Device) -> bool:
    """Do single calls (settled nanoseconds each, in order) differ so much that a block must not be their mean?

    Only the last few hundred calls count, and only on devices where a single call is its own time: elsewhere settling
    each call alone is another measurement.
    """
    recent = np.asarray(series_ns[1:][-_MOST_CALLS:], dtype=np.float64)
    if recent.size < _FEW_CALLS or device.settling is not Settling.SYNCHRONOUS:
        return False
    low, middle, high = np.quantile(recent, (0.25, 0.5, 0.75))
    return bool(middle >= _SINGLE_NS and high > VARIES_RATIO * low)


def check_variation(
    clean_ns: FloatArray, *, summary: Summary | None, calls: int, clock: CoreClock | None = None
) -> tuple[Finding, ...]:
    """What the median of the clean blocks (``calls`` calls each, in order of time) does not tell."""
    if summary is None or summary.median <= 0:
        return ()
    drift = _drift(clean_ns, clock)
    return drift or _slow_blocks(clean_ns, summary=summary, calls=calls)


def _drift(clean_ns: FloatArray, clock: CoreClock | None) -> tuple[Finding, ...]:
    """A cost that moves one way through the whole window: it depends on how often the step was called."""
    if clean_ns.size < _DRIFT_LEAST:
        return ()
    parts = _parts(clean_ns)
    steps = np.diff(parts)
    one_way = bool((steps > 0).all() or (steps < 0).all())
    least, most = min(parts[0], parts[-1]), max(parts[0], parts[-1])
    if not one_way or least <= 0 or most < _DRIFT_RATIO * least:
        return ()
    fatal = most >= _DRIFT_FATAL_RATIO * least
    what = "grew" if parts[-1] > parts[0] else "fell"
    slower = _slower(clock)
    return (
        Finding(
            code="drifting",
            severity="fatal" if fatal else "warning",
            message=f"From the first fifth of the blocks to the last the time of a call {what} steadily, from "
            f"{format_ns(parts[0])} to {format_ns(parts[-1])}: how long it takes depends on when it is asked.",
            evidence={
                "first_ns": parts[0],
                "last_ns": parts[-1],
                "ratio": parts[-1] / parts[0],
                "core_clock_ratio": slower,
                "threshold": _DRIFT_FATAL_RATIO if fatal else _DRIFT_RATIO,
                "blocks": int(clean_ns.size),
            },
            hint=_drift_hint(parts[-1] / parts[0], slower),
        ),
    )


def _parts(series: FloatArray) -> list[float]:
    return [float(np.median(part)) for part in np.array_split(series, _DRIFT_PARTS)]


def _slower(clock: CoreClock | None) -> float | None:
    """How much longer the core's chain took in the last fifth of the readings than in the first, where it was read."""
    if clock is None or len(clock.readings_ns) < _DRIFT_PARTS:
        return None
    parts = _parts(np.asarray(clock.readings_ns, dtype=np.float64))
    return parts[-1] / parts[0]


def _drift_hint(ratio: float, slower: float | None) -> str:
    """The step's own state, or the core's clock? The one that explains most of it, where the clock was read."""
    if slower is not None and np.log(slower) / np.log(ratio) >= _CLOCK_SHARE:
        hotter, rested = "It grows hot, or shares its power with others", "It was slowed, or at rest, before"
        return (
            f"The core's own clock did: a fixed chain of instructions took {format_ratio(slower)} as long at the end. "
            f"{hotter if slower > 1 else rested}; measure once it is steady, or with turbo turned off."
        )
    chip = ", or the chip changes its clock" if slower is None else ""
    return (
        f"The step keeps something from call to call that grows (a list, a cache, a graph){chip}: reset the state in "
        "the step. A longer budget does not mend it."
    )


def _slow_blocks(clean_ns: FloatArray, *, summary: Summary, calls: int) -> tuple[Finding, ...]:
    """Rare slow calls: the median does not see them, whoever waits does."""
    slow = clean_ns[clean_ns >= _SLOW_FACTOR * summary.median]
    total = float(clean_ns.sum())
    if summary.n < _FEW_CALLS or total <= 0 or slow.sum() < _SLOW_FRAC * total:
        return ()
    share, mean = float(slow.sum()) / total, total / summary.n
    unit = "calls" if calls == 1 else f"blocks of {calls} calls"
    return (
        Finding(
            code="slow-calls",
            severity="warning",
            message=f"{slow.size:,} of {summary.n:,} {unit} took twice the median or more, and {format_frac(share)} of "
            f"the time: the mean call takes {format_ns(mean)}, {format_ratio(mean / summary.median)} the median.",
            evidence={
                "slow": int(slow.size),
                "n": summary.n,
                "calls_per_block": calls,
                "share": share,
                "mean_ns": mean,
                "median_ns": summary.median,
                "threshold_frac": _SLOW_FRAC,
            },
            hint="If the step does something now and then (a refill, a log line), the mean is what it costs in the "
            "long run; else something else ran on these cores.",
        ),
    )
