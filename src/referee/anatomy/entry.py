"""Which Python expression does a user write for this operator, and how does torch parse it?

Found by calling the candidates (``torch.add``, ``Tensor.add_``, ``torch.ops.aten.add.Tensor``) under an observer of the
dispatcher: the first whose outermost operator is the one asked for. What the argument parser must choose from is read
from torch's own complaint about a call that fits nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, Literal

from referee.anatomy.arguments import Arguments
from referee.anatomy.operator import Argument, Operator
from referee.device.host import load_torch
from referee.device.settle import find_leaves
from referee.errors import OptionError

Way = Literal["function", "method", "overload"]

_MODULES = ("torch", "torch._C._nn", "torch._C._linalg", "torch._C._fft", "torch._C._special")

_TOO_MANY = (object(),) * 23
"""More positional arguments than any operator takes, of a type that none takes."""

_TAKES_NONE = "takes no arguments"
"""Python's own complaint, raised before the function is entered: it is declared to take none."""

_PARSER_KINDS = {
    "Number": "Scalar",
    "int": "int64_t",
    "SymInt": "SymInt",
    "float": "double",
    "tuple of ints": "IntArrayRef",
    "tuple of SymInts": "SymIntArrayRef",
    "tuple of Tensors": "TensorList",
    "tuple of floats": "ArrayRef<double>",
    "tuple of Scalars": "ScalarList",
    "torch.dtype": "ScalarType",
    "torch.layout": "Layout",
    "torch.device": "Device",
    "torch.memory_format": "MemoryFormat",
    "torch.Generator": "Generator",
    "str": "std::string_view",
    "Tensor": "Tensor",
    "bool": "bool",
}

_SCHEMA_KINDS = {
    "Tensor": "Tensor",
    "number": "Scalar",
    "int": "int64_t",
    "SymInt": "SymInt",
    "float": "double",
    "bool": "bool",
    "List[int]": "IntArrayRef",
    "List[SymInt]": "SymIntArrayRef",
    "List[Tensor]": "TensorList",
    "List[float]": "ArrayRef<double>",
    "List[number]": "ScalarList",
    "ScalarType": "ScalarType",
    "Layout": "Layout",
    "Device": "Device",
    "MemoryFormat": "MemoryFormat",
    "Generator": "Generator",
    "str": "std::string_view",
}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One way to call an operator from Python.

    ``function`` is the text in front of the parenthesis; ``inside`` the text between the parentheses; ``names`` the
    values that both use. ``signatures`` is what the argument parser chooses from, ``chosen`` the one for this overload;
    empty where arguments are converted by the schema (``torch.ops``) or where the parser could not be rebuilt.
    """

    way: Way
    function: str
    inside: str
    names: Mapping[str, Any]
    shown: str
    signatures: tuple[str, ...] = ()
    chosen: str = ""
    self_tensor: Any = None
    """For a method: the tensor it is called on."""
    takes_none: bool = False
    """A method without arguments, for which torch has no parser: nothing is parsed."""
    in_python: bool = False
    """Whether it is written in Python, and calls the operator from there."""
    why_no_parser: str = field(default="")

    @property
    def expression(self) -> str:
        """The whole call."""
        return f"{self.function}({self.inside})"


def find_entry(operator: Operator, arguments: Arguments, *, record: Any, way: Way | None = None) -> Entry:
    """The expression that leads to ``operator``; ``record`` lists the operators that a callable calls.

    ``way`` asks for one kind alone: :class:`~referee.errors.OptionError` where none of that kind leads there. The
    overload itself always does.
    """
    for entry in _candidates(operator, arguments):
        if way is not None and entry.way != way:
            continue
        if entry.way == "overload" or _leads_to(entry, operator, arguments, record):
            return entry
    if way in ("function", "method"):
        raise OptionError(
            f"No {way} leads to {operator.full} with these arguments.",
            hint="Leave --way out, or ask for --way overload.",
        )
    return _overload(operator, arguments)


def _leads_to(entry: Entry, operator: Operator, arguments: Arguments, record: Any) -> bool:
    """Whether the expression calls the operator, and with the same values for what is left out.

    Some parsers have other defaults than the operator's schema (the losses' ``reduction``), which is other work.
    """
    code = compile(entry.expression, "<entry>", "eval")
    names = dict(entry.names)
    found: list[object] = []
    try:
        seen = record(lambda: found.append(eval(code, names)))
    except Exception:  # noqa: BLE001 - whatever this way of calling raises, it is not the way
        return False
    if not seen or seen[0][0] != operator.full:
        return False
    # What writes to its argument may give it another shape each time.
    return operator.in_place or _shapes(found) == _shapes([operator.callable(*arguments.args, **arguments.kwargs)])


def _shapes(outputs: list[object]) -> list[tuple[int, ...]]:
    return [tuple(tensor.shape) for tensor in find_leaves(outputs, load_torch().Tensor)]


def _candidates(operator: Operator, arguments: Arguments) -> Iterator[Entry]:
    torch = load_torch()
    if operator.name.startswith("aten::"):
        yield from _functions(operator, arguments, in_python=False)
        if arguments.args and isinstance(arguments.args[0], torch.Tensor) and hasattr(torch.Tensor, operator.base):
            yield _method(operator, arguments)
        yield from _functions(operator, arguments, in_python=True)
    yield _overload(operator, arguments)


def _functions(operator: Operator, arguments: Arguments, *, in_python: bool) -> Iterator[Entry]:
    """The functions of torch that have the operator's name: built in, or written in Python (``torch.einsum``)."""
    torch = load_torch()
    inside, names, shown = _spell(arguments)
    for path in _MODULES:
        module: Any = torch
        for word in path.split(".")[1:]:
            module = getattr(module, word, None)
        found = getattr(module, operator.base, None)
        if isinstance(found, FunctionType) if in_python else type(found).__name__ == "builtin_function_or_method":
            yield _with_parser(
                operator,
                found,
                Entry(
                    way="function",
                    function=f"{path}.{operator.base}",
                    inside=inside,
                    names={**names, "torch": torch},
                    shown=f"{path}.{operator.base}({shown})",
                    in_python=in_python,
                ),
            )


