"""Measurements, sweeps and comparisons written by hand, with values as they come from real runs, and awkward ones."""

from __future__ import annotations

import math
import random
from dataclasses import replace

from referee.records.compare import Comparison, Pair, Side
from referee.records.finding import Finding
from referee.records.measurement import Clocks, Fit, Measurement, Sweep, SweepPoint, Warmup
from referee.records.provenance import Difference, Provenance, TensorSpec
from referee.records.shapes import ShapePoint, ShapeSet, Tail
from referee.records.sweep_grid import SweepAt, SweepGrid
from referee.records.verify import Verification

CPU = {
    "model": "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz",
    "architecture": "x86_64",
    "physical_cores": 2,
    "logical_cores": 4,
    "affinity": "0-1",
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
    peak_bytes=812_646_400,
    allocations=1_204,
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
SWEEP_GRID = SweepGrid(
    name="examples/transformer.py:train_step",
    parameter="batch_size",
    others=("dtype", "length"),
    asked=3,
    sweeps=(
        SweepAt(fixed={"dtype": "float32", "length": 128}, sweep=SWEEP),
        SweepAt(fixed={"dtype": "bfloat16", "length": 128}, sweep=MAX_SWEEP),
    ),
    provenance=PROVENANCE,
    findings=(
        Finding(
            code="point-failed",
            severity="warning",
            message="With dtype=bfloat16, length=4096 no value could be measured: MemoryError: no room.",
            evidence={"combination": "dtype=bfloat16, length=4096"},
        ),
    ),
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


VERIFICATION = Verification(
    name=MEASUREMENT.name,
    answer="reproduced",
    why="the time here is 1.012 of the saved one, within 5.0 %",
    ratio=1.012,
    ci_low=1.008,
    ci_high=1.016,
    tolerance_frac=0.05,
    saved=MEASUREMENT,
    again=replace(MEASUREMENT, median_ns=12_560_000.0, ci_low_ns=12_520_000.0, ci_high_ns=12_601_000.0),
    differences=(),
    provenance=PROVENANCE,
)
NOT_VERIFIABLE = replace(
    VERIFICATION,
    answer="not-comparable",
    why="it was measured under other conditions (chip.threads: 2 then, 8 here)",
    ratio=None,
    ci_low=None,
    ci_high=None,
    again=NO_HEADLINE,
    differences=(Difference(path="chip.threads", a=2, b=8),),
)


def _tail(p50_ns: float, n: int) -> Tail:
    bound = p50_ns * 1.9 if n >= 299 else None
    return Tail(
        n=n,
        p50_ns=p50_ns,
        p95_ns=p50_ns * 1.2,
        p99_ns=p50_ns * 1.6,
        p99_high_ns=bound,
        level=0.95,
        calls_for_p99=299,
    )


SHAPES = ShapeSet(
    name="serve.py:request",
    points=tuple(
        ShapePoint(
            label=label,
            share_frac=share,
            tail=_tail(p50_ns, n),
            warmup=MEASUREMENT.warmup,
            provenance=PROVENANCE,
        )
        for label, share, p50_ns, n in (
            ("(1, 128)", 0.7, 2.1e6, 840),
            ("(1, 512)", 0.25, 7.9e6, 301),
            ("(1, 2048)", 0.05, 31.0e6, 60),
        )
    ),
    mixture=_tail(2.2e6, 1201),
    preempted_frac=0.031,
    p99_all_ns=41.0e6,
    stop_reason="budget",
    seed=0,
    provenance=PROVENANCE,
)
NO_SHAPES = replace(
    SHAPES,
    points=(replace(SHAPES.points[0], tail=None),),
    mixture=None,
    p99_all_ns=None,
    findings=(NO_CLEAN_BLOCK,),
)
