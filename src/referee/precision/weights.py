"""In which dtype are the weights kept, and what follows from it?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from referee.device.host import load_torch
from referee.precision.subject import Subject
from referee.records.finding import Finding
from referee.units import format_frac

_LOST_FRAC = 0.5
"""From this share of lost updates on most of the training does not reach the weights, which is told."""


def low_words(subject: Subject) -> str:
    """The dtypes of fewer bits than float32 that weights are kept in; empty where there are none."""
    torch = load_torch()
    return _kept_in(subject, {torch.float16, torch.bfloat16})


def other_words(subject: Subject) -> str:
    """The dtypes other than float32 that weights are kept in, of fewer bits or of more; empty where there are none."""
    torch = load_torch()
    return low_words(subject) or _kept_in(subject, {torch.float64})


def _kept_in(subject: Subject, dtypes: set[Any]) -> str:
    kept = {p.dtype for p in subject.parameters()} & dtypes
    return ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in kept))


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


def low_weights(subject: Subject, lost_frac: float | None = None) -> Iterator[Finding]:
    """Are the weights kept in fewer bits than float32? Then the side called float32 is the step as it is.

    ``lost_frac``: the share of its updates that leave them as they were, where that is known.
    """
    words = low_words(subject)
    if not words:
        return
    lost = lost_frac is not None and lost_frac > _LOST_FRAC
    told = f" {format_frac(lost_frac)} of the optimizer's updates are too small to change them." if lost else ""
    mend = (
        "Keep the weights in float32 and let autocast cast them (or keep a float32 copy that the optimizer updates): "
        "small updates then add up."
    )
    yield Finding(
        code="low-weights",
        severity="warning",
        message=f"Weights are kept in {words}, so what is called float32 here is the step as it stands.{told}",
        evidence={"dtypes": words, "lost_updates_frac": lost_frac},
        hint=mend if lost else "Build the model in float32 to compare precisions.",
    )


def wide_weights(subject: Subject) -> Iterator[Finding]:
    """Are the weights kept in float64? Autocast leaves that alone."""
    words = other_words(subject)
    if words == "float64":
        count = sum(p.dtype == load_torch().float64 for p in subject.parameters())
        yield Finding(
            code="wide-weights",
            severity="warning",
            message="Weights are kept in float64: autocast converts nothing of them, and what is called float32 here "
            "computes in float64.",
            evidence={"dtypes": words, "parameters": count},
            hint="Make the model and its data float32 first (model.float(), x.float(); NumPy's own dtype is float64), "
            "and ask again.",
        )


def wide_inputs(subject: Subject) -> Iterator[Finding]:
    """Does data in float64 meet weights in fewer bits? What it meets is computed in float64, and stays so."""
    torch = load_torch()
    weights = {p.dtype for p in subject.parameters()}
    # A tensor without dimensions widens nothing.
    wide = [t for t in subject.tensors if t.dtype == torch.float64 and t.dim() and not t.requires_grad]
    if wide and weights and torch.float64 not in weights:
        yield Finding(
            code="wide-inputs",
            severity="warning",
            message=f"The step holds data in float64, first {tuple(wide[0].shape)}, and weights in fewer bits: what "
            "that data meets is computed in float64, which autocast leaves alone.",
            evidence={"tensors": len(wide), "shape": str(tuple(wide[0].shape))},
            hint="Convert the data once, when it is loaded: x.float(). NumPy's own dtype is float64.",
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
