"""In which modes is a call looked at, and which kernels does it meet in each? Predicted from key sets and rules.

Modes that wrap tensors or transform functions lead to the operator more than once; the rules for going on inside are
those of c10's comments and of functorch's table of keys for entering a dynamic layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from referee.anatomy.arguments import Arguments
from referee.anatomy.operator import Operator, read_operator
from referee.anatomy.path import ENDS_AT, NO_KEY, Keys, composite, keys_of_call, predict, read_table, visited
from referee.device.host import load_torch
from referee.device.settle import find_leaves
from referee.errors import OptionError

MODES = (
    "plain",
    "grad",
    "no_grad",
    "inference_mode",
    "inference_tensors",
    "autocast",
    "subclass",
    "dispatch_mode",
    "fake",
    "functionalize",
    "vmap",
    "func_grad",
)

UNSEEN = frozenset(
    {
        "FuncTorchDynamicLayerFrontMode",
        "FuncTorchDynamicLayerBackMode",
        "FuncTorchGradWrapper",
        "PythonTLSSnapshot",
        "PythonDispatcher",
        "PreDispatch",
        "BackendSelect",
    }
)
"""Keys whose kernels only manage others. A recording kernel there would change what is managed."""

_BELOW_AUTOGRAD = ("Autograd", "ADInplaceOrView", "Autocast")


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One call in one mode: what is called, and in which context."""

    mode: str
    call: Callable[[], Any]
    context: Callable[[], AbstractContextManager[Any]]
    predicted: tuple[str, ...]
    open_ended: bool = False
    """Whether what follows the predicted kernels is decided by code that is not the dispatcher's."""


def make_scenario(operator: Operator, arguments: Arguments, mode: str) -> Scenario:
    """The call of ``operator`` in ``mode``, with the kernels that it is predicted to meet.

    Raises :class:`~referee.errors.OptionError` for a mode that is not known, and what torch raises where a mode does
    not take these tensors.
    """
    makers: dict[str, Callable[[Operator, Arguments], Scenario]] = {
        "plain": _eager,
        "grad": _grad,
        "no_grad": lambda op, args: _eager(op, args, "no_grad", load_torch().no_grad),
        "inference_mode": lambda op, args: _eager(op, args, "inference_mode", load_torch().inference_mode),
        "inference_tensors": _inference_tensors,
        "autocast": _autocast,
        "subclass": _subclass,
        "dispatch_mode": _dispatch_mode,
        "fake": _fake,
        "functionalize": _functionalize,
        "vmap": _vmap,
        "func_grad": _func_grad,
    }
    if mode not in makers:
        raise OptionError(f"{mode!r} is no mode of a call.", hint=f"Modes are {', '.join(MODES)}.")
    # Each with tensors of its own: what writes to its arguments must not change those of the next mode.
    return makers[mode](operator, _map(arguments, lambda t: t.detach().clone().requires_grad_(t.requires_grad)))


def label(operator: Operator, key: str) -> str:
    """How a kernel is called in a path."""
    return f"{operator.full.removeprefix('aten::')}@{key}"


def _of_keys(operator: Operator, keys: Keys) -> tuple[str, ...]:
    """The kernels of one call that does not come back to the operator, as far as they can be recorded."""
    seen = UNSEEN if composite(operator) else UNSEEN | {NO_KEY}
    return tuple(label(operator, key) for key in visited(predict(operator, keys)) if key not in seen)


def _without(keys: Keys, prefixes: Sequence[str]) -> Keys:
    return replace(keys, order=tuple(key for key in keys.order if not key.startswith(tuple(prefixes))))