def _method(operator: Operator, arguments: Arguments) -> Entry:
    torch = load_torch()
    me = arguments.args[0]
    inside, names, shown = _spell(Arguments(args=arguments.args[1:], kwargs=arguments.kwargs), first=1)
    entry = Entry(
        way="method",
        function=f"a.{operator.base}",
        inside=inside,
        names={**names, "a": me},
        shown=f"a.{operator.base}({shown})",
        self_tensor=me,
        in_python=isinstance(getattr(torch.Tensor, operator.base, None), FunctionType),
    )
    return _with_parser(operator, getattr(me, operator.base), entry)


def _overload(operator: Operator, arguments: Arguments) -> Entry:
    inside, names, shown = _spell(arguments)
    function = f"torch.ops.{operator.dotted}"
    return Entry(
        way="overload",
        function=function,
        inside=inside,
        names={**names, "torch": load_torch()},
        shown=f"{function}({shown})",
    )


def _spell(arguments: Arguments, *, first: int = 0) -> tuple[str, dict[str, Any], str]:
    """The arguments as source text, with names for what has no literal, and the text to show."""
    names: dict[str, Any] = {}
    words = [_word(value, names, first) for value in arguments.args]
    words += [f"{name}={_word(value, names, first)}" for name, value in arguments.kwargs.items()]
    text = ", ".join(words)
    return text, names, text


