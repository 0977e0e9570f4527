"""What makes a trace easy to misread, one test for each trap: on the recorded files where one has it, else by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from referee.analysis.diagnose import diagnose
from referee.graph.work import work_by_device
from referee.trace.builder import TraceBuilder
from referee.trace.columns import CALL_KINDS, DEVICE_KINDS, NONE, Kind, Trace
from referee.trace.reader import parse_trace, read_trace
from referee.trace.totals import kernels_per_step, totals


def launched_by(trace: Trace) -> Counter[str]:
    """Name of a call → device rows that hang on it."""
    launch = trace.links.launch_of
    return Counter(trace.name_of(launch[row]) for row in trace.rows.of(*DEVICE_KINDS) if launch[row] != NONE)


def calls_without_a_row(trace: Trace, name: str) -> int:
    with_row = set(trace.links.launch_of.tolist())
    calls = trace.rows.of(*CALL_KINDS).tolist()
    return sum(trace.name_of(row) == name and row not in with_row for row in calls)


@pytest.mark.parametrize(("file", "rows", "of"), [("h100_bert_small", 22, 61), ("b200_eager", 221, 929)])
def test_a_driver_launch_can_be_the_only_launch_row(traces_dir: Path, file: str, rows: int, of: int):
    names = launched_by(read_trace(traces_dir / f"{file}.json.gz"))
    driver = sum(count for name, count in names.items() if name.startswith("cuLaunchKernel"))
    assert (driver, names.total()) == (rows, of)


def test_a_driver_launch_inside_a_runtime_launch_counts_once():
    builder = TraceBuilder().launch("cudaLaunchKernel", 0, 10, correlation=1)
    trace = builder.launch("cuLaunchKernel", 2, 5, correlation=1, driver=True).kernel("k", 20, 5, correlation=1).build()
    assert (launched_by(trace), totals(trace).launches) == (Counter(cudaLaunchKernel=1), 1)


@pytest.mark.parametrize(("file", "calls"), [("h100_bert_small", 22), ("v100_ns_resolution_deep_queue", 235)])
def test_fills_without_a_row_are_named_and_are_no_lost_kernels(traces_dir: Path, file: str, calls: int):
    trace = read_trace(traces_dir / f"{file}.json.gz")
    assert calls_without_a_row(trace, "cudaMemsetAsync") == calls
    assert totals(trace).launches_without_device_rows == 0
    (said,) = [one for one in diagnose(trace).findings if one.code == "launch-without-rows"]
    assert (said.severity, said.evidence["cudaMemsetAsync"]) == ("info", calls)


def test_a_kernel_that_starts_before_its_call_returns_has_waited_nothing(traces_dir: Path):
    trace = read_trace(traces_dir / "batch_sweep" / "a100_particle_transformer_b2.json.gz")
    rows, launch = trace.rows, trace.links.launch_of
    linked = np.flatnonzero(launch != NONE)
    early = rows.start_ns[linked] < rows.end_ns[launch[linked]]
    assert (int(early.sum()), len(linked)) == (455, 575)
    assert all((work.start_ns >= work.submission_ns)[work.linked].all() for work in work_by_device(trace))


@pytest.mark.parametrize(
    "name",
    [
        "cudaLaunchKernelExC", "cuLaunchKernelEx", "cudaLaunchCooperativeKernel", "cudaGraphLaunch", "hipLaunchKernel",
        "hipExtModuleLaunchKernel", "hipModuleLaunchKernel", "hipGraphLaunch", "hipMemcpyWithStream", "someNewLaunch",
    ],
)  # fmt: skip
def test_the_link_decides_what_is_a_launch_not_the_name(name: str):
    trace = TraceBuilder().launch(name, 0, 5, correlation=1).kernel("k", 10, 5, correlation=1).build()
    assert (launched_by(trace), totals(trace).launches) == (Counter({name: 1}), 1)


def test_the_profilers_closing_synchronisation_is_not_the_users():
    """It covers the end of the trace: with it and without it the device was as idle, for the same reasons."""

    def scene(closing: bool) -> Trace:
        builder = TraceBuilder()
        for index in range(20):
            builder.op("aten::add", index * 100_000, 90_000)
            builder.launch("cudaLaunchKernel", index * 100_000 + 10_000, 5_000, correlation=index + 1)
            builder.kernel("add", index * 100_000 + 18_000, 20_000, correlation=index + 1)
        return (builder.sync(2_000_000, 900_000) if closing else builder).build()

    with_it, without = diagnose(scene(True)), diagnose(scene(False))
    assert with_it.idle == without.idle
    assert with_it.idle.synchronised_ns == 0
    assert with_it.verdict.regime == without.verdict.regime == "launch-bound"


def test_a_launch_that_blocks_on_a_full_queue_is_the_devices_time(traces_dir: Path):
    report = diagnose(read_trace(traces_dir / "synthetic" / "launch_queue_full.json"))
    assert report.verdict.regime == "compute-bound"
    assert report.idle.host_starved_ns < report.totals.window_ns // 10


def test_device_work_counts_for_the_step_that_launched_it(traces_dir: Path):
    """By device time the five steps of this file hold 285, 624, 870, 870 and 870 kernels."""
    assert kernels_per_step(read_trace(traces_dir / "v100_ns_resolution_deep_queue.json.gz")) == (870,) * 5


def test_steps_that_nest_overlap_are_cut_or_missing():
    def steps(*spans: tuple[int, int]) -> Trace:
        builder = TraceBuilder()
        for number, (start, duration) in enumerate(spans):
            builder.step(number, start, duration)
        return builder.build() if spans else builder.op("aten::add", 0, 1).build()

    def codes(trace: Trace) -> set[str]:
        return {finding.code for finding in trace.findings}

    assert "overlapping-steps" in codes(steps((0, 1000), (100, 200)))
    assert "overlapping-steps" in codes(steps((0, 1000), (900, 1000)))
    cut = steps((0, 1000), (1000, 1000), (2000, 1000), (3000, 90))
    assert [step.cut for step in cut.steps] == [False, False, False, True]
    assert "no-steps" in codes(steps())


TIMES = {
    "decimal": ("1727743122000000.125", "2.5"),
    "text": ('"1727743122000000.125"', '"2.5"'),
    "scientific": ("1.727743122000000125e15", "25e-1"),
    "above 2^63": ("18446744073709551616.125", "2.5"),
}


@pytest.mark.parametrize("way", TIMES)
@pytest.mark.parametrize("bare", [False, True])
def test_times_keep_their_nanoseconds_however_they_are_written(way: str, bare: bool):
    start, duration = TIMES[way]
    events = (
        f'[{{"ph": "X", "cat": "Operator", "name": "a", "pid": 1, "tid": 1, "ts": {start}, "dur": {duration}}}, '
        f'{{"ph": "X", "cat": "Kernel", "name": "k", "pid": 0, "tid": 7, "ts": {start}, "dur": 0}}]'
    )
    trace = parse_trace((events if bare else f'{{"baseTimeNanoseconds": 7, "traceEvents": {events}}}').encode())
    assert sorted(trace.rows.end_ns.tolist()) == [0, 2500]
    assert trace.base_ns % 1000 == 125
    assert (totals(trace).ops, totals(trace).kernels) == (1, 1)


def test_a_tiled_trace_is_so_many_traces(traces_dir: Path, tmp_path: Path):
    source, tiled = traces_dir / "h100_bert_small.json.gz", tmp_path / "tiled.json"
    script = [sys.executable, str(traces_dir / "tile_trace.py"), str(source), str(tiled), "--tiles", "3"]
    subprocess.run(script, check=True, capture_output=True)
    once, thrice = totals(read_trace(source)), totals(read_trace(tiled))
    for name in ("ops", "ops_top", "runtime_calls", "launches", "kernels", "device_rows", "busy_ns", "sum_ns"):
        assert getattr(thrice, name) == 3 * getattr(once, name), name
    assert thrice.device_rows_without_launch == 0
    assert json.loads(tiled.read_bytes())["traceEvents"]


def test_a_stream_that_waits_for_an_event_is_no_device_work() -> None:
    """MTIA records such waits among its tasks; a stream is not at work while it stands."""
    common = {"ph": "X", "pid": 17, "tid": 1, "cat": "mtia_ccp_events"}
    rows = [
        {"name": "event_wait", "ts": 0, "dur": 900, "args": {"stream": 108, "wait_on_stream": 104}},
        {"name": "pe_exe", "ts": 900, "dur": 100, "args": {"stream": 108}},
        {"name": "event_record", "ts": 1000, "dur": 1, "args": {"stream": 108}},
    ]
    trace = parse_trace(json.dumps({"traceEvents": [common | row for row in rows]}).encode())
    assert trace.rows.kind.tolist() == [Kind.DEVICE_SYNC, Kind.DEVICE_OTHER, Kind.DEVICE_SYNC]
