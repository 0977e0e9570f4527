"""What does each further call add? Windows of n and of 2n calls, and single calls on fresh inputs beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from referee.bench.plan import Step
from referee.bench.readings import Readings
from referee.device.protocol import Device, Settling

Window: TypeAlias = Callable[[int], object]
"""A way of timing: makes that many calls and settles them as it thinks fit."""

REPEATS = 7

_FRESH_BLOCK_NS = 100_000
_FRESH_MOST = 8


class FreshCalls:
    """Single settled calls on fresh inputs, and what settling alone costs.

    On a synchronous device several fresh calls make one reading: a single cold call of a few microseconds would be
    mostly the cost of being cold. Steps are kept alive: a cache that goes by identity would take a new input for one
    that has died.
    """

    def __init__(self, fresh: Callable[[], Step], *, device: Device) -> None:
        self.calls, self.settles = Readings(), Readings()
        self._fresh, self._device, self._alive = fresh, device, list[Step]()
        self._count = 1
        first_ns, _ = self._block()[0]  # compiles what a single call compiles
        if device.settling is Settling.SYNCHRONOUS:
            self._count = min(_FRESH_MOST, max(1, int(_FRESH_BLOCK_NS / max(1.0, first_ns))))

    def read(self) -> None:
        """One more reading of both."""
        call, settle = self._block()
        self.calls.add(call)
        self.settles.add(settle)

    def _block(self) -> tuple[tuple[float, int], tuple[float, int]]:
        """Time per call of fresh calls, and of settling their outputs once more, each with its switches."""
        device = self._device
        steps = [self._fresh() for _ in range(self._count)]
        self._alive += steps
        device.settle()
        before = device.involuntary_switches()
        start_ns = device.now_ns()
        outputs = [step() for step in steps]
        device.settle(outputs)
        done_ns = device.now_ns()
        between = device.involuntary_switches()
        again_ns = device.now_ns()
        device.settle(outputs)
        settled_ns = device.now_ns()
        after = device.involuntary_switches()
        call = (done_ns - start_ns) / self._count, between - before
        return call, ((settled_ns - again_ns) / self._count, after - between)


class Pairs:
    """Windows of n and of 2n calls, read in turn."""

    def __init__(self, window: Window, calls: int, *, device: Device) -> None:
        self._window, self._calls, self._device = window, calls, device
        self._single, self._double = Readings(), Readings()

    def read(self, *, beside: Callable[[], None] | None = None) -> None:
        """:data:`REPEATS` more of each; ``beside`` takes a reading of its own before each pair."""
        for _ in range(REPEATS):
            if beside is not None:
                beside()
            self._single.add(time_window(self._window, self._calls, device=self._device))
            self._double.add(time_window(self._window, 2 * self._calls, device=self._device))

    @property
    def slope_ns(self) -> float:
        """What each further call adds, by all readings so far."""
        return (self._double.typical() - self._single.typical()) / self._calls

    def had_time_for(self, call_ns: float) -> bool:
        """Whether no window of 2n calls was too short for so many of ``call_ns``, where few windows are clean.

        Windows of n calls that others all lengthened, and one of 2n that they let be, add nothing to each other
        although every call was made.
        """
        clean = self._single.undisturbed and self._double.undisturbed
        return not clean and self._double.least() >= 2 * self._calls * call_ns

    @property
    def ratio(self) -> float:
        """T(2n) over T(n)."""
        single_ns = self._single.typical()
        return self._double.typical() / single_ns if single_ns else float("inf")


def time_window(window: Window, count: int, *, device: Device) -> tuple[float, int]:
    """Nanoseconds of one window of ``count`` calls, and its involuntary switches; finishes what the window left."""
    before = device.involuntary_switches()
    start_ns = device.now_ns()
    kept = window(count)
    elapsed_ns = device.now_ns() - start_ns
    switches = device.involuntary_switches() - before
    del kept  # an output that only this harness would keep alive must not be run by the settle below
    device.settle()
    return float(elapsed_ns), switches
