"""What value does ``--param name=text`` mean? Converted by the parameter's annotation, else by its default's type."""

from __future__ import annotations

import ast
import enum
import types
import typing
from collections.abc import Callable
from typing import Any

from referee.device.dtypes import is_torch_type, parse_device, parse_dtype
from referee.errors import OptionError

_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})


def convert(name: str, value: object, *, annotation: Any, default: object) -> object:
    """``value`` for the parameter ``name``; only text is converted, except that a dtype may be asked for by name.

    Raises :class:`~referee.errors.OptionError` with the kind of value that was expected.
    """
    if not isinstance(value, str):
        return value
    kind = _kind(annotation, default)
    if name == "dtype" and kind is not str:
        return parse_dtype(value)
    if value in ("None", "none") and kind is not str and _may_be_none(annotation):
        return None
    try:
        return _by_kind(value, kind)
    except OptionError:
        raise
    except ValueError as error:
        raise OptionError(f"{name}={value}: {name} is {_describe(kind)}.") from error


def _kind(annotation: Any, default: object) -> Any:
    """The annotation without its ``None``, else the default's type; ``None`` where nothing tells."""
    if annotation is Any or annotation is None or isinstance(annotation, str):
        return None if default is None else type(default)
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        members = [member for member in typing.get_args(annotation) if member is not type(None)]
        return members[0] if len(members) == 1 else members
    return annotation


def _may_be_none(annotation: Any) -> bool:
    """Whether the annotation admits ``None``, also where it is text still."""
    if isinstance(annotation, str):
        return "None" in annotation or "Optional" in annotation
    return type(None) in typing.get_args(annotation)


def _by_kind(text: str, kind: Any) -> object:
    if kind is None:
        return _guess(text)
    if isinstance(kind, list):
        return _first_that_fits(text, kind)
    if is_torch_type(kind, "dtype"):
        return parse_dtype(text)
    if is_torch_type(kind, "device"):
        return parse_device(text)
    origin = typing.get_origin(kind) or kind
    if origin is typing.Literal:
        return _one_of(text, typing.get_args(kind))
    if isinstance(origin, type) and issubclass(origin, enum.Enum):
        return _one_of(text, tuple(origin), names=lambda member: member.name)
    if origin in (tuple, list):
        items = (typing.get_args(kind) or (None,))[0]
        parts = [part for part in text.strip("()[] ").split(",") if part.strip()]
        return origin(_by_kind(part.strip(), items) for part in parts)
    simple = _SIMPLE.get(origin)
    return _guess(text) if simple is None else simple(text)


def _first_that_fits(text: str, kinds: list[Any]) -> object:
    # str takes anything, so it is tried last.
    for kind in sorted(kinds, key=lambda k: k is str):
        try:
            return _by_kind(text, kind)
        except ValueError:
            continue
    raise ValueError(text)


def _one_of(text: str, choices: tuple[Any, ...], *, names: Callable[[Any], str] = str) -> object:
    for choice in choices:
        if names(choice) == text:
            return choice
    raise OptionError(f"{text!r} is not one of {', '.join(map(names, choices))}.")


def _bool(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError(text)


def _int(text: str) -> int:
    return int(text.replace("_", ""), 0) if text.lower().startswith(("0x", "0b")) else int(text)


_SIMPLE: dict[Any, Callable[[str], object]] = {bool: _bool, int: _int, float: float, str: str}


def _guess(text: str) -> object:
    """A Python literal where the text is one, else the text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def _describe(kind: Any) -> str:
    words = {int: "a whole number", float: "a number", bool: "true or false"}
    if isinstance(kind, list):
        return " or ".join(_describe(member) for member in kind)
    origin = typing.get_origin(kind) or kind
    if origin in (tuple, list):
        return "a comma-separated list" + (" of whole numbers" if int in typing.get_args(kind) else "")
    return words.get(kind, f"a {getattr(kind, '__name__', kind)}")


def as_text(value: object) -> str | None:
    """What :func:`convert` makes ``value`` of again; ``None`` for a value that no text stands for (a function)."""
    if isinstance(value, enum.Enum):
        return value.name
    if value is None or isinstance(value, (str, int, float)) or _is_torch_word(value):
        return str(value)
    if isinstance(value, (tuple, list)):
        parts = [as_text(part) for part in value]
        return None if None in parts or any("," in str(part) for part in parts) else ",".join(map(str, parts))
    return None


def _is_torch_word(value: object) -> bool:
    return any(is_torch_type(type(value), name) for name in ("dtype", "device"))
