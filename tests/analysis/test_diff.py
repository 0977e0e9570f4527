"""Two traces: alignment, conservation of time, and noise."""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.analysis.align import align
from referee.analysis.diff import diff_traces
from referee.records.diff import TraceDiff
from referee.report.diff import compose_diff
from referee.report.text import render_text
from referee.trace.builder import TraceBuilder
from referee.trace.columns import Trace
from referee.trace.reader import read_trace
from referee.trace.totals import totals

US = 1_000
words = st.lists(st.sampled_from("abcd"), max_size=12)


def longest_common(a: list[str], b: list[str]) -> int:
    """Length of the longest common subsequence by the textbook table."""
    table = np.zeros((len(a) + 1, len(b) + 1), dtype=int)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1, j + 1] = table[i, j] + 1 if x == y else max(table[i, j + 1], table[i + 1, j])
    return int(table[-1, -1])


@given(a=words, b=words)
def test_alignment_is_the_longest_common_subsequence(a: list[str], b: list[str]) -> None:
    pairs = align(a, b)
    assert all(a[i] == b[j] for i, j in pairs)
    assert pairs == sorted(pairs)
    assert len({i for i, _ in pairs}) == len({j for _, j in pairs}) == len(pairs) == longest_common(a, b)


@given(a=words, b=words)
def test_sequences_too_different_are_paired_by_name(a: list[str], b: list[str]) -> None:
    pairs = align(a, b, most_edits=0)
    assert all(a[i] == b[j] for i, j in pairs)
    assert len({i for i, _ in pairs}) == len({j for _, j in pairs}) == len(pairs)


def steps(names: list[str], *, kernel: int, jitter: tuple[int, ...] = (0, 1, 2), wait: bool = False) -> Trace:
    """Three steps of the same operators, each with one kernel of ``kernel`` µs plus the step's jitter."""
    builder, number, at, free = TraceBuilder(source="made"), 0, 0, 0
    for step, more in enumerate(jitter):
        begin = at
        for name in names:
            number += 1
            builder.op(name, at * US, 20 * US)
            builder.launch("cudaLaunchKernel", (at + 5) * US, 5 * US, correlation=number)
            start = max(free, at + 12)
            free = start + kernel + more
            builder.kernel(f"kernel of {name}", start * US, (kernel + more) * US, correlation=number)
            at += 30
            if wait:
                builder.sync(at * US, max(1, free + 1 - at) * US)
                at = max(at + 1, free + 1)
        builder.step(step, begin * US, (at - begin) * US)
    return builder.build()


def check_conserved(diff: TraceDiff, a: Trace, b: Trace) -> None:
    """Causes sum to the means; entries and kernels sum to the aligned steps."""
    assert sum(cause.a_ns for cause in diff.causes) == pytest.approx(diff.a.mean_ns)
    assert sum(cause.b_ns for cause in diff.causes) == pytest.approx(diff.b.mean_ns)
    assert sum(e.device_a_ns for e in diff.entries) == sum(k.a_ns for k in diff.kernels)
    assert sum(e.device_b_ns for e in diff.entries) == sum(k.b_ns for k in diff.kernels)
    if not diff.a.steps:
        assert sum(e.device_a_ns for e in diff.entries) == totals(a).sum_ns
        assert sum(e.idle_a_ns for e in diff.entries) == totals(a).idle_ns
    if not diff.b.steps:
        assert sum(e.device_b_ns for e in diff.entries) == totals(b).sum_ns


def test_a_trace_against_itself_is_the_same() -> None:
    trace = steps(["aten::a", "aten::b"], kernel=10, jitter=(0, 0, 0))
    diff = diff_traces(trace, trace)
    assert (diff.answer, diff.change_ns) == ("same", 0)
    assert {entry.status for entry in diff.entries} == {"matched"}
    check_conserved(diff, trace, trace)


def test_slower_kernels_are_the_change_where_the_device_is_the_limit() -> None:
    a = steps(["aten::a", "aten::b"], kernel=100)
    b = steps(["aten::a", "aten::b"], kernel=150)
    diff = diff_traces(a, b)
    assert diff.answer == "slower"
    assert diff.ratio == pytest.approx(1.5, abs=0.03)
    change = {cause.name: cause.b_ns - cause.a_ns for cause in diff.causes}
    assert change["busy"] == pytest.approx(diff.change_ns, rel=0.02)
    check_conserved(diff, a, b)


def test_a_new_wait_is_the_change() -> None:
    a = steps(["aten::a", "aten::b"] * 5, kernel=60)
    b = steps(["aten::a", "aten::b"] * 5, kernel=60, wait=True)
    diff = diff_traces(a, b)
    assert diff.answer == "slower"
    change = {cause.name: cause.b_ns - cause.a_ns for cause in diff.causes}
    assert max(change, key=lambda name: change[name]) == "synchronised"


