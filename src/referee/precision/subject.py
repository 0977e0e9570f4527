"""What of this step belongs to training? Its modules, parameters and optimizers, and their state to come back to."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from referee.device.discover import discover
from referee.device.host import load_torch

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A step and what it holds: the model, optimizers, tensors; ``own_sites``: it enters autocast itself."""

    step: Callable[[], object]
    device_type: str
    modules: tuple[torch.nn.Module, ...]
    optimizers: tuple[torch.optim.Optimizer, ...]
    tensors: tuple[torch.Tensor, ...]
    own_sites: bool = False
    model: torch.nn.Module | None = None
    compiled: bool = False
    """Whether compiled code is inside: watching modes would make the compiler compile it once more for them."""
    names: dict[int, str] = field(default_factory=dict)
    """Parameters and buffers by ``id``: their names."""
    module_names: dict[int, str] = field(default_factory=dict)
    """Modules by ``id``: their paths, the model's own being the name of its class."""

    def parameters(self) -> tuple[torch.nn.Parameter, ...]:
        """Every tensor that is trained, each once: the modules', the optimizers', and leaves that the step holds."""
        found = {id(p): p for module in self.modules for p in module.parameters()}
        for optimizer in self.optimizers:
            found.update((id(p), p) for group in optimizer.param_groups for p in group["params"])
        found.update((id(t), t) for t in self.tensors if t.requires_grad and t.is_leaf)
        return tuple(p for p in found.values() if p.requires_grad)

    def buffers(self) -> tuple[torch.Tensor, ...]:
        """Every buffer, each once."""
        return tuple({id(b): b for module in self.modules for b in module.buffers()}.values())

    def name_of(self, parameter: torch.Tensor) -> str:
        """The parameter's name in its model; its place among those trained, and its shape, where it belongs to none."""
        named = self.names.get(id(parameter))
        if named is not None:
            return named
        place = next((k for k, p in enumerate(self.parameters()) if p is parameter), None)
        return f"tensor {place} {tuple(parameter.shape)}"


def make_subject(
    step: Callable[[], object],
    *,
    device_type: str,
    model: Any = None,
    optimizer: Any = None,
    own_sites: bool = False,
) -> Subject:
    """The subject behind ``step``: ``model`` and ``optimizer`` where known, else what the step is seen to hold."""
    held = discover(step)
    modules = _unique([*([model] if model is not None else []), *held.modules])
    optimizers = _unique([*([optimizer] if optimizer is not None else []), *held.optimizers])
    names: dict[int, str] = {}
    module_names: dict[int, str] = {}
    # A module inside another one that is held as well is named from the outer one.
    roots = [root for root in modules if not _inside_another(root, modules)]
    for root in roots:
        prefix = "" if len(roots) == 1 else f"{type(root).__name__}."
        for name, parameter in (*root.named_parameters(), *root.named_buffers()):
            names.setdefault(id(parameter), f"{prefix}{name}")
        for name, module in root.named_modules():
            module_names.setdefault(id(module), f"{prefix}{name}" if name else type(root).__name__)
    known = {id(p) for module in modules for p in (*module.parameters(), *module.buffers())}
    return Subject(
        step=step,
        device_type=device_type,
        modules=tuple(modules),
        optimizers=tuple(optimizers),
        tensors=tuple(tensor for tensor in held.tensors if id(tensor) not in known),
        own_sites=own_sites,
        model=model if model is not None else (roots[0] if roots else None),
        compiled=bool(held.compiled),
        names=names,
        module_names=module_names,
    )


def _inside_another(module: Any, modules: list[Any]) -> bool:
    return any(module is inner for other in modules if other is not module for inner in other.modules())


def _unique(items: list[Any]) -> list[Any]:
    return list({id(item): item for item in items}.values())


@contextmanager
def restored(subject: Subject) -> Iterator[None]:
    """Put weights, buffers, gradients, optimizer states, held tensors and random states back afterwards.

    Exact, and in place: the tensors stay the same objects. What else a step changes (a data iterator's position, a
    scheduler's count) is beyond it.
    """
    torch = load_torch()
    tensors = [*subject.parameters(), *_frozen(subject), *subject.buffers(), *subject.tensors]
    saved = [(tensor, tensor.detach().clone()) for tensor in tensors]
    gradients = [(p, p.grad, None if p.grad is None else p.grad.detach().clone()) for p in subject.parameters()]
    states = [(optimizer, _state_of(optimizer)) for optimizer in subject.optimizers]
    random = _random_states(torch)
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value in saved:
                tensor.data.copy_(value)
            for parameter, gradient, value in gradients:
                if gradient is not None:
                    gradient.copy_(value)
                parameter.grad = gradient
        for optimizer, state in states:
            _restore_optimizer(optimizer, state)
        _set_random_states(torch, random)


def _frozen(subject: Subject) -> list[torch.nn.Parameter]:
    return [p for module in subject.modules for p in module.parameters() if not p.requires_grad]


def _state_of(optimizer: Any) -> tuple[dict[Any, Any], list[dict[str, Any]]]:
    states = {parameter: _copied(state) for parameter, state in optimizer.state.items()}
    groups = [
        {key: _copied(value) for key, value in group.items() if key != "params"} for group in optimizer.param_groups
    ]
    return states, groups


def _copied(value: Any) -> Any:
    torch = load_torch()
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _copied(inner) for key, inner in value.items()}
    return copy.deepcopy(value)


def _restore_optimizer(optimizer: Any, saved: tuple[dict[Any, Any], list[dict[str, Any]]]) -> None:
    states, groups = saved
    optimizer.state.clear()
    optimizer.state.update({parameter: _copied(state) for parameter, state in states.items()})
    for group, values in zip(optimizer.param_groups, groups, strict=True):
        group.update(values)


def _random_states(torch: Any) -> tuple[Any, Any]:
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() and torch.cuda.is_initialized() else None
    return torch.get_rng_state(), cuda


def _set_random_states(torch: Any, states: tuple[Any, Any]) -> None:
    torch.set_rng_state(states[0])
    if states[1] is not None:
        torch.cuda.set_rng_state_all(states[1])
