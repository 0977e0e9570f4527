"""What should be mended before any precision is chosen? Findings from the weights, the optimizer and the ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import isfinite

from referee.device.host import load_torch
from referee.precision.passes import Pass
from referee.precision.regions import regions_elsewhere
from referee.precision.subject import Subject, restored
from referee.precision.unguarded import CODE as UNGUARDED
from referee.precision.updates import check_epsilon
from referee.precision.watch import watch
from referee.precision.weights import (
    half_weights,
    low_weights,
    low_words,
    spoiled_tensor,
    spoiled_weights,
    wide_inputs,
    wide_weights,
)
from referee.records.finding import Finding, Scalar
from referee.records.precision import ActivationRange, GradientRange
from referee.units import format_frac


def static_findings(subject: Subject, *, trained: bool = True, lost_frac: float | None = None) -> tuple[Finding, ...]:
    """What the weights and optimizers alone tell.

    ``trained``: gradients were seen, so that a scaler may meet them. ``lost_frac``: the share of updates that weights
    kept in few bits lose.
    """
    return (
        *check_epsilon(subject),
        *(half_weights(subject) if trained or subject.optimizers else ()),
        *low_weights(subject, lost_frac),
        *wide_weights(subject),
        *wide_inputs(subject),
        *cast_cache(),
        *several_optimizers(subject),
    )


def several_optimizers(subject: Subject) -> Iterator[Finding]:
    """A reading of gradients and casts ends before the first update: what does that leave out?"""
    count = len(subject.optimizers)
    if count > 1:
        yield Finding(
            code="read-to-first-update",
            severity="warning",
            message=f"The step holds {count} optimizers: gradients and casts are read up to the first update, and what "
            "the step computes after it is not in these figures (it is in the times).",
            evidence={"optimizers": count},
            hint="Give each network's part of the step as a target of its own.",
        )


def watch_step(subject: Subject, announce: Callable[[Finding], None] = lambda _: None) -> tuple[Finding, ...]:
    """What two calls of the step use wrongly, seen while they run; everything is put back.

    ``announce`` is told of each when it comes up, so that they are known where the step raises.
    """
    with restored(subject), watch(on_collapse="announce", announce=announce) as seen:
        subject.step()
        subject.step()
        elsewhere = regions_elsewhere(seen.regions, device_type=subject.device_type)
    # What an fp16 backward loses here is counted by the ranges, which know what float32 has.
    return (*(found for found in seen.findings if found.code != UNGUARDED), *elsewhere)


def cast_cache() -> Iterator[Finding]:
    """Does a forward pass without gradients inside autocast cost the next one its gradients, on this torch?

    A bug of the cache of weight casts in versions before late 2025, tried here on a layer of two weights.
    """
    torch = load_torch()
    layer = torch.nn.Linear(2, 1)
    inputs = torch.ones(1, 2)
    random = torch.get_rng_state()
    with torch.enable_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.no_grad():
            layer(inputs)
        output = layer(inputs).sum()
    lost = not output.requires_grad or any(
        g is None for g in torch.autograd.grad(output, list(layer.parameters()), allow_unused=True)
    )
    torch.set_rng_state(random)
    if lost:
        yield Finding(
            code="cast-cache-unsafe",
            severity="warning",
            message=f"On torch {torch.__version__} a forward pass without gradients inside autocast takes the "
            "gradients from the next one in the same region.",
            evidence={"torch": str(torch.__version__)},
            hint="Give each pass an autocast region of its own, or cache_enabled=False, or update torch.",
        )


def finite_findings(reference: Pass, subject: Subject) -> tuple[Finding, ...]:
    """Are the gradients without autocast, against which all others are held, numbers at all, and if not, why?"""
    torch = load_torch()
    wrong = {name: int((~torch.isfinite(g)).sum()) for name, g in reference.gradients.items()}
    named = [name for name, count in wrong.items() if count]
    losses = [float(loss) for loss in reference.losses if loss.numel() == 1 and not loss.is_complex()]
    low = low_words(subject)
    where = f"without autocast, the weights being {low}" if low else "in float32 already"
    if not named:
        wrong_losses = [loss for loss in losses if not isfinite(loss)]
        return tuple(_loss_finding(loss, where) for loss in wrong_losses[:1])
    elements = sum(gradient.numel() for gradient in reference.gradients.values())
    because, evidence, hint = _why_not_finite(subject)
    return (
        Finding(
            code="gradients-not-finite",
            severity="warning",
            message=f"{format_frac(sum(wrong.values()) / elements)} of the gradient is infinite or no number {where}, "
            f"first in {named[0]}{because}: no precision and no loss scale mends that, so ranges say nothing.",
            evidence={
                "not_finite": sum(wrong.values()),
                "elements": elements,
                "parameters": len(named),
                "loss": str(losses[0]) if losses else None,
                **evidence,
            },
            hint=hint,
        ),
    )


def zero_findings(reference: Pass, subject: Subject) -> tuple[Finding, ...]:
    """Is there any gradient at all without autocast? Where all of it is zero, nothing can vanish and every scale is
    good, which says nothing."""
    gradients = reference.gradients.values()
    if not gradients or any(bool(gradient.any()) for gradient in gradients):
        return ()
    low = low_words(subject)
    where = f"without autocast, the weights being {low}" if low else "in float32 already"
    return (
        Finding(
            code="gradients-zero",
            severity="warning",
            message=f"The whole gradient is zero {where}: nothing is learned, and ranges say nothing.",
            evidence={"elements": sum(gradient.numel() for gradient in gradients), "parameters": len(gradients)},
            hint="Look for a saturated or constant loss, weights that all start at zero, or, in half precision, an "
            "overflow that is divided by.",
        ),
    )


def _why_not_finite(subject: Subject) -> tuple[str, dict[str, Scalar], str]:
    """The cause in words, as evidence, and the mend: the weights themselves, an epsilon that vanished, or not known."""
    spoiled = spoiled_weights(subject)
    if not spoiled:
        return "", {}, "torch.autograd.set_detect_anomaly(True) names the operator that makes the first one."
    first = next(iter(spoiled))
    evidence: dict[str, Scalar] = {"weights_not_finite": sum(spoiled.values()), "first_weight": first}
    words = f", and so are weights, first {first}"
    epsilons = list(check_epsilon(subject))
    if epsilons:
        evidence["because"] = epsilons[0].code
        return f"{words}: the update before made them so, see {epsilons[0].code}", evidence, epsilons[0].hint
    nan = spoiled_tensor(subject)
    if nan:
        evidence["nan_in"] = nan
        return f"{words}: the step holds a tensor {nan} with NaN in it", evidence, "Look at where these data come from."
    return words, evidence, "Start from weights that are numbers: an update, or what was loaded, has spoiled these."


def _loss_finding(loss: float, where: str) -> Finding:
    """Gradients may be finite all the same: that of a logarithm is, where the logarithm is not."""
    return Finding(
        code="loss-not-finite",
        severity="warning",
        message=f"The loss is {loss:g} {where}: no precision mends that, whatever its gradients are.",
        evidence={"loss": str(loss)},
        hint="Look for a logarithm, a root or a division out of its domain in the loss.",
    )


def range_findings(
    ranges: GradientRange | None, activations: Sequence[ActivationRange], *, not_finite: bool = False
) -> tuple[Finding, ...]:
    """What the ranges forbid. ``not_finite``: the step makes no numbers in float32 already, which is told elsewhere."""
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
                hint="Use bf16, or a GradScaler."
                if ranges.scale_low is not None or ranges.window_note
                else "Use bf16: none of the loss scales that were tried is good.",
            )
        )
    over = [row for row in activations if row.overflows and not (not_finite and row.largest is None)]
    if over:
        size = "is infinite or no number" if over[0].largest is None else f"reaches {over[0].largest:.4g}"
        found.append(
            Finding(
                code="activations-overflow",
                severity="warning",
                message=f"The output of {over[0].module} {size}, beyond fp16's 65,504: no loss scale mends that.",
                evidence={"module": over[0].module, "largest": over[0].largest, "modules": len(over)},
                hint="Use bf16, or keep these modules in float32 with torch.autocast(…, enabled=False).",
            )
        )
    return tuple(found)
