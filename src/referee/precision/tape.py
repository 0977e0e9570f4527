"""What will backward compute in, and what will it cast? Derived from the forward pass alone, by the rules of autograd.

A gradient has the dtype of the tensor that it belongs to. So the backward of an operator begins in the dtype of its
result, and wherever an argument that needs a gradient has another dtype, there is one cast from the result's dtype to
the argument's: behind autocast's own casts (the gradient of a cast is the cast back) as behind operators that widen
mixed arguments. Exceptions are the operators whose backward kernel hands out each argument's dtype itself. Only what
the loss depends on has a backward.

Tests hold this against what backward really does on the CPU; it is for devices that are not here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from referee.device.watching import tensors_in
from referee.precision.recorder import CAST, CastEvent, dtype_word

_CUTS = ("detach", "alias_copy", "empty", "zeros", "ones", "full", "rand", "bernoulli", "new_", "arange", "lift_fresh")
"""Beginnings of the names of operators whose result is a constant to autograd, whatever they are given."""

_OWN_DTYPES = ("batch_norm", "layer_norm", "group_norm", "rms_norm", "instance_norm", "rnn", "lstm", "gru")
"""Parts of the names of operators whose backward kernel returns each gradient in the dtype of its argument."""


@dataclass(frozen=True, kw_only=True)
class Argument:
    """An argument that needs a gradient: the nodes it came from (none for a weight), its dtype and shape."""

    parents: tuple[int, ...]
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    element_size: int


@dataclass(frozen=True, kw_only=True)
class Node:
    """One operator that autograd would remember: its call, the dtype of its result, its arguments with gradients."""

    op: str
    call: int | None
    output: str
    arguments: tuple[Argument, ...]
    computes: bool
    """Whether it is neither a view nor a cast."""
    casts_itself: bool
    """Whether its backward kernel returns each gradient in the dtype of its argument."""
    element_size: int


class Tape:
    """Autograd's graph as it would be, kept beside the operators: fake tensors of other devices cannot have one.

    ``merges`` treats a weight that is cast to the same dtype again, within one autocast region, as cast once: autocast
    keeps casts of leaves that require gradients, which fake tensors are not.
    """

    def __init__(self, *, merges: bool = False) -> None:
        from torch.utils.weak import WeakIdKeyDictionary

        self.nodes: list[Node] = []
        self.losses: list[Any] = []
        self.region = 0
        """Counts the outermost autocast regions that have ended: what was kept is forgotten with each."""
        self.opaques: dict[str, None] = {}
        """Functions with a backward of their own."""
        self._merges = merges
        self._leaves: Any = WeakIdKeyDictionary()
        self._node_of: Any = WeakIdKeyDictionary()
        self._written: dict[int, list[int]] = {}
        self._kept: dict[tuple[int, str, int], int] = {}

    def leaf(self, tensor: Any) -> None:
        """``tensor`` stands for one whose gradient is wanted."""
        self._leaves[tensor] = True

    def is_leaf(self, tensor: Any) -> bool:
        """Whether the gradient of ``tensor`` itself is wanted."""
        return tensor in self._leaves or bool(tensor.is_leaf and tensor.requires_grad)

    def stands_for(self, new: Any, old: Any) -> None:
        """``new`` is ``old`` under another name: carried over to a device and back, or written to meanwhile."""
        if self.is_leaf(old):
            self._leaves[new] = True
        written = self._written.get(_storage(old)) if self._written else None
        if written:
            self._node_of[new] = written[-1]
        elif old in self._node_of:
            self._node_of[new] = self._node_of[old]

    def opaque(self, name: str, given: object, result: object, *, call: int | None) -> None:
        """A function with a backward of its own ran: what that casts is not known."""
        arguments = tuple(a for t in tensors_in(given) if _differentiable(t) and (a := self._argument(t)) is not None)
        outputs = [t for t in tensors_in(result) if _differentiable(t)]
        if not arguments or not outputs:
            return
        self.opaques[name] = None
        node = Node(
            op=name,
            call=call,
            output=dtype_word(outputs[0]),
            arguments=arguments,
            computes=False,
            casts_itself=True,
            element_size=outputs[0].element_size(),
        )
        self.nodes.append(node)
        for tensor in outputs:
            self._node_of[tensor] = len(self.nodes) - 1

    def kept_cast(self, tensor: Any, target: str) -> bool:
        """Whether autocast would have kept this cast of a weight; notes it if not."""
        import torch

        if not self._merges or not self.is_leaf(tensor) or not torch.is_autocast_cache_enabled():
            return False
        key = (id(tensor), target, self.region)
        if key in self._kept:
            return True
        self._kept[key] = len(self.nodes)
        return False

    def note(self, func: Any, args: Any, kwargs: Any, result: Any, *, call: int | None, kept: bool = False) -> None:
        """An operator ran; ``kept`` says that autocast would have found this cast of a weight already made."""
        import torch

        name: str = func._schema.name.removeprefix("aten::")
        outputs = [t for t in tensors_in(result) if _differentiable(t)]
        if not torch.is_grad_enabled() or name.startswith(_CUTS) or name.endswith("_like") or not outputs:
            return
        given = [t for t in tensors_in((args, tuple(kwargs.values()))) if _differentiable(t)]
        arguments = tuple(a for t in given if (a := self._argument(t)) is not None)
        if not arguments:
            return
        if kept:
            number = self._kept[id(given[0]), dtype_word(outputs[0]), self.region]
        else:
            number = len(self.nodes)
            self.nodes.append(_node(func, name, outputs[0], arguments, kwargs, call))
        for tensor in outputs:
            self._node_of[tensor] = number
        if func._schema.is_mutable:
            self._written.setdefault(_storage(outputs[0]), []).append(number)

    def _argument(self, tensor: Any) -> Argument | None:
        parents = {self._node_of[tensor]} if tensor in self._node_of else set()
        parents.update(self._written.get(_storage(tensor), ()) if self._written else ())
        if not parents and not self.is_leaf(tensor):
            return None
        return Argument(
            parents=tuple(parents),
            dtype=dtype_word(tensor),
            shape=tuple(tensor.shape),
            stride=tuple(tensor.stride()),
            element_size=tensor.element_size(),
        )

    def returned(self, output: object) -> None:
        """The step returned ``output`` and called no backward: the first scalar with a gradient in it is the loss."""
        if not self.losses:
            self.losses += [t for t in tensors_in(output) if t.numel() == 1 and t in self._node_of][:1]

    def reached(self) -> list[Node]:
        """The operators whose backward would run, in the order of the forward pass."""
        stack = [self._node_of[loss] for loss in self.losses if loss in self._node_of]
        seen = set(stack)
        while stack:
            for argument in self.nodes[stack.pop()].arguments:
                for parent in argument.parents:
                    if parent not in seen:
                        seen.add(parent)
                        stack.append(parent)
        return [self.nodes[number] for number in sorted(seen)]


def _differentiable(tensor: Any) -> bool:
    return bool(tensor.is_floating_point() or tensor.is_complex())


def _storage(tensor: Any) -> int:
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):  # sparse tensors have none
        return id(tensor)


def _node(func: Any, name: str, output: Any, arguments: tuple[Argument, ...], kwargs: Any, call: int | None) -> Node:
    # A softmax that converts from half by itself has a backward that converts back by itself.
    own = any(part in name for part in _OWN_DTYPES) or name in ("_softmax", "_log_softmax")
    return Node(
        op=f"aten::{name}",
        call=call,
        output=dtype_word(output),
        arguments=arguments,
        computes=not func.is_view and f"aten::{name}" != CAST,
        casts_itself=own,
        element_size=output.element_size(),
    )


def derived_casts(nodes: Iterable[Node]) -> list[CastEvent]:
    """The casts of gradients that the backward of ``nodes`` would make."""
    return [
        CastEvent(
            who="backward",
            backward=True,
            source=node.output,
            target=argument.dtype,
            shape=argument.shape,
            stride=argument.stride,
            tensor=0,
            weight=False,
            call=None,
            nbytes=_elements(argument.shape) * (node.element_size + argument.element_size),
        )
        for node in nodes
        if not node.casts_itself
        for argument in node.arguments
        if argument.dtype != node.output
    ]


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for side in shape:
        count *= side
    return count


def backward_dtypes(nodes: Iterable[Node]) -> dict[int, str]:
    """By the number of the Python call: the dtypes in which the backward of its operators computes, as words."""
    found: dict[int, dict[str, None]] = {}
    for node in nodes:
        if node.call is not None and node.computes:
            found.setdefault(node.call, {})[node.output] = None
    return {call: ", ".join(dtypes) for call, dtypes in found.items()}
