"""Which iterations will be recorded? The schedule as a pure state machine; no profiler, no clock, no torch.

An iteration is one call of the step, numbered from 0 as in ``ProfilerStep#0``. A plan is made of cycles: warm-up
iterations, in which the profiler is on but what it sees is dropped, then active ones, which are recorded and become
one file. Between cycles nothing is switched on at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import takewhile

from referee.errors import OptionError
from referee.records.capture import SchedulePlan


class Phase(Enum):
    """What happens in an iteration."""

    IDLE = "idle"
    """Nothing is switched on."""
    WARMUP = "warmup"
    """The profiler is on; what it sees is dropped. It pays the profiler's own first-time costs."""
    RECORD = "record"
    """Recorded; more of this cycle follows."""
    SAVE = "save"
    """Recorded, and the last of its cycle: the file is written when it ends."""


@dataclass(frozen=True, kw_only=True)
class Cycle:
    """One cycle: iterations ``[warmup_from, first)`` warm up, ``[first, end)`` are recorded into one file."""

    warmup_from: int
    first: int
    end: int

    def phase(self, iteration: int) -> Phase:
        """What this cycle does in ``iteration``; idle outside it."""
        if not self.warmup_from <= iteration < self.end:
            return Phase.IDLE
        if iteration < self.first:
            return Phase.WARMUP
        return Phase.SAVE if iteration == self.end - 1 else Phase.RECORD


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """What a plan would do in a run of ``iterations``: nothing is executed.

    ``recorded`` are the iterations that end up in files, one inner tuple for each file; ``needed`` is the number of
    iterations after which the last planned cycle is complete (``None`` for a plan without end).
    """

    iterations: int
    recorded: tuple[tuple[int, ...], ...]
    profiled: int
    needed: int | None
    cut: bool
    """The run ends in the middle of a cycle."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A schedule that has been checked. Build one with :meth:`of` or :meth:`at`; read it with the other methods."""

    record: SchedulePlan

    @classmethod
    def of(
        cls,
        *,
        skip: int = 0,
        wait: int = 1,
        warmup: int = 1,
        active: int = 3,
        repeat: int = 1,
        skip_first_wait: bool = False,
    ) -> Plan:
        """A plan as ``torch.profiler.schedule`` takes it. ``repeat=0`` goes on without end."""
        for name, value in (("skip", skip), ("wait", wait), ("warmup", warmup), ("repeat", repeat)):
            if value < 0:
                raise OptionError(f"The schedule's {name} is {value}; it cannot be negative.")
        _check_active(active)
        return cls(
            record=SchedulePlan(
                skip=skip, wait=wait, warmup=warmup, active=active, repeat=repeat, skip_first_wait=skip_first_wait
            )
        )

    @classmethod
    def at(cls, steps: tuple[int, ...], *, warmup: int = 1, active: int = 1) -> Plan:
        """A plan that records ``active`` iterations from each of ``steps`` on; those that touch share one file."""
        if not steps:
            raise OptionError("The list of iterations to record is empty.")
        if min(steps) < 0:
            raise OptionError(f"Iteration {min(steps)} cannot be recorded: iterations are numbered from 0.")
        if warmup < 0:
            raise OptionError(f"The schedule's warmup is {warmup}; it cannot be negative.")
        _check_active(active)
        ordered = tuple(sorted(set(steps)))
        return cls(record=SchedulePlan(skip=0, wait=0, warmup=warmup, active=active, repeat=1, steps=ordered))

    @classmethod
    def from_record(cls, record: SchedulePlan) -> Plan:
        """The checked plan of a saved one."""
        if record.steps:
            return cls.at(record.steps, warmup=record.warmup, active=record.active)
        return cls.of(
            skip=record.skip,
            wait=record.wait,
            warmup=record.warmup,
            active=record.active,
            repeat=record.repeat,
            skip_first_wait=record.skip_first_wait,
        )

    def cycles(self) -> Iterator[Cycle]:
        """The cycles in order; without end where ``repeat`` is 0."""
        return self._listed() if self.record.steps else self._regular()

    def _regular(self) -> Iterator[Cycle]:
        plan = self.record
        at, done = plan.skip, 0
        while plan.repeat == 0 or done < plan.repeat:
            wait = 0 if done == 0 and plan.skip_first_wait else plan.wait
            first = at + wait + plan.warmup
            yield Cycle(warmup_from=at + wait, first=first, end=first + plan.active)
            at, done = first + plan.active, done + 1

    def _listed(self) -> Iterator[Cycle]:
        free_from = 0
        steps = self.record.steps
        place = 0
        while place < len(steps):
            first, end = steps[place], steps[place] + self.record.active
            while place + 1 < len(steps) and steps[place + 1] <= end:
                place += 1
                end = steps[place] + self.record.active
            # A warm-up cannot reach into the cycle before, nor before the first iteration.
            yield Cycle(warmup_from=max(free_from, first - self.record.warmup), first=first, end=end)
            free_from, place = end, place + 1

    def phase(self, iteration: int) -> Phase:
        """What happens in ``iteration``?"""
        for cycle in self.cycles():
            if iteration < cycle.end:
                return cycle.phase(iteration)
        return Phase.IDLE

    def recorded(self, iterations: int) -> tuple[int, ...]:
        """The iterations that a run of ``iterations`` records, in order."""
        return tuple(number for cycle in self.dry_run(iterations).recorded for number in cycle)

    def needed(self) -> int | None:
        """After how many iterations is the last planned cycle complete? ``None`` for a plan without end."""
        if self.record.steps:
            return self.record.steps[-1] + self.record.active
        if self.record.repeat == 0:
            return None
        *_, last = self.cycles()
        return last.end

    def dry_run(self, iterations: int) -> DryRun:
        """What would a run of ``iterations`` record, and into how many files?"""
        begun = list(takewhile(lambda cycle: cycle.warmup_from < iterations, self.cycles()))
        recorded = tuple(tuple(range(c.first, min(c.end, iterations))) for c in begun if c.first < iterations)
        profiled = sum(min(c.end, iterations) - c.warmup_from for c in begun)
        return DryRun(
            iterations=iterations,
            recorded=recorded,
            profiled=profiled,
            needed=self.needed(),
            cut=bool(begun) and begun[-1].end > iterations,
        )

    def length(self, iterations: int | None) -> int:
        """How many iterations to run: ``iterations`` if given, else what the plan needs.

        Raises :class:`~referee.errors.OptionError` for a plan without end and no number, and for one that would
        record nothing.
        """
        length = self.needed() if iterations is None else iterations
        if length is None:
            raise OptionError(
                "This plan repeats without end, so the number of iterations must be given.",
                hint="Give the number of iterations, or a repeat above 0.",
            )
        if not self.recorded(length):
            raise OptionError(nothing_recorded(self, length), hint=f"Run at least {self.first_recorded() + 1}.")
        return length

    def first_recorded(self) -> int:
        """The first iteration that is recorded."""
        return next(self.cycles()).first


def nothing_recorded(plan: Plan, iterations: int) -> str:
    """The sentence that says why a run of ``iterations`` holds nothing."""
    were = f"{iterations} iteration{'s are' if iterations != 1 else ' is'}"
    return f"{were} run, but the plan records from iteration {plan.first_recorded()} on (the first is iteration 0)."


def _check_active(active: int) -> None:
    if active < 1:
        raise OptionError(f"The schedule's active is {active}: nothing would be recorded.", hint="Give at least 1.")
