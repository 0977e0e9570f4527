"""Records written by hand, with values as they come from real runs, and the awkward ones."""

from __future__ import annotations

import math
import random
from dataclasses import replace

from referee.records.capture import Capture, CaptureFile, CaptureOptions, Integrity, ProfilerCost, SchedulePlan
from referee.records.check import Check
from referee.records.compare import Comparison, Pair, Side
from referee.records.environment import DeviceEntry, Environment
from referee.records.finding import CODES, Finding
from referee.records.measurement import Clocks, Fit, Measurement, Sweep, SweepPoint, Warmup
from referee.records.profile import Profile
from referee.records.provenance import Difference, Provenance, TensorSpec
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

CPU = {
    "model": "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz",
    "architecture": "x86_64",
    "physical_cores": 2,
    "logical_cores": 4,
    "affinity": 2,
    "threads": 2,
    "interop_threads": 1,
    "calibration_ns": 10_482_113,
    "l3_cache_bytes": 110_100_480,
    "memory_bytes": 16_775_122_944,
}
METHOD = {
    "clock": "settled_amortised",
    "settle": "nothing to wait for",
    "warmup": "steady after 12 calls",
    "calls_per_block": 1,
    "block_target_ns": 200_000,
    "budget_ns": 5_000_000_000,
    "cache_state": "warm",
    "input_fill": "standard normal",
    "gc": "off",
    "statistic": "median",
    "target": "examples/transformer.py:train_step",
    "seed": 0,
}
SOFTWARE = {"torch": "2.13.0+cpu", "python": "CPython 3.12.3", "referee": "0.1.0", "git_dirty": False}
SWITCHES = {"float32_matmul_precision": "highest", "grad_mode": "grad", "autocast": "off", "deterministic": False}
STATE = {"load_1min": 0.42, "time_utc": "2026-11-20T09:14:03Z"}

PROVENANCE = Provenance(
    dtype="float32",
    shapes=(
        TensorSpec(role="input", shape=(8, 128), stride=(128, 1), dtype="int64", device="cpu"),
        TensorSpec(role="parameter", shape=(512, 2048), stride=(2048, 1), dtype="float32", device="cpu", count=4),
    ),
    chip=CPU,
    method=METHOD,
    software=SOFTWARE,
    switches=SWITCHES,
    machine_state=STATE,
)

GPU_PROVENANCE = replace(
    PROVENANCE,
    dtype="bfloat16",
    method={**METHOD, "settle": "torch.cuda.synchronize on cuda:0, where the outputs live"},
    software={**SOFTWARE, "torch": "2.13.0+cu130", "cuda": "13.0"},
    accelerator={
        "name": "NVIDIA H200",
        "sm_count": 132,
        "memory_bytes": 150_754_820_096,
        "driver": "580.82.07",
        "mig": "off",
    },
)

DISTURBED = Finding(
    code="disturbed",
    severity="warning",
    message="The median is 1.38 times the low decile: something else ran on these cores.",
    evidence={"median_ns": 12_412_000.0, "low_decile_ns": 8_994_000.0, "preempted_frac": 0.31},
    hint="Close what else runs, or pin the process to free cores with taskset.",
)
NO_CLEAN_BLOCK = Finding(
    code="no-clean-block",
    severity="fatal",
    message="Every one of 96 blocks was preempted, so no estimate of the undisturbed time exists.",
    evidence={"blocks": 96, "preempted": 96, "load_1min": 7.8},
    hint="Wait until the load falls below the number of cores, then measure again.",
)
ONE_BATCH = Finding(
    code="one-batch-size",
    severity="info",
    message="One batch size alone is not a benchmark.",
    hint="Run referee sweep with --param batch_size.",
)


def samples_ns(count: int = 240, *, center: float = 12.4e6, seed: int = 7) -> tuple[float, ...]:
    """Skewed samples around ``center`` with a few bursts, the same each time."""
    rng = random.Random(seed)
    return tuple(center * math.exp(rng.gauss(0, 0.012)) * (1.35 if rng.random() < 0.04 else 1.0) for _ in range(count))


SAMPLES = samples_ns()

