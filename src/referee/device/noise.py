"""What disturbs a virtual measurement, exactly as scripted? The virtual clock and the noise of the fake devices.

Two kinds. What comes from the machine is bound to the time at which it happens and belongs to the
:class:`VirtualClock`: :class:`Preemption` (the processor is taken away: an involuntary switch) and :class:`Slowdown`
(everything takes longer for a while, with no switch of ours: a neighbour on the same core or memory bus). What comes
with the operation is a :class:`Noise`: :class:`Jitter`, :class:`SlowFirst`, :class:`Bimodal`, :class:`AR1`. All are
deterministic given their seed, and all results are integers.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from referee.errors import OptionError


@dataclass(frozen=True)
class Preemption:
    """The processor is taken away at ``at_ns`` for ``length_ns``."""

    at_ns: int
    length_ns: int

    @staticmethod
    def every(period_ns: int, *, length_ns: int, first_ns: int | None = None) -> Iterator[Preemption]:
        """A preemption every ``period_ns`` for ever, the first one at ``first_ns`` (default: after one period)."""
        if period_ns <= length_ns:
            raise OptionError("Preemptions must end before the next one begins.")
        first = period_ns if first_ns is None else first_ns
        return (Preemption(first + k * period_ns, length_ns) for k in count())


@dataclass(frozen=True)
class Slowdown:
    """From ``start_ns`` to ``end_ns`` the host takes ``percent`` of its undisturbed time (150: half as long again)."""

    start_ns: int
    end_ns: int
    percent: int


class VirtualClock:
    """A clock that moves only when told to, in integer nanoseconds.

    ``preemptions`` (ordered, possibly without end) and ``slowdowns`` (not overlapping) act on computing time only:
    :meth:`advance` meets them, :meth:`wait_until` does not, except that a waiter whose processor is taken when its wait
    ends goes on when the preemption is over (no involuntary switch: it was not running).
    """

    def __init__(
        self, *, start_ns: int = 0, preemptions: Iterable[Preemption] = (), slowdowns: Iterable[Slowdown] = ()
    ) -> None:
        self.now_ns = start_ns
        self.switches = 0
        """Involuntary context switches so far."""
        self._preemptions = iter(preemptions)
        self._next = next(self._preemptions, None)
        self._slowdowns = tuple(sorted(slowdowns, key=lambda s: s.start_ns))

    def advance(self, work_ns: int) -> None:
        """Compute for ``work_ns`` of undisturbed time."""
        if work_ns < 0:
            raise OptionError("A clock cannot go backwards.")
        while work_ns > 0:
            self._skip_missed()
            if self._next is not None and self._next.at_ns == self.now_ns:
                self.now_ns += self._next.length_ns
                self.switches += 1
                self._next = next(self._preemptions, None)
                continue
            percent, until_ns = self._speed()
            fits_ns = None if until_ns is None else (until_ns - self.now_ns) * 100 // percent
            if fits_ns is None or work_ns <= fits_ns:
                self.now_ns += work_ns * percent // 100
                return
            assert until_ns is not None
            self.now_ns = until_ns
            work_ns -= fits_ns

    def wait_until(self, time_ns: int) -> None:
        """Sleep until ``time_ns``, if that lies ahead."""
        if time_ns <= self.now_ns:
            return
        self.now_ns = time_ns
        while self._next is not None and self._next.at_ns < self.now_ns:
            self.now_ns = max(self.now_ns, self._next.at_ns + self._next.length_ns)
            self._next = next(self._preemptions, None)

    def _skip_missed(self) -> None:
        """Forget preemptions whose time passed while we were away."""
        while self._next is not None and self._next.at_ns < self.now_ns:
            self._next = next(self._preemptions, None)

    def _speed(self) -> tuple[int, int | None]:
        """The percentage in force now, and when that or the peace ends."""
        percent, ends = 100, [] if self._next is None else [self._next.at_ns]
        for slow in self._slowdowns:
            if slow.start_ns <= self.now_ns < slow.end_ns:
                percent = slow.percent
                ends.append(slow.end_ns)
            elif slow.start_ns > self.now_ns:
                ends.append(slow.start_ns)
                break
        return percent, min(ends, default=None)


@dataclass(frozen=True)
class Delay:
    """What is added to one operation; may be negative (the sum is cut at zero time)."""

    host_ns: int = 0
    device_ns: int = 0

    def __add__(self, other: Delay) -> Delay:
        return Delay(self.host_ns + other.host_ns, self.device_ns + other.device_ns)


class Noise(Protocol):
    """A source of delays for the operations of one device."""

    def delay(self, *, index: int, now_ns: int) -> Delay:
        """The delay of operation number ``index`` (from 0), issued at ``now_ns``."""


@dataclass(frozen=True)
class Jitter:
    """Added times taken in turn, again from the start when used up; an empty sequence adds nothing."""

    host_ns: Sequence[int] = ()
    device_ns: Sequence[int] = ()

    def delay(self, *, index: int, now_ns: int) -> Delay:
        """The values at ``index`` in the two sequences."""
        host = self.host_ns[index % len(self.host_ns)] if self.host_ns else 0
        return Delay(host, self.device_ns[index % len(self.device_ns)] if self.device_ns else 0)


@dataclass(frozen=True)
class SlowFirst:
    """The first ``calls`` operations cost more: a compilation, a lazy initialisation, a cold cache."""

    host_ns: int
    device_ns: int = 0
    calls: int = 1

    def delay(self, *, index: int, now_ns: int) -> Delay:
        """The cost while ``index`` is among the first."""
        return Delay(self.host_ns, self.device_ns) if index < self.calls else Delay()


@dataclass
class _Draws:
    """A seeded series that can be read by position: what was drawn is kept."""

    seed: int
    phi: float = 0.0
    normal: bool = True
    _values: list[float] = field(default_factory=list)
    _random: random.Random | None = None

    def at(self, index: int) -> float:
        """Value number ``index``; standard normal with AR(1) coefficient ``phi``, or uniform in [0, 1)."""
        if self._random is None:
            self._random = random.Random(self.seed)
        while len(self._values) <= index:
            if not self.normal:
                self._values.append(self._random.random())
                continue
            shock = self._random.gauss(0.0, 1.0)
            if self._values:
                shock = self.phi * self._values[-1] + (1 - self.phi**2) ** 0.5 * shock
            self._values.append(shock)
        return self._values[index]


class Bimodal:
    """A share ``slow_frac`` of the operations costs more, at random; ``slot_ns`` long stretches share one mode.

    Without ``slot_ns`` each operation draws for itself.
    """

    def __init__(
        self, *, host_ns: int = 0, device_ns: int = 0, slow_frac: float, seed: int = 0, slot_ns: int | None = None
    ) -> None:
        self._slow = Delay(host_ns, device_ns)
        self._slow_frac = slow_frac
        self._slot_ns = slot_ns
        self._draws = _Draws(seed, normal=False)

    def delay(self, *, index: int, now_ns: int) -> Delay:
        """The slow mode's cost, or nothing."""
        place = index if self._slot_ns is None else now_ns // self._slot_ns
        return self._slow if self._draws.at(place) < self._slow_frac else Delay()


class AR1:
    """Correlated noise: a stationary AR(1) series of mean 0, standard deviation ``sigma_ns``, coefficient ``phi``.

    One value per operation, or one per ``slot_ns`` of virtual time (all operations issued in that stretch share it):
    with a slot as long as a block the *blocks* are an AR(1) series. Acts on the host, or with ``on_device`` on the
    device part.
    """

    def __init__(
        self, *, phi: float, sigma_ns: float, seed: int = 0, slot_ns: int | None = None, on_device: bool = False
    ) -> None:
        if not -1 < phi < 1:
            raise OptionError(f"phi must lie between -1 and 1, not {phi}.")
        self._sigma_ns = sigma_ns
        self._slot_ns = slot_ns
        self._on_device = on_device
        self._draws = _Draws(seed, phi=phi)

    def delay(self, *, index: int, now_ns: int) -> Delay:
        """The value of the series at this operation or slot."""
        place = index if self._slot_ns is None else now_ns // self._slot_ns
        value = round(self._sigma_ns * self._draws.at(place))
        return Delay(device_ns=value) if self._on_device else Delay(host_ns=value)
