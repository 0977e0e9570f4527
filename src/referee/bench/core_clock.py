"""How fast did the core run meanwhile? A fixed chain of dependent instructions, read between the blocks.

A core turns its clock up and down by what its neighbours on the chip draw, and takes everything that is bound by it
along: on a shared machine two quiet runs a minute apart differ by some percent for that alone. Where the kernel does
not tell the clock (a guest sees none), a chain that waits for nothing but itself does: it follows the clock in ratio.
In one process, over 345 seconds, a tiny add varied by 1.7 % (standard deviation, 15 % of the readings off by more than
3 %), and by 0.3 % in units of such a chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from referee.device.protocol import Device
from referee.records.finding import Finding
from referee.records.measurement import CoreClock, Measurement
from referee.records.provenance import NOT_READ
from referee.stats.summary import FloatArray, as_array, summarise
from referee.units import NS_PER_MS, format_frac, format_ns

EVERY_NS = 5 * NS_PER_MS
"""The clock changes over tens of milliseconds and more; a reading takes some microseconds."""

MOVED_RATIO = 1.02
"""The clock moved while it was measured: from the lowest decile of the smoothed readings to the highest."""

_SMOOTHED = 9
"""Neighbours whose median is held against others: single readings scatter by a percent, and one may be preempted."""

_SAME_CHAIN = ("chip.architecture", "chip.model", "software.python")
"""Another chip, or another build of the hash, takes another time for the same chain at the same clock."""

_HOLD_STILL = "Turbo turned off, or the governor performance, holds it still"

_MIN_READINGS = 3
_MIN_TO_JUDGE = 20


@runtime_checkable
class SeesCoreClock(Protocol):
    """A device whose work runs on this thread's core, and that can tell how fast that is."""

    def chain_ns(self) -> int | None:
        """How long a fixed chain of dependent instructions takes now, in nanoseconds; ``None`` where none is kept."""


@dataclass(frozen=True, slots=True)
class ClockReading:
    """One reading: after how many blocks it was taken, and how long the chain took."""

    done: int
    chain_ns: int


class ClockReader:
    """Reads the core's clock between blocks, now and then; nothing on a device that has none to read."""

    def __init__(self, device: Device) -> None:
        self._chain_ns = device.chain_ns if isinstance(device, SeesCoreClock) else None
        self._due_ns: int | None = None
        self._readings: list[ClockReading] = []

    def between_blocks(self, *, done: int, now_ns: int) -> None:
        """``done`` blocks have been timed, and it is ``now_ns``: read the clock if it is time to."""
        if self._chain_ns is None or (self._due_ns is not None and now_ns < self._due_ns):
            return
        chain_ns = self._chain_ns()
        if chain_ns is None:
            self._chain_ns = None
            return
        self._due_ns = now_ns + EVERY_NS
        self._readings.append(ClockReading(done, chain_ns))

    @property
    def readings(self) -> tuple[ClockReading, ...]:
        """In the order in which they were taken."""
        return tuple(self._readings)


def core_clock(readings: Sequence[ClockReading], samples_ns: FloatArray, *, usable: Sequence[bool]) -> CoreClock | None:
    """What the readings say of the core, and the estimates at one clock.

    Each sample that counts is divided by the chain's time around it, so that a clock that moves meanwhile moves
    neither floor nor median. Over 80 processes, quiet and beside two and four busy ones, the floors so brought to one
    clock varied by 0.6 to 0.9 % (standard deviation), where the floors themselves did by 0.9 to 1.5 %. ``None`` with
    fewer than three readings, or without a sample that counts.
    """
    if len(readings) < _MIN_READINGS or not any(usable):
        return None
    taken = as_array([reading.chain_ns for reading in readings])
    smoothed = _smoothed(taken)
    around = np.interp(np.arange(samples_ns.size) + 0.5, [reading.done for reading in readings], smoothed)
    chain_ns = float(np.median(taken))
    at_one = summarise((samples_ns * chain_ns / around)[np.array(usable, dtype=bool)])
    low, high = np.quantile(smoothed, (0.1, 0.9))
    return CoreClock(
        chain_ns=chain_ns,
        low_ns=float(low),
        high_ns=float(high),
        floor_ns=at_one.floor,
        median_ns=at_one.median,
        after_blocks=tuple(reading.done for reading in readings),
        readings_ns=tuple(reading.chain_ns for reading in readings),
    )


