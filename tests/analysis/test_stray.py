"""One unbelievable row sets the window: the verdict is on the rest, the totals on the whole, and both are said."""

from __future__ import annotations

import pytest

from referee.analysis.diagnose import diagnose
from referee.records.trace_report import TraceReport
from referee.trace.builder import TraceBuilder

US = 1_000
MS = 1_000_000
FAR = {"late": 60 * MS, "early": -60 * MS}


def launch_bound(kernels: int = 200) -> TraceBuilder:
    """A kernel of 2 µs every 20 µs, the host at work on each all the time: 4 ms, 90 % idle."""
    builder = TraceBuilder()
    for number in range(1, kernels + 1):
        at = number * 20 * US
        builder.op("aten::add", at, 18 * US)
        builder.launch("cudaLaunchKernel", at + 3 * US, 5 * US, correlation=number)
        builder.kernel("k", at + 9 * US, 2 * US, correlation=number)
    return builder


def regime_and_code(report: TraceReport) -> tuple[str, list[str]]:
    return report.verdict.regime, [f.code for f in report.findings if f.code == "stray-rows"]


@pytest.mark.parametrize("duration_ns", [0, 2 * US])
@pytest.mark.parametrize(("where", "linked"), [("late", False), ("early", False), ("early", True)])
def test_one_row_far_away_is_named_and_changes_no_verdict(where: str, duration_ns: int, linked: bool) -> None:
    builder, clean = launch_bound(), diagnose(launch_bound().build())
    if linked:
        builder.launch("cudaLaunchKernel", 4_100 * US, 5 * US, correlation=999)
    builder.kernel("stray", FAR[where], duration_ns, correlation=999 if linked else 0)
    report = diagnose(builder.build())
    assert regime_and_code(report) == (clean.verdict.regime, ["stray-rows"]) == ("launch-bound", ["stray-rows"])
    (said,) = (f for f in report.findings if f.code == "stray-rows")
    assert said.evidence["name"] == "stray"
    assert said.evidence["window_ns"] == report.totals.window_ns > 55 * MS
    assert said.evidence["window_without_ns"] == clean.totals.window_ns < 4 * MS
    assert report.verdict.evidence[0].value == 1
    assert report.verdict.evidence[1:] == clean.verdict.evidence
    idle = report.idle
    causes = idle.host_starved_ns + idle.synchronised_ns + idle.dependency_ns + idle.other_ns
    assert causes == report.totals.idle_ns == report.totals.window_ns - report.totals.busy_ns


@pytest.mark.parametrize("duration_ns", [0, 2 * US])
def test_a_row_long_after_its_own_launch_was_queued_and_what_it_waited_for_is_not_seen(duration_ns: int) -> None:
    builder = launch_bound().launch("cudaLaunchKernel", 4_100 * US, 5 * US, correlation=999)
    report = diagnose(builder.kernel("late", FAR["late"], duration_ns, correlation=999).build())
    assert regime_and_code(report) == ("cannot-tell", [])
    assert report.verdict.undecided_because == "unseen"
    assert report.idle.unseen_ns > 50 * MS


def test_of_a_short_trace_a_row_without_duration_is_set_aside_and_one_with_a_duration_is_not() -> None:
    empty = diagnose(launch_bound(10).kernel("stray", 60 * MS, 0).build())
    assert regime_and_code(empty) == ("launch-bound", ["stray-rows"])
    real = diagnose(launch_bound(10).kernel("stray", 60 * MS, 2 * US).build())
    assert regime_and_code(real) == ("cannot-tell", [])


def test_a_first_kernel_before_a_long_load_of_code_is_held_by_the_host_and_stays() -> None:
    builder = launch_bound()
    builder.launch("cudaLaunchKernel", -600 * MS, 5 * US, correlation=998)
    builder.kernel("first", -600 * MS + 6 * US, 2 * US, correlation=998)
    builder.launch("cudaLaunchKernel", -599 * MS, 599 * MS, correlation=999)
    builder.kernel("second", 1 * US, 2 * US, correlation=999)
    report = diagnose(builder.build())
    assert regime_and_code(report) == ("cold", [])
    assert report.warm is not None
    assert report.warm.regime == "launch-bound"


def test_a_tail_of_many_rows_is_work() -> None:
    builder = launch_bound()
    for number in range(5):
        builder.kernel("tail", 60 * MS + number * 10 * US, 5 * US)
    assert regime_and_code(diagnose(builder.build()))[1] == []


def test_without_stray_rows_a_short_kernel_at_the_edge_is_no_finding() -> None:
    assert regime_and_code(diagnose(launch_bound().kernel("empty", 4_030 * US, 0).build())) == ("launch-bound", [])


def test_warm_says_no_more_than_the_clocks_allow() -> None:
    """Rows 40 µs before their launch: neither the window nor what remains of it without the load names the host."""
    builder = TraceBuilder()
    builder.launch("cudaLaunchKernel", 0, 5 * US, correlation=1).kernel("k", 6 * US, 2 * US, correlation=1)
    builder.launch("cudaLaunchKernel", 20 * US, 5 * MS, correlation=2).kernel("k", 5_022 * US, 2 * US, correlation=2)
    for number in range(3, 103):
        at = 5_000 * US + number * 20 * US
        builder.op("aten::add", at, 18 * US).launch("cudaLaunchKernel", at + 3 * US, 5 * US, correlation=number)
        builder.kernel("k", at - 40 * US, 2 * US, correlation=number)
    report = diagnose(builder.build())
    assert report.verdict.regime == "cold"
    assert report.warm is not None
    assert (report.warm.regime, report.warm.undecided_because) == ("cannot-tell", "rows-before-launch")
