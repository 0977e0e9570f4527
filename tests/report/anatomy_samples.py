"""The anatomy of one operator and a survey, as the renderers are tried on; and a difference of two traces."""

from __future__ import annotations

from referee.records.anatomy import (
    Anatomy,
    AnatomySurvey,
    ModeCost,
    ModePath,
    PathEntry,
    SavedTensor,
    Stage,
    SurveyRow,
    Tape,
    TapeNode,
    Variant,
)
from referee.records.diff import DiffCause, DiffEntry, DiffSide, KernelChange, TraceDiff

from .live_samples import PROVENANCE

LONG_KERNEL = "void at::native::vectorized_elementwise_kernel<4, " + "at::native::Functor<float>, " * 10 + ">"

TAPE = Tape(
    nodes=(
        TapeNode(
            number=0,
            name="MulBackward0",
            next=(1,),
            saved=(
                SavedTensor(
                    name="self", shape=(8, 128), dtype="float32", view_bytes=4096, bytes=4096, role="activation"
                ),
            ),
        ),
        TapeNode(number=1, name="AccumulateGrad", next=(), variable="input 0"),
    ),
    edges=1,
    accumulators=1,
    saved_tensors=1,
    saved_bytes=4096,
    parameter_bytes=0,
    naive_bytes=8192,
)

ANATOMY = Anatomy(
    op="aten::mul.Tensor",
    entry="torch.mul(a, b)",
    mode="grad",
    whole_ns=1_490.0,
    whole_cold_ns=2_340.0,
    whole_ci_low_ns=1_480.0,
    whole_ci_high_ns=1_500.0,
    ci_level=0.95,
    stages=(
        Stage(
            name="argument parsing",
            ns=69.0,
            cold_ns=168.0,
            ci_low_ns=68.7,
            ci_high_ns=69.6,
            meaning="checked and read by torch's own parser",
            layer="binding and argument parsing",
        ),
        Stage(
            name="autograd node",
            ns=403.0,
            cold_ns=None,
            ci_low_ns=397.0,
            ci_high_ns=411.0,
            meaning="the node, its edges and what it saves",
            layer="autograd node and tape",
        ),
        Stage(name="rest", ns=-68.3, cold_ns=20.0, ci_low_ns=-72.0, ci_high_ns=-62.8, layer="kernel or launch"),
    ),
    remainder_ns=-87.3,
    remainder_low_ns=-110.0,
    remainder_high_ns=-55.9,
    per_tensor_ns=41.0,
    dispatch_path=(
        PathEntry(key="AutogradCPU", kernel="kernel", visited=True, note="records the node", source="a.cpp:1"),
        PathEntry(key="BackendSelect", kernel="fallthrough", visited=False),
        PathEntry(key="CPU", kernel="kernel", visited=True, note="does the work"),
    ),
    tape=TAPE,
    provenance=PROVENANCE,
    unseparated=("Overload resolution: the parser has one signature.",),
    modes=(
        ModeCost(mode="grad", ns=1_490.0, ci_low_ns=1_480.0, ci_high_ns=1_500.0, saved_bytes=4096, nodes=2),
        ModeCost(mode="no_grad", ns=980.0, ci_low_ns=975.0, ci_high_ns=990.0, saved_bytes=0, nodes=0),
        ModeCost(mode="inference_mode", ns=None, ci_low_ns=None, ci_high_ns=None, why_not="it raised"),
    ),
    variants=(Variant(group="asked otherwise", name="torch.ops.aten.mul.Tensor", ns=2_400.0, extra_ns=910.0),),
    paths=(ModePath(mode="inference_mode", predicted=("CPU",), witnessed=("CPU",), gradients_equal=None),),
    probe={"compiler": "c++ 12.2.0"},
)

SURVEY = AnatomySurvey(
    namespace="aten",
    rows=(
        SurveyRow(
            op="aten::add.Tensor",
            entry="torch.add(a, b)",
            kind="pointwise",
            whole_ns=1_490.0,
            remainder_ns=-87.0,
            layers={"dispatch": 40.0, "autograd node and tape": 510.0},
            stages=9,
        ),
        SurveyRow(op="aten::_sobol_engine_draw", refused="it ended the process (segmentation fault)"),
    ),
    took_ns=79_000_000_000,
    provenance=PROVENANCE,
)

DIFF = TraceDiff(
    a=DiffSide(
        source="before.json",
        regime="launch-bound",
        steps=5,
        step="ProfilerStep#3",
        mean_ns=77.9e6,
        spread_ns=2.02e6,
        operators=40_506,
        device_rows=9_450,
    ),
    b=DiffSide(
        source="after.json",
        regime="compute-bound",
        steps=1,
        step=None,
        mean_ns=126e6,
        spread_ns=None,
        operators=31_236,
        device_rows=15_632,
    ),
    answer="cannot-tell",
    change_ns=48.1e6,
    ratio=1.617,
    noise_ns=None,
    causes=(DiffCause(name="busy", a_ns=66.1e6, b_ns=121.5e6), DiffCause(name="per-op", a_ns=11.8e6, b_ns=4.5e6)),
    entries=(
        DiffEntry(
            name="aten::addmm",
            path="Model.layers.0",
            status="matched",
            count_a=69,
            count_b=69,
            device_a_ns=7_130_000,
            device_b_ns=9_000_000,
            idle_a_ns=3_340_000,
            idle_b_ns=0,
            host_a_ns=5_000_000,
            host_b_ns=4_000_000,
        ),
        DiffEntry(
            name="CompiledFunction",
            path="",
            status="added",
            count_a=0,
            count_b=1,
            device_a_ns=0,
            device_b_ns=23_600_000,
            idle_a_ns=0,
            idle_b_ns=530_000,
            host_a_ns=0,
            host_b_ns=1_000_000,
        ),
    ),
    kernels=(KernelChange(name=LONG_KERNEL, count_a=3, count_b=4, a_ns=100, b_ns=300),),
)
