"""What does a step hold? Finds modules, optimizers, scalers, tensors and compiled functions reachable from a callable.

Looked into: closures, partials, bound objects, attributes of callable objects, and those global names that the
function's own code mentions. Nothing is called.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from referee.device.settle import find_leaves

if TYPE_CHECKING:
    import torch

_BUILT_IN = (types.BuiltinMethodType, types.MethodWrapperType)
"""Methods that are no Python code, such as those of a tensor."""

FUNCTION_DEPTH = 4
"""How many functions may hold each other: a step that wraps a step that wraps a model."""


@dataclass
class Held:
    """What a step holds, each thing once, in the order found."""

    modules: list[torch.nn.Module] = field(default_factory=list)
    optimizers: list[torch.optim.Optimizer] = field(default_factory=list)
    tensors: list[torch.Tensor] = field(default_factory=list)
    scalers: list[torch.amp.GradScaler] = field(default_factory=list)
    compiled: list[str] = field(default_factory=list)
    """Descriptions of compiled functions and modules."""
    _sorted: set[int] = field(default_factory=set, repr=False)
    """The identities of what stands in these lists: a step may hold a hundred thousand tensors."""
    _named: list[torch.Tensor] = field(default_factory=list, repr=False)
    """Keeps what :meth:`roles` names alive: a step drops its gradients, and their ids would name other tensors."""

    def roles(self) -> dict[int, str]:
        """By ``id`` of a tensor: ``parameter``, ``buffer``, ``gradient``, or ``state`` (optimizers', scalers')."""
        found: dict[int, str] = {}
        for module in self.modules:
            found.update((id(buffer), "buffer") for buffer in module.buffers())
            for parameter in module.parameters():
                found[id(parameter)] = "parameter"
                self._name_gradient(parameter, found)
        for tensor in self.tensors:
            if tensor.is_leaf and tensor.requires_grad:  # held by itself, its gradients add up unless they are dropped
                self._name_gradient(tensor, found)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    found[id(parameter)] = "parameter"
                    self._name_gradient(parameter, found)
            self._name_states(optimizer.state, found)
        for scaler in self.scalers:
            self._name_states(vars(scaler), found)
        return found

    def _name_states(self, holder: object, found: dict[int, str]) -> None:
        import torch

        states = find_leaves(holder, torch.Tensor)
        self._named += states
        found.update((id(tensor), "state") for tensor in states)

    def _name_gradient(self, parameter: torch.Tensor, found: dict[int, str]) -> None:
        gradient = parameter.grad
        if gradient is not None:
            self._named.append(gradient)
            found[id(gradient)] = "gradient"


def discover(step: object) -> Held:
    """What does ``step`` hold?"""
    import torch

    held = Held()
    kinds = (torch.Tensor, torch.nn.Module, torch.optim.Optimizer, torch.amp.GradScaler)
    seen: set[int] = set()
    stack: list[tuple[object, int]] = [(step, 0)]
    while stack:
        item, depth = stack.pop()
        if id(item) in seen or depth > FUNCTION_DEPTH:
            continue
        seen.add(id(item))
        note = _compiled(item)
        if note:
            held.compiled.append(note)
        for inner in _inside(item):
            leaves: list[object] = find_leaves(inner, lambda found: isinstance(found, kinds) or _is_code(found))
            for leaf in leaves:
                _sort(leaf, held)
                stack.append((leaf, depth + 1))
    return held


def _sort(leaf: object, held: Held) -> None:
    """Put ``leaf`` where it belongs, unless it is there already."""
    import torch

    places: tuple[tuple[type, list[Any]], ...] = (
        (torch.Tensor, held.tensors),
        (torch.nn.Module, held.modules),
        (torch.optim.Optimizer, held.optimizers),
        (torch.amp.GradScaler, held.scalers),
    )
    for kind, place in places:
        if isinstance(leaf, kind) and id(leaf) not in held._sorted:
            held._sorted.add(id(leaf))
            place.append(leaf)
    if isinstance(leaf, torch.amp.GradScaler):
        for tensor in find_leaves(vars(leaf), torch.Tensor):
            _sort(tensor, held)


def _is_code(item: object) -> bool:
    return isinstance(item, (types.FunctionType, types.MethodType, functools.partial, *_BUILT_IN))


def _inside(item: object) -> Iterator[object]:
    """What ``item`` holds directly."""
    import torch

    if isinstance(item, functools.partial):
        yield from (item.func, item.args, item.keywords)
    elif isinstance(item, types.MethodType):
        yield from (item.__func__, item.__self__)
    elif isinstance(item, _BUILT_IN):
        yield item.__self__  # a tensor for its method; a module or a type for functions, in which nothing is looked for
    elif isinstance(item, types.FunctionType):
        for cell in item.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # a name that is not bound yet
                continue
        yield from (item.__defaults__, item.__kwdefaults__, item.__dict__)
        yield from (item.__globals__[name] for name in item.__code__.co_names if name in item.__globals__)
    elif isinstance(item, (torch.nn.Module, torch.optim.Optimizer, torch.Tensor)):
        return
    elif callable(item):
        yield getattr(item, "__dict__", None)


def _compiled(item: object) -> str:
    """How ``item`` is compiled, if it is: torch marks what it wrapped; scripted code has types of its own."""
    import torch

    if isinstance(item, torch.nn.Module):
        # Only the module's own mark counts here; a compiled part deeper inside is found through modules().
        parts = [module for module in item.modules() if _marked(module)]
        return f"torch.compile({type(getattr(parts[0], '_orig_mod', parts[0])).__name__})" if parts else ""
    if isinstance(item, torch.jit.ScriptFunction):
        return "torch.jit"
    if _marked(item):
        return f"torch.compile({getattr(getattr(item, '__wrapped__', item), '__name__', type(item).__name__)})"
    return ""


def _marked(item: Any) -> bool:
    import torch

    if isinstance(item, torch.nn.Module):
        wrapped = type(item).__name__ == "OptimizedModule" and type(item).__module__.startswith("torch._dynamo")
        return (
            wrapped
            or getattr(item, "_compiled_call_impl", None) is not None
            or isinstance(item, torch.jit.ScriptModule)
        )
    own = getattr(item, "__dict__", {})
    if own.get("_torchdynamo_disable"):
        return False  # kept from being compiled: torch wraps such functions the same way, many of its own on first call
    return "_torchdynamo_orig_callable" in own or bool(own.get("_is_torch_compile"))