MEASUREMENT = Measurement(
    name="examples/transformer.py:train_step",
    median_ns=12_412_330.0,
    ci_low_ns=12_381_200.0,
    ci_high_ns=12_447_900.0,
    ci_level=0.95,
    iqr_ns=211_000.0,
    floor_ns=12_011_040.0,
    p95_ns=12_801_000.0,
    n=240,
    n_eff=131.6,
    blocks=252,
    stop_reason="interval within 1 % of the median",
    clocks=Clocks(enqueue_ns=None, settled_amortised_ns=12_412_330.0, settled_per_call_ns=12_446_010.0, device_ns=None),
    naive_ns=12_398_700.0,
    warmup=Warmup(calls=12, total_ns=311_402_118, first_call_ns=148_218_004, steady=True),
    samples_ns=SAMPLES,
    clean=tuple(sample < 15e6 for sample in SAMPLES),
    provenance=PROVENANCE,
    findings=(ONE_BATCH,),
)

ASYNCHRONOUS = replace(
    MEASUREMENT,
    name="model.py:forward",
    clocks=Clocks(
        enqueue_ns=1_192_000.0,
        settled_amortised_ns=12_412_330.0,
        settled_per_call_ns=12_522_000.0,
        device_ns=12_377_000.0,
    ),
    naive_ns=1_201_440.0,
    warmup=Warmup(
        calls=31,
        total_ns=4_811_402_118,
        first_call_ns=2_148_218_004,
        steady=False,
        compiles=2,
        compile_ns=2_011_000_000,
    ),
    provenance=GPU_PROVENANCE,
    findings=(),
)

DISTURBED_MEASUREMENT = replace(MEASUREMENT, findings=(DISTURBED, ONE_BATCH))

NO_HEADLINE = replace(
    MEASUREMENT,
    median_ns=None,
    ci_low_ns=None,
    ci_high_ns=None,
    iqr_ns=None,
    floor_ns=None,
    p95_ns=None,
    n=0,
    n_eff=0.0,
    blocks=96,
    stop_reason="budget exhausted",
    clocks=Clocks(enqueue_ns=None, settled_amortised_ns=None, settled_per_call_ns=None, device_ns=None),
    samples_ns=samples_ns(96, center=29e6),
    clean=(False,) * 96,
    findings=(DISTURBED, NO_CLEAN_BLOCK),
)


def _point(value: float, median_ns: float | None) -> SweepPoint:
    low, high = (None, None) if median_ns is None else (median_ns * 0.985, median_ns * 1.02)
    measurement = MEASUREMENT if median_ns else NO_HEADLINE
    return SweepPoint(
        value=value,
        median_ns=median_ns,
        ci_low_ns=low,
        ci_high_ns=high,
        throughput_per_s=None if median_ns is None else value / median_ns * 1e9,
        measurement=replace(
            measurement, median_ns=median_ns, naive_ns=None if median_ns is None else median_ns * 0.998
        ),
    )


FIT = Fit(
    law="sum",
    host_ns=3_900_000.0,
    fixed_ns=0.0,
    slope_ns=1_120_000.0,
    knee=3.48,
    knee_low=3.1,
    knee_high=3.9,
    error_frac=0.021,
    error_max_frac=0.094,
    error_sum_frac=0.021,
)
SWEEP = Sweep(
    name="examples/transformer.py:train_step",
    parameter="batch_size",
    points=tuple(
        _point(b, 3.9e6 + 1.12e6 * b * (1 + wobble))
        for b, wobble in ((1, 0.03), (2, -0.02), (4, 0.01), (8, 0.02), (16, -0.01), (32, 0.0))
    ),
    fit=FIT,
    provenance=PROVENANCE,
)
MAX_SWEEP = replace(
    SWEEP,
    points=tuple(_point(b, max(5.2e6, 0.4e6 + 0.31e6 * b)) for b in (1, 2, 4, 8, 16, 32, 64, 128)),
    fit=Fit(
        law="max",
        host_ns=5.2e6,
        fixed_ns=0.4e6,
        slope_ns=0.31e6,
        knee=15.5,
        knee_low=14.0,
        knee_high=16.9,
        error_frac=0.01,
    ),
    provenance=GPU_PROVENANCE,
)
NULL_KNEE = replace(
    SWEEP,
    fit=replace(
        FIT, knee=None, knee_low=None, knee_high=None, why_no_knee="only one point lies below the crossing at 1.4"
    ),
)
NO_FIT = replace(
    SWEEP,
    points=(*SWEEP.points[:3], _point(64, None)),
    fit=Fit(
        law="none",
        host_ns=None,
        fixed_ns=None,
        slope_ns=None,
        knee=None,
        knee_low=None,
        knee_high=None,
        why_no_knee="neither law explains the points: held-out error 41 % and 38 %",
        error_frac=0.38,
        error_max_frac=0.41,
        error_sum_frac=0.38,
    ),
    findings=(Finding(code="no-fit", severity="warning", message="Neither law explains the sweep."),),
)

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

