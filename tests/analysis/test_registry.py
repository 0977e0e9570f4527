"""The registry and the report have the same fields; every analysis runs on an empty trace."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import referee.analysis.diagnose as diagnose_module
import referee.analysis.findings as findings_module
from referee.analysis import study
from referee.analysis.diagnose import diagnose
from referee.analysis.registry import ANALYSES
from referee.records.schema import load, save
from referee.records.trace_report import TraceReport
from referee.testing import Workload, simulate
from referee.trace.builder import TraceBuilder
from referee.trace.reader import read_trace


def test_every_field_of_the_report_has_one_analysis() -> None:
    names = [analysis.name for analysis in ANALYSES]
    assert len(set(names)) == len(names)
    given = {field.name for field in fields(TraceReport)} - {"source", "provenance", "recording", "schema"}
    assert set(names) == given
    assert all(analysis.question.endswith("?") and analysis.needs for analysis in ANALYSES)


@pytest.mark.traces
def test_reports_are_saved_and_read_back_unchanged(traces_dir: Path, tmp_path: Path) -> None:
    for name in ("h100_bert_small.json.gz", "mi300_gemm_few_tiles.json", "cpu_only_gloo_rank34.json.gz"):
        report = diagnose(read_trace(traces_dir / name))
        save(report, tmp_path / "report.json")
        assert load(tmp_path / "report.json") == report


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


def test_what_a_large_trace_leaves_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (study, diagnose_module, findings_module):
        monkeypatch.setattr(module, "DETAILED_EVENTS", 10)
    report = diagnose(simulate(Workload(steps=1, ops=20)).trace)
    (said,) = (finding for finding in report.findings if finding.code == "large-trace")
    assert report.critical_path is None
    assert "the critical path" in said.message
    assert "--step" in said.hint
