"""What came of profiling a target? The capture, and the report on each file it left (schema ``referee.profile/1``)."""

from __future__ import annotations

from dataclasses import dataclass

from referee.records.capture import Capture
from referee.records.finding import Finding
from referee.records.provenance import Provenance
from referee.records.trace_report import TraceReport


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A capture and what its files say; the same reports come from ``referee trace`` on those files."""

    name: str
    capture: Capture
    reports: tuple[TraceReport, ...]
    provenance: Provenance
    findings: tuple[Finding, ...] = ()
    schema: str = "referee.profile/1"