def test_added_and_removed_operators_are_found_in_order() -> None:
    a = steps(["aten::a", "aten::x", "aten::b"], kernel=10)
    b = steps(["aten::a", "aten::b", "aten::y", "aten::z"], kernel=10)
    diff = diff_traces(a, b)
    status = {entry.name: entry.status for entry in diff.entries if entry.count_a or entry.count_b}
    assert status == {
        "aten::a": "matched",
        "aten::b": "matched",
        "aten::x": "removed",
        "aten::y": "added",
        "aten::z": "added",
        "(outside operators)": "matched",
    }
    assert "different-operators" in {finding.code for finding in diff.findings}
    check_conserved(diff, a, b)


def test_one_per_cent_within_the_noise_is_no_result() -> None:
    a = steps(["aten::a"] * 4, kernel=100, jitter=(0, 20, 5, 15))
    b = steps(["aten::a"] * 4, kernel=101, jitter=(20, 0, 15, 5))
    assert diff_traces(a, b).answer in ("same", "cannot-tell")


def test_one_step_a_side_cannot_tell() -> None:
    a, b = steps(["aten::a"], kernel=100, jitter=(0,)), steps(["aten::a"], kernel=300, jitter=(0,))
    diff = diff_traces(a, b)
    assert (diff.answer, diff.noise_ns) == ("cannot-tell", None)
    assert [finding.code for finding in diff.findings] == ["no-noise", "no-noise"]


def on(device: str, ranks: int) -> Trace:
    """Two whole steps of one kernel each on the device of that name."""
    builder = TraceBuilder().device_properties(device).metadata(distributedInfo={"world_size": ranks, "rank": 0})
    for number in range(1, 3):
        builder.step(number, number * 100 * US, 90 * US)
        builder.launch("cudaLaunchKernel", (number * 100 + 10) * US, 5 * US, correlation=number)
        builder.kernel("k", (number * 100 + 20) * US, 50 * US, correlation=number)
    return builder.build()


def test_what_differs_besides_the_program_is_said() -> None:
    diff = diff_traces(on("NVIDIA A100", 8), on("Tesla V100", 2))
    assert (diff.a.devices, diff.b.devices) == (("NVIDIA A100",), ("Tesla V100",))
    (finding,) = [f for f in diff.findings if f.code == "not-comparable"]
    assert "device NVIDIA A100 in A, Tesla V100 in B" in finding.message
    assert (finding.evidence["ranks_a"], finding.evidence["ranks_b"]) == ("8", "2")


def test_a_narrow_page_shows_both_devices_and_which_file_each_is() -> None:
    diff = diff_traces(on("NVIDIA A100-PG509-200", 8), on("Tesla V100-SXM2-16GB", 8))
    folder = "/mnt/shared/experiments/of/last/week"
    a, b = (replace(s, source=f"{folder}/{n}.json.gz") for s, n in ((diff.a, "before"), (diff.b, "after")))
    page = render_text(compose_diff(replace(diff, a=a, b=b)), width=80, color=False)
    assert re.search(r"A +before.json.gz +NVIDIA A100-PG509-200", page)
    assert re.search(r"B +after.json.gz +Tesla V100-SXM2-16GB", page)
    twins = (replace(s, source=f"{n}/x.json") for s, n in ((diff.a, "before"), (diff.b, "after")))
    page = render_text(compose_diff(replace(diff, **dict(zip("ab", twins, strict=True)))), width=80, color=False)
    assert re.search(r"A +before/x.json", page)


def on_the_host(count: int) -> Trace:
    """Whole steps of one operator each, without device work."""
    builder = TraceBuilder()
    for number in range(1, count + 1):
        builder.step(number, number * 100 * US, 90 * US).op("aten::mm", (number * 100 + 10) * US, 50 * US)
    return builder.build()


def test_without_device_work_there_is_no_window_to_compare() -> None:
    """Two files of host rows alone are not the same for having windows of nothing both."""
    for a, b in ((on("NVIDIA A100", 8), on_the_host(3)), (on_the_host(3), on("NVIDIA A100", 8))):
        diff = diff_traces(a, b)
        assert (diff.answer, diff.ratio) == ("cannot-tell", None)
        assert next(f.code for f in diff.findings if f.severity == "warning") == "no-device-rows"
        holder = "A" if diff.a.mean_ns == 0 else "B"
        page = render_text(compose_diff(diff), width=100, color=False)
        assert f"No window to compare: {holder} holds no device work." in page
    both = diff_traces(on_the_host(3), on_the_host(3))
    assert both.answer == "cannot-tell"
    assert "neither trace holds any device work" in render_text(compose_diff(both), width=100, color=False)


