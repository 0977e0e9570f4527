"""Are gradients unscaled by another scale than they were made with? They are once the scaler was updated in between."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from referee.precision.seen import Held, Seen


def mark_stale(held: Iterable[Held]) -> None:
    """The scaler was updated: what carries a scale now carries the one of before."""
    for one in held:
        one.stale = one.scale not in (0.0, 1.0)


def still_stale(parameter: Any) -> bool:
    """Whether a backward is about to add to such gradients; those dropped, or filled with zeros, are gone."""
    return parameter.grad is not None and bool(parameter.grad.any())


def tell_stale(seen: Seen, held: Mapping[int, Held], parameters: Sequence[Any], *, scale: float | None) -> None:
    """``parameters`` are about to be unscaled by the scaler as it is: were their gradients made before its update?"""
    stale = [held[id(p)] for p in parameters if p.grad is not None and id(p) in held and held[id(p)].stale]
    if stale:
        seen.tell(
            "updated-between-steps",
            "scaler.update was called between the backward and this step: the gradients are divided by a scale that "
            "they may not carry, by half of it after an overflow",
            hint="Call scaler.update() once an iteration, after the last scaler.step of all optimizers.",
            scale=stale[0].scale,
            parameters=len(stale),
        )
