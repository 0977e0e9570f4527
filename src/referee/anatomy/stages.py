"""At which depths can this operator's call be stopped, and which layer lies between two of them?

The ladder from the outside in: the look-up of the function, the call of a built-in that does nothing, parsing, the
interpreter lock, (inside it) the outputs' memory, the iterator's set-up, the loop, the kernel, each dispatch key from
the lowest to the highest, the autograd node, and the wrapping of the result. Each stage is a pair of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from referee.anatomy.arguments import Arguments
from referee.anatomy.entry import Entry
from referee.anatomy.operator import Operator
from referee.anatomy.path import key_bits
from referee.anatomy.timing import NOTHING, Context, Pair, Timed
from referee.device.host import load_torch

BINDING = "binding and argument parsing"
RESOLUTION = "overload resolution and type promotion"
DISPATCH = "dispatch"
AUTOGRAD = "autograd node and tape"
ALLOCATION = "output allocation"
SETUP = "shape, stride and broadcast set-up"
KERNEL = "kernel or launch"

_BOXED = (
    "packing the arguments: the probe knows no operator with this C++ signature, so it calls with boxed values, and"
    " what that adds is in the rows below the parsing and comes off the remainder"
)

LAYERS = (BINDING, RESOLUTION, DISPATCH, AUTOGRAD, ALLOCATION, SETUP, KERNEL)
"""The seven layers, from the outside in."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One stage to be timed: its layer, what it means in words, and the pair of depths."""

    layer: str
    meaning: str
    pair: Pair


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """Every stage that can be told apart, the whole, and which layers cannot be told apart, with the reason."""

    whole: Pair
    per_tensor: Pair | None
    """Seven further tensor arguments of an operator that does nothing."""
    steps: tuple[Step, ...]
    unseparated: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is taken apart: the operator, two sets of arguments, the way it is called, and the keys it visits.

    ``plain`` requires no gradient; ``wanting`` does where the mode asks for it, and is ``plain`` otherwise. Both have
    the dtype that autocast casts to, where it is on; ``actual`` is what the call is given.
    """

    operator: Operator
    entry: Entry
    """The call with ``actual``."""
    plain: Arguments
    wanting: Arguments
    actual: Arguments
    keys: tuple[str, ...]
    """Keys visited by a call with ``plain``, highest first."""
    outputs: tuple[Any, ...]
    fresh: tuple[Any, ...]
    """Those outputs that own new memory."""
    context: Context
    autocast: Context | None = None
    inner_calls: tuple[str, ...] = ()
    scattered: bool = False
    """Whether the kernel is so long that each call is to find the stack at another place of a page."""


class Rungs:
    """Makes the functions that stop at a depth, for one set of arguments and one list of signatures."""

    def __init__(
        self, probe: Any, subject: Subject, arguments: Arguments, *, context: Context, signatures: Sequence[str] = ()
    ) -> None:
        self._probe, self._subject, self._context = probe, subject, context
        operator = subject.operator
        self.call = probe.Call(operator.name, operator.overload, arguments.args, dict(arguments.kwargs))
        self.call.set_scattered(subject.scattered)
        self.boxed = subject.entry.way == "overload"
        self._guarded = _is_factory(subject)
        self.parses = bool(signatures) and not self.boxed
        if self.parses:
            me = arguments.args[0] if subject.entry.way == "method" else None
            self.call.set_parser(list(signatures), me)
        self.call.set_outputs(list(subject.fresh))
        self._names = {**_same_names(subject.entry, arguments), "accumulators": _accumulators(arguments)}

    def at(self, depth: str, keys: Sequence[str] = (), *, below: bool = False) -> Timed:
        """The expression with the real function replaced by one that stops at ``depth``."""
        if depth == "iterator":
            self.call.set_iterator(self._subject.fresh[0], list(self._subject.plain.tensors))
        bits = key_bits(keys) if keys else 0
        make = self._probe.boxed_rung if self.boxed else self._probe.rung
        rung: Any = make(self.call, depth, bits, below or self._guarded)
        if self.boxed:
            rung = Overload(rung)
        return self._timed(rung)

    def nothing(self) -> Timed:
        """The call of a function that does nothing, of the kind that the real one is."""
        return self._timed(Overload(self._probe.nothing_boxed) if self.boxed else self._probe.nothing)

    def _timed(self, function: Any) -> Timed:
        return Timed(f"rung({self._subject.entry.inside})", {**self._names, "rung": function}, self._context)


class Overload:
    """Calls as the objects of ``torch.ops`` do: a Python method in front of a function that takes anything."""

    def __init__(self, op: Callable[..., object]) -> None:
        self._op = op

    def __call__(self, /, *args: object, **kwargs: object) -> object:
        """Pass everything on."""
        return self._op(*args, **kwargs)


def _same_names(entry: Entry, arguments: Arguments) -> dict[str, Any]:
    """The names of ``entry`` bound to ``arguments``: tensors that differ only in whether they want a gradient."""
    names = dict(entry.names)
    tensors = iter(arguments.tensors)
    torch = load_torch()
    for name, value in names.items():
        if isinstance(value, torch.Tensor):
            names[name] = next(tensors)
    return names


def _is_factory(subject: Subject) -> bool:
    """Whether torch's own function makes a new tensor, which it does below autograd (``variable_factories.h``)."""
    arguments = subject.operator.arguments
    options = {"layout", "pin_memory"} <= {argument.name for argument in arguments}
    return subject.entry.way == "function" and options and all("Tensor" not in argument.kind for argument in arguments)


