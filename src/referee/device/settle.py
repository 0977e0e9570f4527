"""Which tensors did the step hand back? Finds them in whatever nesting the step returned.

Torch is not needed here: the caller says what a leaf is. So the fake devices and the real ones share one walk.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType, MethodType, ModuleType
from typing import Any, TypeVar

Leaf = TypeVar("Leaf")

OBJECT_DEPTH = 3
"""How many plain objects may lie inside each other. A model's output object holding a cache object holding one object
per layer is the deepest that public model libraries return; the bound keeps a returned trainer from being walked."""

_ATOMS = frozenset({type(None), str, bytes, int, float, complex, bool})
_NEVER = (str, bytes, bytearray, memoryview, int, float, complex, type, FunctionType, MethodType, ModuleType)


def find_leaves(outputs: object, kind: type[Leaf] | Callable[[object], bool]) -> list[Leaf]:
    """Which objects of ``kind`` are in ``outputs``, in order, each once?

    Walks tuples, lists, sets, mappings, dataclasses, and plain objects up to :data:`OBJECT_DEPTH` deep. ``kind`` is a
    type or a predicate. Cycles are fine; nothing is called or read that could run the step's code again (properties).
    """
    test: Callable[[object], bool] = (lambda item: isinstance(item, kind)) if isinstance(kind, type) else kind
    found: list[Leaf] = []
    seen: set[int] = set()
    stack: list[tuple[object, int]] = [(outputs, 0)]
    while stack:
        item, depth = stack.pop()
        # The exact type first: it is the cheapest question, and this walk lies inside a timed window.
        if type(item) in _ATOMS or id(item) in seen:
            continue
        seen.add(id(item))
        if test(item):
            found.append(item)  # type: ignore[arg-type]  # the test says so
            continue
        if isinstance(item, _NEVER):
            continue
        children, deeper = _children(item)
        if depth + deeper <= OBJECT_DEPTH:
            stack.extend([(child, depth + deeper) for child in children][::-1])
    return found


def _children(item: object) -> tuple[Iterable[object], int]:
    """What lies directly in ``item``, and by how much that counts as one object deeper."""
    if isinstance(item, (list, tuple, set, frozenset)):
        return item, 0
    if isinstance(item, dict) or isinstance(item, Mapping):  # noqa: SIM101 - the abstract class is slow to ask
        return item.values(), 0
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        # Dataclasses with slots have no __dict__; fields that were never set are left out.
        return [getattr(item, field.name, None) for field in dataclasses.fields(item)], 1
    attributes: dict[str, Any] = getattr(item, "__dict__", {})
    return attributes.values(), 1
