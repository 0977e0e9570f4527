"""Trace reports written by hand: a launch-bound one, an empty one, one with far too much in it."""

from __future__ import annotations

from dataclasses import replace

from referee.records.finding import CODES, Finding
from referee.records.trace_report import (
    DeviceTotals,
    HostStarved,
    Idle,
    Law,
    Loss,
    Losses,
    QueueDelay,
    StepReport,
    Timeline,
    TopKernel,
    Totals,
    TraceReport,
    TraceSet,
    Utilisation,
)
from referee.records.verdict import Evidence, Remedy, Verdict

LONG_KERNEL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctorOnSelf_add<c10::BFloat16>, "
    "std::array<char*, 2ul>, TrivialOffsetCalculator<1, unsigned int>, TrivialOffsetCalculator<1, unsigned int>, "
    "at::native::memory::LoadWithCast<1>, at::native::memory::StoreWithCast<1> >(int, at::native::CUDAFunctorOnSelf"
    "_add<c10::BFloat16>)"
)
assert len(LONG_KERNEL) >= 300

VERDICT = Verdict(
    regime="launch-bound",
    evidence=(
        Evidence(
            name="timeline",
            value=0.631,
            unit="frac",
            threshold="largest loss below 24 % and busy from 60 %: compute-bound",
            so="the device is idle for most of the window",
        ),
        Evidence(
            name="totals",
            value=0.573,
            unit="frac",
            threshold="24 % of the window; below 40 % mixed",
            so="per-op work on the host is the largest loss",
        ),
        Evidence(
            name="kernels per step",
            value=929,
            threshold="median kernel 4.70 µs against 7.40 µs per op on the host",
            so="the kernels are shorter than what it costs to issue them",
        ),
        Evidence(
            name="null experiment",
            value=None,
            threshold="time unchanged while the batch grows",
            so="one trace holds one batch size: sweep it to confirm",
        ),
        Evidence(
            name="occupancy",
            value=18_200,
            unit="ns",
            threshold="a queue that builds up delays rows by far more than the bare latency of 1.70 µs",
            so="the queue never builds: the device takes each kernel as soon as it is issued",
        ),
    ),
    would_change="a batch large enough that the device works longer than the host needs to issue the step",
)

REMEDIES = (
    Remedy(
        name="Capture the step in a graph and replay it",
        attacks="per-op CPU overhead",
        how='step = torch.compile(step, mode="reduce-overhead")',
        low_ns=7_100_000.0,
        high_ns=13_810_000.0,
        basis="per-op host-starved idle, less the replay cost",
    ),
    Remedy(
        name="Fuse pointwise chains",
        attacks="memory traffic between ops, and launches",
        how="step = torch.compile(step)",
        low_ns=None,
        high_ns=2_200_000.0,
        basis="adjacency: 118 chains with one consumer",
    ),
    Remedy(
        name="Raise the batch size",
        attacks="per-op CPU overhead",
        how="referee sweep model.py:forward --param batch_size=8,16,32,64",
        low_ns=None,
        high_ns=None,
        basis="the law: the host side does not grow with the batch",
    ),
)

KERNELS = (
    TopKernel(name=LONG_KERNEL, count=412, sum_ns=2_811_000, median_ns=6_200.0),
    TopKernel(
        name="sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
        count=96,
        sum_ns=2_402_000,
        median_ns=24_100.0,
    ),
    TopKernel(name="Memcpy HtoD (Pageable -> Device)", count=4, sum_ns=911_000, median_ns=240_000.0),
    TopKernel(name="カーネル_融合<ファイバー>|`x`*<b>", count=2, sum_ns=10_000, median_ns=5_000.0),
)

STEPS = tuple(
    StepReport(
        name=f"ProfilerStep#{k}",
        wall_ns=8_040_000 + 11_000 * k,
        kernels=929,
        busy_ns=2_960_000,
        busy_in_step_ns=2_811_000,
        lead_idle_ns=310_000,
        tail_idle_ns=42_000,
        ops=1_530,
    )
    for k in range(3)
)

TOTALS = Totals(
    events=81_204,
    ops=9_412,
    ops_top=4_590,
    ops_aten_top=4_212,
    runtime_calls=3_350,
    launches=2_790,
    launches_without_device_rows=3,
    kernels=2_787,
    device_rows=2_803,
    device_rows_without_launch=0,
    graph_launches=0,
    streams=2,
    busy_ns=8_893_116,
    sum_ns=8_911_400,
    window_ns=24_103_551,
    idle_ns=15_210_435,
    median_kernel_ns=4_704.0,
    self_cpu_ns=21_000_100,
    self_device_ns=8_893_116,
)