CAPTURE = Capture(
    name="examples/transformer.py:train_step",
    plan=SchedulePlan(skip=2, wait=1, warmup=2, active=3, repeat=1),
    iterations_run=8,
    files=(CaptureFile(path="out/train_step.0.pt.trace.json.gz", iterations=(5, 6, 7), size_bytes=1_812_004),),
    step_ns=(13_100_000, 12_900_000, 13_020_000),
    unprofiled_step_ns=12_412_330.0,
    provenance=PROVENANCE,
)
NO_CAPTURE = replace(
    CAPTURE,
    files=(),
    step_ns=(),
    unprofiled_step_ns=None,
    findings=(
        Finding(code="nothing-recorded", severity="fatal", message="The schedule needs 6 iterations; 4 were run."),
    ),
)

CPU_VERDICT = Verdict(
    regime="overhead-bound",
    evidence=(
        Evidence(
            name="null experiment",
            value=3.48,
            unit="batch_size",
            threshold="measured at 1, below the knee",
            so="the part that does not grow with the batch is the larger one",
        ),
    ),
    would_change="a batch above the knee",
)
CHECK = Check(
    name="examples/transformer.py:train_step",
    measurement=MEASUREMENT,
    sweep=SWEEP,
    capture=CAPTURE,
    trace=replace(EMPTY_TRACE, provenance=PROVENANCE),
    verdict=CPU_VERDICT,
    remedies=REMEDIES[1:],
    provenance=PROVENANCE,
    findings=(ONE_BATCH,),
)
GPU_CHECK = replace(
    CHECK,
    measurement=ASYNCHRONOUS,
    sweep=MAX_SWEEP,
    trace=TRACE,
    verdict=VERDICT,
    remedies=REMEDIES,
    provenance=GPU_PROVENANCE,
)
BARE_CHECK = replace(CHECK, sweep=None, capture=None, trace=None, remedies=(), findings=())

ENVIRONMENT = Environment(
    chip=PROVENANCE.chip,
    software=PROVENANCE.software,
    switches=PROVENANCE.switches,
    machine_state=PROVENANCE.machine_state,
    devices=(
        DeviceEntry(name="cpu", available=True, detail=CPU["model"], settling="nothing to wait for"),
        DeviceEntry(
            name="cuda",
            available=False,
            detail="this torch is built without CUDA",
            settling="synchronises every device the outputs live on",
        ),
        DeviceEntry(name="lazy", available=True, detail="TorchScript backend", settling="materialises, then waits"),
    ),
    extras={"torch": "2.13.0+cpu", "nvidia-ml-py": None},
)

TRACES = TraceSet(
    reports=(TRACE, replace(TRACE, source="rank1.json", verdict=replace(VERDICT, regime="sync-bound")), EMPTY_TRACE)
)

RATIOS = tuple(sample / 12.4e6 * 0.923 for sample in samples_ns(72, seed=3))


def _comparison_side(name: str, median_ns: float) -> Side:
    return Side(
        name=name,
        median_ns=median_ns,
        floor_ns=median_ns * 0.97,
        blocks=216,
        clean_blocks=201,
        calls_per_block=1,
        warmup=MEASUREMENT.warmup,
        provenance=PROVENANCE,
    )


