"""What the scripts on measuring share: neighbours that keep cores busy, the two operations, and a plain table."""

from __future__ import annotations

import multiprocessing
import os
import platform
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


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
    """``add``: one tiny add; ``linear``: Linear(512, 512) on (64, 512), without grad."""
    import torch

    if name == "add":
        a, b = torch.randn(1), torch.randn(1)
        return lambda: torch.add(a, b)
    layer, x = torch.nn.Linear(512, 512), torch.randn(64, 512)

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


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """The rows under their columns, as wide as needed."""
    text = [[_cell(value) for value in row] for row in rows]
    widths = [max(len(line[i]) for line in [list(columns), *text]) for i in range(len(columns))]
    print(f"\n{title}")
    print("  ".join(name.ljust(width) for name, width in zip(columns, widths, strict=True)))
    for line in text:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


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