def _accumulators(arguments: Arguments) -> list[Any]:
    """The nodes that accumulate into the arguments, to be held: each call would else make them anew, or not, by chance.

    In a model an operator's operands are mostly not leaves, and a leaf has its node for as long as the graph lives.
    """
    edge = load_torch().autograd.graph.get_gradient_edge
    return [edge(tensor).node for tensor in arguments.tensors if tensor.requires_grad]


def build_ladder(subject: Subject, probe: Any) -> Ladder:
    """Every stage of the subject that the probe can tell apart."""
    entry, context = subject.entry, subject.context
    unseparated: list[str] = []
    signatures, chosen = _signatures(subject, probe, unseparated)
    plain = Rungs(probe, subject, subject.plain, signatures=signatures, context=context)
    # Below the kernel nothing is parsed: read out of the arguments or not, the memory of an output costs the same.
    bare = Rungs(probe, subject, subject.plain, context=context) if plain.parses else plain
    if not plain.boxed and not plain.call.is_typed():
        unseparated.append(_BOXED)
    same = subject.wanting is subject.plain
    wanting = plain if same else Rungs(probe, subject, subject.wanting, signatures=signatures, context=context)
    inside, base = _inside(subject, bare, unseparated)
    steps = [*_binding(subject, bare, plain, base, probe, signatures, chosen, unseparated)]
    kernel, floor = _kernel(subject, plain, base)
    inside += kernel
    steps += _dispatch(subject, plain, floor, unseparated)
    if subject.autocast is not None:
        top = Rungs(probe, subject, subject.actual, signatures=signatures, context=subject.autocast)
        meaning = "its redispatch and the casts of the operands"
        steps.append(_step(DISPATCH, "dispatch: autocast", meaning, top.at("call"), wanting.at("call")))
    else:
        top = wanting
    if not same:
        meaning = "the node, its edges and what it saves, made and dropped again"
        steps.append(_step(AUTOGRAD, "autograd node", meaning, wanting.at("call"), plain.at("call")))
    steps += inside
    found = "the operator found once more by TorchScript, and " if top.boxed else ""
    meaning = f"{found}the Python object around the result, made and dropped"
    steps.append(_step(BINDING, "result", meaning, top.at("wrap"), top.at("call")))
    whole_context = subject.autocast or context
    whole = Pair("whole", Timed(entry.expression, entry.names, whole_context), NOTHING)
    return Ladder(
        whole=whole, per_tensor=_per_tensor(probe, context), steps=tuple(steps), unseparated=tuple(unseparated)
    )


FURTHER_TENSORS = 7
"""How many more tensors the second of the probe's own operators takes."""


def _per_tensor(probe: Any, context: Context) -> Pair:
    tensor = load_torch().rand(8)

    def call(name: str, count: int) -> Timed:
        held = probe.Call(f"referee_probe::{name}", "", (tensor,) * count, {})
        return Timed("rung()", {"rung": probe.rung(held, "call", 0, False)}, context)

    return Pair("per tensor", call("take_eight", 1 + FURTHER_TENSORS), call("take_one", 1))


def _step(layer: str, name: str, meaning: str, upper: Timed, lower: Timed = NOTHING) -> Step:
    return Step(layer=layer, meaning=meaning, pair=Pair(name, upper, lower))


