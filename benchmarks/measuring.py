"""What the scripts on measuring share: busy neighbours, the operations, results kept in a file, and a plain table.

The full-size runs take many minutes of a quiet machine. Each script can therefore be run in slices: with
``--append FILE`` every result is a line of that file, what is there already is not measured again, ``--seconds`` ends
a slice, and the table is made of the whole file.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

STATES = {"quiet": 0, "busy 2": 2, "busy 4": 4}
"""How many other processes spin, by what a table calls it."""


def _spin() -> None:
    while True:
        pass


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes in an endless loop while the block runs."""
    context = multiprocessing.get_context("fork")
    running = [context.Process(target=_spin, daemon=True) for _ in range(processes)]
    for process in running:
        process.start()
    try:
        yield
    finally:
        for process in running:
            process.terminate()
            process.join()


def make_operation(name: str) -> Callable[[], object]:
    """``add``: one tiny add; ``linear``: Linear(512, 512), ``small``: Linear(64, 64), both on 64 rows without grad."""
    import torch

    if name == "add":
        a, b = torch.randn(1), torch.randn(1)
        return lambda: torch.add(a, b)
    width = {"linear": 512, "small": 64}[name]
    layer, x = torch.nn.Linear(width, width), torch.randn(64, width)

    def linear() -> Any:
        with torch.no_grad():
            return layer(x)

    return linear


def repeated(operation: Callable[[], object], times: int) -> Callable[[], object]:
    """A step of so many calls: slow-downs are planted by count."""

    def step() -> object:
        out = None
        for _ in range(times):
            out = operation()
        return out

    return step


class Store:
    """Results by case, from a file if there is one; what is added is written there at once."""

    def __init__(self, path: str | None) -> None:
        self._path = None if path is None else Path(path)
        self.rows: list[dict[str, Any]] = []
        if self._path is not None and self._path.exists():
            self.rows = [json.loads(line) for line in self._path.read_text().splitlines()]

    def of(self, **case: object) -> list[dict[str, Any]]:
        """The results of one case."""
        return [row for row in self.rows if all(row.get(key) == value for key, value in case.items())]

    def add(self, **row: Any) -> None:
        """One more result."""
        self.rows.append(row)
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a") as file:
                file.write(json.dumps(row) + "\n")


class Slice:
    """Whether there is time left in this slice."""

    def __init__(self, seconds: float | None) -> None:
        self._until = None if seconds is None else time.monotonic() + seconds

    def over(self, *, next_s: float = 0.0) -> bool:
        """Would something that takes ``next_s`` end after the slice?"""
        return self._until is not None and time.monotonic() + next_s > self._until


def add_slice_arguments(parser: argparse.ArgumentParser) -> None:
    """The options by which a run is made in slices."""
    parser.add_argument("--append", metavar="FILE", help="keep results in FILE, and do not measure again what it holds")
    parser.add_argument("--seconds", type=float, help="end this slice after so many seconds (default: when complete)")
    parser.add_argument("--states", default="quiet,busy 2,busy 4", help="which of quiet, busy 2, busy 4")
    parser.add_argument("--table", action="store_true", help="print the table of FILE and measure nothing")


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """The rows under their columns, as wide as needed."""
    text = [[_cell(value) for value in row] for row in rows]
    widths = [max(len(line[i]) for line in [list(columns), *text]) for i in range(len(columns))]
    print(f"\n{title}")
    print("  ".join(name.ljust(width) for name, width in zip(columns, widths, strict=True)))
    for line in text:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


def verdict(holds: bool) -> str:
    """What stands beside a limit."""
    return "holds" if holds else "MISSED"


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def machine() -> str:
    """One line: processor, cores, load when the script began."""
    model = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    return f"{model}, {len(os.sched_getaffinity(0))} cores, load average {os.getloadavg()[0]:.2f}"


def spread(values: Sequence[float]) -> float:
    """Greatest over least."""
    return max(values) / min(values)


def median(values: Sequence[float]) -> float:
    """The median."""
    return statistics.median(values)
