"""Does fp16 train without a loss scale? What lies below fp16's range becomes zero then, and nothing says so."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from referee.device.host import load_torch
from referee.precision.seen import Seen
from referee.units import format_frac

CODE = "fp16-without-scaler"

_BETWEEN = ("DivBackward0", "NegBackward0", "ToCopyBackward0")
"""What may stand between a loss and the product that scaled it by hand: an average, say."""


def is_unguarded(losses: Sequence[Any], leaves: Sequence[Any], *, low: Collection[str]) -> bool:
    """Whether a backward from ``losses`` runs in fp16, and nobody has multiplied these by anything.

    ``low`` are the dtypes of the autocast regions so far. A product may be a scale by hand. Where there was bf16 as
    well, it is open which of them a loss came through.
    """
    half = load_torch().float16
    halves = set(low) == {"float16"} or any(leaf.dtype == half for leaf in leaves)
    return halves and not any(_is_product(loss.grad_fn) for loss in losses)


def _is_product(node: Any) -> bool:
    while node is not None and type(node).__name__ in _BETWEEN:
        node = node.next_functions[0][0]
    return type(node).__name__ == "MulBackward0"


def tell_unguarded(seen: Seen, parameters: Sequence[Any]) -> None:
    """Note it; how many of the gradients are zero is read the first time alone, as it waits for the device."""
    zero_frac = None if CODE in seen.first else _zero_frac(parameters)
    share = "" if zero_frac is None else f": {format_frac(zero_frac)} of them are zero, of themselves or by that"
    seen.tell(
        CODE,
        "The optimizer steps with gradients of an fp16 backward without a loss scale, in which what lies below 6e-8 "
        f"becomes zero and nothing says so{share}",
        hint="Use a GradScaler, or bf16; referee precision counts what is lost.",
        zero_frac=zero_frac,
    )


def _zero_frac(parameters: Sequence[Any]) -> float | None:
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    elements = sum(gradient.numel() for gradient in gradients)
    return sum(int((gradient == 0).sum()) for gradient in gradients) / elements if elements else None
