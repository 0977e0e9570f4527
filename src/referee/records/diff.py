"""What changed between two traces? Aligned by structure, time conserved, held against noise (``referee.diff/1``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from referee.records.finding import Finding

Status = Literal["matched", "added", "removed"]
Answer = Literal["faster", "slower", "same", "cannot-tell"]


@dataclass(frozen=True, kw_only=True)
class DiffSide:
    """One of the two traces: which of its steps was aligned, and how its steps scatter.

    A step's window is the busy time of what it launched plus the idle time before it; without steps it is the whole
    trace's, and the spread is not known.
    """

    source: str
    regime: str
    steps: int
    step: str | None
    mean_ns: float
    spread_ns: float | None
    """Standard deviation of the steps' windows."""
    operators: int
    device_rows: int
    devices: tuple[str, ...] = ()
    """The names of the devices, each once, as far as the file states them."""


@dataclass(frozen=True, kw_only=True)
class DiffCause:
    """A part of the mean window on either side; over all causes they sum to the means."""

    name: str
    a_ns: float
    b_ns: float


@dataclass(frozen=True, kw_only=True)
class DiffEntry:
    """Operators of one name at one place of the structure, on either side of the aligned steps.

    Over all entries the device times sum to all device rows of the aligned steps, and the idle times to all idle time
    before them. ``added``: only in B; ``removed``: only in A.
    """

    name: str
    path: str
    """The module that encloses it, where both files record modules; else empty."""
    status: Status
    count_a: int
    count_b: int
    device_a_ns: int
    device_b_ns: int
    idle_a_ns: int
    idle_b_ns: int
    host_a_ns: int
    host_b_ns: int


@dataclass(frozen=True, kw_only=True)
class KernelChange:
    """Device rows of one name in the aligned steps of either side."""

    name: str
    count_a: int
    count_b: int
    a_ns: int
    b_ns: int


@dataclass(frozen=True, kw_only=True)
class TraceDiff:
    """B against A. ``answer`` is about the mean window; below the noise it is ``same`` or ``cannot-tell``."""

    a: DiffSide
    b: DiffSide
    answer: Answer
    change_ns: float
    ratio: float | None
    """Mean of B over mean of A."""
    noise_ns: float | None
    """Half-width of the interval of the change at about 95 %; ``None`` with fewer than two steps on a side."""
    causes: tuple[DiffCause, ...]
    entries: tuple[DiffEntry, ...]
    kernels: tuple[KernelChange, ...]
    findings: tuple[Finding, ...] = ()
    schema: str = "referee.diff/1"
