"""From which batch size does a lower precision pay? The same comparison at a few batch sizes, from the smallest up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from referee.bench.plan import Plan, ProgressCallback, no_progress
from referee.precision.control import Setting
from referee.precision.rows import bounds
from referee.precision.subject import Subject
from referee.precision.timing import time_settings
from referee.records.compare import Comparison, Pair
from referee.records.precision import PaysFrom, PrecisionTiming

if TYPE_CHECKING:
    from referee.device.protocol import Device

HOPELESS_RATIO = 3.0
"""A precision that takes this many times as long at the step's own batch size is not tried at others: the budget is
better spent on the ones that may pay."""

BATCH_SIZES = (1, 8, 64)
"""Tried where nothing else is asked for: a factor of eight apart."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One batch size and how each precision compared there."""

    batch_size: int
    pairs: tuple[Pair, ...]


def measure_points(
    build: Callable[[int], Subject],
    settings: Sequence[Setting],
    *,
    sizes: Sequence[int],
    device: Device,
    budget_ns: int,
    go_on: Callable[[], bool] = lambda: True,
    progress: ProgressCallback = no_progress,
) -> tuple[Point, ...]:
    """Compare the settings at each of ``sizes`` in rising order, ``budget_ns`` for all; ``go_on`` may end it early."""
    plan = Plan(budget_ns=max(1, budget_ns // max(1, len(sizes))), clocks=("settled_amortised",))
    points: list[Point] = []
    for size in sorted(sizes):
        if points and not go_on():
            break
        found = time_settings(
            build(size), settings, device=device, plan=plan, name=f"batch size {size}", progress=progress
        )
        pairs = found.pairs if isinstance(found, Comparison) else ()
        points.append(Point(batch_size=size, pairs=pairs))
    return tuple(points)


def find_pays_from(points: Sequence[Point], names: Sequence[str]) -> tuple[PaysFrom, ...]:
    """For each precision the smallest batch size at which it is faster, and at no larger one that was measured slower.

    A larger one where it cannot be told does not speak against it if the whole interval lies below 1.
    """
    return tuple(_of(points, name) for name in names)


def hopeful(settings: Sequence[Setting], rows: Sequence[PrecisionTiming]) -> tuple[Setting, ...]:
    """The base and those of ``settings`` that were not hopelessly slow."""
    ratios = {row.name: row.ratio for row in rows}
    return tuple(s for k, s in enumerate(settings) if k == 0 or (ratios.get(s.name) or 0.0) < HOPELESS_RATIO)


def not_tried(name: str, ratio: float | None) -> PaysFrom:
    """The record of a precision that was too slow to be tried at other batch sizes."""
    words = f"{ratio:.3g} times as long" if ratio is not None else "too long"
    return PaysFrom(name=name, batch_size=None, points=(), why_not=f"it took {words} already, so no other was tried")


def _of(points: Sequence[Point], name: str) -> PaysFrom:
    pairs = [(point.batch_size, next(pair for pair in point.pairs if pair.name == name)) for point in points]
    from_size = None
    for size, pair in reversed(pairs):
        if pair.answer == "faster":
            from_size = size
        elif pair.answer != "cannot-tell" or (bounds(pair)[1] or 1.0) >= 1:
            break
    return PaysFrom(
        name=name,
        batch_size=from_size,
        points=tuple((size, pair.ratio, *bounds(pair)) for size, pair in pairs),
        why_not="" if from_size is not None else _why_not(pairs),
    )


def _why_not(pairs: Sequence[tuple[int, Pair]]) -> str:
    if not pairs:
        return "no batch size was measured"
    size, last = pairs[-1]
    if last.answer == "cannot-tell":
        return f"at batch size {size} it cannot be told: {last.why}"
    return f"it is {last.answer} at {size} still, the largest that was measured"
