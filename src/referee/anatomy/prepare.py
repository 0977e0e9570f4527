"""What is known about a call before it is timed? Its arguments in the mode asked for, entry, keys, outputs."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

from referee.anatomy.arguments import Arguments, Wish
from referee.anatomy.entry import Way, find_entry
from referee.anatomy.operator import Operator
from referee.anatomy.path import keys_of_call, predict, visited
from referee.anatomy.stages import Subject
from referee.anatomy.timing import LONG_NS
from referee.device.host import load_torch
from referee.errors import CannotTell
from referee.records.anatomy import PathEntry
from referee.units import NS_PER_MS

Mode = Literal["grad", "no_grad", "inference"]

BUDGET_NS = 700 * NS_PER_MS


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is to be taken apart, and how."""

    operator: Operator
    wish: Wish = field(default_factory=Wish)
    mode: Mode = "grad"
    autocast: bool = False
    way: Way | None = None
    budget_ns: int = BUDGET_NS
    cold: bool = True


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A call that is ready to be taken apart, and what was noticed on the way."""

    subject: Subject
    path: tuple[PathEntry, ...]
    notes: tuple[str, ...] = ()


def prepare(request: Request, plain: Arguments, module: Any) -> Prepared:
    """Everything about the call that is known before it is timed.

    Raises :class:`~referee.errors.CannotTell` where no two calls of the operator can be alike.
    """
    operator = request.operator
    if "inplace_view" in operator.tags:
        _check_repeats(operator, plain)
    context = mode_context(request.mode)
    notes: list[str] = []
    if request.mode == "inference":
        with context():
            plain = map_tensors(plain, lambda tensor: tensor.clone())
    given = plain
    actual = _actual(request, plain, notes)
    autocast = _autocast_context(request) if request.autocast else None
    with context():
        entry = find_entry(operator, actual, record=module.record, way=request.way)
        keys = keys_of_call(plain.tensors, device=request.wish.device)
        names = visited(predict(operator, keys))
    with (autocast or context)():
        path = predict(operator, keys_of_call(actual.tensors, device=request.wish.device))
        outputs, calls = _call_once(operator, actual, module)
    fresh = tuple(o for o in outputs if not _shares(o, plain) and not _shares(o, actual))
    composite = any(entry.kernel == "composite" for entry in path if entry.visited)
    wanting = actual
    if autocast is not None and not any(entry.visited and entry.key.startswith("Autocast") for entry in path):
        # No rule of its own: nothing is cast on the way, and the mode is but where the call stands.
        notes.append("autocast: it has no rule for this operator, and lets the call through at no stage")
        context, autocast = autocast, None
    if autocast is not None:
        plain = _as_cast(plain, outputs)
        wanting = _wanting(plain, actual)
    subject = Subject(
        operator=operator,
        entry=entry,
        plain=plain,
        wanting=plain if actual is given else wanting,
        actual=actual,
        keys=names,
        outputs=outputs,
        fresh=tuple(o.detach() for o in fresh),
        context=context,
        autocast=autocast,
        inner_calls=calls if composite else (),
        scattered=_call_ns(operator, plain, context) >= LONG_NS,
    )
    return Prepared(subject=subject, path=path, notes=tuple(notes))


def _check_repeats(operator: Operator, arguments: Arguments) -> None:
    """Refuse an operator that gives its argument another dimension, or more numbers, with each call."""
    seen = []
    for _ in range(2):
        operator.callable(*arguments.args, **arguments.kwargs)
        seen.append([(tensor.dim(), tensor.numel()) for tensor in arguments.tensors])
    if seen[0] != seen[1]:
        raise CannotTell(
            f"{operator.dotted} cannot be taken apart: each call gives its argument another shape, so that no two calls"
            " are alike.",
            hint=f"Take aten.{operator.base.removesuffix('_')} apart, which gives back a view of that shape.",
        )


def _call_ns(operator: Operator, arguments: Arguments, context: Callable[[], AbstractContextManager[Any]]) -> int:
    """About how long one call takes, in nanoseconds: the least of three."""
    taken = []
    with context():
        for _ in range(3):
            begun_ns = time.perf_counter_ns()
            operator.callable(*arguments.args, **arguments.kwargs)
            taken.append(time.perf_counter_ns() - begun_ns)
    return min(taken)


def _as_cast(arguments: Arguments, outputs: tuple[Any, ...]) -> Arguments:
    """The arguments in the dtype of the output under autocast: what it casts them to."""
    dtype = next((output.dtype for output in outputs if output.is_floating_point()), None)

    def cast(tensor: Any) -> Any:
        if dtype is None or not tensor.is_floating_point():
            return tensor
        return tensor.detach().to(dtype)

    return map_tensors(arguments, cast)


def _wanting(plain: Arguments, like: Arguments | None = None) -> Arguments:
    """The same memory, with gradients wanted: of every tensor that can have one, or of those that ``like`` wants.

    Copies would lie elsewhere, and a kernel that reads other memory takes some percent more or less: as much as a node.
    """
    wants = iter([tensor.requires_grad for tensor in like.tensors]) if like is not None else None

    def share(tensor: Any) -> Any:
        able = tensor.is_floating_point() or tensor.is_complex()
        return tensor.detach().requires_grad_(able if wants is None else next(wants))

    return map_tensors(plain, share)


def mode_context(mode: Mode) -> Callable[[], AbstractContextManager[Any]]:
    """The context manager of a grad mode."""
    torch = load_torch()
    contexts: dict[str, Callable[[], AbstractContextManager[Any]]] = {
        "grad": nullcontext,
        "no_grad": torch.no_grad,
        "inference": torch.inference_mode,
    }
    return contexts[mode]


def _autocast_context(request: Request) -> Callable[[], AbstractContextManager[Any]]:
    torch = load_torch()
    device, mode = request.wish.device.partition(":")[0], mode_context(request.mode)
    if mode is nullcontext:
        # The cache of casts would hide what a cast costs, and hold on to weights between blocks.
        return lambda: torch.autocast(device, dtype=torch.bfloat16, cache_enabled=False)

    @contextmanager
    def both() -> Any:
        with mode(), torch.autocast(device, dtype=torch.bfloat16, cache_enabled=False):
            yield

    return both


def _actual(request: Request, plain: Arguments, notes: list[str]) -> Arguments:
    """The arguments that the mode asks for: with gradients wanted, where the operator can give them."""
    if request.mode != "grad":
        return plain
    operator = request.operator
    if operator.in_place:
        notes.append("autograd node: an in-place call would lengthen the graph with each repetition")
        return plain
    torch = load_torch()
    wanted = _wanting(plain)
    try:
        outputs = operator.callable(*wanted.args, **wanted.kwargs)
    except RuntimeError:
        notes.append("autograd node: the operator refuses arguments that require a gradient")
        return plain
    found = _flat(outputs, torch)
    if not any(o.requires_grad for o in found):
        notes.append("autograd node: no output has a gradient")
        return plain
    if all(o.grad_fn is None for o in found):
        notes.append("autograd node: none is made, the operator hands its argument back")
        return plain
    return wanted


def map_tensors(arguments: Arguments, change: Callable[[Any], Any]) -> Arguments:
    """The arguments with every tensor replaced by what ``change`` makes of it."""
    torch = load_torch()

    def one(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return change(value)
        if isinstance(value, (list, tuple)):
            return type(value)(one(item) for item in value)
        return value

    return Arguments(args=tuple(map(one, arguments.args)), kwargs={k: one(v) for k, v in arguments.kwargs.items()})


def _call_once(operator: Operator, arguments: Arguments, module: Any) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """The output tensors of one call, and the operators that it called itself."""
    found: list[Any] = []
    seen = module.record(lambda: found.append(operator.callable(*arguments.args, **arguments.kwargs)))
    calls = tuple(name for name, depth in seen if depth == 1)
    return _flat(found[0], load_torch()), calls


def _flat(value: Any, torch: Any) -> tuple[Any, ...]:
    if isinstance(value, torch.Tensor):
        return (value,)
    if isinstance(value, (list, tuple)):
        return tuple(tensor for item in value for tensor in _flat(item, torch))
    return ()


def _shares(output: Any, arguments: Arguments) -> bool:
    """Whether an output has no memory of its own (or none that can be compared)."""
    try:
        own = output.untyped_storage().data_ptr()
        return own != 0 and any(own == t.untyped_storage().data_ptr() for t in arguments.tensors)
    except (RuntimeError, NotImplementedError):  # sparse and opaque tensors have no storage
        return True
