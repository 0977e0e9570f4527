"""What should be mended before any precision is chosen? Findings from the weights, the optimizer and the ranges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from referee.device.host import load_torch
from referee.precision.subject import Subject
from referee.precision.updates import check_epsilon
from referee.records.finding import Finding
from referee.records.precision import ActivationRange, GradientRange


def static_findings(subject: Subject) -> tuple[Finding, ...]:
    """What the weights and optimizers alone tell."""
    return (*check_epsilon(subject), *half_weights(subject))


def half_weights(subject: Subject) -> Iterator[Finding]:
    """Are weights that are trained kept in float16? A ``GradScaler`` refuses their gradients."""
    torch = load_torch()
    halves = [p for p in subject.parameters() if p.dtype == torch.float16]
    if halves:
        yield half_weight_finding(len(halves), subject.name_of(halves[0]))


def half_weight_finding(count: int, first: str) -> Finding:
    """The finding for trainable float16 weights."""
    return Finding(
        code="half-weights",
        severity="warning",
        message=f"{count} trainable parameter{'s are' if count > 1 else ' is'} float16 (first: {first}): GradScaler "
        "refuses to unscale their gradients.",
        evidence={"parameters": count, "first": first},
        hint="Load the trained weights in float32 and let autocast cast them, or use bf16 without a scaler.",
    )


def range_findings(ranges: GradientRange | None, activations: Sequence[ActivationRange]) -> tuple[Finding, ...]:
    """What the ranges forbid."""
    found: list[Finding] = []
    if ranges is not None and ranges.zero_frac is not None and ranges.zero_frac > ranges.loss_frac:
        found.append(
            Finding(
                code="gradients-vanish",
                severity="warning",
                message="Without a scaler an fp16 backward loses gradients to zero, and says nothing.",
                evidence={
                    "zero_frac": ranges.zero_frac,
                    "zero_frac_cast": ranges.zero_frac_cast,
                    "zero_frac_bf16": ranges.zero_frac_bf16,
                },
                hint="Use bf16, or a GradScaler.",
            )
        )
    over = [row for row in activations if row.headroom < 1]
    if over:
        found.append(
            Finding(
                code="activations-overflow",
                severity="warning",
                message=f"The output of {over[0].module} reaches {over[0].largest:.4g}, beyond fp16's 65,504: no loss "
                "scale mends that.",
                evidence={"module": over[0].module, "largest": over[0].largest, "modules": len(over)},
                hint="Use bf16, or keep these modules in float32 with torch.autocast(…, enabled=False).",
            )
        )
    return tuple(found)
