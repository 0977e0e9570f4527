"""What does a step keep of its earlier calls? The tensors it holds, and the autograd graph behind them.

Looked at are the places in which a step can hold something (:mod:`referee.device.discover`), and the attributes of its
modules: a state that is handed from call to call, a running sum of losses, a list of outputs.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from referee.device.discover import Held, discover
from referee.device.settle import find_leaves
from referee.device.values import Values, look_at

if TYPE_CHECKING:
    import torch

MOST_NODES = 2_000
"""No more nodes than this are walked. A graph of some tens of thousands whose nodes Python has seen ends the process
when it is freed, one inside the other; without that torch frees it in a loop."""

_MOST_MARKS = 64

_MARK = "referee: kept from an earlier call"


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What a step held after a call, and how much of it that call had added.

    ``tensors`` are counted, ``more_tensors`` and ``more_nodes`` (of the autograd graph, as far as
    :data:`MOST_NODES`) are those that were not there before the call; below zero where it let go of more.
    """

    tensors: int
    more_tensors: int
    more_nodes: int
    values: Values
    """What the tensors hold, parameters among them."""
    state: Values
    """The same without parameters: what enters, and what is carried from call to call."""
    step: Callable[[], object] = field(repr=False)
    marks: tuple[weakref.ref[object], ...] = field(default=(), repr=False)
    """One for each graph that the call added: it dies with the node it was put on."""

    @property
    def graph_is_held(self) -> bool:
        """Whether a graph that the call added is there still."""
        return any(mark() is not None for mark in self.marks)

    def count_tensors(self) -> int:
        """How many tensors the step holds by now, its modules' parameters apart."""
        return len(_held_tensors(discover(self.step)))

    def values_now(self) -> tuple[Values, Values]:
        """What the tensors hold by now: all of them, and those that are no parameters."""
        return _values(discover(self.step))


class Holdings:
    """What ``step`` holds before a call; :meth:`after` says what that call has added. Calls nothing itself."""

    def __init__(self, step: Callable[[], object], held: Held) -> None:
        self._step = step
        self._tensors = _held_tensors(held)  # kept alive, so that an identity stays one tensor's
        self._nodes = _count_nodes(self._tensors.values())

    def after(self) -> Kept:
        """What the step holds now."""
        held = discover(self._step)
        now = _held_tensors(held)
        values, state = _values(held)
        nodes = _count_nodes(now.values())
        added = [tensor for key, tensor in now.items() if key not in self._tensors and tensor.grad_fn is not None]
        return Kept(
            tensors=len(now),
            more_tensors=len(now) - len(self._tensors),
            more_nodes=nodes - self._nodes,
            values=values,
            state=state,
            step=self._step,
            marks=tuple(_mark(tensor) for tensor in added[:_MOST_MARKS]) if nodes > self._nodes else (),
        )


def _held_tensors(held: Held) -> dict[int, torch.Tensor]:
    import torch

    tensors = {id(tensor): tensor for tensor in held.tensors}
    for attribute in _attributes(held.modules):
        tensors.update((id(tensor), tensor) for tensor in find_leaves(attribute, torch.Tensor))
    return tensors


def _values(held: Held) -> tuple[Values, Values]:
    tensors = _held_tensors(held)
    parameters = {id(p): p for module in held.modules for p in module.parameters()}
    state = [tensor for key, tensor in tensors.items() if key not in parameters]
    return look_at({**tensors, **parameters}.values()), look_at(state)


def _attributes(modules: Iterable[torch.nn.Module]) -> Iterator[object]:
    """What modules hold beside their parameters: buffers, and tensors that are attributes like any other."""
    for module in modules:
        for part in module.modules():
            yield part._buffers
            yield [value for name, value in vars(part).items() if not name.startswith("_")]


class _Mark:
    """Nothing but something that a weak reference can be held to."""


def _mark(tensor: torch.Tensor) -> weakref.ref[object]:
    """Put a mark on the node that made ``tensor``, which lives as long as the node."""
    mark: object = _Mark()
    node: Any = tensor.grad_fn
    node.metadata[_MARK] = mark
    return weakref.ref(mark)


def _count_nodes(tensors: Iterable[torch.Tensor]) -> int:
    """How many nodes of the autograd graph can be reached from ``tensors``; each once, however often it is reached."""
    seen: dict[int, Any] = {}  # holds the nodes: an identity is one node's only while that lives
    stack = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    while stack and len(seen) < MOST_NODES:
        node = stack.pop()
        if id(node) not in seen:
            seen[id(node)] = node
            stack.extend(after for after, _ in node.next_functions if after is not None)
    return len(seen)
