"""Ascend's files whose device rows carry no ids are tied by their arrows; no others, and not where there are ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from referee.analysis.diagnose import diagnose
from referee.trace.columns import NONE, Trace
from referee.trace.reader import read_trace

US = 1_000
HOST, NPU = 4_100_001, 41_568_288
COUNT = 30


def row(name: str, pid: int, tid: int, start_us: int, dur_us: int, **more: Any) -> dict[str, Any]:
    ts = f"{1_700_000_000_000_000 + start_us}.000"
    head = {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur_us}
    return head | ({"cat": more.pop("cat")} if "cat" in more else {}) | {"args": more}


def arrow(kind: str, number: int, source: dict[str, Any], target: dict[str, Any], *, at: str) -> list[dict[str, Any]]:
    """From the start or the end of ``source`` to the start of ``target``."""
    from_us = float(source["ts"]) + (source["dur"] if at == "end" else 0)
    where = {"pid": source["pid"], "tid": source["tid"], "ts": f"{from_us:.3f}"}
    to = {"pid": target["pid"], "tid": target["tid"], "ts": target["ts"], "bp": "e"}
    name = {"name": kind, "cat": kind, "id": str(number)}
    return [{"ph": "s", **name, **where}, {"ph": "f", **name, **to}]


def write(folder: Path, *, kind: str, at: str = "start", ids: bool = False, host_to: int = 1) -> Trace:
    """Operators of 40 µs, each launching ``host_to`` kernels of 5 µs, with arrows from the calls to the kernels.

    ``ids`` tie every kernel to the call before its own, so that a link shows which of the two was heeded.
    """
    ascend = kind == "HostToDevice"
    device, calls = (NPU, {}) if ascend else (0, {"cat": "cuda_runtime"})
    kernels = {} if ascend else {"cat": "kernel"}
    names = [(NPU, "Ascend Hardware"), (HOST, "CANN")] if ascend else []
    found: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}} for pid, name in names
    ]
    for number in range(COUNT):
        stated = {"connection_id": number + 1} if ids else {}
        call = row("Node@launch", HOST, 7, 40 * number + 20, 6, **calls, **stated)
        found.append(call)
        for place in range(host_to):
            stated = {"connection_id": max(number, 1)} if ids else {}
            kernel = row("MatMul", device, 3, 40 * number + 30 + 6 * place, 5, **kernels, **stated)
            found += [kernel, *arrow(kind, number * host_to + place + 1, call, kernel, at=at)]
    path = folder / "trace_view.json"
    path.write_text(json.dumps(found))
    return read_trace(path)


@pytest.mark.parametrize("at", ["start", "end"])
def test_arrows_tie_rows_without_ids(at: str, tmp_path: Path) -> None:
    trace = write(tmp_path, kind="HostToDevice", at=at)
    report = diagnose(trace)
    assert (report.totals.launches, report.totals.device_rows_without_launch) == (COUNT, 0)
    assert report.verdict.regime == "launch-bound"
    (finding,) = [finding for finding in trace.findings if finding.code == "linked-by-flows"]
    assert (finding.evidence["tied"], finding.evidence["device_rows"]) == (COUNT, COUNT)


def test_one_call_may_have_several_rows(tmp_path: Path) -> None:
    totals = diagnose(write(tmp_path, kind="HostToDevice", host_to=2)).totals
    assert (totals.launches, totals.device_rows, totals.device_rows_without_launch) == (COUNT, 2 * COUNT, 0)


def test_kinetos_arrows_tie_nothing(tmp_path: Path) -> None:
    trace = write(tmp_path, kind="ac2g")
    assert (trace.links.launch_of == NONE).all()
    assert "linked-by-flows" not in {finding.code for finding in trace.findings}


def test_ids_alone_decide_where_there_are_any(tmp_path: Path) -> None:
    trace = write(tmp_path, kind="HostToDevice", ids=True)
    kernels = [at for at in range(len(trace.rows)) if trace.name_of(at) == "MatMul"]
    calls = trace.links.launch_of[kernels]
    assert (calls != NONE).all()
    assert (trace.rows.correlation[calls] == [max(number, 1) for number in range(COUNT)]).all()
    assert "linked-by-flows" not in {finding.code for finding in trace.findings}


def test_arrows_that_lead_nowhere_tie_nothing(tmp_path: Path) -> None:
    write(tmp_path, kind="HostToDevice")
    path = tmp_path / "trace_view.json"
    events = json.loads(path.read_text())
    for event in events:
        if event["ph"] == "f":
            event["tid"] = 99
    path.write_text(json.dumps(events))
    trace = read_trace(path)
    assert (trace.links.launch_of == NONE).all()
    assert "linked-by-flows" not in {finding.code for finding in trace.findings}
