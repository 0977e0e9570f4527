"""Which remedies are named, and at what price."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

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


def how(report: TraceReport, attacks: str) -> str:
    """What is said to change against a loss."""
    return next(remedy.how for remedy in report.remedies if remedy.attacks == attacks)


def waiting(call: str, operator: str | None) -> TraceReport:
    """Twelve kernels, behind each a wait and 150 µs without work."""
    builder = TraceBuilder()
    for number in range(1, 13):
        at = number * 600
        builder.op("aten::mm", at * US, 9 * US)
        builder.launch("cudaLaunchKernel", (at + 2) * US, 5 * US, correlation=number)
        builder.kernel("mm", (at + 8) * US, 400 * US, correlation=number)
        if operator is not None:
            builder.op(operator, (at + 10) * US, 402 * US)
        builder.sync((at + 11) * US, 399 * US, name=call)
    return diagnose(builder.build())


@pytest.mark.parametrize(
    ("call", "operator", "words"),
    [
        ("cudaDeviceSynchronize", None, "torch.cuda.Event"),
        ("cudaEventSynchronize", None, "torch.cuda.Event"),
        ("cudaStreamSynchronize", "aten::_local_scalar_dense", ".item()"),
        ("cudaStreamSynchronize", "aten::nonzero", "torch.where"),
        ("cudaStreamSynchronize", "aten::copy_", "non_blocking=True"),
        ("cudaFree", None, "empty_cache"),
    ],
)
def test_what_to_change_depends_on_who_waits(call: str, operator: str | None, words: str) -> None:
    """A timer's own synchronise is no .item(), and a pageable copy is no boolean mask."""
    told = how(waiting(call, operator), "waits of the host")
    assert words in told
    others = {"torch.cuda.Event", ".item()", "torch.where", "non_blocking=True", "empty_cache"} - {words}
    assert not [other for other in others if other in told]


@pytest.mark.parametrize(("call", "words"), [("cudaHostAlloc", "pinned"), ("cudaMalloc", "expandable_segments")])
def test_pinning_in_the_loop_is_not_mended_by_the_devices_allocator(call: str, words: str) -> None:
    builder = TraceBuilder()
    for number in range(1, 13):
        at = number * 1_000
        builder.op("aten::pin_memory", at * US, 800 * US).launch(call, (at + 2) * US, 795 * US)
        builder.op("aten::mm", (at + 810) * US, 9 * US)
        builder.launch("cudaLaunchKernel", (at + 812) * US, 5 * US, correlation=number)
        builder.kernel("mm", (at + 818) * US, 150 * US, correlation=number)
    assert words in how(diagnose(builder.build()), "allocator")


@pytest.mark.parametrize("held", [True, False])
def test_who_has_recorded_the_stack_is_told_what_holds_the_host(held: bool) -> None:
    builder = TraceBuilder()
    for number in range(1, 7):
        at = number * 20_000
        builder.op("aten::mm", at * US, 9 * US)
        builder.launch("cudaLaunchKernel", (at + 2) * US, 5 * US, correlation=number)
        builder.kernel("mm", (at + 8) * US, 150 * US, correlation=number)
        if held:
            builder.python("augment.py(44): erase", (at + 100) * US, 19_800 * US)
    told = how(diagnose(builder.build()), "pauses of the host")
    assert ("augment.py(44): erase" in told, "with_stack" in told) == (held, not held)


def test_compiling_in_each_step_is_named_where_a_mark_says_so() -> None:
    builder, number = TraceBuilder(), 0
    for step in range(5):
        begin = step * 300_000
        builder.step(step, begin * US, 299_000 * US)
        builder.annotation("_compile.compile_inner (dynamo_timed)", (begin + 10) * US, 250_000 * US)
        for turn in range(10):
            number += 1
            at = begin + 250_100 + turn * 9
            builder.op("aten::mm", at * US, 8 * US)
            builder.launch("cudaLaunchKernel", (at + 1) * US, 4 * US, correlation=number)
            builder.kernel("mm", (begin + 250_110 + turn * 100) * US, 100 * US, correlation=number)
    report = diagnose(builder.build())
    assert report.verdict.regime == "cold"
    assert "recompiles" in how(report, "first-time costs that recur")


def test_single_numbers_sent_one_by_one_are_no_case_for_pinned_memory(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for number in range(1, 101):
        at = number * 25
        builder.op("aten::to", at * US, 14 * US)
        builder.launch("cudaMemcpyAsync", (at + 2) * US, 10 * US, correlation=2 * number)
        builder.memcpy((at + 8) * US, 2 * US, name="Memcpy HtoD (Pageable -> Device)", correlation=2 * number, bytes=8)
        builder.op("aten::mul", (at + 15) * US, 8 * US)
        builder.launch("cudaLaunchKernel", (at + 16) * US, 4 * US, correlation=2 * number + 1)
        builder.kernel("mul", (at + 21) * US, 3 * US, correlation=2 * number + 1)
    path = tmp_path / "tiny.json"
    path.write_bytes(builder.to_json())
    report = diagnose(read_trace(path))
    tiny = next(r for r in report.remedies if r.attacks == "tiny copies to the device")
    assert "torch.full" in tiny.how
    pinned = next(r for r in report.remedies if r.attacks == "pageable copies")
    assert (tiny.high_ns or 0) > 2 * (pinned.high_ns or 0)


def test_a_slow_link_shows_in_the_rate_of_its_copies(tmp_path: Path) -> None:
    """30 MiB in 20 ms from pinned memory: 1.57 GB/s, a link of one lane or one that is shared."""
    builder = TraceBuilder()
    for number in range(1, 5):
        at = number * 25_000
        builder.launch("cudaMemcpyAsync", at * US, 5 * US, correlation=2 * number)
        builder.memcpy((at + 8) * US, 20_000 * US, correlation=2 * number, bytes=30 << 20)
        builder.launch("cudaLaunchKernel", (at + 10) * US, 5 * US, correlation=2 * number + 1)
        builder.kernel("mm", (at + 20_008) * US, 2_000 * US, correlation=2 * number + 1)
    path = tmp_path / "slow.json"
    path.write_bytes(builder.to_json())
    report = diagnose(read_trace(path))
    assert report.verdict.regime == "transfer-bound"
    assert [e.value for e in report.verdict.evidence if e.name.startswith("copies: rate")] == ["1.57 GB/s"]