def read_again(clock: CoreClock, samples_ns: FloatArray, *, usable: Sequence[bool]) -> CoreClock | None:
    """What the readings of ``clock`` give for these samples: ``clock`` itself, unless either was edited."""
    readings = map(ClockReading, clock.after_blocks, clock.readings_ns)
    return core_clock(tuple(readings), samples_ns, usable=usable)


def clock_ratio(then: Measurement, here: Measurement) -> float | None:
    """The chain's time here / then: above 1 the core is slower here.

    ``None`` where either was not read, and between two chips or two Pythons, whose chains are not the same.
    """
    if then.core_clock is None or here.core_clock is None or then.core_clock.chain_ns <= 0:
        return None
    stated = ((then.provenance.value(path), here.provenance.value(path)) for path in _SAME_CHAIN)
    if any(NOT_READ not in pair and pair[0] != pair[1] for pair in stated):
        return None
    return here.core_clock.chain_ns / then.core_clock.chain_ns


def ratio_at_one_clock(then: Measurement, here: Measurement) -> float | None:
    """The floors here / then, as if the core had run at one clock; ``None`` where either record does not tell."""
    slower = clock_ratio(then, here)
    if not slower or then.core_clock is None or here.core_clock is None or not then.core_clock.floor_ns:
        return None
    return here.core_clock.floor_ns / then.core_clock.floor_ns / slower


def check_clock(clock: CoreClock | None) -> tuple[Finding, ...]:
    """Did the core change its clock while it was measured?"""
    if clock is None or len(clock.readings_ns) < _MIN_TO_JUDGE or clock.high_ns / clock.low_ns <= MOVED_RATIO:
        return ()
    moved = format_frac(clock.high_ns / clock.low_ns - 1)
    return (
        _moved(
            clock.low_ns,
            clock.high_ns,
            readings=len(clock.readings_ns),
            message=f"The core's clock moved by {moved} while this was measured: a fixed chain of instructions took "
            f"{format_ns(clock.low_ns)} to {format_ns(clock.high_ns)}.",
            hint=f"The step's times moved with it. {_HOLD_STILL}; "
            "runs can be held against each other at one clock by core_clock.chain_ns of their records.",
        ),
    )


def check_clock_between(taken: Sequence[Measurement]) -> tuple[Finding, ...]:
    """Did the core run at another clock for one measurement than for the next, of those that are held together?"""
    read = [(found.core_clock.chain_ns, found.name) for found in taken if found.core_clock is not None]
    if len(read) < 2 or max(read)[0] / min(read)[0] <= MOVED_RATIO:
        return ()
    (fast_ns, fast), (slow_ns, slow) = min(read), max(read)
    apart = format_frac(slow_ns / fast_ns - 1)
    return (
        _moved(
            fast_ns,
            slow_ns,
            readings=len(read),
            message=f"The core's clock lay {apart} apart between the points: at {slow} a fixed chain of instructions "
            f"took {format_ns(slow_ns)}, at {fast} {format_ns(fast_ns)}.",
            hint=f"Differences of less than {apart} between points may be the clock's. {_HOLD_STILL}.",
        ),
    )


def _moved(low_ns: float, high_ns: float, *, readings: int, message: str, hint: str) -> Finding:
    return Finding(
        code="core-clock-moved",
        severity="info",
        message=message,
        evidence={
            "chain_low_ns": low_ns,
            "chain_high_ns": high_ns,
            "ratio": high_ns / low_ns,
            "threshold": MOVED_RATIO,
            "readings": readings,
        },
        hint=hint,
    )


def _smoothed(readings: FloatArray) -> FloatArray:
    """The median of each reading's neighbourhood; at the ends what lies on the one side counts twice."""
    around = min(_SMOOTHED // 2, readings.size - 1)
    padded = np.pad(readings, around, mode="reflect")
    medians: FloatArray = np.median(np.lib.stride_tricks.sliding_window_view(padded, 2 * around + 1), axis=1)
    return medians
