"""How long does a request take when requests differ in shape? A set of shapes, each with its share, and the mixture."""

from __future__ import annotations

from dataclasses import dataclass

from referee.records.finding import Finding
from referee.records.measurement import Warmup
from referee.records.provenance import Provenance
from referee.records.shown import Shown
from referee.units import format_ns


@dataclass(frozen=True, kw_only=True)
class Tail:
    """Percentiles of settled single calls, in nanoseconds.

    ``p99_high_ns`` is an upper bound of the 99th percentile at ``level`` (binomial order statistics); ``None`` where
    too few calls were made for one, and ``calls_for_p99`` says how many it takes.
    """

    n: int
    p50_ns: float
    p95_ns: float
    p99_ns: float
    p99_high_ns: float | None
    level: float
    calls_for_p99: int


@dataclass(frozen=True, kw_only=True)
class ShapePoint:
    """One shape: its label, its share of the requests, its times, its warm-up and provenance."""

    label: str
    share_frac: float
    tail: Tail | None
    warmup: Warmup
    provenance: Provenance


@dataclass(frozen=True, kw_only=True, repr=False)
class ShapeSet(Shown):
    """A mixture of shapes (schema ``referee.shapes/1``), called in random order by their shares.

    ``mixture`` are the percentiles over all requests; preempted calls are left out of every percentile and counted
    in ``preempted_frac``; ``p99_all_ns`` has them in.
    """

    name: str
    points: tuple[ShapePoint, ...]
    mixture: Tail | None
    preempted_frac: float
    p99_all_ns: float | None
    stop_reason: str
    seed: int
    provenance: Provenance
    findings: tuple[Finding, ...] = ()
    schema: str = "referee.shapes/1"

    def __repr__(self) -> str:
        """The percentiles of the mixture and what limits them, in a line: no samples."""
        tail = self.mixture
        words = "no number"
        if tail is not None:
            words = f"p50 {format_ns(tail.p50_ns)}, p95 {format_ns(tail.p95_ns)}, p99 {format_ns(tail.p99_ns)}"
        shapes = ", ".join(point.label for point in self.points)
        codes = ", ".join(dict.fromkeys(finding.code for finding in self.findings))
        return f"{self.name}: {words}; shapes {shapes}" + (f"; findings: {codes}" if codes else "")
