"""Do gradients that were asked for enter a loss with the loss scale still in them, as in a gradient penalty?

``torch.autograd.grad`` of a scaled loss answers scaled gradients, and no scaler unscales those. Where they are part of
a later loss, a norm of them is as many times too large as the scale. Dividing by the scale anywhere on the way is taken
for the mend.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from referee.device.host import load_torch
from referee.device.watching import tensors_in
from referee.precision.clipping import PRODUCTS, named, number
from referee.precision.intercept import Intercepts
from referee.precision.reach import walk
from referee.precision.seen import Seen

_PRODUCTS = (*PRODUCTS, "_foreach_mul", "_foreach_div", "_foreach_mul_", "_foreach_div_")


class AskedWatch:
    """Knows which gradients were asked for of a scaled loss, by the graph node that made each."""

    def __init__(self, seen: Seen, scaled: Mapping[Any, float]) -> None:
        self.torch = load_torch()
        self.seen, self.scaled = seen, scaled
        self.made: dict[Any, float] = {}

    def install(self, on: Intercepts) -> None:
        """Put the interceptions in place."""
        on.wrap(self.torch.autograd, "grad", after=self.after_grad)
        for owner in (self.torch.Tensor, self.torch):
            for name in _PRODUCTS:
                if hasattr(owner, name):
                    on.wrap(owner, name, before=named(name, self.before_product))

    def after_grad(self, owner: Any, args: Sequence[Any], result: Any, kwargs: dict[str, Any]) -> None:
        """Gradients were asked for: of a scaled loss, and with a graph of their own?"""
        made = [t.grad_fn for t in tensors_in(result) if t.grad_fn is not None] if self.scaled else []
        if not made:
            return
        outputs = args[0] if args else kwargs.get("outputs")
        nodes = walk(list(tensors_in(outputs)))[1]
        scale = next((scale for node, scale in self.scaled.items() if node in nodes), 1.0)
        if scale not in (0.0, 1.0):
            self.made.update((node, scale) for node in made)

    def before_product(self, name: str, tensors: object, factor: object) -> None:
        """A division by the scale: whatever it is of, the scale is thought of."""
        if not self.made:
            return
        by = number(factor)
        scale = next(iter(self.made.values()))
        if by and math.isclose(by if "div" in name else 1 / by, scale, rel_tol=1e-5):
            self.made.clear()

    def check(self, nodes: set[Any]) -> None:
        """A backward goes through ``nodes``: through such gradients as well?"""
        reached = [scale for node, scale in self.made.items() if node in nodes]
        if reached:
            self.seen.tell(
                "penalty-of-scaled-gradients",
                f"Gradients that carry the loss scale of {reached[0]:g} are part of a loss: a penalty on their size is "
                "that many times too large",
                hint="Divide what torch.autograd.grad answers by scaler.get_scale() before it enters the loss.",
                scale=reached[0],
            )
        self.made.clear()
