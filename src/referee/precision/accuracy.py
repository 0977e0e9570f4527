"""How wrong is each precision? The same step in float64, on the same weights and inputs, as the reference.

Everything the step holds is widened in place for the reference run and put back: parameters, buffers, the tensors it
keeps. Operators that ask for a narrower floating dtype get float64 instead, so that a ``.float()`` in the user's code
does not narrow the reference; random numbers are drawn as before and then widened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from referee.device.dispatch_mode import ListeningMode
from referee.device.host import load_torch
from referee.precision.control import Setting
from referee.precision.passes import Pass, read_pass
from referee.precision.subject import Subject, restored

_DRAWING = (
    "rand",
    "normal",
    "uniform",
    "bernoulli",
    "exponential",
    "geometric",
    "cauchy",
    "log_normal",
    "poisson",
    "native_dropout",
)
"""Beginnings of the names of operators that draw."""


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Norms of the difference from float64 over the norm of the float64 value; ``None`` where there is no value."""

    loss: float | None
    output: float | None
    gradient: float | None
    worst_gradient: float | None
    worst_parameter: str


def float64_pass(subject: Subject) -> Pass:
    """The step in float64 from the present weights. What cannot be widened raises what torch raises."""
    with in_float64(subject) as called:
        return read_pass(subject, Setting(name="float64"), around=called)


@contextmanager
def in_float64(subject: Subject) -> Iterator[Callable[[Callable[[], object]], object]]:
    """Within it all that the step holds is float64, and everything is put back afterwards.

    Yields what calls the step: operators in it that ask for a narrower dtype get float64.
    """
    with restored(subject), _widened(subject):
        yield _within_mode


def errors(found: Pass, reference: Pass) -> Errors:
    """How far ``found`` is from ``reference``; gradients are divided by the loss scale first."""
    worst, worst_name = None, ""
    difference2 = norm2 = 0.0
    for name, exact in reference.gradients.items():
        got = found.gradients.get(name)
        if got is None or got.shape != exact.shape:
            continue
        apart, size = _norms2(_wide(got) / found.setting.scale, _wide(exact))
        difference2, norm2 = difference2 + apart, norm2 + size
        own = _ratio(apart, size)
        if own is not None and (worst is None or own > worst):
            worst, worst_name = own, name
    return Errors(
        loss=_relative(found.losses, reference.losses),
        output=_relative(found.outputs, reference.outputs),
        gradient=_ratio(difference2, norm2),
        worst_gradient=worst,
        worst_parameter=worst_name,
    )


def _relative(found: tuple[Any, ...], reference: tuple[Any, ...]) -> float | None:
    if not reference or len(found) != len(reference):
        return None
    pairs = [_norms2(_wide(a), _wide(b)) for a, b in zip(found, reference, strict=True) if a.shape == b.shape]
    return _ratio(sum(apart for apart, _ in pairs), sum(size for _, size in pairs))


def _norms2(a: Any, b: Any) -> tuple[float, float]:
    return float((a - b).abs().square().sum()), float(b.abs().square().sum())


def _wide(tensor: Any) -> Any:
    """``tensor`` in 64 bits; a complex one keeps both of its parts."""
    return tensor.cdouble() if tensor.is_complex() else tensor.double()


def _ratio(difference2: float, norm2: float) -> float | None:
    return float((difference2 / norm2) ** 0.5) if norm2 > 0 else None


@contextmanager
def _widened(subject: Subject) -> Iterator[None]:
    """Every floating tensor that the step holds as float64, the same objects; narrow again afterwards."""
    torch = load_torch()
    default = torch.get_default_dtype()
    parameters = [p for module in subject.modules for p in module.parameters()]
    held = {id(t): t for t in (*subject.parameters(), *parameters, *subject.buffers(), *subject.tensors)}
    narrow = [(t, t.data) for t in held.values() if t.is_floating_point() and t.dtype != torch.float64]
    for parameter in subject.parameters():
        parameter.grad = None
    try:
        torch.set_default_dtype(torch.float64)
        for tensor, data in narrow:
            tensor.data = data.double()
        yield
    finally:
        torch.set_default_dtype(default)
        for parameter in subject.parameters():
            parameter.grad = None
        for tensor, data in narrow:
            tensor.data = data


def _within_mode(step: Callable[[], object]) -> object:
    with _Widening():
        return step()


class _Widening(ListeningMode):
    """Operators that ask for a narrower floating dtype get float64; random ones run as asked and are widened after."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        torch = load_torch()
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded in func.tags and _draws(func):
            return _random(torch, func, args, kwargs)
        if kwargs.get("dtype") in (torch.float32, torch.float16, torch.bfloat16):
            kwargs = {**kwargs, "dtype": torch.float64}
        return func(*args, **kwargs)


def _draws(func: Any) -> bool:
    """Whether the operator's result is random numbers; others carry the tag for a dropout inside them."""
    name: str = func._schema.name.removeprefix("aten::")
    return name.startswith(_DRAWING)


def _random(torch: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """The same random numbers as in float32, widened: generators draw others for each width."""
    if func._schema.name == "aten::native_dropout":  # its mask is random, its product is not
        _, mask = func(args[0].float(), *args[1:], **kwargs)
        return args[0] * mask / (1 - args[1]), mask
    narrow = [value.float() if _is_double(torch, value) else value for value in args]
    if "dtype" in [argument.name for argument in func._schema.arguments]:
        asked = kwargs.get("dtype")
        kwargs = {**kwargs, "dtype": torch.float32 if asked in (None, torch.float64) else asked}
    drawn = func(*narrow, **kwargs)
    if func._schema.is_mutable:
        return args[0].copy_(drawn)
    return drawn.double() if isinstance(drawn, torch.Tensor) and drawn.is_floating_point() else drawn


def _is_double(torch: Any, value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == torch.float64
