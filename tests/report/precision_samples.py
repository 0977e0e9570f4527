"""Precision reports: one with everything, one with hardly anything."""

from __future__ import annotations

from dataclasses import replace

from referee.records.finding import Finding
from referee.records.precision import (
    ActivationRange,
    AutocastAudit,
    AutocastOp,
    Binade,
    CastGroup,
    DeviceDifference,
    GradientRange,
    ParameterRange,
    PaysFrom,
    PrecisionReport,
    PrecisionTiming,
    PrecisionVerdict,
    ScalePoint,
    ScalerForecast,
)

from .live_samples import PROVENANCE

BASE = PrecisionTiming(
    name="float32",
    median_ns=12.4e6,
    ratio=None,
    ci_low=None,
    ci_high=None,
    answer="base",
    casts_ns=None,
    kernel_gain_ns=None,
    loss_error=2e-8,
    output_error=1.9e-7,
    gradient_error=3.1e-7,
)
FASTER = replace(
    BASE,
    name="bfloat16",
    median_ns=8.1e6,
    ratio=0.655,
    ci_low=0.641,
    ci_high=0.668,
    answer="faster",
    casts_ns=0.3e6,
    kernel_gain_ns=4.6e6,
    output_error=3.6e-3,
    gradient_error=4.4e-3,
)
NOT_RUN = replace(BASE, name="float16", median_ns=None, answer="does not run", why_not="RuntimeError: no kernel")

AUDIT = AutocastAudit(
    dtype="bfloat16",
    site="put round forward and loss",
    ops=(
        AutocastOp(
            op="aten::addmm",
            phase="forward",
            inputs=("bfloat16", "bfloat16", "bfloat16"),
            output="bfloat16",
            count=10,
            casts=21,
            why="lowered",
            modules=("layers.0.linear1", "layers.0.linear2"),
        ),
        AutocastOp(
            op="aten::_log_softmax",
            phase="forward",
            inputs=("float32",),
            output="float32",
            count=1,
            casts=0,
            why="explicit",
        ),
    ),
    casts=59,
    cast_groups=(
        CastGroup(
            who="autocast",
            phase="forward",
            of="weight",
            source="float32",
            target="bfloat16",
            count=26,
            repeats=2,
            bytes=1_090_000,
        ),
        CastGroup(
            who="backward",
            phase="backward",
            of="gradient",
            source="bfloat16",
            target="float32",
            count=33,
            repeats=0,
            bytes=1_780_000,
        ),
    ),
    casts_bytes=2_870_000,
    casts_ns=301_000.0,
    weight_casts_kept=4,
    elsewhere=(DeviceDifference(call="sum", place="head", here="bfloat16", there="float32", device="cuda", count=2),),
    elsewhere_device="cuda",
)

RANGES = GradientRange(
    basis="run",
    elements=218_048,
    zeros_frac=0.09,
    zero_frac=0.0046,
    zero_frac_cast=0.0009,
    subnormal_frac=0.051,
    overflow_frac=0.0,
    scale_low=16.0,
    scale_high=2097152.0,
    loss_frac=0.001,
    zero_frac_bf16=0.0,
    lost_updates_bf16_frac=0.138,
    scales=(
        ScalePoint(
            exponent=0,
            zero_frac_cast=0.0009,
            subnormal_frac=0.051,
            overflow_frac_cast=0.0,
            zero_frac=0.0046,
            overflow_frac=0.0,
        ),
        ScalePoint(exponent=1, zero_frac_cast=0.0008, subnormal_frac=0.04, overflow_frac_cast=0.0),
    ),
    parameters=(
        ParameterRange(
            name="head.weight",
            elements=32_768,
            zeros_frac=0.0,
            zero_frac=0.01,
            zero_frac_cast=0.002,
            subnormal_frac=0.06,
            overflow_frac=0.0,
            largest=0.028,
            lost_updates_bf16_frac=0.013,
        ),
    ),
    binades=(Binade(exponent=-30, count=48), Binade(exponent=-11, count=200_000), Binade(exponent=-6, count=18_000)),
)

PRECISION = PrecisionReport(
    name="examples/transformer.py:train_step",
    verdict=PrecisionVerdict(
        dtype="bfloat16",
        scaler=False,
        reasons=("bfloat16 is faster: 0.655 (0.641 to 0.668) of float32's time",),
        lines=(
            "dtype: bf16 autocast, no scaler: it has float32's range.",
            "do not cast: cross_entropy stays float32.",
            "gain here: 34.5 % of the step, 4.28 ms.",
        ),
    ),
    autocast=AUDIT,
    gradients=RANGES,
    activations=(ActivationRange(module="head", largest=4.3, headroom=15_000.0),),
    scaler=ScalerForecast(
        steps=20_000,
        init_scale=65536.0,
        skips=4,
        first_skips=0,
        steady_low=2097152.0,
        steady_high=4194304.0,
        collapsed_at=None,
        changes=((0, 65536.0), (2000, 131072.0)),
        waits_per_step=1,
    ),
    timing=(BASE, FASTER, NOT_RUN),
    pays_from=(
        PaysFrom(name="bfloat16", batch_size=8, points=((1, 1.2, 1.1, 1.3), (8, 0.66, 0.64, 0.67))),
        PaysFrom(name="float16", batch_size=None, points=((1, None, None, None),), why_not="it cannot be told"),
    ),
    provenance=PROVENANCE,
    findings=(
        Finding(
            code="clip-before-unscale",
            severity="warning",
            message="Gradients are clipped while they still carry the loss scale of 65536 (train.py:31).",
            evidence={"scale": 65536.0, "line": "train.py:31", "times": 2},
            hint="Call scaler.unscale_(optimizer) before clipping.",
        ),
    ),
)

BARE_PRECISION = replace(
    PRECISION,
    verdict=PrecisionVerdict(
        dtype="cannot-tell",
        scaler=None,
        reasons=(),
        lines=("dtype: cannot tell, because nothing was timed.", "do not cast: not known.", "gain here: not measured."),
        undecided_because="nothing was timed",
    ),
    autocast=None,
    gradients=None,
    activations=(),
    scaler=None,
    timing=(),
    pays_from=(),
    findings=(),
)
