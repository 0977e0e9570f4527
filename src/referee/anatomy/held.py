"""What does a step keep between calls, under which name? Tensors in closures, globals, attributes, modules.

For questions that need a name to be of use: which variable holds last step's graph, which buffer was made in inference
mode. Nothing is called.
"""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from referee.device.host import load_torch

_DEPTH = 4
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
"""Where a module keeps its hooks, whose closures live as long as it does."""


def named_tensors(step: object) -> dict[str, Any]:
    """The tensors that ``step`` can reach, by how a reader would name them; each once."""
    found: dict[str, Any] = {}
    seen: set[int] = set()
    for name, tensor in _walk(step, "", 0, seen):
        found.setdefault(name, tensor)
    return found


def _walk(item: object, name: str, depth: int, seen: set[int]) -> Iterator[tuple[str, Any]]:
    torch = load_torch()
    if isinstance(item, torch.Tensor):
        if id(item) not in seen:
            seen.add(id(item))
            yield name, item
        return
    if depth > _DEPTH or id(item) in seen or isinstance(item, (type, types.ModuleType, str, bytes, int, float)):
        return
    seen.add(id(item))
    if isinstance(item, torch.nn.Module):
        yield from _module(item, name, depth, seen)
    for key, value in _inside(item):
        dotted = name and key and not key.startswith("[")
        yield from _walk(value, f"{name}.{key}" if dotted else f"{name}{key}", depth + 1, seen)


def _module(module: Any, name: str, depth: int, seen: set[int]) -> Iterator[tuple[str, Any]]:
    for key, tensor in (*module.named_parameters(), *module.named_buffers()):
        if id(tensor) not in seen:
            seen.add(id(tensor))
            yield (f"{name}.{key}" if name else key), tensor
    for key, part in module.named_modules():
        path = ".".join(filter(None, (name, key)))
        for hook in (hook for kind in _HOOKS for hook in vars(part).get(kind, {}).values()):
            yield from _walk(hook, path, depth, seen)
        if part is not module:
            yield from _walk(_plain_attributes(part), f"{name}.{key}" if name else key, depth, seen)


def _plain_attributes(module: Any) -> dict[str, Any]:
    """What a module keeps that is neither parameter, buffer nor module."""
    return {key: value for key, value in vars(module).items() if not key.startswith("_")}


def _inside(item: object) -> list[tuple[str, object]]:
    if isinstance(item, functools.partial):
        return [("func", item.func), *((f"[{k}]", value) for k, value in enumerate(item.args)), *item.keywords.items()]
    if isinstance(item, types.MethodType):
        return [("", item.__self__), ("", item.__func__)]
    if isinstance(item, types.FunctionType):
        return _function(item)
    if isinstance(item, dict):
        return [(str(key), value) for key, value in item.items()]
    if isinstance(item, (list, tuple, set, frozenset, collections.deque)):
        return [(f"[{number}]", value) for number, value in enumerate(item)]
    attributes = {**_slots(item), **getattr(item, "__dict__", {})}
    return [(key, value) for key, value in attributes.items() if not key.startswith("_")]


def _slots(item: object) -> dict[str, object]:
    """What an object keeps in the slots that its Python classes declare."""
    found: dict[str, object] = {}
    for kind in type(item).__mro__:
        names = vars(kind).get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            place = vars(kind).get(name)
            if isinstance(place, types.MemberDescriptorType):  # no property, whose code would run
                with suppress(AttributeError):  # never set
                    found[name] = place.__get__(item)
    return found


def _function(function: types.FunctionType) -> list[tuple[str, object]]:
    """What a function closes over, and the globals that its own code names."""
    code, found = function.__code__, list[tuple[str, object]]()
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            found.append((name, cell.cell_contents))
        except ValueError:  # not bound yet
            continue
    wrapped = vars(function).get("__wrapped__")
    if wrapped is not None:  # what a decorator wraps is what the reader wrote, and is named before the wrapper
        found.insert(0, ("", wrapped))
    space = function.__globals__
    found += [(name, space[name]) for name in code.co_names if name in space]
    found += list(vars(function).items())
    return found