def _eager(
    operator: Operator,
    arguments: Arguments,
    mode: str = "plain",
    context: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Scenario:
    with context():
        predicted = _of_keys(operator, keys_of_call(arguments.tensors))
    return Scenario(mode=mode, call=_caller(operator, arguments), context=context, predicted=predicted)


def _caller(operator: Operator, arguments: Arguments) -> Callable[[], Any]:
    call = operator.callable
    return lambda: call(*arguments.args, **arguments.kwargs)


def _grad(operator: Operator, arguments: Arguments) -> Scenario:
    wanting = _map(arguments, lambda t: t.detach().clone().requires_grad_(t.is_floating_point()))
    if operator.in_place:
        # A leaf that wants a gradient must not be written to; its copy may.
        wanting = _map(wanting, lambda t: t.clone())
    return _eager(operator, wanting, "grad")


def _inference_tensors(operator: Operator, arguments: Arguments) -> Scenario:
    with load_torch().inference_mode():
        made = _map(arguments, lambda t: t.clone())
    return _eager(operator, made, "inference_tensors", load_torch().inference_mode)


def _autocast(operator: Operator, arguments: Arguments) -> Scenario:
    torch = load_torch()

    def context() -> AbstractContextManager[Any]:
        on: AbstractContextManager[Any] = torch.autocast("cpu", dtype=torch.bfloat16)
        return on

    return _eager(operator, arguments, "autocast", context)


def _subclass(operator: Operator, arguments: Arguments) -> Scenario:
    """A subclass whose __torch_dispatch__ passes the call on to what it wraps, below autograd."""
    wrapped = _map(arguments, passing_subclass().wrap)
    keys = keys_of_call(wrapped.tensors)
    inner = _without(keys_of_call(arguments.tensors), _BELOW_AUTOGRAD)
    outside = _of_keys(operator, keys)
    inside = _of_keys(operator, inner) if outside and outside[-1].endswith("@Python") else ()
    return Scenario(
        mode="subclass", call=_caller(operator, wrapped), context=nullcontext, predicted=(*outside, *inside)
    )


def passing_subclass() -> Any:
    """A tensor subclass that wraps a tensor (``wrap``) and passes every operator on to it."""
    torch = load_torch()
    from torch.utils._pytree import tree_map

    class Passing(torch.Tensor):  # type: ignore[misc, name-defined]
        """Wraps a tensor and does nothing of its own."""

        inner: Any

        @staticmethod
        def wrap(tensor: Any) -> Any:
            made = torch.Tensor._make_wrapper_subclass(
                Passing, tensor.shape, strides=tensor.stride(), dtype=tensor.dtype, device=tensor.device
            )
            made.inner = tensor
            return made

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            def unwrap(value: Any) -> Any:
                return value.inner if isinstance(value, Passing) else value

            out = func(*tree_map(unwrap, args), **tree_map(unwrap, kwargs or {}))
            return tree_map(lambda value: cls.wrap(value) if isinstance(value, torch.Tensor) else value, out)

    return Passing


def _dispatch_mode(operator: Operator, arguments: Arguments) -> Scenario:
    """A TorchDispatchMode that calls the operator again, below autograd and without itself."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Again(TorchDispatchMode):  # type: ignore[misc]
        """Passes every call on."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    with Again():
        outside = _of_keys(operator, keys_of_call(arguments.tensors))
    inner = _without(keys_of_call(arguments.tensors), _BELOW_AUTOGRAD)
    inside = _of_keys(operator, inner) if outside and outside[-1].endswith("@Python") else ()
    return Scenario(
        mode="dispatch_mode", call=_caller(operator, arguments), context=Again, predicted=(*outside, *inside)
    )


def _fake(operator: Operator, arguments: Arguments) -> Scenario:
    """FakeTensor: below autograd Python takes the call, and asks a cache, a decomposition or the kernel for Meta."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode()
    fake = _map(arguments, mode.from_tensor)
    with mode:
        outside = _of_keys(operator, keys_of_call(fake.tensors))
    return Scenario(mode="fake", call=_caller(operator, fake), context=lambda: mode, predicted=outside, open_ended=True)


_LAYER_KEYS = {
    "vmap": ("FuncTorchVmapMode", "FuncTorchBatched"),
    "grad": ("AutogradCPU", "ADInplaceOrView"),
    "functionalize": ("Functionalize",),
}
"""Which keys act while a transform handles a call: functorch lets only those through at its front."""


def _layer(operator: Operator, transform: str) -> tuple[list[str], bool]:
    """The kernels that a transform's own keys have, and whether the operator is called again inside."""
    table = read_table(operator)
    met: list[str] = []
    front = table.get("FuncTorchDynamicLayerFrontMode")
    if front is not None and front.kind == "kernel":  # taken apart into other operators before any transform sees it
        return met, False
    for key in _LAYER_KEYS[transform]:
        here = table.get(key)
        if here is None or here.kind == "fallthrough":
            continue
        met.append(label(operator, key))
        # What draws numbers is handled by the mode, which decides what is called for one draw or for many.
        ends = key.startswith(ENDS_AT.get(operator.full, "none"))
        if here.math or "Decomposition" in here.source or key == "FuncTorchVmapMode" or ends:
            return met, False
    return met, True


def _functionalize(operator: Operator, arguments: Arguments) -> Scenario:
    """Writing operators are checked against Meta and then become their functional twins."""
    torch = load_torch()
    call = operator.callable
    run = torch.func.functionalize(lambda *args: call(*args, **arguments.kwargs))
    met, open_ended = _met_functionalized(operator, arguments)
    args = arguments.args
    return Scenario(
        mode="functionalize", call=lambda: run(*args), context=nullcontext, predicted=met, open_ended=open_ended
    )


def _met_functionalized(operator: Operator, arguments: Arguments) -> tuple[tuple[str, ...], bool]:
    """The kernels met under functionalisation, and whether a kernel decides what follows them."""
    met, again = _layer(operator, "functionalize")
    table = read_table(operator)
    here = table.get("Functionalize")
    if not again or here is None:
        return tuple(met), False
    if here.kind == "kernel" and any(other.math for other in table.values()):  # a composite view is made of others
        return tuple(met), False
    if here.kind == "kernel" and "Fallback" in here.source:  # written by hand: resizing, lifting, taking storage over
        return tuple(met), True
    twin: Operator | None = operator
    if operator.in_place:
        twin = functional_twin(operator)
        if twin is None and not operator.name.endswith("_"):
            return tuple(met), True
        if twin is None or not twin.is_view:
            met.append(label(operator, "Meta"))
            if table["Meta"].source.partition(":")[0].endswith(".py"):
                return tuple(met), True
    if twin is None:
        return tuple(met), True
    inside = _of_keys(twin, keys_of_call(arguments.tensors))
    # A twin that its backend makes of other operators may be made of the very one that writes.
    backend = inside[-1].rpartition("@")[2] if inside else ""
    made_of_others = operator.in_place and backend in table and read_table(twin)[backend].kind == "composite"
    return (*met, *inside), made_of_others


def functional_twin(operator: Operator) -> Operator | None:
    """The operator of the same name and overload that returns what this one writes; ``None`` where there is none."""
    if not operator.name.endswith("_") or operator.name.endswith("__"):
        return None
    try:
        return read_operator(operator.name.removesuffix("_"), operator.overload)
    except RuntimeError:
        return None


def _vmap(operator: Operator, arguments: Arguments) -> Scenario:
    torch = load_torch()
    call = operator.callable
    stacked = _map(arguments, lambda t: torch.stack((t, t)))
    dims = tuple(0 if find_leaves(value, torch.Tensor) else None for value in stacked.args)
    run = torch.vmap(lambda *args: call(*args, **arguments.kwargs), in_dims=dims, randomness="different")
    met, _ = _layer(operator, "vmap")
    args = stacked.args
    return Scenario(mode="vmap", call=lambda: run(*args), context=nullcontext, predicted=tuple(met), open_ended=True)


def _func_grad(operator: Operator, arguments: Arguments) -> Scenario:
    torch = load_torch()
    call = operator.callable
    first, rest = arguments.args[0], arguments.args[1:]

    copied = torch.abs if operator.base == "copy_" else torch.clone  # which calls copy_ itself

    def scalar(value: Any) -> Any:
        # What a transform differentiates is a leaf, which must not be written to; what comes of it may.
        out = call(copied(value) if operator.in_place else value, *rest, **arguments.kwargs)
        return (out[0] if isinstance(out, (list, tuple)) else out).sum()

    met, again = _layer(operator, "grad")
    inside = _of_keys(operator, keys_of_call(arguments.tensors)) if again else ()
    return Scenario(
        mode="func_grad",
        call=lambda: torch.func.grad(scalar)(first),
        context=nullcontext,
        predicted=(*met, *inside),
        open_ended=True,  # the backward pass may call the operator again
    )


def _map(arguments: Arguments, change: Callable[[Any], Any]) -> Arguments:
    torch = load_torch()

    def one(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return change(value)
        if isinstance(value, (list, tuple)):
            return type(value)(one(item) for item in value)
        return value

    return Arguments(args=tuple(map(one, arguments.args)), kwargs={k: one(v) for k, v in arguments.kwargs.items()})
