"""Which remedies are named, and at what price."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from referee.analysis.diagnose import diagnose
from referee.records.trace_report import TraceReport
from referee.testing import Workload, simulate
from referee.trace.builder import TraceBuilder
from referee.trace.reader import read_trace

US = 1_000
LARGER_BATCH = "a larger batch"


def pointwise_chain(folder: Path, *, apart_us: int) -> TraceReport:
    """Five relus over 64 MiB, each kernel 200 µs long; their launches lie ``apart_us`` apart."""
    builder = TraceBuilder().device_properties("NVIDIA A100-SXM4-80GB")
    inputs: dict[str, Any] = {"Input Dims": [[4096, 4096]], "Input type": ["float"]}
    free = 0
    for number in range(1, 6):
        at = number * apart_us
        builder.op("aten::relu", at * US, 9 * US, **inputs)
        builder.launch("cudaLaunchKernel", (at + 2) * US, 5 * US, correlation=number)
        start = max(free, at + 8)
        free = start + 200
        builder.kernel("k", start * US, 200 * US, correlation=number)
    path = folder / "chain.json"
    path.write_bytes(builder.to_json())
    return diagnose(read_trace(path))


def test_fusion_has_the_price_of_the_memory_traffic(tmp_path: Path) -> None:
    report = pointwise_chain(tmp_path, apart_us=10)
    loss = report.losses.memory_traffic
    first = report.remedies[0]
    assert report.verdict.regime == "compute-bound"
    assert (first.attacks, first.low_ns, first.high_ns) == (
        "memory traffic between operators",
        loss.low_ns,
        loss.high_ns,
    )


def test_saved_traffic_may_gain_nothing_where_the_host_is_the_limit(tmp_path: Path) -> None:
    report = pointwise_chain(tmp_path, apart_us=1_000)
    assert report.verdict.regime == "launch-bound"
    assert [r.low_ns for r in report.remedies if "memory traffic" in r.attacks] == [0]


def test_a_larger_batch_is_for_those_who_wait_for_the_host() -> None:
    """Batch 32 takes twice the time of batch 16 where the device is the limit: nothing to recommend."""
    launch_bound = diagnose(simulate(Workload(kernel_ns=2_000, op_ns=20_000)).trace)
    compute_bound = diagnose(simulate(Workload(kernel_ns=200_000, op_ns=10_000)).trace)
    assert any(LARGER_BATCH in remedy.name for remedy in launch_bound.remedies)
    assert compute_bound.verdict.regime == "compute-bound"
    assert not any(LARGER_BATCH in remedy.name for remedy in compute_bound.remedies)
