"""Which parameters does a step's backward reach? Those it does not reach do not train, and nothing says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from referee.anatomy.held import named_tensors
from referee.device.discover import discover
from referee.device.host import load_torch
from referee.records.finding import Finding


@dataclass
class Reached:
    """What happened to the parameters in some calls of a step."""

    wanting: Mapping[str, Any]
    """Parameters that want a gradient, by name."""
    updated: frozenset[int] = frozenset()
    """Those that an optimizer of the step holds, by ``id``; empty where it has none."""
    got: set[str] = field(default_factory=set)
    """Those into which a backward added something."""

    @property
    def missing(self) -> list[str]:
        """Those that no backward reached and that hold no gradient either."""
        return [name for name, parameter in self.wanting.items() if name not in self.got and parameter.grad is None]

    @property
    def unused(self) -> list[str]:
        """Those that get gradients which no optimizer of the step uses."""
        if not self.updated:
            return []
        return [name for name in self.wanting if name in self.got and id(self.wanting[name]) not in self.updated]


@contextmanager
def watch_reached(step: object) -> Iterator[Reached]:
    """While inside, note what each backward adds to; gradients may be dropped again before the step ends."""
    kind = load_torch().nn.Parameter
    wanting = {name: t for name, t in named_tensors(step).items() if isinstance(t, kind) and t.requires_grad}
    groups = (group for optimizer in discover(step).optimizers for group in optimizer.param_groups)
    reached = Reached(wanting=wanting, updated=frozenset(id(p) for group in groups for p in group["params"]))

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
    """Is there a parameter without a gradient, or with one that nobody uses, after calls that each ran a backward?"""
    yield from _unused(reached)
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


def _unused(reached: Reached) -> Iterator[Finding]:
    unused, count = reached.unused, len(reached.wanting)
    if unused:
        yield Finding(
            code="gradient-unused",
            severity="warning",
            message=f"{len(unused)} of {count} parameters get a gradient, and no optimizer of the step holds them, "
            f"first {unused[0]}: they do not train, and their gradients add up",
            evidence={"parameters": len(unused), "of": count, "first": unused[0]},
            hint="Hand them to the optimizer: modules in a plain list or dict are not among model.parameters(), those "
            "in a ModuleList or ModuleDict are. Where it is meant, requires_grad_(False) saves their gradients.",
        )
