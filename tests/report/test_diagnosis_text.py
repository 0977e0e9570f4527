"""What a reader of a diagnosis sees: each step's regime, the warm remainder beside the verdict, one share."""

from __future__ import annotations

import re

import pytest

from referee.analysis.diagnose import diagnose
from referee.records.trace_report import TraceReport
from referee.records.verdict import Evidence, Verdict
from referee.report.text import render_text
from referee.report.trace import compose_trace
from referee.report.verdict import verdict_sentence
from referee.testing import Workload, simulate


def text(report: TraceReport, *, width: int = 80) -> str:
    return render_text(compose_trace(report), width=width, color=False)


def diagnosed(workload: Workload) -> TraceReport:
    return diagnose(simulate(workload).trace)


@pytest.mark.parametrize("width", [80, 120])
def test_each_step_has_its_regime_on_a_page_of_any_width(width: int) -> None:
    report = diagnosed(Workload(kernel_ns=2_000, op_ns=20_000, first_step_ns=300_000_000))
    shown = re.findall(r"^ *ProfilerStep#\d+ +(\S+)", text(report, width=width), flags=re.MULTILINE)
    assert shown == [step.regime for step in report.steps] == ["cold", "launch-bound", "launch-bound"]


def test_the_warm_remainder_stands_beside_the_verdict_with_its_figures() -> None:
    """Compute-bound but for one launch call of 400 ms: the sentence and the share are those of the rest."""
    shown = text(diagnosed(Workload(kernel_ns=50_000, op_ns=5_000, first_step_ns=400_000_000)))
    why, warm, window = (shown.index(f"── {name}") for name in ("Why", "The warm remainder", "Where the window went"))
    assert why < warm < window
    words = " ".join(shown[warm:window].split())
    assert re.search(r"compute-bound\. The device is the limit: .* of what remains is busy", words)
    assert "first-time costs" in words
    assert "largest loss" in words.lower()


def test_the_headline_gives_the_share_that_the_verdict_went_by() -> None:
    """What waits cost may be more than the causes of idle time say: the sentence does not contradict the verdict."""
    report = diagnosed(Workload(kernel_ns=2_000, op_ns=20_000, sync_every=10, after_sync_ns=10_000))
    evidence = (Evidence(name="timeline: largest loss, synchronised", value=0.41, unit="frac"),)
    verdict = Verdict(regime="sync-bound", evidence=evidence, undecided_because=None, would_change="")
    assert "41.0 % of the window is idle behind waits." in verdict_sentence(verdict, report)
    assert report.verdict.regime == "launch-bound"
    per_op_ns, window_ns = report.idle.host_starved.per_op_ns, report.totals.window_ns
    assert f"{100 * per_op_ns / window_ns:.1f} % of the window is per-op idle, " in verdict_sentence(
        report.verdict, report
    )


@pytest.mark.parametrize(
    ("because", "begins"),
    [
        ("pauses 94.6 % of the window", "The host stands still"),
        ("recurring allocator 31.0 % of the window", "Allocations that reach the driver"),
        ("pauses 40.0 % of the window and per-op 35.0 % of the window", "No single cause dominates"),
    ],
)
def test_a_loss_that_leads_alone_is_not_said_to_be_no_single_cause(because: str, begins: str) -> None:
    verdict = Verdict(regime="mixed", evidence=(), undecided_because=because, would_change="")
    words = verdict_sentence(verdict, diagnosed(Workload()))
    assert words.startswith(begins)
    assert because in words
