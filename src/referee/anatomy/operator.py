"""Which operator is meant, and what does its schema say of it?"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from referee.device.host import load_torch
from referee.errors import OptionError

_PREFERRED = ("default", "Tensor", "self", "dim")
"""Which overload is meant where only the operator is named: the plain one, else the one on tensors."""


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One argument of a schema: ``kind`` is its type as the schema writes it, without the mark of being optional."""

    name: str
    kind: str
    optional: bool
    keyword: bool
    has_default: bool
    default: object
    written: bool
    out: bool


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One overload: ``aten::add`` and ``Tensor``; an empty overload is the default one."""

    name: str
    overload: str
    arguments: tuple[Argument, ...]
    returns: tuple[str, ...]
    returns_alias: bool
    """Whether an output looks at an input's memory without being written (a view)."""
    tags: frozenset[str]

    @property
    def full(self) -> str:
        """As the dispatcher writes it: ``aten::add.Tensor``."""
        return f"{self.name}.{self.overload}" if self.overload else self.name

    @property
    def dotted(self) -> str:
        """As ``torch.ops`` writes it: ``aten.add.Tensor``."""
        return f"{self.name.replace('::', '.')}.{self.overload or 'default'}"

    @property
    def base(self) -> str:
        """The name without its namespace."""
        return self.name.rpartition("::")[2]

    @property
    def in_place(self) -> bool:
        """Whether it writes to one of its arguments (and is no ``out=`` variant)."""
        return any(argument.written for argument in self.arguments) and not self.is_out

    @property
    def is_out(self) -> bool:
        """Whether it is an ``out=`` variant."""
        return any(argument.out for argument in self.arguments)

    @property
    def is_view(self) -> bool:
        """Whether its output looks at the memory of an input."""
        return self.returns_alias and not self.in_place and not self.is_out

    @property
    def callable(self) -> Any:
        """What ``torch.ops`` has for it."""
        namespace, _, base = self.name.partition("::")
        packet = getattr(getattr(load_torch().ops, namespace), base)
        return getattr(packet, self.overload or "default")


def find_operator(text: str) -> Operator:
    """The operator that a user writes as ``aten.add.Tensor``, ``aten::add.Tensor``, ``aten.add`` or ``add``.

    A function of torch's (``torch.add``, ``torch.nn.functional.relu``, ``torch.Tensor.add_``) names the operator of its
    name.

    Raises :class:`~referee.errors.OptionError` with what is there instead.
    """
    name, overload = _split(text)
    overloads = _overloads(name)
    if not overloads:
        if _is_scripted(name):
            raise OptionError(
                f"{name} is an operator of TorchScript alone: it does not go through the dispatcher.",
                hint="Only what the dispatcher knows has a ladder, for example aten.add.Tensor.",
            )
        if name.startswith("torch::") and "torch" not in _namespaces():
            raise OptionError(
                f"{name.replace('::', '.')} is a module of Python and holds no operators.",
                hint="Name what it calls, as aten.linear; for a module or an optimizer write a step, FILE.py:NAME.",
            )
        names = {known.partition(".")[0] for known in load_torch()._C._dispatch_get_all_op_names()}
        near = get_close_matches(name, names, n=3, cutoff=0.6)
        hint = f"Close to it: {', '.join(near)}." if near else "Write for example aten.add.Tensor."
        raise OptionError(f"The dispatcher has no operator {name}.", hint=hint)
    if overload is None:
        overload = next((known for known in _PREFERRED if _plain(known) in overloads), overloads[0])
    overload = _plain(overload)
    if overload not in overloads:
        there = ", ".join(known or "default" for known in overloads)
        raise OptionError(f"{name} has no overload {overload or 'default'}.", hint=f"It has {there}.")
    return read_operator(name, overload)


_FUNCTION = re.compile(r"^torch\.(nn\.functional\.|Tensor\.|linalg\.(?=linalg_))?(?=\w+$)")