def test_a_file_that_breaks_off_is_said_to(tmp_path: Path) -> None:
    whole = tmp_path / "whole.json"
    events = [
        {"ph": "X", "cat": "kernel", "name": "k", "ts": 10 * n, "dur": 5, "pid": 0, "tid": 7, "args": {"device": 0}}
        for n in range(40)
    ]
    whole.write_text(json.dumps({"traceEvents": events}))
    broken = tmp_path / "broken.json"
    broken.write_text(whole.read_text()[:-400])
    diff = diff_traces(read_trace(whole), read_trace(broken))
    (finding,) = [f for f in diff.findings if f.code == "truncated"]
    assert "broken.json: " in finding.message


def test_sides_recorded_alike_are_comparable() -> None:
    diff = diff_traces(on("NVIDIA A100", 8), on("NVIDIA A100", 8))
    assert "not-comparable" not in {finding.code for finding in diff.findings}


@settings(max_examples=30, deadline=None)
@given(names_a=st.lists(st.sampled_from("pqrs"), max_size=6), names_b=st.lists(st.sampled_from("pqrs"), max_size=6))
def test_time_is_conserved(names_a: list[str], names_b: list[str]) -> None:
    a, b = steps(names_a, kernel=30), steps(names_b, kernel=50, wait=True)
    check_conserved(diff_traces(a, b), a, b)


@pytest.mark.traces
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("a100_diff_control.json.gz", "v100_diff_test.json.gz"),
        ("v100_resnet50_workers0.json.gz", "v100_resnet50_workers4.json.gz"),
        ("b200_eager.json.gz", "mi300_vllm_decode_one_graph.json.gz"),
    ],
)
def test_recorded_pairs_conserve_time(traces_dir: Path, left: str, right: str) -> None:
    a, b = read_trace(traces_dir / left), read_trace(traces_dir / right)
    check_conserved(diff_traces(a, b), a, b)


@pytest.mark.traces
def test_workers_take_the_loader_away(traces_dir: Path) -> None:
    a = read_trace(traces_dir / "v100_resnet50_workers0.json.gz")
    b = read_trace(traces_dir / "v100_resnet50_workers4.json.gz")
    diff = diff_traces(a, b)
    assert diff.answer == "faster"
    change = {cause.name: cause.b_ns - cause.a_ns for cause in diff.causes}
    assert min(change, key=lambda name: change[name]) == "loader"


SIX = [f"aten::op{number}" for number in range(6)]


def uniform(a: Trace, b: Trace) -> list[tuple[object, float]]:
    found = [f for f in diff_traces(a, b).findings if f.code == "uniform-change"]
    return [(f.evidence["side"], round(float(f.evidence["ratio"] or 0), 2)) for f in found]


def test_a_device_that_is_slower_for_everything_is_no_operators_fault() -> None:
    """A lower clock makes every kernel 1.4 times as long: the aligned operators alone would blame them all."""
    assert uniform(steps(SIX, kernel=100), steps(SIX, kernel=140)) == [("device", 1.4)]
    assert uniform(steps(SIX, kernel=100), steps(SIX, kernel=102)) == []
    assert uniform(steps(SIX[:3], kernel=100), steps(SIX[:3], kernel=140)) == []


def test_one_operator_that_changed_is_no_change_of_the_device() -> None:
    slower = json.loads(traced(SIX, host=20))
    for event in slower["traceEvents"]:
        if event["name"] == "kernel of aten::op3":
            event["dur"] *= 4
    assert uniform(steps(SIX, kernel=100), read(slower)) == []


def test_a_host_that_is_slower_for_everything_is_told_as_well() -> None:
    before, after = (read(json.loads(traced(SIX, host=host))) for host in (20, 26))
    assert uniform(before, after) == [("host", 1.3)]


def traced(names: list[str], *, host: int) -> bytes:
    """Three steps whose operators take ``host`` µs on the host and 100 µs on the device."""
    builder, number = TraceBuilder(), 0
    for step in range(3):
        for place, name in enumerate(names):
            number += 1
            at = step * 1_000 + place * 30
            builder.op(name, at * US, host * US)
            builder.launch("cudaLaunchKernel", (at + 5) * US, 5 * US, correlation=number)
            builder.kernel(f"kernel of {name}", (step * 1_000 + 12 + place * 100) * US, 100 * US, correlation=number)
        builder.step(step, step * 1_000 * US, 990 * US)
    return builder.to_json()


def read(document: dict[str, Any]) -> Trace:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made.json"
        path.write_text(json.dumps(document))
        return read_trace(path)