def _signatures(subject: Subject, probe: Any, unseparated: list[str]) -> tuple[tuple[str, ...], str]:
    """The signatures that the parser chooses from and the right one among them, as far as they parse this call."""
    entry = subject.entry
    if entry.way == "overload":
        unseparated.append("overload resolution: torch.ops names the overload, so nothing is chosen")
        return (), ""
    if entry.takes_none:
        unseparated.append("argument parsing and overload resolution: a method without arguments has no parser")
        return (), ""
    chosen = entry.chosen if entry.chosen and _parses(subject, probe, (entry.chosen,)) else ""
    signatures = entry.signatures if entry.signatures and _parses(subject, probe, entry.signatures) else ()
    signatures = signatures or ((chosen,) if chosen else ())
    if not signatures:
        why = entry.why_no_parser or "its signature cannot be rebuilt"
        unseparated.append(f"argument parsing: {why}; it is in the remainder")
    elif len(entry.signatures) == 1:
        unseparated.append("overload resolution: the parser has one signature, so nothing is chosen")
    elif len(signatures) == 1:
        unseparated.append("overload resolution: what the parser chooses from cannot be rebuilt")
    return signatures, chosen


def _parses(subject: Subject, probe: Any, signatures: Sequence[str]) -> bool:
    """Whether a parser of these signatures takes the call."""
    try:
        parse = Rungs(probe, subject, subject.plain, signatures=signatures, context=subject.context).at("parse")
        parse.loop()(1)
    except (RuntimeError, TypeError, ValueError):
        return False
    return True


def _binding(
    subject: Subject,
    bare: Rungs,
    rungs: Rungs,
    base: str,
    probe: Any,
    signatures: Sequence[str],
    chosen: str,
    unseparated: list[str],
) -> list[Step]:
    entry = subject.entry
    steps: list[Step] = []
    if entry.way == "method":
        unseparated.append("look-up of the method: Python fuses it with the call; it is in the remainder")
    else:
        look_up = Timed(entry.function, entry.names)
        steps.append(_step(BINDING, "look-up", f"finding {entry.function} by name", look_up))
    if entry.in_python:
        unseparated.append(f"what {entry.function} does in front: it is written in Python; it is in the remainder")
    frame = "a Python method and a generic call" if rungs.boxed else "the call of a built-in function"
    steps.append(_step(BINDING, "call", f"{frame} that does nothing", rungs.nothing()))
    if rungs.boxed:
        meaning = "arguments searched for overrides, then converted one by one by the schema"
        steps.append(_step(BINDING, "argument parsing", meaning, rungs.at("parse"), rungs.nothing()))
    elif rungs.parses:
        steps += _parsing(subject, bare, rungs, base, probe, signatures, chosen)
    lower = rungs.at("parse") if rungs.boxed else rungs.nothing()
    steps.append(_step(BINDING, "interpreter lock", "released and taken again", bare.at("release"), lower))
    return steps


def _parsing(
    subject: Subject, bare: Rungs, rungs: Rungs, base: str, probe: Any, signatures: Sequence[str], chosen: str
) -> list[Step]:
    """Parsing; and where there is a choice, what choosing adds to parsing against the right signature alone.

    Both are what is added to a call that goes as far as ``base``, the last depth before the kernel: a parser in a loop
    of its own finds its code at hand, and is cheaper there than between the other layers.
    """
    meaning = "checked and read by torch's own parser"
    if len(signatures) == 1 or not chosen:
        return [_step(BINDING, "argument parsing", meaning, rungs.at(base), bare.at(base))]
    alone = Rungs(probe, subject, subject.plain, signatures=(chosen,), context=subject.context)
    right, tried = f"{meaning}, against the right signature", f"what trying {len(signatures)} signatures adds"
    return [
        _step(BINDING, "argument parsing", right, alone.at(base), bare.at(base)),
        _step(RESOLUTION, "overload resolution", tried, rungs.at(base), alone.at(base)),
    ]


def _inside(subject: Subject, bare: Rungs, unseparated: list[str]) -> tuple[list[Step], str]:
    """The stages of the backend's kernel before its work, and the last depth before it."""
    steps: list[Step] = []
    base = "release"
    if subject.fresh and not subject.inner_calls:
        many = f"{len(subject.fresh)} outputs" if len(subject.fresh) > 1 else "the output"
        meaning = f"{many}, allocated and freed"
        steps.append(_step(ALLOCATION, "output allocation", meaning, bare.at("allocate"), bare.at(base)))
        base = "allocate"
    else:
        unseparated.append(f"output allocation: {_why_no_allocation(subject)}")
    if _iterates(subject, bare):
        meaning = "shapes, strides, broadcasting and dtypes of an iterator"
        steps.append(_step(SETUP, "set-up", meaning, bare.at("iterator"), bare.at(base)))
        base = "iterator"
    else:
        unseparated.append("shape, stride and broadcast set-up: it is part of the kernel row")
    return steps, base


