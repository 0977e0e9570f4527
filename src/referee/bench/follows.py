"""Do a saved measurement's figures follow from its own samples? What was edited by hand, or damaged, does not.

Computed again as :mod:`referee.bench.measure` computes them, from the samples that counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isclose

from referee.bench.core_clock import read_again
from referee.records.measurement import CoreClock, Measurement
from referee.stats.interval import median_interval
from referee.stats.summary import FloatArray, as_array, summarise
from referee.units import ENDLESS_NS, format_ns

_ROUNDING = 1e-6
"""What writing and reading a number as text may change."""


def broken_figures(saved: Measurement) -> tuple[str, ...]:
    """Which figures do not follow from the samples, each as a sentence's part; empty where all do."""
    return tuple(_broken(saved))


def _broken(saved: Measurement) -> Iterator[str]:
    samples = as_array(saved.samples_ns)
    if saved.median_ns is None:
        names = ("floor_ns", "ci_low_ns", "ci_high_ns", "core_clock")
        stray = [name for name in names if getattr(saved, name) is not None]
        if stray:
            yield f"{stray[0]} stands there without a median_ns"
        return
    if len(saved.clean) != samples.size or saved.blocks != samples.size:
        yield f"{samples.size:,} samples stand beside {len(saved.clean):,} marks and {saved.blocks:,} blocks"
        return
    if not all(0 <= ns < ENDLESS_NS for ns in saved.samples_ns):
        yield "a sample is no time"
        return
    if not 0 < saved.ci_level < 1:
        yield f"{saved.ci_level:g} is no level of an interval"
        return
    usable = _usable(saved, samples)
    if usable is None:
        yield f"{saved.n:,} samples are said to count, where {sum(saved.clean):,} of {samples.size:,} are clean"
        return
    summary, estimate = summarise(usable), median_interval(usable, level=saved.ci_level)
    for name, stated, computed in (
        ("median_ns", saved.median_ns, estimate.point),
        ("ci_low_ns", saved.ci_low_ns, estimate.low),
        ("ci_high_ns", saved.ci_high_ns, estimate.high),
        ("floor_ns", saved.floor_ns, summary.floor),
        ("p95_ns", saved.p95_ns, summary.p95),
        ("iqr_ns", saved.iqr_ns, summary.iqr),
        ("clocks.settled_amortised_ns", saved.clocks.settled_amortised_ns, estimate.point),
    ):
        if stated is None or not isclose(stated, computed, rel_tol=_ROUNDING, abs_tol=_ROUNDING):
            yield f"{name} is {format_ns(stated)}, its samples give {format_ns(computed)}"
    yield from _broken_clock(saved, samples)


def _broken_clock(saved: Measurement, samples: FloatArray) -> Iterator[str]:
    clock = saved.core_clock
    if clock is None:
        return
    impossible = _impossible(clock, blocks=saved.blocks)
    if impossible:
        yield impossible
        return
    marks = saved.clean if saved.n == sum(saved.clean) else (True,) * samples.size
    again = read_again(clock, samples, usable=marks)
    for name in ("chain_ns", "low_ns", "high_ns", "floor_ns", "median_ns"):
        stated = getattr(clock, name)
        computed = None if again is None else getattr(again, name)
        if computed is None or not isclose(stated, computed, rel_tol=_ROUNDING, abs_tol=_ROUNDING):
            yield f"core_clock.{name} is {format_ns(stated)}, its readings give {format_ns(computed)}"


def _impossible(clock: CoreClock, *, blocks: int) -> str:
    """Why such readings cannot have been taken between so many blocks; empty where they can."""
    readings, places = clock.readings_ns, clock.after_blocks
    if len(readings) != len(places):
        return f"{len(readings):,} readings of the core's clock stand beside {len(places):,} places"
    if not all(0 < ns < ENDLESS_NS for ns in readings):
        return "a reading of the core's clock is no time"
    if list(places) != sorted(places) or not all(0 <= place <= blocks for place in places):
        return "the core's clock was not read in the order of the blocks"
    return ""


def _usable(saved: Measurement, samples: FloatArray) -> FloatArray | None:
    """The samples that counted: the clean ones, or all where too few were clean; ``None`` where neither can be."""
    clean = samples[as_array(saved.clean).astype(bool)]
    for counted in (clean, samples):
        if counted.size == saved.n and counted.size:
            return counted
    return None
