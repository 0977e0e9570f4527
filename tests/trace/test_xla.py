"""A file as XLA's profiler writes it for JAX, TensorFlow and PyTorch/XLA: devices are processes, streams threads."""

from __future__ import annotations

import json
from typing import Any

import pytest

from referee.analysis.diagnose import diagnose
from referee.trace.columns import Kind, Trace
from referee.trace.reader import parse_trace

DEVICE, OTHER, HOST = 1, 2, 701
COMPUTE, COPIES, OPS, STEPS, MODULES, PYTHON = 14, 15, 21, 22, 23, 3
US = 1_000


def named(kind: str, name: str, pid: int, tid: int | None = None) -> dict[str, Any]:
    lane = {} if tid is None else {"tid": tid}
    return {"ph": "M", "name": f"{kind}_name", "pid": pid, "args": {"name": name}, **lane}


def row(name: str, pid: int, tid: int, start: float, dur: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": start, "dur": dur, "args": args}


def read(kind: str, *, streams: bool, every: float = 50.0, naming_last: bool = False) -> Trace:
    """Twenty operations of 40 µs, one every ``every``, on the second of two devices, and what is derived from them."""
    naming = [
        named("process", f"/device:{kind}:0", OTHER),
        named("process", f"/device:{kind}:1", DEVICE),
        named("process", "/host:CPU", HOST),
        named("thread", "python", HOST, PYTHON),
        named("thread", "XLA Ops", DEVICE, OPS),
        named("thread", "Steps", DEVICE, STEPS),
        named("thread", "XLA Modules", DEVICE, MODULES),
    ]
    if streams:
        naming.append(named("thread", "Stream #14(Compute)", DEVICE, COMPUTE))
        naming.append(named("thread", "Stream #20(MemcpyH2D)", DEVICE, COPIES))
    found = [row("0", DEVICE, STEPS, 0, 20 * every), row("jit_f", DEVICE, MODULES, 0, 20 * every)]
    for number in range(20):
        at = number * every
        found.append(row("PjitFunction(f)", HOST, PYTHON, at, 5))
        found.append(row(f"fusion.{number % 4}", DEVICE, OPS, at, 40))
        if streams:
            found.append(row(f"fusion_{number % 4}", DEVICE, COMPUTE, at, 40, correlation_id=str(number)))
            found.append(row("MemcpyH2D", DEVICE, COPIES, at, 2))
    whole = [*found, *naming] if naming_last else [*naming, *found]
    return parse_trace(json.dumps({"displayTimeUnit": "ns", "traceEvents": [*whole, {}]}).encode())


@pytest.mark.parametrize("naming_last", [False, True])
def test_the_work_of_a_gpu_is_on_its_streams(naming_last: bool):
    trace = read("GPU", streams=True, naming_last=naming_last)
    rows = trace.rows
    kernels, copies = rows.of(Kind.KERNEL), rows.of(Kind.MEMCPY)
    assert {trace.name_of(row) for row in kernels} == {f"fusion_{number}" for number in range(4)}
    assert (set(rows.device[kernels].tolist()), set(rows.stream[kernels].tolist())) == ({1}, {14})
    assert (set(rows.device[copies].tolist()), set(rows.stream[copies].tolist())) == ({1}, {20})
    assert {trace.name_of(row) for row in rows.of(Kind.DEVICE_ANNOTATION)} == {"0"}
    assert {trace.name_of(row) for row in rows.of(Kind.UNKNOWN)} == {"PjitFunction(f)"}
    totals = diagnose(trace).totals
    assert (totals.kernels, totals.device_rows, totals.streams) == (20, 40, 2)
    assert (totals.busy_ns, totals.window_ns) == (20 * 40 * US, (19 * 50 + 40) * US)


def test_a_device_without_streams_is_at_work_while_its_operations_are():
    trace = read("TPU", streams=False)
    kernels = trace.rows.of(Kind.KERNEL)
    assert {trace.name_of(row) for row in kernels} == {f"fusion.{number}" for number in range(4)}
    assert set(trace.rows.device[kernels].tolist()) == {1}
    assert diagnose(trace).totals.busy_ns == 20 * 40 * US


@pytest.mark.parametrize("kind", ["GPU", "TPU"])
def test_a_busy_device_is_named_and_an_idle_one_has_no_known_cause(kind: str):
    """The host's part is not tied to the device's: idle time is nobody's, and a verdict on it would be a guess."""
    busy = diagnose(read(kind, streams=kind == "GPU"))
    assert busy.verdict.regime == "compute-bound"
    idle = diagnose(read(kind, streams=kind == "GPU", every=200.0))
    assert (idle.verdict.regime, idle.verdict.undecided_because) == ("cannot-tell", "unlinked-rows")
    assert idle.idle.host_starved_ns == 0
