"""What does the trace say? Every analysis of the registry, put together as one report."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable
from typing import Any, BinaryIO

from referee.analysis.registry import ANALYSES, Analysis
from referee.analysis.study import DETAILED_EVENTS, Study
from referee.graph.waits import find_waits
from referee.records.trace_report import TraceReport
from referee.trace.columns import Trace
from referee.trace.details import Details, read_details
from referee.trace.fork import fork, may_fork


def diagnose(
    trace: Trace, *, details: Details | None = None, unprofiled_step_ns: float | None = None, alone: bool = False
) -> TraceReport:
    """The report on a trace; the trace is not changed, and the same trace gives the same report.

    ``details`` are the arguments of its rows (launch shapes, operator inputs); those of a small file are read here.
    ``unprofiled_step_ns`` is the time of one step without the profiler, for taking out what recording cost.
    On a large trace a helper process takes a part of the analyses, unless ``alone``.
    """
    if details is None and trace.events <= DETAILED_EVENTS:
        details = read_details(trace)
    study = Study(trace, details=details, unprofiled_step_ns=unprofiled_step_ns)
    shared = not alone and trace.events > DETAILED_EVENTS and (os.cpu_count() or 1) > 1 and may_fork()
    answers = _with_helper(study) if shared else _answer(study, ANALYSES)
    return TraceReport(source=trace.source, provenance=trace.provenance, recording=trace.recording, **answers)


def _answer(study: Study, analyses: Iterable[Analysis]) -> dict[str, Any]:
    """The answers by the names of the analyses."""
    return {analysis.name: analysis.run(study) for analysis in analyses}


def _with_helper(study: Study) -> dict[str, Any]:
    """All answers, a part of them from a copy of this process; what it does not deliver is found here."""
    apart = [analysis for analysis in ANALYSES if analysis.apart]
    rest = [analysis for analysis in ANALYSES if not analysis.apart]
    for work in study.works:
        # Nearly every analysis stands on these: found before the work is divided.
        find_waits(study.trace, work)

    def answer_apart(answers: BinaryIO) -> None:
        pickle.dump(_answer(study, apart), answers, protocol=5)

    try:
        helper = fork(answer_apart)
    except OSError:
        return _answer(study, ANALYSES)
    try:
        here = _answer(study, rest)
        there = _received(helper.answers)
    finally:
        helper.end()
        helper.answers.close()
    return here | (_answer(study, apart) if there is None else there)


def _received(answers: BinaryIO) -> dict[str, Any] | None:
    """What the helper found; ``None`` if it ended before it said so."""
    try:
        found: dict[str, Any] = pickle.load(answers)
    except (OSError, EOFError, pickle.UnpicklingError):
        return None
    return found
