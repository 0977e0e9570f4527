"""Which parameters does a step's backward reach? Those it does not reach do not train, and nothing says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from referee.anatomy.held import named_tensors
from referee.device.host import load_torch
from referee.records.finding import Finding


@dataclass
class Reached:
    """What happened to the parameters in some calls of a step."""

    wanting: Mapping[str, Any]
    """Parameters that want a gradient, by name."""
    got: set[str] = field(default_factory=set)
    """Those into which a backward added something."""

    @property
    def missing(self) -> list[str]:
        """Those that no backward reached and that hold no gradient either."""
        return [name for name, parameter in self.wanting.items() if name not in self.got and parameter.grad is None]


@contextmanager
def watch_reached(step: object) -> Iterator[Reached]:
    """While inside, note what each backward adds to; gradients may be dropped again before the step ends."""
    kind = load_torch().nn.Parameter
    wanting = {name: t for name, t in named_tensors(step).items() if isinstance(t, kind) and t.requires_grad}
    reached = Reached(wanting=wanting)

    def note(name: str) -> Any:
        return lambda _: reached.got.add(name)

    handles = [
        parameter.register_post_accumulate_grad_hook(note(name))
        for name, parameter in wanting.items()
        if parameter.is_leaf and not parameter.is_inference()
    ]
    try:
        yield reached
    finally:
        for handle in handles:
            handle.remove()


def reached_findings(reached: Reached) -> Iterator[Finding]:
    """Is there a parameter that wants a gradient and got none, after calls in each of which a backward ran?"""
    missing, count = reached.missing, len(reached.wanting)
    if not missing:
        return
    whole = len(missing) == count
    words = (
        f"A backward runs, and reaches none of the {count} parameters that want a gradient, first {missing[0]}"
        if whole
        else f"{len(missing)} of {count} parameters that want a gradient have none after backward, first {missing[0]}"
    )
    yield Finding(
        code="no-gradient",
        severity="warning",
        message=f"{words}: they do not train in this step",
        evidence={"parameters": len(missing), "of": count, "first": missing[0]},
        hint="Look for a no_grad region, a detach, .data, .item(), an integer or a tensor made anew between them and "
        "the loss, or a checkpoint with use_reentrant=True whose inputs want no gradient. Where it is meant, "
        "requires_grad_(False) says so, and saves their part of the tape and of the optimizer.",
    )
