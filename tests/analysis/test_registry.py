"""The registry and the report have the same fields; every analysis runs on an empty trace."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields

from referee.analysis.diagnose import diagnose
from referee.analysis.registry import ANALYSES
from referee.records.trace_report import TraceReport
from referee.trace.builder import TraceBuilder


def test_every_field_of_the_report_has_one_analysis() -> None:
    names = [analysis.name for analysis in ANALYSES]
    assert len(set(names)) == len(names)
    given = {field.name for field in fields(TraceReport)} - {"source", "provenance", "schema"}
    assert set(names) == given
    assert all(analysis.question.endswith("?") and analysis.needs for analysis in ANALYSES)


def test_an_empty_trace_is_answered() -> None:
    report = diagnose(TraceBuilder().build())
    assert report.verdict.regime == "cannot-tell"
    assert report.verdict.undecided_because == "no-device-rows"
    assert report.totals.events == 0


def test_diagnosis_loads_neither_torch_nor_a_dataframe_library() -> None:
    code = (
        "import sys, referee.analysis.diagnose, referee.analysis.live; "
        "print([m for m in ('torch', 'pandas', 'polars', 'scipy', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