def _kernel(subject: Subject, rungs: Rungs, base: str) -> tuple[list[Step], Timed]:
    """The kernel less what is done before its work, and the deepest call that stands for it."""
    if _is_deep(subject, rungs):
        kernel = rungs.at("kernel")
        return [_step(KERNEL, "loop", "the work itself", kernel, rungs.at(base))], kernel
    kernel = _backend(subject, rungs)
    name = "calls inside" if subject.inner_calls else "kernel"
    meaning = _composite_words(subject) if subject.inner_calls else "the backend's kernel, less the rows above"
    return [_step(KERNEL, name, meaning, kernel, rungs.at(base))], kernel


def _composite_words(subject: Subject) -> str:
    shown = ", ".join(call.removeprefix("aten::") for call in subject.inner_calls[:4])
    more = len(subject.inner_calls) - 4
    return f"calls {shown}" + (f" and {more} more" if more > 0 else "")


def _why_no_allocation(subject: Subject) -> str:
    if subject.inner_calls:
        return "a composite operator allocates in the operators it calls"
    if subject.operator.in_place:
        return "it writes to its argument"
    if subject.operator.is_view:
        return "its output is a view"
    if any(not _has_storage(output) for output in subject.outputs):
        return "its output has no storage that could be looked at; it is part of the kernel row"
    return "its output is no tensor of its own"


def _has_storage(tensor: Any) -> bool:
    try:
        tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):  # lazy, sparse and opaque tensors
        return False
    return True


def _backend(subject: Subject, rungs: Rungs) -> Timed:
    """The lowest key's kernel, with what autograd excludes excluded."""
    return rungs.at("redispatch", subject.keys[-1:], below=len(subject.keys) > 1)


def _is_deep(subject: Subject, rungs: Rungs) -> bool:
    """Whether the kernel can be called past the dispatcher, writing to an output of ours."""
    tensors = subject.plain.tensors
    one_dtype = len({tensor.dtype for tensor in tensors}) == 1
    usable = not rungs.boxed and rungs.call.is_typed() and rungs.call.has_kernel()
    return usable and subject.keys[-1] == "CPU" and len(subject.fresh) == 1 and one_dtype


def _iterates(subject: Subject, rungs: Rungs) -> bool:
    """Whether this is a pointwise operator whose iterator can be set up."""
    usable = "pointwise" in subject.operator.tags and len(subject.fresh) == 1 == len(subject.outputs)
    if rungs.boxed or not usable or subject.inner_calls or subject.keys[-1] not in ("CPU", "CUDA"):
        return False
    try:
        rungs.call.set_iterator(subject.fresh[0], list(subject.plain.tensors))
    except RuntimeError:  # its kernel builds another kind of iterator
        return False
    return True


def _dispatch(subject: Subject, rungs: Rungs, kernel: Timed, unseparated: list[str]) -> list[Step]:
    """From the kernel outwards: the jump to the backend, each higher key, and finding the keys."""
    keys = subject.keys
    steps: list[Step] = []
    backend = _backend(subject, rungs)
    if len(keys) == 1:
        below = "one key is visited" if not subject.inner_calls else "a composite operator is entered at one key"
        unseparated.append(f"each redispatch: {below}")
    call = rungs.at("call")
    top = rungs.at("redispatch", keys) if len(keys) > 1 else backend
    steps.append(
        _step(DISPATCH, "dispatch: keys", "the key set of the arguments, the thread's, the first jump", call, top)
    )
    for index in range(len(keys) - 1):
        upper = rungs.at("redispatch", keys[index:], below=index > 0)
        lower = rungs.at("redispatch", keys[index + 1 :], below=True)
        layer = AUTOGRAD if keys[index].startswith("Autograd") else DISPATCH
        meaning = f"the kernel at {keys[index]} and its redispatch"
        steps.append(_step(layer, f"dispatch: {keys[index]}", meaning, upper, lower))
    if _is_deep(subject, rungs):
        steps.append(_step(DISPATCH, f"dispatch: {keys[-1]}", "the jump to the kernel", backend, kernel))
    return steps