def _word(value: Any, names: dict[str, Any], first: int) -> str:
    if _is_literal(value):
        return repr(value)
    if isinstance(value, (list, tuple)):
        inner = ", ".join(_word(item, names, first) for item in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
    number = first + len(names)
    name = "abcdefghijklmnopqrs"[number] if number < 19 else f"x{number}"
    names[name] = value
    return name


def _is_literal(value: Any) -> bool:
    if isinstance(value, (bool, int, str, type(None))):
        return True
    return isinstance(value, float) and value == value and abs(value) != float("inf")


def _with_parser(operator: Operator, function: Any, entry: Entry) -> Entry:
    """The entry with the signatures that its parser chooses from, if it has a parser."""
    complaint = _complaint(function)
    if _TAKES_NONE in complaint:
        return Entry(**{**entry.__dict__, "takes_none": True})
    own = schema_signature(operator, method=entry.way == "method")
    try:
        signatures = complaint_signatures(operator, complaint)
    except ValueError as error:
        return Entry(**{**entry.__dict__, "why_no_parser": str(error)})
    if not signatures:
        signatures = (own,) if own else ()
    return Entry(**{**entry.__dict__, "signatures": signatures, "chosen": own})


def _complaint(function: Any) -> str:
    try:
        function(*_TOO_MANY)
    except TypeError as error:
        return str(error)
    except Exception:  # noqa: BLE001 - a function that complains otherwise has no parser that we know
        return ""
    return ""


def complaint_signatures(operator: Operator, text: str) -> tuple[str, ...]:
    """The signatures in torch's complaint about arguments that fit none, in the notation of its parser.

    None where the complaint names none (a function with one signature is not listed). The complaint does not tell
    symbolic integers from others, nor what may be None without being None by default: arguments that the operator has
    by the same name are as its schema says. Raises ``ValueError`` for a type that is not known.
    """
    _, found, rest = text.partition("but expected ")
    if not found:
        return ()
    lines = [line.strip().removeprefix("* ") for line in rest.splitlines() if "(" in line]
    return tuple(_translate(operator, line[line.index("(") : line.rindex(")") + 1]) for line in lines)


def _translate(operator: Operator, signature: str) -> str:
    parts = [part.strip() for part in signature.strip("()").split(", ")]
    known = {argument.name: argument for argument in operator.arguments}
    return f"{operator.base}({', '.join(_translate_part(part, known) for part in parts if part)})"


def _translate_part(part: str, arguments: Mapping[str, Argument]) -> str:
    if part == "*":
        return part
    declared, has_default, default = part.partition(" = ")
    kind, _, name = declared.rpartition(" ")
    sized = re.search(r"\[\d+\]$", kind)
    known = _PARSER_KINDS.get(kind.removesuffix(sized.group()) if sized else kind)
    if known is None:
        raise ValueError(f"its parser takes a {kind}, which cannot be rebuilt")
    optional = "?" if default == "None" else ""
    same = arguments.get(name)
    if same is not None and _SCHEMA_KINDS.get(same.kind, "").removeprefix("Sym") == known.replace("int64_t", "Int"):
        known = _SCHEMA_KINDS[same.kind]
        optional = optional or ("?" if same.optional else "")
    return f"{known}{optional} {name}" + (f"={default}" if has_default else "")


def schema_signature(operator: Operator, *, method: bool) -> str:
    """The operator's own signature in the notation of torch's parser; empty where a type is not known to it."""
    arguments = operator.arguments[1:] if method else operator.arguments
    words: list[str] = []
    starred = False
    for number, argument in enumerate(arguments):
        if argument.keyword and not starred:
            words.append("*")
            starred = True
        kind = _SCHEMA_KINDS.get(argument.kind)
        if kind is None:
            return ""
        name = "input" if number == 0 and not method and argument.name == "self" else argument.name
        words.append(f"{kind}{'?' if argument.optional else ''} {name}{_default(argument)}")
    return f"{operator.base}({', '.join(words)})"


def _default(argument: Argument) -> str:
    if not argument.has_default:
        return ""
    value = argument.default
    if isinstance(value, (list, tuple)):
        return "=None" if not value else f"={{{', '.join(map(str, value))}}}"
    if isinstance(value, str):
        return f'="{value}"'
    return f"={value}"


def positional(entry: Entry) -> Sequence[str]:
    """The names used between the parentheses, for showing what they are."""
    return [name for name in entry.names if name != "torch"]
