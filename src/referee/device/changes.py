"""What is different from one call of a step to the next? A few watched calls, held against each other.

Asked once something was compiled again and again: what a compiler takes a graph by is the calls, their shapes, their
dtypes and the Python values in them, and the first of these that differs is the cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Size, Tensor
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode

from referee.device.compilers import recompile_reason
from referee.device.discover import discover
from referee.device.protocol import Change
from referee.records.finding import Scalar

_LEAST_CALLS, _MOST_CALLS = 3, 8
"""Calls held against each other: three show a trend, and inputs in buckets may agree for a few calls."""

_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")


@dataclass(frozen=True)
class _Value:
    """One tensor or Python value in a call: which argument, and everything that a graph depends on."""

    place: str
    shape: tuple[int, ...] | None
    kind: str
    """The dtype of a tensor, the value itself of anything else."""
    entered: int | None = None
    """The number of the step's input, for a tensor that came from outside."""


@dataclass(frozen=True)
class _Call:
    """One call of a function of torch."""

    name: str
    arguments: tuple[_Value, ...]
    results: tuple[_Value, ...]


class _Log(TorchFunctionMode):  # type: ignore[misc]  # torch is not followed
    """Writes down the calls that Python makes of torch's functions."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[_Call] = []
        self._made: set[int] = set()
        self._inputs: dict[int, int] = {}
        self._kept: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [*_flatten(args), *_flatten(tuple((kwargs or {}).items()))]
        arguments = tuple(self._value(place, item) for place, item in enumerate(given))
        result = func(*args, **(kwargs or {}))
        made = [item for item in _flatten((result,)) if isinstance(item, Tensor)]
        known = {id(item) for item in given}
        self._made.update(id(item) for item in made if id(item) not in known)
        self._kept += made  # so that no identity is used twice
        results = tuple(self._value(place, item) for place, item in enumerate(made))
        self.calls.append(_Call(_name(func), arguments, results))
        return result

    def _value(self, place: int, item: object) -> _Value:
        where = _ORDINALS[place] if place < len(_ORDINALS) else f"{place + 1}th"
        if not isinstance(item, Tensor):
            return _Value(where, None, repr(item) if isinstance(item, (int, float, complex, str)) else "")
        entered = None
        if id(item) not in self._made and not isinstance(item, Parameter):
            entered = self._inputs.setdefault(id(item), len(self._inputs))
            self._kept.append(item)
        shape = tuple(int(size) for size in item.shape)
        return _Value(where, shape, str(item.dtype).removeprefix("torch."), entered)


def _flatten(items: Any) -> Iterator[object]:
    for item in items:
        if isinstance(item, (tuple, list, Size)):
            yield from _flatten(item)
        else:
            yield item


def _name(func: Any) -> str:
    """What the user calls it; a property's getter goes by the property's name."""
    name = str(getattr(func, "__name__", func))
    return str(getattr(getattr(func, "__self__", None), "__name__", name)) if name == "__get__" else name.strip("_")


def find_change(step: Callable[[], object], settle: Callable[[object], None]) -> Change | None:
    """What differs between calls of ``step``, each settled by ``settle``; ``None`` where nothing seen does.

    Compiled code is not looked into: watching it would compile it once more. There the compiler's own words on the
    last guard that failed are given. What the step raises passes through.
    """
    if discover(step).compiled:
        return _told_by_compiler()
    logs: list[list[_Call]] = []
    while len(logs) < _MOST_CALLS:
        with _Log() as log:
            output = step()
        settle(output)
        logs.append(log.calls)
        if len(logs) >= _LEAST_CALLS:
            change = _compare(logs)
            if change is not None:
                return change
    return None


def _told_by_compiler() -> Change | None:
    told = recompile_reason()
    if told is None:
        return None
    frame, reason = told
    return Change(
        words=f"The compiler's last reason to compile {frame} again: {reason}.",
        evidence={"frame": frame, "reason": reason},
    )


def _compare(logs: Sequence[list[_Call]]) -> Change | None:
    """The first difference in shapes or calls, else the first in Python values."""
    value: Change | None = None
    for calls in zip(*logs, strict=False):
        if len({call.name for call in calls}) > 1:
            return _other_calls(calls)
        results = _tensors(call.results for call in calls)
        for tensors in (*_tensors(call.arguments for call in calls), *results):
            change = _reshaped(calls[0].name, tensors, made=tensors in results)
            if change is not None:
                return change
        value = value or _other_value(calls)
    lengths = [len(calls) for calls in logs]
    if len(set(lengths)) > 1:
        words = f"The step makes {_list(lengths)} calls of torch's functions, call by call."
        return Change(words=words, evidence={"calls": _list(lengths)})
    return value


def _tensors(values: Iterable[tuple[_Value, ...]]) -> list[tuple[_Value, ...]]:
    """The tensors at each place, one of each log."""
    return [place for place in zip(*values, strict=False) if all(value.shape is not None for value in place)]


def _reshaped(name: str, tensors: Sequence[_Value], *, made: bool) -> Change | None:
    """Which dimension of this tensor differs, or its dtype."""
    first = tensors[0]
    what = f"what `{name}` makes" if made else f"the {first.place} argument of `{name}`"
    if not made and first.entered is not None:
        what = f"input {first.entered} of the step (the {first.place} argument of `{name}`)"
    evidence: dict[str, Scalar] = {"operator": name}
    if not made and first.entered is not None:
        evidence["input"] = first.entered
    if len({tensor.kind for tensor in tensors}) > 1:
        kinds = _list([tensor.kind for tensor in tensors])
        return Change(words=f"The dtype of {what} is {kinds}, call by call.", evidence={**evidence, "dtypes": kinds})
    shapes = [tensor.shape or () for tensor in tensors]
    if len(set(shapes)) == 1:
        return None
    if len({len(shape) for shape in shapes}) > 1:
        ranks = _list([len(shape) for shape in shapes])
        words = f"The number of dimensions of {what} is {ranks}, call by call."
        return Change(words=words, evidence={**evidence, "ranks": ranks})
    sizes = {dim: row for dim, row in enumerate(zip(*shapes, strict=True)) if len(set(row)) > 1}
    parts = [f"dimension {dim} of {what} is {_list(row)}" for dim, row in sizes.items()]
    words = f"{'; '.join(parts)}, call by call."
    evidence |= {"dimension": _list(list(sizes)), "sizes": "; ".join(_list(row) for row in sizes.values())}
    return Change(words=words[:1].upper() + words[1:], evidence=evidence)


def _other_value(calls: Sequence[_Call]) -> Change | None:
    name = calls[0].name
    for place in zip(*(call.arguments for call in calls), strict=False):
        values = [value.kind for value in place]
        if len(set(values)) > 1:
            words = f"The {place[0].place} argument of `{name}` is {_list(values)}, call by call."
            return Change(words=words, evidence={"operator": name, "values": _list(values)})
    return None


def _other_calls(calls: Sequence[_Call]) -> Change:
    names = _list([call.name for call in calls])
    return Change(words=f"The step calls {names} at the same place, call by call.", evidence={"operators": names})


def _list(items: Sequence[object]) -> str:
    return ", ".join(str(item) for item in items)
