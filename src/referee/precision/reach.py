"""Which parameters does an optimizer hold, which leaves does a backward reach, what has a scaler found there?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def found_infinite(scaler: Any, optimizer: Any) -> bool:
    """Whether a fused optimizer, which is always called, was told not to step."""
    if not getattr(optimizer, "_step_supports_amp_scaling", False):
        return False
    found = scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
    return any(bool(flag.item()) for flag in found.values())


def parameters_of(optimizer: Any) -> list[Any]:
    """The parameters of an optimizer, or of what wraps one."""
    groups = getattr(optimizer, "param_groups", None) or []
    return [parameter for group in groups for parameter in group["params"]]


def walk(losses: Sequence[Any]) -> tuple[list[Any], set[Any]]:
    """The leaves whose gradients a backward on ``losses`` accumulates, and every node on the way."""
    found: dict[int, Any] = {}
    stack = [loss.grad_fn for loss in losses if getattr(loss, "grad_fn", None) is not None]
    seen = set(stack)
    while stack:
        node = stack.pop()
        variable = getattr(node, "variable", None)
        if variable is not None:
            found[id(variable)] = variable
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                stack.append(following)
    return list(found.values()), seen
