"""In which dtype are the weights kept, and what follows from it?"""

from __future__ import annotations

from collections.abc import Iterator

from referee.device.host import load_torch
from referee.precision.subject import Subject
from referee.records.finding import Finding


def low_words(subject: Subject) -> str:
    """The dtypes of fewer bits than float32 that weights are kept in; empty where there are none."""
    torch = load_torch()
    low = {p.dtype for p in subject.parameters()} & {torch.float16, torch.bfloat16}
    return ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in low))


def spoiled_weights(subject: Subject) -> dict[str, int]:
    """By parameter: how many elements are infinite or no number, where any is."""
    torch = load_torch()
    counts = {subject.name_of(p): int((~torch.isfinite(p.detach())).sum()) for p in subject.parameters()}
    return {name: count for name, count in counts.items() if count}


def spoiled_tensor(subject: Subject) -> str:
    """The shape of the first tensor that the step holds, parameters apart, that has NaN in it; empty where none has.

    Infinities are left out: masks are made of them.
    """
    held = [t for t in subject.tensors if t.is_floating_point() and not t.requires_grad]
    return next((str(tuple(t.shape)) for t in held if bool(t.isnan().any())), "")


def low_weights(subject: Subject) -> Iterator[Finding]:
    """Are the weights kept in fewer bits than float32? Then the side called float32 is the step as it is."""
    words = low_words(subject)
    if words:
        yield Finding(
            code="low-weights",
            severity="warning",
            message=f"Weights are kept in {words}, so what is called float32 here is the step as it stands.",
            evidence={"dtypes": words},
            hint="Build the model in float32 to compare precisions.",
        )


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
