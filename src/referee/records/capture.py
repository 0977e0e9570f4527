"""What was recorded? A capture: the schedule as planned, the iterations as recorded, the files, and their integrity."""

from __future__ import annotations

from dataclasses import dataclass

from referee.records.finding import Finding
from referee.records.provenance import Provenance


@dataclass(frozen=True, kw_only=True)
class SchedulePlan:
    """The schedule: skip, then cycles of wait, warm-up and active iterations, ``repeat`` times (0: without end)."""

    skip: int
    wait: int
    warmup: int
    active: int
    repeat: int


@dataclass(frozen=True, kw_only=True)
class CaptureFile:
    """One exported cycle: where it lies, which iterations it holds, how large it is."""

    path: str
    iterations: tuple[int, ...]
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class Capture:
    """One capture (schema ``referee.capture/1``); ``step_ns`` are the host wall times of the recorded iterations."""

    name: str
    plan: SchedulePlan
    iterations_run: int
    files: tuple[CaptureFile, ...]
    step_ns: tuple[int, ...]
    unprofiled_step_ns: float | None
    provenance: Provenance
    findings: tuple[Finding, ...] = ()
    schema: str = "referee.capture/1"
