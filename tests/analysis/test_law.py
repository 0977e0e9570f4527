"""The law, the queue and utilisation on traces whose figures are known by construction."""

from __future__ import annotations

import pytest

from referee.analysis.diagnose import diagnose
from referee.analysis.evidence import judge
from referee.analysis.study import Study
from referee.report.compose import compose
from referee.report.text import render_text
from referee.trace.builder import TraceBuilder

US = 1_000
MS = 1_000_000


def loop(count: int, *, every: int, kernel: int, lag: int = 6) -> TraceBuilder:
    """``count`` operators, one every ``every`` µs, each launching a kernel of ``kernel`` µs that starts ``lag`` later
    or when the device is free."""
    builder, free = TraceBuilder(), 0
    for number in range(1, count + 1):
        at = (number - 1) * every
        builder.op("aten::add", at * US, every * US)
        builder.launch("cudaLaunchKernel", at * US, 5 * US, correlation=number)
        start = max(at + lag, free)
        builder.kernel("k", start * US, kernel * US, correlation=number)
        free = start + kernel
    return builder


def test_the_host_side_is_the_launch_span() -> None:
    law = Study(loop(10, every=20, kernel=2).build()).law
    assert law.n_ops == 10
    assert law.host_ns == 9 * 20 * US + 5 * US
    assert law.t_cpu_ns == law.host_ns / 10
    assert law.device_ns == 20 * US
    assert law.predicted_ns == law.host_ns
    assert law.measured_ns == (9 * 20 + 2) * US


def test_waits_are_not_host_work() -> None:
    builder = loop(10, every=20, kernel=2).sync(45 * US, 10 * US)
    assert Study(builder.build()).law.host_ns == (9 * 20 + 5 - 10) * US
    # A wait of a thread that launches nothing is not on the host's path.
    elsewhere = loop(10, every=20, kernel=2).sync(45 * US, 10 * US, thread=9)
    assert Study(elsewhere.build()).law.host_ns == (9 * 20 + 5) * US


def test_the_device_side_counts_concurrent_rows_once() -> None:
    builder = loop(4, every=20, kernel=100)
    builder.kernel("beside", 6 * US, 200 * US, stream=9)
    study = Study(builder.build())
    assert study.law.device_ns == 400 * US
    assert study.totals.sum_ns == 600 * US
    assert study.law.residual_ns == 0


def test_no_launches_no_host_side() -> None:
    law = Study(TraceBuilder().kernel("a", 0, 5).kernel("b", 9, 5).build()).law
    assert law.host_ns is None
    assert law.predicted_ns is None
    assert law.residual_ns is None
    assert "not known" in law.residual


def test_queue_delay_starts_at_the_earlier_of_return_and_start() -> None:
    queue = Study(loop(5, every=20, kernel=100).build()).queue
    # Starts at 6, 106, 206 … against launch ends at 5, 25, 45 …: 1, 81, 161, 241, 321.
    assert queue.median_ns == 161 * US
    assert queue.rows == 5
    builder = TraceBuilder().launch("cudaLaunchKernel", 0, 30 * US, correlation=1)
    assert Study(builder.kernel("k", 10 * US, 5 * US, correlation=1).build()).queue.median_ns == 0


def test_only_the_first_row_of_a_launch_waits_in_the_queue() -> None:
    builder = TraceBuilder().launch("cudaGraphLaunch", 0, 5 * US, correlation=1)
    for start in (7, 20, 40):
        builder.kernel("k", start * US, 10 * US, correlation=1)
    queue = Study(builder.build()).queue
    assert (queue.rows, queue.median_ns) == (1, 2 * US)


def test_bare_latency_is_the_median_onto_an_idle_stream() -> None:
    assert Study(loop(9, every=50, kernel=2, lag=9).build()).queue.latency_ns == 4 * US
    assert Study(loop(9, every=150, kernel=2, lag=90).build()).queue.latency_ns == 20 * US
    assert Study(loop(9, every=50, kernel=2, lag=2).build()).queue.latency_ns == 0
    assert Study(loop(9, every=5, kernel=100).build()).queue.latency_ns == 5 * US


def test_a_bare_latency_that_no_row_shows_is_called_assumed() -> None:
    shown, assumed = (diagnose(loop(9, every=every, kernel=kernel).build()) for every, kernel in ((50, 2), (5, 100)))
    assert (shown.queue.latency_assumed, assumed.queue.latency_assumed) == (False, True)
    texts = [render_text(compose(report), width=120, color=False) for report in (shown, assumed)]
    assert ["assumed: too few rows show it" in " ".join(text.split()) for text in texts] == [False, True]


def test_any_kernel_counts_kernels_only_and_its_busiest_sample() -> None:
    builder = TraceBuilder().kernel("k", 0, 100 * MS).memcpy(100 * MS, 100 * MS)
    builder.kernel("k", 200 * MS, 200 * MS)
    figures = Study(builder.build()).utilisation
    assert figures.any_kernel_frac == 300 / 400
    # Samples of 1/6 s may begin anywhere: 200-366.7 ms is full.
    assert figures.any_kernel_peak_frac == 1


def test_the_busiest_sample_is_no_less_busy_than_the_window() -> None:
    """All work lies at the ends of half a second: 20 ms in the first sample, 30 ms in the last."""
    builder = TraceBuilder().kernel("k", 0, 20 * MS).kernel("k", 470 * MS, 30 * MS)
    figures = Study(builder.build()).utilisation
    assert figures.any_kernel_frac == 0.1
    assert figures.any_kernel_peak_frac == pytest.approx(30 / (1000 / 6))
    short = Study(TraceBuilder().kernel("k", 0, 20 * MS).kernel("k", 100 * MS, 30 * MS).build())
    assert short.utilisation.any_kernel_peak_frac is None


def test_a_full_queue_is_the_devices_limit_not_the_hosts() -> None:
    """Launch calls that block for 190 µs each while the device never idles: nothing is host-starved."""
    builder, free = TraceBuilder(), 10
    for number in range(1, 30):
        at = (number - 1) * 5 if number < 10 else 45 + (number - 10) * 200
        builder.launch("cudaLaunchKernel", at * US, (4 if number < 10 else 190) * US, correlation=number)
        builder.kernel("k", free * US, 200 * US, correlation=number)
        free += 200
    study = Study(builder.build())
    assert study.totals.idle_ns == 0
    assert study.idle.host_starved_ns == 0
    assert study.shares.busy_frac == 1.0


def test_nothing_is_left_over_where_the_law_is_the_window() -> None:
    """Two kernels without a gap, launched before they run: Σ t_gpu is the window."""
    builder = TraceBuilder().launch("cudaLaunchKernel", 0, 5 * US, correlation=1)
    builder.launch("cudaLaunchKernel", 6 * US, 5 * US, correlation=2)
    builder.kernel("k", 10 * US, 50 * US, correlation=1).kernel("k", 60 * US, 50 * US, correlation=2)
    study = Study(builder.build())
    assert (study.law.residual_ns, study.law.residual) == (0, "nothing: the law is the window")
    assert judge(study).would_change.endswith("there is none now")
