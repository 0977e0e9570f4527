"""What does the trace say? Every analysis of the registry, put together as one report."""

from __future__ import annotations

from typing import Any

from referee.analysis.registry import ANALYSES
from referee.analysis.study import Study
from referee.records.trace_report import TraceReport
from referee.trace.columns import Trace


def diagnose(trace: Trace) -> TraceReport:
    """The report on a trace. Pure: the trace is not changed, and the same trace gives the same report."""
    study = Study(trace)
    answers: dict[str, Any] = {analysis.name: analysis.run(study) for analysis in ANALYSES}
    return TraceReport(source=trace.source, provenance=trace.provenance, **answers)
