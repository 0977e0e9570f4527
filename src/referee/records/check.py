"""What came of the main job? The report of ``referee check`` (schema ``referee.check/1``): all parts in one file."""

from __future__ import annotations

from dataclasses import dataclass

from referee.records.capture import Capture
from referee.records.finding import Finding
from referee.records.measurement import Measurement, Sweep
from referee.records.provenance import Provenance
from referee.records.trace_report import TraceReport
from referee.records.verdict import Remedy, Verdict


@dataclass(frozen=True, kw_only=True)
class Check:
    """The main job: measured, swept, profiled, diagnosed, with remedies ranked; a part not reached is ``None``."""

    name: str
    measurement: Measurement
    sweep: Sweep | None
    capture: Capture | None
    trace: TraceReport | None
    verdict: Verdict
    remedies: tuple[Remedy, ...]
    provenance: Provenance
    findings: tuple[Finding, ...] = ()
    schema: str = "referee.check/1"
