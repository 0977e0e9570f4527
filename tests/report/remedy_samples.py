"""Records of fixes tried and of predictions by replay, made up, each with every block that its report can show."""

from __future__ import annotations

from referee.records.finding import Finding
from referee.records.provenance import Provenance
from referee.records.remedy import Counts, FixTried, OutputCheck, RemedyReport
from referee.records.whatif import EditResult, Response, WhatIf


def remedy_report(provenance: Provenance) -> RemedyReport:
    """One gain, one fix rejected for its outputs, one that made no sense."""
    check = OutputCheck(match=True, tolerance="float32: up to 2e-05", worst_output=1e-7, worst_gradient=2e-6)
    differs = OutputCheck(match=False, tolerance="float32: up to 2e-05", differences=("output 0: dtype changed",))
    gained = FixTried(
        name="compile",
        title="torch.compile",
        how="torch.compile(step)",
        attacks="per-op CPU overhead",
        applied=True,
        outputs_match=True,
        predicted_ratio=0.8,
        predicted_low=0.6,
        predicted_high=1.1,
        predicted_basis="9 operators fuse into at most 5 kernels",
        measure_it=("aten::gelu",),
        measured_ratio=0.7,
        ci_low=0.69,
        ci_high=0.71,
        answer="faster",
        error_frac=-0.125,
        inside_range=True,
        eager_ns=1e6,
        fixed_ns=7e5,
        first_call_ns=8_000_000_000,
        pays_after_steps=26_667,
        check=check,
        before=Counts(operators=15, kernels=None, allocations=23, allocated_bytes=58_000),
        after=Counts(operators=None, kernels=5, allocations=19, allocated_bytes=41_000),
        notes=("graph break at t.py:14: Tensor.item()",),
    )
    rejected = FixTried(
        name="mine",
        title="The rewrite mine",
        how="use mine",
        attacks="what its author says",
        applied=True,
        outputs_match=False,
        check=differs,
        why_not="outputs differ from eager's: output 0: dtype changed",
    )
    senseless = FixTried(
        name="cuda-graph",
        title="One CUDA graph",
        how="graph.replay()",
        attacks="per-op CPU overhead",
        applied=False,
        why_not="CUDA graphs need a CUDA device",
    )
    return RemedyReport(name="train.py:step", fixes=(gained, rejected, senseless), provenance=provenance)


def _edit(name: str, low_ns: float, high_ns: float) -> EditResult:
    return EditResult(
        name=name,
        step_ns=(low_ns + high_ns) / 2,
        low_ns=low_ns,
        high_ns=high_ns,
        basis="as assumed",
        gain_low_frac=1 - high_ns / 1e7,
        gain_high_frac=1 - low_ns / 1e7,
    )


WHAT_IF = WhatIf(
    source="trace.json.gz",
    recorded_ns=10_000_000,
    replayed_ns=9_990_000,
    replay_error_frac=-0.001,
    busy_frac=0.4,
    response=Response(all_half=0.5, device_half=0.9, host_half=0.6),
    edits=(_edit("graph", 4e6, 8e6), _edit("no-sync", 9e6, 1e7)),
    together=_edit("graph and no-sync", 3.5e6, 8e6),
    findings=(Finding(code="replay-doubtful", severity="warning", message="Halving does not halve.", hint="Measure."),),
)
