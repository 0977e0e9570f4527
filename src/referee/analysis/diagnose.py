"""What does the trace say? Every analysis of the registry, put together as one report."""

from __future__ import annotations

from typing import Any

from referee.analysis.registry import ANALYSES
from referee.analysis.study import DETAILED_EVENTS, Study
from referee.records.trace_report import TraceReport
from referee.trace.columns import Trace
from referee.trace.details import Details, read_details


def diagnose(trace: Trace, *, details: Details | None = None, unprofiled_step_ns: float | None = None) -> TraceReport:
    """The report on a trace; the trace is not changed, and the same trace gives the same report.

    ``details`` are the arguments of its rows (launch shapes, operator inputs); those of a small file are read here.
    ``unprofiled_step_ns`` is the time of one step without the profiler, for taking out what recording cost.
    """
    if details is None and trace.events <= DETAILED_EVENTS:
        details = read_details(trace)
    study = Study(trace, details=details, unprofiled_step_ns=unprofiled_step_ns)
    answers: dict[str, Any] = {analysis.name: analysis.run(study) for analysis in ANALYSES}
    return TraceReport(source=trace.source, provenance=trace.provenance, **answers)
