"""A clock of the device that is ahead of the host's is told from a queue, a slow launch and a graph."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.analysis.diagnose import diagnose
from referee.records.trace_report import TraceReport
from referee.trace.builder import TraceBuilder

US = 1_000


def host_paced(
    *, ahead_us: int, every_us: int = 20, kernels: int = 200, jitter_us: int = 3, seed: int = 0
) -> TraceReport:
    """Kernels of 2 µs, one every ``every_us``, which start 2 µs after their launch by a clock that is ahead."""
    draw, kernels, jitter_us = np.random.default_rng(seed), 200, 3
    builder = TraceBuilder()
    for number in range(1, kernels + 1):
        at = number * every_us * US
        builder.op("aten::add", at, (every_us - 2) * US)
        builder.launch("cudaLaunchKernel", at + 3 * US, 5 * US, correlation=number)
        late = int(draw.integers(0, jitter_us * US + 1))
        builder.kernel("k", at + 10 * US + late + ahead_us * US, 2 * US, correlation=number)
    builder.step(0, 0, (kernels + 2) * every_us * US)
    return diagnose(builder.build())


@settings(max_examples=15, deadline=None)
@given(ahead_us=st.integers(60, 100_000), every_us=st.integers(10, 45), seed=st.integers(0, 100))
def test_rows_that_are_all_late_by_the_same_time_name_nobody(ahead_us: int, every_us: int, seed: int) -> None:
    report = host_paced(ahead_us=ahead_us, every_us=every_us, seed=seed)
    assert (report.verdict.regime, report.verdict.undecided_because) == ("cannot-tell", "rows-late")
    (finding,) = [finding for finding in report.findings if finding.code == "rows-late"]
    assert finding.evidence["least_ns"] == pytest.approx(ahead_us * US, abs=5 * US)
    assert {step.regime for step in report.steps} == {"cannot-tell"}


def test_the_same_with_one_clock_is_the_hosts() -> None:
    report = host_paced(ahead_us=0)
    assert report.verdict.regime == "launch-bound"
    assert "rows-late" not in {finding.code for finding in report.findings}


def test_a_queue_that_is_deep_throughout_is_no_other_clock() -> None:
    """Recorded in the middle of a run: a thousand kernels were queued, each waits for its own number of others, and of
    10 µs from row to row 4 are the device's."""
    builder = TraceBuilder()
    for number in range(1, 301):
        builder.launch("cudaLaunchKernel", number * 7 * US, 5 * US, correlation=number)
        builder.kernel("k", (10_000 + 10 * number) * US, 6 * US, correlation=number)
    report = diagnose(builder.build())
    assert report.verdict.undecided_because != "rows-late"
    assert "rows-late" not in {finding.code for finding in report.findings}


def test_gaps_inside_replayed_graphs_are_no_other_clock() -> None:
    """Each of twelve graphs of fifty kernels begins 30 µs after its launch; between its kernels lie 3 µs."""
    builder = TraceBuilder()
    for number in range(1, 13):
        at = number * 500 * US
        builder.launch("cudaGraphLaunch", at, 10 * US, correlation=number)
        for place in range(50):
            builder.kernel("k", at + (40 + 9 * place) * US, 6 * US, correlation=number)
    report = diagnose(builder.build())
    assert "rows-late" not in {finding.code for finding in report.findings}
