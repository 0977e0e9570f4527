"""Which operators of a recorded step need not run? Those whose result nobody reads, and those that repeat another.

A backend that records hands a whole graph to a compiler. What no output needs is not in that graph and never runs. And
to a compiler equal operators on equal inputs are one computation: a loop of the same matrix product inside one step may
run once, whatever its length. Two results have one number here if they come from the same operator with the same
arguments, tensors counted by their own numbers. Whether the compiler at hand merges them is for the clock to show
(:mod:`referee.bench.unrun`). Source: value numbering as in Cocke and Schwartz, *Programming Languages and Their
Compilers*, 1970; the pass of XLA for it is common-subexpression elimination.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from referee.device.host import load_torch
from referee.device.redundancy import Redundancy, Repeated

_LAZY = frozenset({"lazy", "xla"})


@dataclass(frozen=True)
class _Slot:
    """A tensor in the arguments of an operator: its number in the step, and what another one must look like."""

    number: Hashable
    shape: tuple[int, ...]
    dtype: Any
    device: Any


@dataclass
class _Call:
    """One call: what it computes, what it reads, and how much there is to do. Equal keys compute the same."""

    key: Hashable
    func: Any
    arguments: Any
    flop: int
    elements: int
    reads: tuple[int, ...]
    computes: bool


@dataclass
class Numbering:
    """The numbers of all results of one step; holds its tensors until :meth:`close`, so that no identity is reused."""

    _numbers: dict[int, Hashable] = field(default_factory=dict)
    _calls: list[_Call] = field(default_factory=list)
    _maker: dict[int, int] = field(default_factory=dict)
    _kept: list[object] = field(default_factory=list)

    def note(self, func: Any, args: Any, kwargs: Mapping[str, Any], result: object, *, flop: int) -> None:
        """An operator has been recorded; one that recorded nothing is passed over."""
        torch = load_torch()
        given, made = _tensors((args, tuple(kwargs.values())), torch), _tensors(result, torch)
        if not any(tensor.device.type in _LAZY for tensor in (*given, *made)):
            return
        self._kept += [*given, *made]
        writes = bool(func._schema.is_mutable)
        alone = writes or torch.Tag.nondeterministic_seeded in func.tags
        arguments = [list(args), dict(kwargs)]
        key = object() if alone else (func, self._frozen(args, torch), self._frozen(sorted(kwargs.items()), torch))
        call = _Call(
            key=key,
            func=func,
            arguments=_map(arguments, torch.Tensor, self._slot),
            flop=flop,
            elements=sum(tensor.numel() for tensor in given),
            reads=tuple(self._maker[id(tensor)] for tensor in given if id(tensor) in self._maker),
            # A view has no work, though a recording backend writes it as a copy.
            computes=not (func.is_view or torch.Tag.view_copy in func.tags),
        )
        self._calls.append(call)
        # An operator that writes gives what it wrote to a new number, whichever argument that was.
        for place, tensor in enumerate((*made, *(given if writes else ()))):
            self._numbers[id(tensor)] = (key, place)
            self._maker[id(tensor)] = len(self._calls) - 1

    def close(self, outputs: Iterable[Any] | None) -> Redundancy | None:
        """What need not run for ``outputs`` (``None``: where every result may be needed); lets go of every tensor.

        ``None`` where everything recorded has to run.
        """
        needed = None if outputs is None else self._needed(outputs)
        self._kept.clear()
        self._numbers.clear()
        working = [(place, call) for place, call in enumerate(self._calls) if call.computes]
        kept = [call for place, call in working if needed is None or place in needed]
        dropped = [call for place, call in working if needed is not None and place not in needed]
        groups: dict[Hashable, list[_Call]] = {}
        for call in kept:
            groups.setdefault(call.key, []).append(call)
        repeats = [group for group in groups.values() if len(group) > 1]
        if not dropped and not repeats:
            return None
        surplus = [call for group in repeats for call in group[1:]]
        every = [call for _, call in working]
        return Redundancy(
            dropped=_by_name(dropped),
            dropped_frac=_frac(dropped, every),
            repeated=_repeated(repeats, _frac(surplus, every)) if repeats else None,
            flop=sum(call.flop for call in (*dropped, *surplus)),
        )

    def _needed(self, outputs: Iterable[Any]) -> set[int] | None:
        """The calls that ``outputs`` are made by; ``None`` where one of them cannot be followed back."""
        torch = load_torch()
        stack: list[int] = []
        for output in outputs:
            if output.device.type not in _LAZY:
                return None
            inner = torch._from_functional_tensor(output) if torch._is_functional_tensor(output) else output
            if id(inner) not in self._maker:
                return None
            stack.append(self._maker[id(inner)])
        found: set[int] = set()
        while stack:
            place = stack.pop()
            if place not in found:
                found.add(place)
                stack.extend(self._calls[place].reads)
        return found

    def _number(self, tensor: Any) -> Hashable:
        return self._numbers.setdefault(id(tensor), ("entered", id(tensor)))

    def _frozen(self, value: Any, torch: Any) -> Hashable:
        """Arguments as a key: tensors by number, ``1`` apart from ``1.0`` and ``True``."""
        if isinstance(value, torch.Tensor):
            return self._number(value)
        if isinstance(value, (list, tuple)):
            return tuple(self._frozen(item, torch) for item in value)
        try:
            hash(value)
        except TypeError:
            return object()
        return type(value), value

    def _slot(self, tensor: Any) -> _Slot:
        shape = tuple(int(size) for size in tensor.shape)
        return _Slot(self._number(tensor), shape, tensor.dtype, tensor.device)


def _by_name(calls: Iterable[_Call]) -> Mapping[str, int]:
    return dict(Counter(_name(call) for call in calls).most_common())


def _name(call: _Call) -> str:
    return str(call.func._schema.name).removeprefix("aten::")


def _frac(part: Iterable[_Call], whole: list[_Call]) -> float:
    some = list(part)
    return max(
        sum(call.flop for call in some) / max(1, sum(call.flop for call in whole)),
        sum(call.elements for call in some) / max(1, sum(call.elements for call in whole)),
    )


def _repeated(groups: list[list[_Call]], work_frac: float) -> Repeated:
    most = max(groups, key=lambda group: (group[0].flop * len(group), group[0].elements * len(group)))
    return Repeated(
        operator=_name(most[0]),
        times=len(most),
        operators=_by_name(call for group in groups for call in group[1:]),
        work_frac=work_frac,
        again=_again(most[0]),
    )


def _tensors(value: Any, torch: Any) -> list[Any]:
    found: list[Any] = []
    _map(value, torch.Tensor, found.append)
    return found


def _map(value: Any, kind: type, by: Callable[[Any], Any]) -> Any:
    """``value`` with ``by`` of each ``kind`` in its place; tuples become lists."""
    if isinstance(value, kind):
        return by(value)
    if isinstance(value, (list, tuple)):
        return [_map(item, kind, by) for item in value]
    if isinstance(value, dict):
        return {name: _map(item, kind, by) for name, item in value.items()}
    return value


def _again(call: _Call) -> Callable[[], Callable[[], Any]] | None:
    """Builds the operator on inputs of the same kind, equal ones where the step gave equal ones."""
    slots: list[_Slot] = []
    _map(call.arguments, _Slot, slots.append)
    if not slots or not all(slot.dtype.is_floating_point for slot in slots):
        return None
    func, arguments = call.func, call.arguments

    def build() -> Callable[[], Any]:
        torch = load_torch()
        made = {slot.number: torch.randn(slot.shape).to(device=slot.device, dtype=slot.dtype) for slot in slots}
        args, kwargs = _map(arguments, _Slot, lambda slot: made[slot.number])
        return lambda: func(*args, **kwargs)

    return build
