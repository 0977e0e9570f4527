"""From which batch size does a lower precision pay? The same comparison at a few batch sizes, from the smallest up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from referee.precision.budget import USED_UP
from referee.precision.control import Setting
from referee.precision.rows import bounds
from referee.precision.subject import Subject, make_subject
from referee.precision.timing import Conditions, Timed, time_settings
from referee.precision.verdict import HOPELESS_RATIO
from referee.records.compare import Pair
from referee.records.precision import PaysFrom, PrecisionTiming

BATCH_SIZES = (1, 8, 64)
"""Tried where nothing else is asked for: a factor of eight apart."""


Step: TypeAlias = Callable[[], object]
Builder: TypeAlias = Callable[[int], tuple[Step, Any, Any]]
"""Batch size → step, model and optimizer (``None`` where the step carries none)."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Where to look from which batch size a precision pays: how the step is built, its own size, and the sizes."""

    build: Builder
    own: int | None = None
    sizes: Sequence[int] = BATCH_SIZES


@dataclass(frozen=True, kw_only=True)
class Point:
    """One batch size, how each precision compared there, and by precision why it was not compared."""

    batch_size: int
    pairs: tuple[Pair, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)


def point_of(size: int, timed: Timed) -> Point:
    """What was timed at one batch size as a point."""
    return Point(
        batch_size=size, pairs=tuple(pair for one in timed.comparisons for pair in one.pairs), skipped=timed.skipped
    )


def measure_points(
    build: Callable[[int], Subject],
    settings: Sequence[Setting],
    *,
    sizes: Sequence[int],
    conditions: Conditions,
    known: Mapping[int, Timed] | None = None,
) -> tuple[Point, ...]:
    """Compare the settings at each of ``sizes`` in rising order; those ``known`` already are not timed again.

    What there is no time to answer is left out, with the reason; sizes that there is no time to begin with as well.
    """
    known = known or {}
    points: list[Point] = []
    for size in sorted({*sizes, *known}):
        timed = known.get(size)
        if timed is None and conditions.left_ns > 0:
            timed = time_settings(build(size), settings, conditions=conditions, name=f"batch size {size}", strict=True)
        if timed is None:
            timed = Timed(skipped={setting.name: USED_UP for setting in settings[1:]})
        points.append(point_of(size, timed))
    return tuple(points)


def look_for_size(
    subject: Subject,
    settings: Sequence[Setting],
    timing: Sequence[PrecisionTiming],
    timed: Timed,
    *,
    sizes: Sizes,
    conditions: Conditions,
) -> tuple[PaysFrom, ...]:
    """From which batch size does each low precision pay?"""
    if len(settings) < 2 or not sizes.sizes:
        return ()
    tried = hopeful(settings, timing)
    ratios = {row.name: row.ratio for row in timing}
    if len(tried) < 2:
        return tuple(not_tried(setting.name, ratios.get(setting.name)) for setting in settings[1:])

    def built(size: int) -> Subject:
        step, model, optimizer = sizes.build(size)
        return make_subject(
            step,
            device_type=subject.device_type,
            model=model,
            optimizer=optimizer,
            own_sites=subject.own_sites,
        )

    known = {} if sizes.own is None else {sizes.own: timed}
    points = measure_points(built, tried, sizes=sizes.sizes, conditions=conditions, known=known)
    found = {row.name: row for row in find_pays_from(points, [setting.name for setting in tried[1:]])}
    return tuple(found.get(s.name) or not_tried(s.name, ratios.get(s.name)) for s in settings[1:])


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
    pairs = [(point.batch_size, pair) for point in points for pair in point.pairs if pair.name == name]
    from_size = None
    for size, pair in reversed(pairs):
        if pair.answer == "faster":
            from_size = size
        elif pair.answer != "cannot-tell" or (bounds(pair)[1] or 1.0) >= 1:
            break
    skipped = [f"{point.batch_size} not timed: {point.skipped[name]}" for point in points if name in point.skipped]
    reasons = [*skipped] if from_size is not None else [_why_not(pairs), *skipped]
    return PaysFrom(
        name=name,
        batch_size=from_size,
        points=tuple((size, pair.ratio, *bounds(pair)) for size, pair in pairs),
        why_not="; ".join(reasons),
    )


def _why_not(pairs: Sequence[tuple[int, Pair]]) -> str:
    if not pairs:
        return "no batch size was measured"
    size, last = pairs[-1]
    if last.answer == "cannot-tell":
        return f"at batch size {size} it cannot be told: {last.why}"
    return f"it is {last.answer} at {size} still, the largest that was measured"