_MODULE = re.compile(r"^torch\.(linalg|fft|special)\.(?!\1_)(\w+)$")
"""Modules whose name is part of their operators' names."""


def _split(text: str) -> tuple[str, str | None]:
    written = _MODULE.sub(r"aten.\1_\2", text.removeprefix("torch.ops."))
    words = re.split(r"::|\.", _FUNCTION.sub("aten.", written))
    if len(words) == 1 or ("::" not in text and len(words) == 2 and not _is_namespace(words)):
        words = ["aten", *words]
    if len(words) not in (2, 3) or not all(word.isidentifier() for word in words):
        raise OptionError(f"{text!r} is not the name of an operator.", hint="Write for example aten.add.Tensor.")
    return f"{words[0]}::{words[1]}", words[2] if len(words) == 3 else None


def _plain(overload: str) -> str:
    return "" if overload == "default" else overload


def _is_namespace(words: list[str]) -> bool:
    """Whether the first of two words is a namespace and not the name of an operator."""
    return words[0] in _namespaces() or _is_scripted("::".join(words))


def _is_scripted(name: str) -> bool:
    """Whether TorchScript has an operator of this name (``prim::device``)."""
    return name.isascii() and bool(load_torch()._C._jit_get_schemas_for_operator(name))


def _namespaces() -> set[str]:
    return {name.partition("::")[0] for name in load_torch()._C._dispatch_get_all_op_names()}


def _overloads(name: str) -> list[str]:
    names = load_torch()._C._dispatch_get_all_op_names()
    return sorted(known.partition(".")[2] for known in names if known.partition(".")[0] == name)


def all_operators(namespace: str = "aten") -> tuple[Operator, ...]:
    """Every overload of a namespace that is no ``out=`` variant, in order of name."""
    names = sorted(n for n in load_torch()._C._dispatch_get_all_op_names() if n.startswith(f"{namespace}::"))
    found = (read_operator(*_pair(name)) for name in names)
    return tuple(operator for operator in found if not operator.is_out)


def _pair(name: str) -> tuple[str, str]:
    base, _, overload = name.partition(".")
    return base, overload


def read_operator(name: str, overload: str) -> Operator:
    """The operator with this exact name and overload."""
    torch = load_torch()
    schema = torch._C._get_schema(name, overload)
    written = split_arguments(str(schema))
    arguments = tuple(_argument(one, text) for one, text in zip(schema.arguments, written, strict=True))
    returns_alias = any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
    namespace, _, base = name.partition("::")
    tags = getattr(getattr(getattr(torch.ops, namespace), base), overload or "default").tags
    return Operator(
        name=name,
        overload=overload,
        arguments=arguments,
        returns=tuple(str(r.type) for r in schema.returns),
        returns_alias=returns_alias,
        tags=frozenset(tag.name for tag in tags),
    )


def split_arguments(schema: str) -> list[str]:
    """The arguments of a schema as it is written, without the star that begins the keyword ones."""
    depth, words, word = 0, [], ""
    for letter in schema[schema.index("(") + 1 :]:
        if letter == ")" and depth == 0:
            break
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            words.append(word)
            word = ""
        else:
            word += letter
    return [word.strip() for word in [*words, word] if word.strip() not in ("", "*")]


def _argument(argument: Any, written: str) -> Argument:
    kind = str(argument.type)
    if written.startswith("SymInt"):  # the type object says int
        kind = kind.replace("int", "SymInt")
    optional = kind.startswith("Optional[")
    return Argument(
        name=argument.name,
        kind=kind.removeprefix("Optional[").removesuffix("]") if optional else kind,
        optional=optional,
        keyword=bool(argument.kwarg_only),
        has_default=bool(argument.has_default_value()),
        default=argument.default_value,
        written=argument.alias_info is not None and bool(argument.alias_info.is_write),
        out=bool(argument.is_out),
    )
