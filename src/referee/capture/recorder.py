"""When is the profiler switched on, and what has it seen? Drives one window after another along the plan.

The recorder counts iterations and knows no profiler: a :class:`Window` is one (``capture.torch_window``), or a fake in
the tests. Between cycles there is no window at all, so that waiting costs one integer comparison per iteration.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from referee.capture.schedule import Cycle, Plan
from referee.errors import UserError

_NEVER = sys.maxsize


class Window(Protocol):
    """One profiler session, for one cycle."""

    def start(self, iteration: int) -> None:
        """Switch on; ``iteration`` begins now."""

    def step(self) -> None:
        """The iteration has ended and the next begins."""

    def stop(self) -> None:
        """The iteration has ended; switch off."""

    def release(self) -> None:
        """Let go of what was recorded; nothing is asked of the window after that."""


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """What one window saw: its cycle, the complete iterations, their host times, and the one that was cut off."""

    cycle: Cycle
    number: int
    iterations: tuple[int, ...]
    step_ns: tuple[int, ...]
    incomplete: int | None


class Recorder:
    """Follows ``plan``: call :meth:`begin` once, :meth:`step` after each iteration, :meth:`finish` at the end.

    ``on_recorded`` is called once for each cycle of which anything was recorded, right after its window stopped and
    before the next iteration begins. ``settle`` is called before the first recorded iteration begins, so that earlier
    work does not run inside it.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        open_window: Callable[[Cycle], Window],
        on_recorded: Callable[[Recorded, Window], None],
        now_ns: Callable[[], int],
        settle: Callable[[], None] = lambda: None,
    ) -> None:
        self.plan = plan
        self.iteration = 0
        """The iteration that runs now; as many are complete."""
        self._cycles = enumerate(plan.cycles())
        self._number, self._cycle = next(self._cycles)
        self._open_window, self._on_recorded = open_window, on_recorded
        self._now_ns, self._settle = now_ns, settle
        self._window: Window | None = None
        self._owner: threading.Thread | None = None
        self._turning = threading.RLock()
        """Held while a window opens, turns or closes: the iterations of a pool's threads end at any moment of that."""
        self._elsewhere = False
        self._begun = False
        # So that a step() without a beginning is noticed, and costs nothing to look for later.
        self._wake = 0
        self._since = 0
        self._complete: list[int] = []
        self._step_ns: list[int] = []

    @property
    def waiting(self) -> bool:
        """Whether nothing is switched on in the iteration that runs now."""
        return self._window is None

    @property
    def begun(self) -> bool:
        """Whether iteration 0 has begun."""
        return self._begun

    def begin(self) -> None:
        """Iteration 0 begins now. Raises :class:`~referee.errors.UserError` the second time."""
        if self._begun:
            raise UserError("This capture has been used already.", hint="Make a new one for each loop.")
        self._begun = True
        self._enter()

    def step(self) -> None:
        """The iteration is complete, and the next begins."""
        self.iteration += 1
        if self.iteration >= self._wake:
            with self._turning:
                self._turn()

    def finish(self) -> None:
        """No more iterations; the one that runs now, if any, is not complete."""
        with self._turning:
            self._wake = _NEVER
            if self._window is None and not self._elsewhere:
                return
            self._refuse_elsewhere()
            begun = self.iteration if self.iteration >= self._cycle.first else None
            self._close(incomplete=begun)

    def abandon(self) -> None:
        """Switch off and drop what was recorded in this cycle."""
        with self._turning:
            window, self._window, self._wake = self._window, None, _NEVER
            if window is None:
                return
            # Switching off is the thread's own part. Where that has ended, it is done here: a profiler that is on for
            # ever crashes the process when that ends (torch 2.13).
            if self._is_own() or (self._owner is not None and not self._owner.is_alive()):
                window.stop()
            window.release()

    def _is_own(self) -> bool:
        """Whether this is the thread in which the open window was switched on."""
        return threading.current_thread() is self._owner

    def _refuse_elsewhere(self) -> None:
        """Torch's profiler sees the thread that switched it on, and what it saw is lost if another switches it off."""
        self._elsewhere = self._elsewhere or not self._is_own()
        if self._elsewhere:
            if self._wake == _NEVER:
                self.abandon()
            raise UserError(
                f"The iterations from {self._cycle.first} on did not all run in the thread in which recording began, "
                "and only that one is recorded: nothing of this cycle is kept.",
                hint="Put the loop and its capture into one thread, with as many iterations as the plan needs.",
            )

    def _turn(self) -> None:
        if not self._begun:
            self.iteration = 0
            raise UserError("step() was called before the capture began.", hint="Put the loop into its with block.")
        try:
            self._end_iteration()
            self._enter()
        except BaseException:
            if self._window is None:
                self._wake = _NEVER  # what could not be opened or written is not tried again
            raise

    def _end_iteration(self) -> None:
        if self._window is None and self.iteration > self._wake:
            # Another thread's iteration ended while this one's was about to be noticed.
            self._elsewhere = True
        if self._window is not None or self._elsewhere:
            self._refuse_elsewhere()
        if self._window is not None:
            done = self.iteration - 1
            if done >= self._cycle.first:
                self._step_ns.append(self._now_ns() - self._since)
                self._complete.append(done)
            if self.iteration == self._cycle.end:
                self._close(incomplete=None)
                self._next_cycle()
            else:
                if self.iteration == self._cycle.first:
                    self._settle()
                self._window.step()

    def _enter(self) -> None:
        if self._window is None and self.iteration == self._cycle.warmup_from:
            if self.iteration == self._cycle.first:
                self._settle()
            self._window = self._open_window(self._cycle)
            self._owner = threading.current_thread()
            self._window.start(self.iteration)
        if self._window is not None:
            self._wake = self.iteration + 1
        else:
            # A cycle that lies behind us is one that cannot come any more.
            self._wake = self._cycle.warmup_from if self._cycle.warmup_from > self.iteration else _NEVER
        self._since = self._now_ns()

    def _next_cycle(self) -> None:
        following = next(self._cycles, None)
        if following is not None:
            self._number, self._cycle = following

    def _close(self, *, incomplete: int | None) -> None:
        window, self._window = self._window, None
        assert window is not None
        window.stop()
        seen = Recorded(
            cycle=self._cycle,
            number=self._number,
            iterations=tuple(self._complete),
            step_ns=tuple(self._step_ns),
            incomplete=incomplete,
        )
        self._complete, self._step_ns = [], []
        try:
            if seen.iterations:
                self._on_recorded(seen, window)
        finally:
            window.release()
