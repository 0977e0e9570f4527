"""Which chain of work set the time? The longest path through a trace's dependency graph, by kind and by owner."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PathShare:
    """Time on the path that belongs to one name (an operator, a call, a kernel), and how many of its rows lie there."""

    name: str
    ns: int
    rows: int


@dataclass(frozen=True, kw_only=True)
class CriticalPath:
    """The longest path; its parts sum to ``length_ns``.

    ``host_ns`` is inside host rows, ``gap_ns`` between them (Python that is not recorded; ``None`` of it counts where
    the path was asked for without gaps), ``launch_ns`` bare latencies, ``device_ns`` device rows, ``order_ns`` gaps
    between queued rows, waits returning, and hand-overs between threads. ``replayed_ns`` is what replaying the
    unchanged graph gives for ``recorded_ns``.
    """

    length_ns: int
    host_ns: int
    gap_ns: int
    launch_ns: int
    device_ns: int
    order_ns: int
    rows: int
    """Rows of which the start or the end lies on the path."""
    owners: tuple[PathShare, ...]
    """Who the time belongs to, longest first."""
    recorded_ns: int
    replayed_ns: int

    @property
    def host_frac(self) -> float | None:
        """The share of the path inside host rows and between them."""
        return (self.host_ns + self.gap_ns) / self.length_ns if self.length_ns else None
