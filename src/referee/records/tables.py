"""Tables of a trace report: operators, launches, memory, gaps with their owners, and the sites that synchronise."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class OperatorRow:
    """All calls of one operator; nothing is counted twice.

    *Self* is without what other operators inside it did; *total* counts a call inside another of the same name once.
    Device time is that of the rows it launched.
    """

    name: str
    count: int
    host_self_ns: int
    host_total_ns: int
    device_self_ns: int
    device_total_ns: int


@dataclass(frozen=True, kw_only=True)
class LaunchStats:
    """What launching costs, and how many kernels are shorter than their own launch."""

    launches: int
    median_call_ns: float
    p95_call_ns: float
    total_call_ns: int
    kernels_per_launch: float
    short_kernels: int
    """Kernels that take less time than the median launch call."""
    short_kernels_ns: int
    kernels: int


@dataclass(frozen=True, kw_only=True)
class MemoryPoint:
    """Memory at one moment of the trace."""

    time_ns: int
    allocated_bytes: int
    reserved_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class MemoryTimeline:
    """The allocator's events on devices: how many, the peak, and points along the time (the peak among them)."""

    events: int
    peak_bytes: int
    peak_time_ns: int
    from_start: bool
    """The file states totals; otherwise points are relative to the first event."""
    points: tuple[MemoryPoint, ...]
    driver_calls: int
    """Calls that obtain or return memory from the driver."""
    driver_ns: int


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Who had the host at a moment: the innermost operator, Python frame and annotation, as far as recorded."""

    operator: str | None
    python: str | None
    annotation: str | None


@dataclass(frozen=True, kw_only=True)
class GapRow:
    """One idle interval of a device: when, how long, its largest cause, what ended it, and who had the host then."""

    device: int
    start_ns: int
    length_ns: int
    cause: str
    cause_ns: int
    ended_by: str
    owner: Owner


@dataclass(frozen=True, kw_only=True)
class SyncSite:
    """One place that waits for the device: the call, who made it, how often, how long, and the idle time behind it."""

    call: str
    owner: Owner
    count: int
    wait_ns: int
    idle_ns: int


@dataclass(frozen=True, kw_only=True)
class Blocker:
    """What ends a stretch that could be recorded as a graph.

    ``kind``: ``wait`` (a call that waits for the device), ``copy`` (a copy that the host waits for), ``shape`` (an
    operator whose input shapes differ between steps: ``count`` places).
    """

    kind: str
    name: str
    owner: Owner
    count: int


@dataclass(frozen=True, kw_only=True)
class Graphable:
    """The stretches of at least two launches without a wait between them, and what separates them."""

    regions: int
    launches: int
    launches_inside: int
    longest: int
    """Launches in the longest stretch."""
    blockers: tuple[Blocker, ...]
