"""Operators, launches, memory, gaps with owners, synchronising sites, regimes of steps, and the warm remainder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings

from referee.analysis.diagnose import diagnose
from referee.analysis.operators import launch_stats, operator_table
from referee.analysis.study import Study
from referee.trace.builder import TraceBuilder
from referee.trace.reader import read_trace
from referee.trace.totals import totals

from ..graph import hand_made  # noqa: TID252 - the strategies of the graph tests

US = 1_000
MS = 1_000_000


def nested() -> TraceBuilder:
    """aten::linear (0-100) holds aten::addmm (20-80), which launches 30 µs; a second aten::linear recurses into one."""
    builder = TraceBuilder().op("aten::linear", 0, 100 * US).op("aten::addmm", 20 * US, 60 * US)
    builder.launch("cudaLaunchKernel", 40 * US, 5 * US, correlation=1).kernel("g", 50 * US, 30 * US, correlation=1)
    builder.op("aten::linear", 200 * US, 50 * US).op("aten::linear", 210 * US, 20 * US)
    builder.launch("cudaLaunchKernel", 212 * US, 5 * US, correlation=2).kernel("g", 220 * US, 10 * US, correlation=2)
    return builder


def test_operators_are_never_counted_twice() -> None:
    table = {row.name: row for row in operator_table(nested().build())}
    linear, addmm = table["aten::linear"], table["aten::addmm"]
    assert (linear.count, linear.host_self_ns, linear.host_total_ns) == (3, (40 + 30 + 20) * US, 150 * US)
    assert (addmm.count, addmm.host_self_ns, addmm.host_total_ns) == (1, 60 * US, 60 * US)
    assert (linear.device_self_ns, linear.device_total_ns) == (10 * US, 40 * US)
    assert (addmm.device_self_ns, addmm.device_total_ns) == (30 * US, 30 * US)


@settings(max_examples=60, deadline=None)
@given(scene=hand_made.plausible_scenes())
def test_self_times_sum_to_the_whole(scene: hand_made.Scene) -> None:
    trace = scene.build()
    table = operator_table(trace)
    assert sum(row.host_self_ns for row in table) == (totals(trace).self_cpu_ns or 0)


@pytest.mark.traces
def test_self_times_sum_to_the_whole_on_recorded_traces(traces_dir: Path) -> None:
    for name, expected in json.loads((traces_dir / "EXPECTED.json").read_text()).items():
        if expected["events"] > 60_000 or not expected.get("ops"):
            continue
        trace = read_trace(traces_dir / name)
        table = operator_table(trace)
        assert sum(row.host_self_ns for row in table) == totals(trace).self_cpu_ns, name
        assert sum(row.count for row in table) == expected["ops"], name
        assert sum(row.device_self_ns for row in table) <= expected.get("sum_ns", 10**18), name


def test_tables_leave_no_name_out() -> None:
    builder = TraceBuilder()
    for number in range(1, 251):
        begin = number * 100 * US
        builder.op(f"aten::op_{number}", begin, 20 * US).launch("cudaLaunchKernel", begin, 5 * US, correlation=number)
        builder.kernel(f"kernel_{number}", begin + 6 * US, 2 * US, correlation=number)
    report = diagnose(builder.build())
    assert (len(report.operators), len(report.top_kernels)) == (250, 250)
    assert sum(row.device_self_ns for row in report.operators) == report.totals.busy_ns


def test_kernels_shorter_than_their_launch_are_counted() -> None:
    builder = TraceBuilder()
    for number, dur in enumerate((2, 3, 50, 60), start=1):
        builder.launch("cudaLaunchKernel", number * 100 * US, 5 * US, correlation=number)
        builder.kernel("k", (number * 100 + 6) * US, dur * US, correlation=number)
    stats = launch_stats(builder.build())
    assert stats is not None
    assert (stats.short_kernels, stats.short_kernels_ns, stats.kernels) == (2, 5 * US, 4)
    assert (stats.median_call_ns, stats.kernels_per_launch) == (5 * US, 1.0)


def test_a_gap_has_its_cause_and_who_had_the_host() -> None:
    builder = TraceBuilder().kernel("first", 0, 10 * US).annotation("training", 0, 500 * US)
    builder.python("model.py(12): forward", 20 * US, 200 * US).op("aten::mm", 30 * US, 150 * US)
    builder.launch("cudaLaunchKernel", 150 * US, 5 * US, correlation=1).kernel("g", 160 * US, 10 * US, correlation=1)
    (row,) = diagnose(builder.build()).gaps
    assert (row.length_ns, row.cause, row.ended_by) == (150 * US, "per-op", "g")
    assert row.owner.operator == "aten::mm"
    assert row.owner.python == "model.py(12): forward"
    assert row.owner.annotation == "training"


def test_the_place_that_waits_is_named_with_the_idle_time_behind_it() -> None:
    builder = TraceBuilder()
    for number in range(1, 4):
        at = number * 300
        builder.launch("cudaLaunchKernel", at * US, 5 * US, correlation=number)
        builder.kernel("k", (at + 6) * US, 100 * US, correlation=number)
        builder.python("loss.py(40): log", (at + 10) * US, 120 * US).op("aten::item", (at + 12) * US, 110 * US)
        builder.sync((at + 20) * US, 88 * US, name="cudaStreamSynchronize")
    (site,) = diagnose(builder.build()).sync_sites
    assert (site.call, site.count, site.wait_ns) == ("cudaStreamSynchronize", 3, 3 * 88 * US)
    assert site.owner.python == "loss.py(40): log"
    assert site.idle_ns == 2 * 88 * US


def test_memory_is_summed_where_totals_are_not_stated(tmp_path: Path) -> None:
    document = json.loads(TraceBuilder().op("aten::empty", 0, 100 * US).to_json())
    for at, change in ((10, 512), (20, 1024), (30, -512)):
        args = {"Device Type": 1, "Device Id": 0, "Bytes": change}
        document["traceEvents"].append(
            {"ph": "i", "name": "[memory]", "ts": at, "s": "t", "pid": 1, "tid": 1, "args": args}
        )
    path = tmp_path / "memory.json"
    path.write_text(json.dumps(document))
    memory = diagnose(read_trace(path)).memory
    assert memory is not None
    assert (memory.events, memory.peak_bytes, memory.peak_time_ns, memory.from_start) == (3, 1536, 20 * US, False)
    assert [point.allocated_bytes for point in memory.points] == [512, 1536, 1024]


@pytest.mark.traces
def test_memory_of_a_recorded_trace(traces_dir: Path) -> None:
    memory = diagnose(read_trace(traces_dir / "h100_bert_small.json.gz")).memory
    assert memory is not None
    assert memory.from_start
    assert memory.peak_bytes == max(point.allocated_bytes for point in memory.points)


def test_each_step_has_its_own_regime() -> None:
    """Step 0 issues slowly, step 1 waits after each kernel, step 2 keeps the device full."""
    builder, number, free = TraceBuilder(), 0, 0
    for step in range(3):
        begin = step * 2_000
        builder.step(step, begin * US, 2_000 * US)
        for turn in range(10):
            at = begin + 100 + turn * (190 if step < 2 else 15)
            number += 1
            builder.launch("cudaLaunchKernel", at * US, 5 * US, correlation=number)
            start, dur = max(free, at + 6), {0: 20, 1: 100, 2: 180}[step]
            builder.kernel("k", start * US, dur * US, correlation=number)
            free = start + dur
            if step == 1:
                builder.sync((at + 8) * US, (free - at - 7) * US)
    regimes = [step.regime for step in Study(builder.build()).steps]
    assert regimes == ["launch-bound", "sync-bound", "compute-bound"]


def test_a_cold_window_is_judged_again_without_its_first_time_costs() -> None:
    """A launch of 60 ms before 40 ms of full device time: cold, and compute-bound once it is warm."""
    builder = TraceBuilder().launch("cudaLaunchKernel", 0, 5 * US, correlation=1)
    builder.kernel("k", 6 * US, 100 * US, correlation=1)
    builder.launch("cudaLaunchKernel", 200 * US, 60 * MS, correlation=2)
    for number in range(2, 42):
        if number > 2:
            builder.launch("cudaLaunchKernel", 60_200 * US + number * 10 * US, 5 * US, correlation=number)
        builder.kernel("k", 60_210 * US + (number - 2) * MS, MS, correlation=number)
    report = diagnose(builder.build())
    assert report.verdict.regime == "cold"
    assert report.warm is not None
    assert report.warm.regime == "compute-bound"
    assert diagnose(nested().build()).warm is None
