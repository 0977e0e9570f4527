"""What is paid before the clock counts? Calls until the series is steady, with their cost kept apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from referee.bench.beside import children_beside
from referee.bench.plan import Plan, Progress, ProgressCallback, Step, no_progress
from referee.device.protocol import Device
from referee.records.measurement import Warmup
from referee.stats.steady import WINDOW, is_steady, steady_after
from referee.units import format_ns

_CHECK_GROWTH = 1.5
"""The series is checked when it has grown by half, so that checking stays linear in the number of calls."""

_COUNTED_CALLS = 64
"""Counters are read around this many calls at most: reading them costs more than a small operation."""

_LONG_FRAC = 0.1
"""A call that takes more than this share of the budget is long: two windows of five of them would use it up."""


@dataclass(frozen=True, kw_only=True)
class WarmedUp:
    """The warm-up as a record, and the series it stands on (settled nanoseconds of each call)."""

    record: Warmup
    series_ns: tuple[int, ...]
    once_ns: int = 0
    """Time of first-time costs in calls made here: the first call, and what later calls compiled."""

    compiling_calls: int = 0
    """In how many calls something was compiled, the first one included."""

    @property
    def one_ns(self) -> int:
        """What a call took at last: the least of the last few, because a preemption only lengthens one."""
        return min(self.series_ns[1:][-WINDOW:] or self.series_ns)


@dataclass(frozen=True, kw_only=True)
class FirstCall:
    """The very first call of a step, settled: its time, what it compiled, and what it returned."""

    ns: int
    compiles: int
    output: object
    children_frac: float | None = None
    """What child processes used of a processor before it; ``None`` where that was not read."""


def first_call(step: Step, *, device: Device) -> FirstCall:
    """Call ``step`` for the first time, before an observer calls it and takes its first-time costs."""
    children, counts = children_beside(device), device.counters()
    start_ns = device.now_ns()
    output = step()
    device.settle(output)
    end_ns = device.now_ns()
    compiles = moved_compilations(counts, device.counters())
    return FirstCall(ns=end_ns - start_ns, compiles=compiles, output=output, children_frac=children)


def warm_up(
    step: Step,
    *,
    device: Device,
    plan: Plan,
    progress: ProgressCallback = no_progress,
    spent_ns: int = 0,
    first: FirstCall | None = None,
) -> WarmedUp:
    """Call ``step``, settled each time, until the series is steady or the plan's limits are reached.

    ``first`` is the first call where it was made before: it heads the series, and does not count against the limits.
    Long calls (over a tenth of the budget) are compared in windows of one: two in a row that agree are steady. The
    compile time is the time of those calls in which a counter of compilations moved, less the last call's time.
    """
    # Had it been made here, the first call would be in the time elapsed, from which it is then taken off again.
    begin_ns = device.now_ns() - spent_ns - (0 if first is None else first.ns)
    series = _Series(device, first)
    window, next_check, steady = WINDOW, 2, False
    while True:
        elapsed_ns = series.call(step) - begin_ns
        calls, first_ns = len(series.ns), series.ns[0]
        long = series.ns[-1] > _LONG_FRAC * plan.budget_ns
        window = 1 if long else WINDOW
        limit_ns = _limit_ns(plan, first_ns=first_ns, long=long)
        progress(Progress(stage="warm-up", frac=min(1.0, elapsed_ns / limit_ns)))
        if calls >= next_check or long:
            next_check = max(calls + 1, int(calls * _CHECK_GROWTH))
            # The first call is never part of the comparison: it always pays something of its own.
            enough = long or elapsed_ns - first_ns >= min(plan.warmup_min_ns, plan.budget_ns // 10)
            steady = enough and is_steady(series.ns[1:], window=window)
        if steady or calls >= plan.warmup_max_calls or (calls >= 2 and elapsed_ns >= limit_ns):
            return series.warmed_up(steady=steady)


class _Series:
    """Settled calls, one after the other, and which of them compiled something. ``first`` was made before."""

    def __init__(self, device: Device, first: FirstCall | None) -> None:
        self.ns: list[int] = [] if first is None else [first.ns]
        self._device, self._first_is_ours = device, first is None
        self._compiles = 0 if first is None else first.compiles
        self._compiled_ns = [first.ns] if first is not None and first.compiles else []
        self._counts = device.counters()

    def call(self, step: Step) -> int:
        """Call once more, settle, and give the time at which that was done; what the step raises gets a note."""
        device = self._device
        start_ns = device.now_ns()
        try:
            device.settle(step())
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_words_on_interrupt(self.ns)) from None
        except (Exception, SystemExit) as error:
            error.add_note(f"The step raised this {_words_on_interrupt(self.ns)}.")
            raise
        end_ns = device.now_ns()
        self.ns.append(end_ns - start_ns)
        if len(self.ns) <= _COUNTED_CALLS:
            self._count()
        return end_ns

    def _count(self) -> None:
        """Did the last call compile something?"""
        before, self._counts = self._counts, self._device.counters()
        moved = moved_compilations(before, self._counts)
        if moved:
            self._compiles += moved
            self._compiled_ns.append(self.ns[-1])

    def warmed_up(self, *, steady: bool) -> WarmedUp:
        """The record of these calls."""
        over_ns = [max(0, ns - self.ns[-1]) for ns in self._compiled_ns]
        later_ns = sum(over for over, ns in zip(over_ns, self._compiled_ns, strict=True) if ns != self.ns[0])
        return WarmedUp(
            record=Warmup(
                calls=len(self.ns),
                total_ns=sum(self.ns),
                first_call_ns=self.ns[0],
                steady=steady,
                compiles=self._compiles,
                compile_ns=sum(over_ns) if self._compiles else None,
                steady_after=steady_after(self.ns),
            ),
            series_ns=tuple(self.ns),
            once_ns=(self.ns[0] if self._first_is_ours else 0) + later_ns,
            compiling_calls=len(self._compiled_ns),
        )


def _words_on_interrupt(series: Sequence[int]) -> str:
    """What is known when the user interrupts a warm-up: its calls are no measurement, but he has waited for them."""
    if not series:
        return "in the first call"
    last = f", the last {format_ns(series[-1])}" if len(series) > 1 else ""
    return (
        f"in the warm-up after {len(series)} call{'s' * (len(series) > 1)} "
        f"(the first took {format_ns(series[0])}{last}): no block was complete, so there is no number"
    )


def _limit_ns(plan: Plan, *, first_ns: int, long: bool) -> int:
    """When the warm-up ends at the latest, counted from its start; the first call is not counted against it."""
    return first_ns + (plan.warmup_ns if long else min(plan.warmup_ns, plan.budget_ns // 3))


def moved_compilations(before: Mapping[str, int], after: Mapping[str, int]) -> int:
    """By how much did the counters of compilations move between two readings?"""
    return sum(by for name, by in moved_counters(before, after).items() if is_compilation(name))


def moved_counters(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """Which counters moved between two readings, and by how much?"""
    return {name: value - before.get(name, 0) for name, value in after.items() if value != before.get(name, 0)}


def is_compilation(name: str) -> bool:
    """Does this counter count compilations?"""
    return name in ("compile.frames", "UncachedCompile") or name.startswith("recompile")
