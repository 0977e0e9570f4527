"""Several traces together: the null experiment over batch sizes, and ranks side by side."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from referee.analysis.diagnose import diagnose
from referee.analysis.trace_set import batch_sizes, judge_set
from referee.records.trace_report import TraceSet
from referee.report.text import render_text
from referee.report.trace_set import compose_trace_set
from referee.trace.builder import TraceBuilder
from referee.trace.columns import Trace
from referee.trace.reader import read_trace

US = 1_000


def model(batch: int, *, kernel_ns_per_item: int, ops: int = 10) -> Trace:
    """Operators every 100 µs, each with a kernel that grows with the batch on top of 5 µs."""
    builder, free = TraceBuilder(source=f"model_b{batch}.json"), 0
    for number in range(1, ops + 1):
        at = number * 100 * US
        builder.op(f"aten::op{number}", at, 90 * US)
        builder.launch("cudaLaunchKernel", at + 80 * US, 5 * US, correlation=number)
        start = max(free, at + 90 * US)
        free = start + 5 * US + kernel_ns_per_item * batch
        builder.kernel("k", start, free - start, correlation=number)
    return builder.build()


def together(traces: list[Trace]) -> TraceSet:
    return judge_set(traces, [diagnose(trace) for trace in traces])


@pytest.mark.parametrize(
    ("names", "sizes"),
    [
        (["m_b2.json", "m_b8.json.gz"], [2, 8]),
        (["bs=4.json", "bs=16.json"], [4, 16]),
        (["net.batch_size-1.json", "net.batch_size-64.json"], [1, 64]),
        (["m_b2.json", "other.json"], None),
        (["m_b2.json", "n_b2.json"], None),
        (["web3.json", "b200x.json"], None),
    ],
)
def test_batch_sizes_are_read_from_the_names(names: list[str], sizes: list[float] | None) -> None:
    assert batch_sizes([TraceBuilder(source=f"/some/b7/{name}").build() for name in names]) == sizes


def test_the_knee_is_where_busy_time_reaches_the_hosts() -> None:
    """Ten operators of 100 µs against ten kernels of 5 + b µs: about 90 for 905 µs of launch span."""
    found = together([model(batch, kernel_ns_per_item=1_000) for batch in (1, 16, 64, 128, 256)])
    experiment = found.null_experiment
    assert experiment is not None
    assert experiment.knee_reached
    assert experiment.knee_estimate == pytest.approx(85.5, abs=1)
    assert found.findings == ()


def test_a_knee_past_the_last_point_is_an_estimate() -> None:
    experiment = together([model(batch, kernel_ns_per_item=1_000) for batch in (1, 16, 64)]).null_experiment
    assert experiment is not None
    assert not experiment.knee_reached
    assert experiment.knee_estimate == pytest.approx(85.5, abs=1)
    assert "not reached by 64" in experiment.so


def test_another_sequence_of_operators_is_named() -> None:
    traces = [model(1, kernel_ns_per_item=1_000), model(2, kernel_ns_per_item=1_000)]
    traces.append(model(4, kernel_ns_per_item=1_000, ops=9))
    (finding,) = together(traces).findings
    assert finding.code == "different-operators"
    assert (finding.evidence["ops_top"], finding.evidence["ops_top_elsewhere"]) == (9, 10)


@pytest.mark.traces
def test_the_recorded_null_experiment(traces_dir: Path) -> None:
    """Launch-bound at 2, 8, 32; at 128 the knee is not reached, an estimate near 160; other operators at 128."""
    traces = [read_trace(path) for path in sorted((traces_dir / "batch_sweep").glob("*.json.gz"))]
    found = together(traces)
    experiment = found.null_experiment
    assert experiment is not None
    regimes = {point.value: point.regime for point in experiment.points}
    assert regimes == {2: "launch-bound", 8: "launch-bound", 32: "launch-bound", 128: "compute-bound"}
    assert not experiment.knee_reached
    assert experiment.knee_estimate == pytest.approx(160, abs=8)
    assert (experiment.fit.law, experiment.fit.knee) == ("none", None)
    text = render_text(compose_trace_set(found), width=100, color=False)
    assert re.search(r"Law of the windows +not told", text)
    places = [text.index(f"_b{batch}.json.gz ─") for batch in (2, 8, 32, 128)]
    assert places == sorted(places)
    (finding,) = found.findings
    assert finding.code == "different-operators"
    assert finding.evidence == {
        "value": 128.0,
        "ops_top": 611,
        "ops_top_elsewhere": 629,
        "synchronises": 1,
        "synchronises_elsewhere": 6,
    }


@pytest.mark.traces
def test_one_rank_does_not_speak_for_a_job(traces_dir: Path) -> None:
    traces = [read_trace(path) for path in sorted((traces_dir / "dlrm_8rank").glob("*.json.gz"))]
    found = together(traces)
    assert found.null_experiment is None
    ranked = [f for f in found.findings if f.code == "ranks-differ"]
    assert len(ranked) == 1
    assert len(ranked[0].evidence) == 3
