"""Which tensors that a step keeps in few bits does it write to in vain? What is added is below their last place.

A running average in bf16 stands still where its decay is 0.999: a thousandth is less than half of what eight bits
resolve. So does an optimizer's second moment that is kept like weights in bf16. Each update in place of such a tensor
is computed a second time in float64, from the same values, and held against what the tensor then is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from referee.device.host import load_torch
from referee.precision.control import Control, Setting
from referee.precision.place import user_line
from referee.precision.subject import Subject, restored
from referee.records.finding import Finding
from referee.units import format_frac

CODE = "state-stands-still"

_LOST_FRAC = 0.5
"""From this share of lost elements on the tensor as a whole does not move."""

_SETS = ("copy_", "fill_", "zero_", "set_", "resize_", "random_", "normal_", "uniform_", "bernoulli_", "clamp_")
"""Operators that write a value that is not an update of the old one, or leave most of it as it was on purpose."""


@dataclass(frozen=True, kw_only=True)
class Still:
    """An update in place that most of a tensor did not feel: the tensor, the operator, the user's line, the share."""

    name: str
    dtype: str
    op: str
    line: str
    lost_frac: float


def standing_still(subject: Subject) -> tuple[Still, ...]:
    """Run the step twice and look at the second run; each tensor once. Everything is put back."""
    if subject.compiled or not _may_hold(subject):
        return ()
    control = Control(Setting(name="float32"), device_type=subject.device_type, own_sites=subject.own_sites)
    with restored(subject):
        control.call(subject.step)  # an optimizer makes its state at its first step
        mode = _Updates(_kept(subject))
        with mode:
            control.call(subject.step)
    return tuple(mode.found.values())


def standing_findings(found: Sequence[Still]) -> Iterator[Finding]:
    """One finding for all of them, with the first one's name."""
    if found:
        first = found[0]
        others = f", and {len(found) - 1} more like it" if len(found) > 1 else ""
        yield Finding(
            code=CODE,
            severity="warning",
            message=f"{first.name} is kept in {first.dtype}, and {format_frac(first.lost_frac)} of it does not feel "
            f"what {first.op}{f' at {first.line}' if first.line else ''} does to it{others}: the change is below the "
            "last place.",
            evidence={
                "name": first.name,
                "dtype": first.dtype,
                "op": first.op,
                "line": first.line or "not known",
                "lost_frac": first.lost_frac,
                "tensors": len(found),
            },
            hint="Keep running averages, counts and an optimizer's state in float32.",
        )


def _low(tensor: Any) -> bool:
    torch = load_torch()
    return tensor.dtype in (torch.bfloat16, torch.float16)


def _may_hold(subject: Subject) -> bool:
    return any(map(_low, (*subject.tensors, *subject.buffers()))) or (
        bool(subject.optimizers) and any(map(_low, subject.parameters()))
    )


def _kept(subject: Subject) -> dict[int, tuple[str, Any]]:
    """By ``id``: what the step keeps in few bits, weights apart, under the name that a reader would give it."""
    torch = load_torch()
    weights = {id(parameter) for parameter in subject.parameters()}
    named = [(subject.name_of(buffer), buffer) for buffer in subject.buffers()]
    named += [(f"A tensor {tuple(tensor.shape)}", tensor) for tensor in subject.tensors]
    for optimizer in subject.optimizers:
        kind = type(optimizer).__name__
        named += [
            (f"{key} of {kind}", value)
            for state in optimizer.state.values()
            for key, value in state.items()
            if isinstance(value, torch.Tensor)
        ]
    return {id(tensor): (name, tensor) for name, tensor in named if _low(tensor) and id(tensor) not in weights}


class _Updates(TorchDispatchMode):  # type: ignore[misc]  # torch is not followed
    def __init__(self, kept: dict[int, tuple[str, Any]]) -> None:
        super().__init__()
        self.torch = load_torch()
        self.kept = kept
        self.found: dict[int, Still] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        targets = [t for t in _listed(args[:1]) if id(t) in self.kept and id(t) not in self.found]
        if not targets or not func._schema.is_mutable or not name.endswith("_") or name in _SETS:
            return func(*args, **kwargs)
        before = [target.clone() for target in targets]
        wide = [self._wide(arg) for arg in args]
        exact = _listed(wide[:1])
        places = [place for place, t in enumerate(_listed(args[:1])) if any(t is target for target in targets)]
        output = func(*args, **kwargs)
        starts = [exact[place].clone() for place in places]
        try:
            func(*wide, **{key: self._wide(value) for key, value in kwargs.items()})
        except (RuntimeError, TypeError):  # an operator of few dtypes: nothing can be said of it
            return output
        for target, old, start, place in zip(targets, before, starts, places, strict=True):
            self._note(name, target, old, start, exact[place])
        return output

    def _note(self, op: str, target: Any, old: Any, start: Any, exact: Any) -> None:
        """Whether most of what float64 changes stayed as it was."""
        meant = exact != start
        lost = int((meant & (target == old)).sum())
        if lost and lost > _LOST_FRAC * target.numel():
            name, _ = self.kept[id(target)]
            self.found[id(target)] = Still(
                name=name,
                dtype=str(target.dtype).removeprefix("torch."),
                op=op.removeprefix("_foreach_").rstrip("_"),
                line=user_line(),
                lost_frac=lost / target.numel(),
            )

    def _wide(self, value: Any) -> Any:
        if isinstance(value, self.torch.Tensor):
            return value.double() if value.is_floating_point() else value
        return [self._wide(one) for one in value] if isinstance(value, (list, tuple)) else value


def _listed(args: Any) -> list[Any]:
    """The tensors of the first argument: one, or those of a list."""
    torch = load_torch()
    first = args[0] if args else None
    items = first if isinstance(first, (list, tuple)) else (first,)
    return [item for item in items if isinstance(item, torch.Tensor)]