PAIR = Pair(
    name="fused.py:step",
    ratio=0.923,
    ci_low=0.917,
    ci_high=0.931,
    answer="faster",
    why="the whole interval lies below 0.990 and outside what A against A read",
    quads=78,
    clean_quads=72,
    n_eff=51.0,
    floor_frac=0.01,
    ratios=RATIOS,
)
COMPARISON = Comparison(
    name="fused.py:step against eager.py:step",
    ratio=PAIR.ratio,
    ci_low=PAIR.ci_low,
    ci_high=PAIR.ci_high,
    ci_level=0.95,
    aa_ratio=1.001,
    aa_ratio_low=0.996,
    aa_ratio_high=1.005,
    answer="faster",
    why=PAIR.why,
    sides=(_comparison_side("eager.py:step", 12.41e6), _comparison_side("fused.py:step", 11.45e6)),
    pairs=(PAIR,),
    stop_reason="answered",
    processes=0,
    provenance=PROVENANCE,
)
THREE_WAY = replace(
    COMPARISON,
    sides=(*COMPARISON.sides, _comparison_side("x" * 300, 12.42e6)),
    pairs=(PAIR, replace(PAIR, name="x" * 300, ratio=1.001, ci_low=0.99, ci_high=1.012, answer="same", why="")),
    processes=5,
)
NOT_COMPARABLE = replace(
    COMPARISON,
    ratio=None,
    ci_low=None,
    ci_high=None,
    aa_ratio=None,
    aa_ratio_low=None,
    aa_ratio_high=None,
    answer="cannot-tell",
    why="the sides differ in more than what is compared",
    pairs=(
        replace(
            PAIR,
            ratio=None,
            ci_low=None,
            ci_high=None,
            answer="cannot-tell",
            quads=0,
            clean_quads=0,
            n_eff=0.0,
            ratios=(),
            differences=(
                Difference(path="dtype", a="float32", b="bfloat16"),
                Difference(path="chip.threads", a=2, b="not read"),
            ),
        ),
    ),
)

PROFILE = Profile(name="model.py:forward", capture=CAPTURE, reports=(TRACE,), provenance=PROVENANCE)
TWO_FILES = replace(
    PROFILE,
    capture=replace(
        CAPTURE,
        plan=replace(CAPTURE.plan, steps=(10, 500), skip_first_wait=True),
        files=tuple(
            replace(
                CAPTURE.files[0],
                path=f"out/cycle{k}.json.gz",
                integrity=Integrity(
                    events=81_204,
                    ops=9_412,
                    steps_found=(5, 6, 7),
                    device_rows=0,
                    launches=0,
                    launches_unmatched=0,
                    device_rows_unlinked=0,
                    lost=None if k else 0,
                ),
                beside=("out/stacks.txt",),
            )
            for k in range(2)
        ),
        options=CaptureOptions(shapes=True, stacks=True),
        cost=ProfilerCost(
            per_op_ns=812.0, low_ns=790.0, high_ns=840.0, chain=200, rounds=9, options=CaptureOptions(shapes=True)
        ),
    ),
    reports=(TRACE, EMPTY_TRACE),
)

RECORDS = {
    "measurement": MEASUREMENT,
    "asynchronous": ASYNCHRONOUS,
    "disturbed": DISTURBED_MEASUREMENT,
    "no_headline": NO_HEADLINE,
    "sweep": SWEEP,
    "max_sweep": MAX_SWEEP,
    "null_knee": NULL_KNEE,
    "no_fit": NO_FIT,
    "trace": TRACE,
    "empty_trace": EMPTY_TRACE,
    "many_findings": MANY_FINDINGS,
    "capture": CAPTURE,
    "no_capture": NO_CAPTURE,
    "check": CHECK,
    "gpu_check": GPU_CHECK,
    "bare_check": BARE_CHECK,
    "environment": ENVIRONMENT,
    "comparison": COMPARISON,
    "three_way": THREE_WAY,
    "not_comparable": NOT_COMPARABLE,
    "profile": PROFILE,
    "two_files": TWO_FILES,
    "traces": TRACES,
}
