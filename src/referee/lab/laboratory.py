"""What does an experiment have at hand? A device and a clock, pairs in turn, and traces that others recorded.

Experiments ask for these and for nothing else of the machine, so that a test can put a device or an operator with a
planted cost in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from referee.anatomy.timing import Pair, Timed, time_pairs
from referee.bench.measure import measure
from referee.bench.plan import Plan
from referee.device.host import load_torch
from referee.device.protocol import Device
from referee.device.registry import open_device
from referee.errors import CannotTell
from referee.records.estimate import Estimate
from referee.records.finding import Scalar
from referee.records.measurement import Measurement
from referee.records.trace_report import TraceReport
from referee.trace.columns import Trace
from referee.units import NS_PER_MS

PLAN = Plan(budget_ns=300 * NS_PER_MS, min_ns=150 * NS_PER_MS)


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """One trace that somebody recorded, and the report on it."""

    name: str
    trace: Trace
    report: TraceReport


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What an experiment found: a number with its interval, and what else is worth knowing."""

    value: float
    low: float
    high: float
    note: str = ""
    figures: Mapping[str, Scalar] = field(default_factory=dict)
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Laboratory:
    """A place to run experiments in. ``operators`` stands for ``torch``: a test may plant costs in its functions."""

    device: Device
    plan: Plan = PLAN
    recorded: Sequence[Recorded] = ()
    operators: Any = field(default_factory=load_torch)
    open: Callable[[str], Device] = open_device
    step: Callable[[Device], Callable[[], object]] | None = None
    """The step that the clocks are tried on, where it is not a matrix product."""

    def time(self, step: Callable[[], object], *, device: Device | None = None) -> Measurement:
        """Measure ``step``; raises :class:`~referee.errors.CannotTell` where there is no number."""
        found = measure(step, device=device or self.device, plan=self.plan)
        if found.median_ns is None:
            why = next((f.message for f in found.findings if f.severity == "fatal"), "no block was undisturbed.")
            raise CannotTell(why)
        return found

    def pairs(self, pairs: Sequence[Pair], *, device: Device | None = None) -> tuple[Estimate, ...]:
        """What each pair's upper side costs beyond its lower, in nanoseconds, all timed in turn."""
        costs = time_pairs(pairs, device=device or self.device, budget_ns=self.plan.budget_ns)
        return tuple(cost.hot for cost in costs)

    def ratio(self, upper: Timed, lower: Timed) -> Reading:
        """The time of ``upper`` over that of ``lower``; the ends of the interval are those of the worst case."""
        top, bottom = self.pairs((Pair("upper", upper), Pair("lower", lower)))
        return over(top, bottom)


def over(top: Estimate, bottom: Estimate) -> Reading:
    """One estimate divided by another. Raises :class:`~referee.errors.CannotTell` where the lower may be nothing."""
    if bottom.low <= 0:
        raise CannotTell("What it is held against cannot be told from nothing.")
    return Reading(
        value=top.point / bottom.point,
        low=top.low / bottom.high,
        high=top.high / bottom.low,
        figures={"upper_ns": top.point, "lower_ns": bottom.point},
    )


def less(reading: Reading, by: float) -> Reading:
    """The reading with ``by`` taken off."""
    return Reading(
        value=reading.value - by, low=reading.low - by, high=reading.high - by, figures=dict(reading.figures)
    )


def estimated(estimate: Estimate, **figures: Scalar) -> Reading:
    """An estimate as a reading."""
    return Reading(value=estimate.point, low=estimate.low, high=estimate.high, figures=figures)


def counted(value: float, **figures: Scalar) -> Reading:
    """What was counted is exact: the interval is the number itself."""
    return Reading(value=float(value), low=float(value), high=float(value), figures=figures)


def share(checks: Mapping[str, bool]) -> Reading:
    """The share of checks that came out true, each named with its outcome."""
    return counted(sum(checks.values()) / len(checks), **checks)
