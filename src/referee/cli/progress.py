"""How far is it? A progress display on standard error: a live line on a terminal, a line per stage elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from referee.units import format_ns

if TYPE_CHECKING:
    from referee.bench.plan import Progress as BenchProgress

_REDRAW_S = 0.1


class Progress:
    """Stages with a share done and a few words. On a terminal one line is redrawn; elsewhere each stage is one line."""

    def __init__(self, *, enabled: bool = True) -> None:
        self._enabled = enabled
        self._live = enabled and sys.stderr.isatty()
        self._stage = ""
        self._started = time.monotonic()
        self._drawn = 0.0
        self._width = 0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """A named stage; its duration is shown when it ends."""
        self._stage, self._started = name, time.monotonic()
        self._draw(name, force=True)
        if self._enabled and not self._live:
            sys.stderr.write(f"referee: {name} …\n")
            sys.stderr.flush()
        try:
            yield
        finally:
            self._clear()

    def update(self, *, frac: float | None = None, words: str = "") -> None:
        """Redraw the live line: the share done in [0, 1], and a few words."""
        bar = ""
        if frac is not None:
            full = round(20 * min(1.0, max(0.0, frac)))
            bar = f" {'━' * full}{'╌' * (20 - full)}"
        elapsed = time.monotonic() - self._started
        self._draw(f"{self._stage}{bar} {elapsed:4.1f} s  {words}".rstrip())

    def bench(self, state: BenchProgress) -> None:
        """The callback that the measuring engine reports to."""
        known = f"{state.blocks:,} blocks · {format_ns(state.median_ns)}" if state.median_ns is not None else ""
        self.update(frac=state.frac, words=f"{state.stage}  {known}".rstrip())

    def iteration(self, done: int, of: int) -> None:
        """The callback that a capture reports to."""
        self.update(frac=done / of if of else None, words=f"iteration {done} of {of}")

    def _draw(self, line: str, *, force: bool = False) -> None:
        now = time.monotonic()
        if not self._live or (not force and now - self._drawn < _REDRAW_S):
            return
        self._drawn = now
        line = line[:119]
        sys.stderr.write("\r" + line.ljust(self._width))
        sys.stderr.flush()
        self._width = len(line)

    def _clear(self) -> None:
        if self._live:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()
            self._width = 0
