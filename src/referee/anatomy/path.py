"""Which dispatch keys does a call visit, in which order, and what is registered there?

A call's keys are those of its arguments' key sets, plus what the thread includes, minus what it excludes, minus the
operator's fallthroughs, in order of priority. What happens after the first kernel depends on what kind of kernel it is:
autograd's goes on below itself, autocast's calls the operator again with itself excluded, a composite one calls other
operators and ends the path, a backend's ends it. Source of these rules: the comments of c10's DispatchKeySet and the
generated kernels; each is held against recording kernels on the real operators (:mod:`referee.anatomy.witness`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from referee.anatomy.operator import Operator
from referee.device.host import load_torch
from referee.records.anatomy import PathEntry

_LINE = re.compile(r"^(\w+): (fallthrough )?(?:registered at )?(.+) \[(.+)\]$")

_KINDS = {
    "math kernel": "composite",
    "default backend kernel": "composite",
    "backend fallback": "fallback",
}

ENDS_AT = {"aten::detach_": "Autograd", "aten::_fw_primal": "ADInplaceOrView"}
"""Kernels of autograd that are written by hand and go on to no other (``VariableTypeManual.cpp``)."""

_AGAIN = "calls the operator again with itself excluded"


@dataclass(frozen=True)
class Registered:
    """What one operator has at one key: the kind of kernel, and where it was registered."""

    kind: str
    source: str
    math: bool = False
    """Whether it is made of other operators that carry autograd along."""


def read_table(operator: Operator) -> dict[str, Registered]:
    """What the operator has at every key, from the dispatcher's own table."""
    table: dict[str, Registered] = {}
    for line in load_torch()._C._dispatch_dump_table(operator.full).splitlines():
        match = _LINE.match(line.strip())
        if match is None:
            continue
        key, falls, source, kind = match.groups()
        kind_word = "fallthrough" if falls else _KINDS.get(kind, "kernel")
        table[key] = Registered(kind_word, _short(source), math=kind == "math kernel")
    return table


def _short(source: str) -> str:
    """The file without the folders of whoever built torch."""
    return re.sub(r"^.*?/((?:aten|torch|build)/)", r"\1", source)


@dataclass(frozen=True, kw_only=True)
class Keys:
    """The keys of one call: by priority, with what the thread adds and takes away."""

    order: tuple[str, ...]
    included: frozenset[str]
    excluded: frozenset[str]
    of_tensors: bool = True
    """Whether a tensor gave them. Without one, there are those that choosing a backend leads to."""


def keys_of_call(tensors: Sequence[Any], *, device: str = "cpu") -> Keys:
    """The keys of a call with these tensors, on this thread, now; a factory without tensors has its backend's keys."""
    torch = load_torch()
    union = torch._C.DispatchKeySet(_backend_key(device))
    if tensors:
        union = torch._C._dispatch_keys(tensors[0])
        for tensor in tensors[1:]:
            union = union | torch._C._dispatch_keys(tensor)
    else:
        union = union.add(torch._C._parse_dispatch_key("BackendSelect"))
    included, excluded = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    order = names_of((union | included) - excluded)
    return Keys(
        order=order,
        included=frozenset(names_of(included)),
        excluded=frozenset(names_of(excluded)),
        of_tensors=bool(tensors),
    )


def _backend_key(device: str) -> Any:
    return load_torch()._C._dispatch_key_for_device(device.partition(":")[0])


def names_of(keys: Any) -> tuple[str, ...]:
    """The keys of a set by priority, highest first."""
    found: list[str] = []
    while keys.raw_repr():
        key = keys.highestPriorityTypeId()
        name = key.name
        if name == "Undefined":
            break
        found.append(name)
        keys = keys.remove(key)
        if len(found) > 64:
            break
    return tuple(found)


NO_KEY = "Undefined"
"""Where a call goes whose arguments and thread have no key."""


def _order(keys: Keys, table: Mapping[str, Registered]) -> tuple[str, ...]:
    """The keys by priority; an operator that takes no tensor and chooses no backend is called without a backend's."""
    chooser = table.get("BackendSelect")
    if keys.of_tensors or (chooser is not None and chooser.kind == "kernel"):
        return keys.order
    backends = {"BackendSelect", "ADInplaceOrView", "CPU", "CUDA", "XPU", "MPS", "Lazy", "XLA"}
    return (*(key for key in keys.order if key not in backends), NO_KEY)


def composite(operator: Operator) -> bool:
    """Whether the operator is made of others that carry autograd along."""
    return any(here.math for here in read_table(operator).values())


def predict(operator: Operator, keys: Keys) -> tuple[PathEntry, ...]:
    """Every key of the call in order of priority, with its kernel and whether the call visits it."""
    table = read_table(operator)
    entries: list[PathEntry] = []
    ended = ""
    for key in _order(keys, table):
        here = table.get(key, Registered("none", ""))
        if here.kind in ("fallthrough", "none"):
            entries.append(PathEntry(key=key, kernel=here.kind, visited=False, source=here.source))
            continue
        visited = not ended
        note = ended and f"not reached: {ended}"
        if visited:
            note, ended = _after(key, here, operator)
        entries.append(PathEntry(key=key, kernel=here.kind, visited=visited, note=note, source=here.source))
    return tuple(entries)


def _after(key: str, here: Registered, operator: Operator) -> tuple[str, str]:
    """What the kernel at ``key`` does next, in words, and why nothing below it is visited, if nothing is."""
    if here.math:
        return "calls other operators, which are dispatched anew", f"{operator.dotted} is composite"
    if key.startswith("Autocast"):
        return f"casts by its policy, then {_AGAIN}", ""
    if key.startswith(ENDS_AT.get(operator.full, "none")):
        return "does the work, by hand", "the work is done"
    if key.startswith("Autograd") and here.kind == "fallback":
        return "has no formula here and goes on; what the backend calls may record nodes of its own", ""
    if key.startswith("Autograd"):
        return "records the node where a gradient is wanted, then goes on below autograd", ""
    if key == "ADInplaceOrView":
        return "counts the version up, or tracks the view, then goes on", ""
    if key == "Python":
        return "hands the call to __torch_dispatch__", "Python decides what is called next"
    if key == "Functionalize":
        return "turns writing into computing anew, then calls on what it wraps", "the call goes on with other tensors"
    if key.startswith("FuncTorch"):
        return "applies the outermost transform, then calls on what it wraps", "the call goes on with other tensors"
    if key in ("Conjugate", "Negative", "ZeroTensor"):
        return "passes on unless a tensor carries that bit", ""
    if key in ("BackendSelect", "PythonTLSSnapshot"):
        return "chooses and passes on", ""
    return "does the work", "the work is done"


def visited(path: Sequence[PathEntry]) -> tuple[str, ...]:
    """The keys that a call visits, in order."""
    return tuple(entry.key for entry in path if entry.visited)


def key_bits(names: Sequence[str]) -> int:
    """The keys as the number that the probe takes: a set of exactly these."""
    torch = load_torch()
    keys = torch._C.DispatchKeySet(torch._C._parse_dispatch_key(names[0]))
    for name in names[1:]:
        keys = keys.add(torch._C._parse_dispatch_key(name))
    return int(keys.raw_repr())
