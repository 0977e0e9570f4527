"""How shall it be measured? The plan: budget, precision, warm-up, clocks. The defaults of measuring live here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from referee.errors import OptionError
from referee.units import NS_PER_MS, NS_PER_S

Step: TypeAlias = Callable[[], object]
"""What is measured: a callable without arguments whose result can be settled."""

ClockName = Literal["settled_amortised", "settled_per_call", "enqueue", "device"]

ALL_CLOCKS: tuple[ClockName, ...] = ("settled_amortised", "settled_per_call", "enqueue", "device")

MOST_BUDGET_NS = 24 * 3600 * NS_PER_S
"""No measurement is given more than a day."""

MIN_BLOCKS = 3
"""A number needs at least three timed blocks, even where they do not fit the budget."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How one callable is measured. Times are nanoseconds of wall clock.

    ``budget_ns`` holds warm-up, calibration, the headline clock and the other clocks together; it is kept to within
    one block, except that a first call, one more call of warm-up and three blocks are always made.
    ``min_ns``: how long the headline clock samples before a narrow interval may end it: slow episodes of a shared
    machine last up to half a second, and an interval that is narrow inside one is narrow about the wrong value.
    """

    budget_ns: int = 500 * NS_PER_MS
    min_ns: int = 350 * NS_PER_MS
    precision_frac: float = 0.005
    """Half-width of the median's interval as a share of the median at which sampling may end."""
    level: float = 0.95
    block_target_ns: int | None = None
    """Length of a timed block; ``None``: the device's own."""
    max_blocks: int = 100_000
    min_blocks: int = 30
    """Blocks before the interval may end the sampling."""
    warmup_ns: int = 5_000 * NS_PER_MS
    """Longest warm-up after the first call, of which at most a third of the budget is taken by calls shorter than a
    tenth of it."""
    warmup_min_ns: int = 20 * NS_PER_MS
    warmup_max_calls: int = 100_000
    clocks: tuple[ClockName, ...] = ALL_CLOCKS
    subtract_stolen: bool = True
    """Whether long calls that are never free of preemption are told less what other processes had; otherwise what the
    wall clock says stays, preempted or not."""
    side_frac: float = 0.10
    """Share of the budget for each clock beside the headline."""

    def __post_init__(self) -> None:
        if self.budget_ns <= 0:
            raise OptionError("A budget must be longer than nothing.", hint="Give for example 500ms.")
        if not 0 < self.level < 1:
            raise OptionError(f"A confidence level lies between 0 and 1, not {self.level}.")
        if self.precision_frac <= 0:
            raise OptionError("The precision to reach must be above zero.")
        if self.block_target_ns is not None and self.block_target_ns <= 0:
            raise OptionError("A block must be longer than nothing.")
        if self.max_blocks < MIN_BLOCKS:
            raise OptionError(f"At least {MIN_BLOCKS} blocks are needed for a number.")
        unknown = [clock for clock in self.clocks if clock not in ALL_CLOCKS]
        if unknown:
            raise OptionError(f"{unknown[0]!r} is not a clock.", hint=f"Clocks are {', '.join(ALL_CLOCKS)}.")


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a measurement is: the stage, the share of its time used, and what is known so far."""

    stage: str
    frac: float
    blocks: int = 0
    median_ns: float | None = None


ProgressCallback: TypeAlias = Callable[[Progress], None]


def no_progress(_: Progress) -> None:
    """Show nothing."""
