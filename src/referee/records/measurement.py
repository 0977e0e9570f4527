"""How long did it take? One measurement: four clocks, the statistics, the warm-up, the samples, and the provenance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from referee.errors import ProvenanceError
from referee.records.finding import Finding
from referee.records.provenance import Provenance, describe_shapes
from referee.records.shown import Shown
from referee.units import format_frac, format_ns


@dataclass(frozen=True, kw_only=True)
class Clocks:
    """Four clocks for one callable, in nanoseconds per call; ``None`` where the backend has no such clock.

    ``settled_amortised``: n calls back to back, one settle at the end, divided by n. ``settled_per_call``: settled
    after each call. ``enqueue``: from an empty queue until the call returns, nothing awaited. ``device``: device-side
    duration.
    """

    enqueue_ns: float | None
    settled_amortised_ns: float | None
    settled_per_call_ns: float | None
    device_ns: float | None


@dataclass(frozen=True, kw_only=True)
class Warmup:
    """What was paid before the clock started: calls, their total, the first call alone, and whether it became steady.

    ``compile_ns`` is the part that counters attribute to compilation, ``compiles`` how many there were.
    """

    calls: int
    total_ns: int
    first_call_ns: int
    steady: bool
    compiles: int = 0
    compile_ns: int | None = None
    steady_after: int | None = None
    """Calls before the series reached its final level (two for code that compiles and then records a graph)."""


@dataclass(frozen=True, kw_only=True)
class CoreClock:
    """How fast the core ran while the blocks were timed: what a fixed chain of dependent instructions took, in ns.

    The chain follows the core's clock in ratio. ``floor_ns`` and ``median_ns`` are those of the record with each block
    brought to one clock, at which the chain takes ``chain_ns``; two records are held against each other at one clock
    by dividing each figure by its ``chain_ns``. That holds for what the core is busy with; what waits for memory does
    not follow its clock.
    """

    chain_ns: float
    """The median of the readings."""
    low_ns: float
    """Their lowest decile, smoothed: the core at its fastest."""
    high_ns: float
    floor_ns: float
    median_ns: float
    after_blocks: tuple[int, ...]
    """How many blocks had been timed when each reading was taken."""
    readings_ns: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, repr=False)
class Measurement(Shown):
    """A number with everything needed to believe it (schema ``referee.measurement/1``).

    ``median_ns`` is ``None`` when a fatal finding forbids a headline number; the samples are kept all the same.
    ``samples_ns`` are per-call times, one per block; ``clean`` marks those in which nothing preempted us, nor
    just before them.
    ``naive_ns`` is what a timer that does not wait would have claimed.
    """

    name: str
    median_ns: float | None
    ci_low_ns: float | None
    ci_high_ns: float | None
    ci_level: float
    iqr_ns: float | None
    floor_ns: float | None
    p95_ns: float | None
    n: int
    n_eff: float
    blocks: int
    stop_reason: str
    clocks: Clocks
    naive_ns: float | None
    warmup: Warmup
    samples_ns: tuple[float, ...]
    clean: tuple[bool, ...]
    provenance: Provenance
    findings: tuple[Finding, ...] = ()
    peak_bytes: int | None = None
    """Most memory that one call held at once above what was held before it; from a pass of its own."""
    allocations: int | None = None
    """Requests for memory that one call made."""
    stages: Mapping[str, float] | None = None
    """Per call of the headline's blocks, by the backend's own account: what went into recording, compiling, executing
    and transferring (``…_ns``), and how many compilations and executions there were. ``None`` where it keeps none."""
    flop: int | None = None
    """Floating-point operations of one call: matrix products, convolutions, attention. ``None`` where not watched."""
    core_clock: CoreClock | None = None
    """How fast the core ran meanwhile; ``None`` where the work runs elsewhere, where the step waits for much of its
    time, or without a headline."""
    schema: str = "referee.measurement/1"

    def __post_init__(self) -> None:
        if not isinstance(self.provenance, Provenance):
            raise ProvenanceError("A measurement cannot be built without its provenance.")

    def __repr__(self) -> str:
        """The number with what is needed to believe it, in a line: no samples."""
        return describe_measurement(self)


def describe_measurement(measurement: Measurement) -> str:
    """The measurement in one line: number, interval, floor, what it was measured on, and what limits it."""
    provenance = measurement.provenance
    if measurement.median_ns is None:
        number = "no number"
    else:
        interval = f"{format_ns(measurement.ci_low_ns)} to {format_ns(measurement.ci_high_ns)}"
        number = f"{format_ns(measurement.median_ns)} ({interval} at {format_frac(measurement.ci_level, digits=0)})"
    chip = provenance.value("accelerator.name") if provenance.accelerator else provenance.value("chip.model")
    where = f"{chip}, {provenance.value('chip.threads')} thread(s)"
    limits = ", ".join(finding.code for finding in measurement.findings)
    parts = [
        f"{measurement.name}: {number}",
        f"floor {format_ns(measurement.floor_ns)}",
        f"{measurement.blocks:,} blocks",
        f"{provenance.dtype}, {describe_shapes(provenance.shapes)}",
        where,
        *([f"findings: {limits}"] if limits else []),
    ]
    return "; ".join(parts)


@dataclass(frozen=True, kw_only=True)
class SweepPoint:
    """One value of the swept parameter and the measurement there; throughput counts ``items_per_call`` per second."""

    value: float
    median_ns: float | None
    ci_low_ns: float | None
    ci_high_ns: float | None
    throughput_per_s: float | None
    measurement: Measurement
    label: str = ""
    """The value as the user wrote it, where it is not a number (``value`` then only numbers the points)."""
    items_per_dollar: float | None = None
    """Items processed per dollar at the price of the sweep."""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Which law does the sweep obey? ``max``: t(b) = max(host, fixed + slope·b); ``sum``: host + fixed + slope·b.

    Under ``sum`` host and fixed cannot be told apart from a sweep alone: ``host_ns`` then holds their sum and
    ``fixed_ns`` is 0, unless the host part was measured otherwise. ``knee`` is the corner (max) or where slope·b equals
    the intercept (sum), with its interval; ``None`` with ``why_no_knee`` unless two points lie on each side.
    """

    law: str
    host_ns: float | None
    fixed_ns: float | None
    slope_ns: float | None
    knee: float | None
    knee_low: float | None
    knee_high: float | None
    why_no_knee: str = ""
    error_frac: float | None = None
    """Held-out error of the chosen law: root mean square of the relative errors at left-out points."""
    error_max_frac: float | None = None
    error_sum_frac: float | None = None


@dataclass(frozen=True, kw_only=True, repr=False)
class Sweep(Shown):
    """The null experiment (schema ``referee.sweep/1``): the same method at each value of one parameter."""

    name: str
    parameter: str
    points: tuple[SweepPoint, ...]
    fit: Fit
    provenance: Provenance
    findings: tuple[Finding, ...] = ()
    price_per_hour: float | None = None
    """What the machine costs per hour, in dollars, if it was given."""
    served: float | None = None
    """The value at which the step will be served, if it was given: the point whose throughput per dollar counts."""
    schema: str = "referee.sweep/1"

    def __repr__(self) -> str:
        """The time at each value, the knee and what limits them, in a line: no samples."""
        times = ", ".join(f"{point.label or f'{point.value:g}'}: {format_ns(point.median_ns)}" for point in self.points)
        knee = [] if self.fit.knee is None else [f"knee near {self.fit.knee:.3g}"]
        codes = ", ".join(dict.fromkeys(finding.code for finding in self.findings))
        parts = [f"{self.name} over {self.parameter}: {times}", *knee, *([f"findings: {codes}"] if codes else [])]
        return "; ".join(parts)
