"""A file as a list of events of torch.autograd.profiler exports itself: no categories, processes in words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from referee.analysis.diagnose import diagnose
from referee.trace.columns import Kind
from referee.trace.reader import parse_trace


def row(name: str, process: str, start_us: float, dur_us: float, *, tid: int) -> dict[str, Any]:
    return {"name": name, "ph": "X", "ts": start_us, "dur": dur_us, "tid": tid, "pid": process, "args": {}}


def arrow(phase: str, process: str, at_us: float, *, tid: int) -> dict[str, Any]:
    return {
        "name": "mm",
        "ph": phase,
        "ts": at_us,
        "tid": tid,
        "pid": process,
        "id": 0,
        "cat": "cpu_to_cuda",
        "args": {},
    }


def test_its_processes_say_what_its_rows_are() -> None:
    events = [
        row("aten::linear", "CPU functions", 1.5, 90.25, tid=1),
        row("aten::mm", "CPU functions", 10.0, 50.0, tid=1),
        arrow("s", "CPU functions", 10.0, tid=1),
        arrow("f", "CUDA functions", 40.0, tid=1),
        row("mm", "CUDA functions", 40.0, 30.0, tid=1),
        row("mm", "CUDA functions", 80.0, 30.0, tid=1),
    ]
    trace = parse_trace(json.dumps(events).encode(), source="events.json")
    kernels = trace.rows.of(Kind.KERNEL)
    assert [trace.name_of(row) for row in trace.rows.of(Kind.OPERATOR)] == ["aten::linear", "aten::mm"]
    assert trace.rows.device[kernels].tolist() == [1, 1]
    report = diagnose(trace)
    assert (report.totals.ops, report.totals.ops_top, report.totals.kernels) == (2, 1, 2)


def test_what_torch_exports_today_is_read(tmp_path: Any) -> None:
    torch = pytest.importorskip("torch")
    left = torch.randn(4, 4)
    with torch.autograd.profiler.profile(use_kineto=False) as profiler:
        for _ in range(3):
            left @ left
    path = tmp_path / "events.json"
    profiler.function_events.export_chrome_trace(str(path))
    trace = parse_trace(path.read_bytes(), source=path.name)
    names = [trace.name_of(row) for row in trace.rows.of(Kind.OPERATOR)]
    assert names.count("aten::mm") == 3