TRACE = TraceReport(
    source="h100_train_step.pt.trace.json.gz",
    totals=TOTALS,
    devices=(
        DeviceTotals(
            device=0,
            name="NVIDIA H100 80GB HBM3",
            kernels=2_787,
            device_rows=2_803,
            streams=2,
            busy_ns=8_893_116,
            sum_ns=8_911_400,
            window_ns=24_103_551,
            idle_ns=15_210_435,
        ),
    ),
    idle=Idle(
        host_starved_ns=14_110_435,
        synchronised_ns=800_000,
        dependency_ns=210_000,
        other_ns=90_000,
        host_starved=HostStarved(
            per_op_ns=13_810_435, loader_ns=0, allocator_ns=120_000, one_off_ns=0, pause_ns=180_000
        ),
        unseen_ns=60_000,
    ),
    timeline=Timeline(exposed_copy_ns=711_000, exposed_communication_ns=0, computation_ns=8_182_116),
    utilisation=Utilisation(any_kernel_frac=0.34, sm_weighted_frac=0.118, useful_frac=None),
    queue=QueueDelay(median_ns=18_200.0, p95_ns=44_000.0, latency_ns=1_700.0, rows=2_790),
    law=Law(
        n_ops=4_212,
        t_cpu_ns=5_110.0,
        host_ns=21_523_000,
        device_ns=8_911_400,
        predicted_ns=21_523_000,
        measured_ns=24_103_551,
        residual_ns=2_580_551,
        residual="waits and the first launch's lead",
    ),
    steps=STEPS,
    steps_from="profiler steps",
    top_kernels=KERNELS,
    verdict=VERDICT,
    losses=Losses(
        per_op_overhead=Loss(
            recoverable_ns=13_810_435, low_ns=7_100_000, high_ns=13_810_435, basis="per-op host-starved idle"
        ),
        memory_traffic=Loss(recoverable_ns=None, low_ns=None, high_ns=None, basis="no shapes were recorded"),
        allocator=Loss(recoverable_ns=120_000, low_ns=0, high_ns=120_000, basis="misses that reached the driver"),
    ),
    remedies=REMEDIES,
    findings=(
        Finding(
            code="launch-without-rows",
            severity="info",
            message="3 calls of cudaMemsetAsync have no device row.",
            evidence={"calls": 3, "name": "cudaMemsetAsync"},
        ),
    ),
)

EMPTY_TRACE = replace(
    TRACE,
    source="empty.json",
    totals=replace(
        TOTALS,
        **{name: 0 for name in Totals.__dataclass_fields__ if name not in ("median_kernel_ns", "self_cpu_ns")},
        median_kernel_ns=None,
        self_cpu_ns=None,
    ),
    devices=(),
    idle=Idle(
        host_starved_ns=0,
        synchronised_ns=0,
        dependency_ns=0,
        other_ns=0,
        host_starved=HostStarved(per_op_ns=0, loader_ns=0, allocator_ns=0, one_off_ns=0, pause_ns=0),
    ),
    timeline=Timeline(exposed_copy_ns=0, exposed_communication_ns=0, computation_ns=0),
    utilisation=Utilisation(any_kernel_frac=None, sm_weighted_frac=None, useful_frac=None),
    queue=QueueDelay(median_ns=None, p95_ns=None, latency_ns=5_000.0, rows=0),
    law=Law(
        n_ops=0,
        t_cpu_ns=None,
        host_ns=None,
        device_ns=0,
        predicted_ns=None,
        measured_ns=0,
        residual_ns=None,
        residual="nothing to compare",
    ),
    steps=(),
    top_kernels=(),
    verdict=Verdict(
        regime="cannot-tell",
        evidence=(
            Evidence(name="device rows", value=0, threshold="at least 2", so="there is no device side to judge"),
        ),
        undecided_because="no-device-rows",
        would_change="a trace recorded with ProfilerActivity.CUDA",
    ),
    remedies=(),
    findings=(
        Finding(
            code="no-device-rows",
            severity="fatal",
            message="The trace holds 260 kernel launches but no device row.",
            evidence={"launches": 260, "device_rows": 0},
            hint="Record again with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA].",
        ),
    ),
)

MANY_FINDINGS = replace(
    TRACE,
    findings=tuple(
        Finding(
            code=code,
            severity=("fatal", "warning", "info")[k % 3],
            message=f"Case {k}: {meaning}.",
            evidence={"count": k, "share_frac": k / 40, "wait_ns": 1_000 * k, "named": None},
            hint=f"Mend {k}." if k % 2 else "",
        )
        for k, (code, meaning) in enumerate((list(CODES.items()) * 2)[:40])
    ),
    steps=tuple(replace(STEPS[0], name=f"step {k}", wall_ns=8_000_000 + (k * 7919) % 997) for k in range(132)),
    devices=tuple(replace(TRACE.devices[0], device=k) for k in range(8)),
)

TRACES = TraceSet(
    reports=(TRACE, replace(TRACE, source="rank1.json", verdict=replace(VERDICT, regime="sync-bound")), EMPTY_TRACE)
)
