"""Did one operator change between two traces, or the machine under all of them? Ratios that all names share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log

from referee.records.diff import DiffEntry, KernelChange
from referee.records.finding import Finding
from referee.units import format_frac, format_ratio

FEWEST_NAMES = 5
"""Fewer kinds of kernels or operators may change alike by chance."""
CHANGE = log(1.05)
"""A smaller change of all of them is the noise of clocks."""
AROUND = 0.25
"""A name shares the change if its own is no further from it than this part of it."""
SHARED_FRAC = 0.9
"""Names with this share of the time must share the change."""

_Pair = tuple[str, float, float]


def uniform_findings(entries: Sequence[DiffEntry], kernels: Sequence[KernelChange]) -> Iterator[Finding]:
    """The findings that the device, or the host, takes about the same factor for everything."""
    on_device = [(k.name, float(k.a_ns), float(k.b_ns)) for k in kernels if k.count_a == k.count_b]
    on_host = [(e.name, float(e.host_a_ns), float(e.host_b_ns)) for e in entries if e.status == "matched"]
    if (shared := _shared_ratio(on_device)) is not None:
        ratio, frac = shared
        yield Finding(
            code="uniform-change",
            severity="info",
            message=f"Kernels of every kind take about {format_ratio(ratio)} the time in B ({format_frac(frac)} of the "
            "device time changed alike): the device changed, or the size of the batch, and no single operator.",
            evidence={"side": "device", "ratio": ratio, "frac": frac},
            hint="With the same shapes on both sides, look at the device's clocks, its power limit and its other users "
            "(nvidia-smi -q -d CLOCK,PERFORMANCE), and record both sides at one clock.",
        )
    if (shared := _shared_ratio(on_host)) is not None:
        ratio, frac = shared
        yield Finding(
            code="uniform-change",
            severity="info",
            message=f"Operators of every kind take about {format_ratio(ratio)} the time on the host in B "
            f"({format_frac(frac)} of their time changed alike): the host or the recording changed, and no single one.",
            evidence={"side": "host", "ratio": ratio, "frac": frac},
            hint="Look at the processor's clock and load, at the versions of Python and torch, and what the profiler "
            "recorded (stacks, shapes and memory cost time at each operator).",
        )


def _shared_ratio(pairs: Sequence[_Pair]) -> tuple[float, float] | None:
    """B over A for all that both sides have, and the share of the time that changed alike; ``None`` if it did not."""
    both = [(a, b) for _, a, b in pairs if a > 0 and b > 0]
    total_a, total_b = sum(a for a, _ in both), sum(b for _, b in both)
    if len(both) < FEWEST_NAMES or abs(change := log(total_b / total_a)) < CHANGE:
        return None
    alike = [(a, b) for a, b in both if abs(log(b / a) - change) <= AROUND * abs(change)]
    frac = sum(a for a, _ in alike) / total_a
    return (total_b / total_a, frac) if len(alike) >= FEWEST_NAMES and frac >= SHARED_FRAC else None
