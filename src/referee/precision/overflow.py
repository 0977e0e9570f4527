"""Which operator of the forward makes an infinity in fp16 out of what float32 computes as a number, and where is it?

No loss scale mends that, as it happens before the loss. The step runs once in fp16 under a mode that looks at every
result; where one is not finite, the operator is called again on the same arguments in float32. Infinities that are
meant, as in a mask, are infinities there as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any

from referee.device.dispatch_mode import ListeningMode
from referee.device.host import load_torch
from referee.device.settle import find_leaves
from referee.precision.control import FP16, Control, Ends
from referee.precision.place import user_line
from referee.precision.policy import FLOAT32, FLOAT32_OUTPUT, policies
from referee.precision.subject import Subject, restored
from referee.records.finding import Finding, Scalar

CODE = "operator-overflows"

_LEAST = 2.0**-25
"""What fp16 rounds to zero."""

_ADDS = ("aten::add", "aten::add_", "aten::clamp_min", "aten::clamp_min_")
"""By which a small constant is put in to keep a divisor from being zero."""


@dataclass(frozen=True, kw_only=True)
class Overflow:
    """The first one: the operator, the user's line, and the largest magnitude that float32 has for it.

    ``constant``: the result is no number because this constant, which is added at the line, is zero in fp16.
    """

    op: str
    line: str
    largest: float
    constant: float | None = None


def first_overflow(subject: Subject) -> Overflow | None:
    """Run one forward in fp16 and look; ``None`` where every result is a number, or no number in float32 either."""
    mode = _Looking()
    control = Control(
        FP16, device_type=subject.device_type, own_sites=subject.own_sites, ends=Ends(before_backward=True)
    )

    def watched() -> object:
        with mode:
            return subject.step()

    with restored(subject):
        control.call(watched)
    return mode.first or mode.vanished


def overflow_findings(found: Overflow | None, *, device_type: str) -> tuple[Finding, ...]:
    """The finding, with what autocast does to the operator on CUDA where that is something else than here."""
    if found is None:
        return ()
    place = f" at {found.line}" if found.line else ""
    evidence: dict[str, Scalar] = {"op": found.op, "line": found.line or "not known", "largest": found.largest}
    if found.constant is not None:
        return (
            Finding(
                code=CODE,
                severity="warning",
                message=f"In fp16 the constant {found.constant:g} that {found.op} puts in{place} is zero, and a "
                "division, root or logarithm after it is no number: no loss scale mends that.",
                evidence={**evidence, "constant": found.constant},
                hint="Add at least 1e-7 in fp16, better 1e-4, or compute this part in float32 (x.float(), autocast "
                "off).",
            ),
        )
    there = policies("cuda").of_call(found.op) if device_type == "cpu" else ""
    elsewhere = (
        f" On CUDA autocast computes {found.op} in float32; here it does not."
        if there in (FLOAT32, FLOAT32_OUTPUT) and policies(device_type).of_call(found.op) != there
        else ""
    )
    return (
        Finding(
            code=CODE,
            severity="warning",
            message=f"In fp16 {found.op}{place} makes infinities of what float32 has as numbers, the largest "
            f"{found.largest:.4g}; fp16 ends at 65,504 and no loss scale mends that.{elsewhere}",
            evidence=evidence,
            hint="Compute it in float32 (x.float(), inside torch.autocast(…, enabled=False)), or make its input "
            "smaller before it: subtract the largest before an exponential, scale a query before its product. Or use "
            "bf16.",
        ),
    )


class _Looking(ListeningMode):
    def __init__(self) -> None:
        super().__init__()
        self.torch = load_torch()
        self.first: Overflow | None = None
        self.vanished: Overflow | None = None
        self.small: tuple[str, str, float] | None = None
        """The first constant seen that is zero in fp16: operator, line, value."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.first is not None or self.torch.Tag.nondeterministic_seeded in func.tags:
            return func(*args, **kwargs)
        # What is written in place is gone afterwards.
        kept = self._copied(args) if func._schema.is_mutable else args
        output = func(*args, **kwargs)
        halves = [t for t in find_leaves(output, self.torch.Tensor) if t.dtype == self.torch.float16]
        if halves:
            self._look(func, kept, kwargs, halves)
        return output

    def _look(self, func: Any, args: Any, kwargs: Any, halves: list[Any]) -> None:
        name = func._schema.name
        if name in _ADDS and self.small is None:
            values = [v for v in args[1:2] if isinstance(v, float) and 0 < abs(v) <= _LEAST]
            self.small = (_named(name), user_line(), values[0]) if values else None
        if all(bool(self.torch.isfinite(half).all()) for half in halves):
            return
        largest = self._in_float32(func, args, kwargs, halves)
        if largest is not None:
            self.first = Overflow(op=_named(name), line=user_line(), largest=largest)
        elif self.small is not None and self.vanished is None and self._finite(args):
            op, line, value = self.small
            self.vanished = Overflow(op=op, line=line, largest=0.0, constant=value)

    def _in_float32(self, func: Any, args: Any, kwargs: Any, halves: list[Any]) -> float | None:
        """The largest magnitude in float32 of what is not finite here; ``None`` where none of it is a number there."""
        widened = {key: self._wide(value) for key, value in kwargs.items()}
        try:
            exact = func(*(self._wide(value) for value in args), **widened)
        except Exception:  # noqa: BLE001 - an operator that knows fp16 alone; then nothing can be said of it
            return None
        wide = [t for t in find_leaves(exact, self.torch.Tensor) if t.is_floating_point()]
        largest = None
        for half, one in zip(halves, wide, strict=False):
            if half.shape == one.shape:
                there = one[~self.torch.isfinite(half)].abs()
                values = there[self.torch.isfinite(there)]
                if values.numel():
                    largest = max(largest or 0.0, float(values.max()))
        return largest if largest is not None and isfinite(largest) else None

    def _finite(self, args: Any) -> bool:
        return all(bool(self.torch.isfinite(tensor).all()) for tensor in find_leaves(args, self.torch.Tensor))

    def _wide(self, value: Any) -> Any:
        if isinstance(value, self.torch.Tensor):
            return value.float() if value.is_floating_point() else value
        if isinstance(value, self.torch.dtype):
            return self.torch.float32 if value in (self.torch.float16, self.torch.bfloat16) else value
        return [self._wide(one) for one in value] if isinstance(value, (list, tuple)) else value

    def _copied(self, args: Any) -> Any:
        return [value.clone() if isinstance(value, self.torch.Tensor) else value for value in args]


def _named(name: str) -> str:
    short = name.removeprefix("aten::")
    return "a cast to float16" if short == "_to_copy" else short.strip("_")
