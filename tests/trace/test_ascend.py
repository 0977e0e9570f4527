"""A file as Ascend's profiler writes it: processes instead of categories, ids of their own, times as text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from referee.analysis.diagnose import diagnose
from referee.analysis.kernels import is_collective
from referee.trace.columns import Kind, Trace
from referee.trace.reader import parse_trace

HOST, CANN, NPU = 4_100_001, 41_568_256, 41_568_288


def event(name: str, pid: int, start_ns: int, dur_ns: int, *, tid: int = 2, **more: Any) -> dict[str, Any]:
    """A complete event; ``more`` are its arguments but for ``cat``."""
    ts = f"{1_700_000_000_000_000 + start_ns // 1000}.{start_ns % 1000:03d}"
    category = {"cat": more.pop("cat")} if "cat" in more else {}
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur_ns / 1000, "args": more, **category}


def events(*, npu: int = NPU) -> list[dict[str, Any]]:
    names = ((HOST, "Python"), (CANN, "CANN"), (npu, "Ascend Hardware"), (9, "Overlap Analysis"))
    found: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}} for pid, name in names
    ]
    for number in range(1, 5):
        at = number * 50_000
        found += [
            event("aten::matmul", HOST, at, 30_000, tid=HOST, cat="cpu_op"),
            event("Enqueue@aclnnMatmul", HOST, at + 5_000, 2_000, tid=HOST, cat="enqueue", correlation_id=number),
            event("Node@launch", CANN, at + 10_000, 8_000, tid=HOST, connection_id=number, level="node"),
            event("MatMulV2", npu, at + 30_000, 12_345, connection_id=number, **{"Task Type": "AI_CORE"}),
            event("EVENT_WAIT", npu, at + 43_000, 1_000, **{"Task Type": "EVENT_WAIT"}),
            event("MEMCPY_ASYNC", npu, at + 45_000, 2_000, tid=3),
            event("Computing", 9, at + 30_000, 12_345),
            {"ph": "s", "cat": "HostToDevice", "name": "x", "id": str(number), "pid": CANN, "tid": HOST, "ts": "1"},
        ]
    return found


def read(found: object) -> Trace:
    return parse_trace(json.dumps(found).encode())


@pytest.mark.parametrize("wrapped", [False, True])
def test_rows_are_what_their_process_is(wrapped: bool):
    trace = read({"traceEvents": events()} if wrapped else events())
    rows = trace.rows
    names = {kind: {trace.name_of(row) for row in rows.of(kind)} for kind in Kind}
    assert names[Kind.KERNEL] == {"MatMulV2"}
    assert names[Kind.MEMCPY] == {"MEMCPY_ASYNC"}
    assert names[Kind.DEVICE_SYNC] == {"EVENT_WAIT"}
    assert names[Kind.RUNTIME] == {"Node@launch"}
    assert names[Kind.OPERATOR] == {"aten::matmul"}
    assert names[Kind.UNKNOWN] == set()
    kernels = rows.of(Kind.KERNEL)
    assert [trace.name_of(row) for row in trace.links.launch_of[kernels]] == ["Node@launch"] * 4
    assert (rows.end_ns - rows.start_ns)[kernels].tolist() == [12_345] * 4
    assert rows.stream[kernels].tolist() == [2] * 4
    assert not [finding for finding in trace.findings if finding.code == "unknown-category"]


@pytest.mark.parametrize("npu", [NPU, 3])
def test_the_device_is_a_small_number(npu: int):
    trace = read(events(npu=npu))
    assert set(trace.rows.device[trace.rows.of(Kind.KERNEL)].tolist()) == {0 if npu == NPU else 3}


def test_there_is_a_verdict():
    report = diagnose(read(events()))
    assert report.totals.kernels == 4
    assert report.verdict.regime == "launch-bound"
    assert report.totals.launches == 4


def test_a_category_that_is_written_stays():
    found = [*events(), event("own", NPU, 0, 1, cat="cpu_op")]
    trace = read(found)
    assert {trace.name_of(row) for row in trace.rows.of(Kind.OPERATOR)} == {"own", "aten::matmul"}


def test_names_of_other_processes_tell_nothing():
    found = [
        {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "python"}},
        {"ph": "M", "name": "process_name", "pid": [2], "tid": 0, "args": {"name": 7}},
        event("a", 1, 0, 1),
        event("k", 0, 2, 1, cat="kernel"),
    ]
    trace = read(found)
    assert [finding.evidence["rows"] for finding in trace.findings if finding.code == "unknown-category"] == [1]


LINKS = 41_568_320


def collective(number: int) -> list[dict[str, Any]]:
    """A collective as it stands in the process of collectives, with a task of one of its planes."""
    at = number * 50_000
    task = event("Notify_Wait", LINKS, at + 35_000, 2_000, tid=1, **{"task type": "Notify_Wait", "stream id": 4})
    whole = event(f"hcom_allReduce__305_{number}_1", LINKS, at + 34_000, 5_000, tid=0, connection_id=number)
    return [whole, task]


@pytest.mark.parametrize("process", ["HCCL", "Communication"])
def test_collectives_are_work_on_the_same_device(process: str):
    named = {"ph": "M", "name": "process_name", "pid": LINKS, "tid": 0, "args": {"name": process}}
    trace = read([*events(), named, *collective(1), *collective(2)])
    rows = trace.rows
    kernels = rows.of(Kind.KERNEL)
    names = [trace.name_of(int(row)) for row in kernels]
    assert sorted(set(names)) == ["MatMulV2", "hcom_allReduce__305_1_1", "hcom_allReduce__305_2_1"]
    assert set(rows.device[kernels].tolist()) == {0}
    assert "Notify_Wait" in {trace.name_of(int(row)) for row in rows.of(Kind.OTHER)}
    assert not [finding for finding in trace.findings if finding.code == "unknown-category"]
    collectives = kernels[is_collective(trace, kernels)]
    assert [trace.name_of(int(row)) for row in trace.links.launch_of[collectives]] == ["Node@launch"] * 2
    assert diagnose(trace).totals.kernels == 6


def test_a_collective_that_its_stream_holds_counts_once():
    named = {"ph": "M", "name": "process_name", "pid": LINKS, "tid": 0, "args": {"name": "HCCL"}}
    on_stream = event("hcom_allReduce__305_1_1", NPU, 84_000, 5_000, tid=4, connection_id=1)
    trace = read([*events(), named, *collective(1), on_stream])
    kernels = trace.rows.of(Kind.KERNEL)
    assert [trace.name_of(int(row)) for row in kernels].count("hcom_allReduce__305_1_1") == 1


def test_devices_are_counted_alike_in_both_processes():
    found = events()
    other = [one | {"pid": NPU + 1} for one in found if one["pid"] == NPU]
    links = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": "HCCL"}}
        for pid in (LINKS, LINKS + 1)
    ]
    second = [one | {"pid": LINKS + 1, "name": f"hcom_second_{at}"} for at, one in enumerate(collective(1))]
    trace = read([*second, *links, *found, *other, *collective(2)])
    kernels = trace.rows.of(Kind.KERNEL)
    devices = {trace.name_of(int(row)): int(trace.rows.device[row]) for row in kernels}
    assert (devices["hcom_allReduce__305_2_1"], devices["hcom_second_0"]) == (0, 1)
    assert set(trace.rows.device[kernels].tolist()) == {0, 1}
