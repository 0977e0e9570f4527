"""What do other ways of asking for the same work cost? Spelling, operands, layouts, wrappers, modes: side by side.

Each group has a first way that the others are held against; each is timed as a whole, by a pair of its own with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from referee.anatomy.compiled import compiled_ways
from referee.anatomy.operator import Operator
from referee.anatomy.timing import NOTHING, Pair, Timed, time_pairs
from referee.anatomy.ways import Group, Way
from referee.bench.plan import ProgressCallback, no_progress
from referee.device.host import load_torch
from referee.device.protocol import Device
from referee.records.anatomy import Variant

_SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "matmul": "@"}


def make_groups(
    operator: Operator, *, shape: tuple[int, ...] = (8,), compiled: bool = False, backend: str = "inductor"
) -> tuple[Group, ...]:
    """The groups that make sense for ``operator``: all of them for pointwise operators on one or two tensors.

    ``compiled`` adds torch.compile with ``backend``, which takes seconds.
    """
    torch = load_torch()
    base, arity = operator.base, sum(argument.kind == "Tensor" for argument in operator.arguments)
    if not operator.name.startswith("aten::") or "pointwise" not in operator.tags or arity not in (1, 2):
        return ()
    if operator.in_place or not hasattr(torch, base):
        return ()
    a, b = torch.rand(shape) + 0.5, torch.rand(shape) + 0.5
    names = {"torch": torch, "a": a, "b": b, "out": torch.empty(shape)}
    inside = "a, b" if arity == 2 else "a"
    groups = [
        _spelling(operator, base, inside, names, arity),
        _layouts(base, inside, names, arity),
        _wrappers(operator, base, inside, names, backend=backend if compiled else None),
        _active_modes(base, inside, names),
    ]
    if arity == 2:
        groups.insert(1, _operands(base, names))
    return tuple(group for group in groups if len(group.ways) > 1)


def _spelling(operator: Operator, base: str, inside: str, names: dict[str, Any], arity: int) -> Group:
    torch = load_torch()
    overload = operator.callable
    ways = [
        Way(name=f"torch.{base}", source=f"torch.{base}({inside})", names=names),
        Way(name=f"torch.ops.{operator.dotted}", source=f"torch.ops.{operator.dotted}({inside})", names=names),
        Way(
            name="the overload, looked up before",
            source=f"overload({inside})",
            names={**names, "overload": overload},
            note="generic argument conversion instead of the function's own parser",
        ),
        Way(name="out=", source=f"torch.{base}({inside}, out=out)", names=names),
    ]
    if arity == 2 and base in _SYMBOLS:
        ways.insert(0, Way(name=f"a {_SYMBOLS[base]} b", source=f"a {_SYMBOLS[base]} b", names=names))
    if hasattr(torch.Tensor, f"{base}_"):
        rest = ", b" if arity == 2 else ""
        fixed = {**names, "a": torch.ones(names["a"].shape), "b": torch.ones(names["a"].shape)}
        if base in ("add", "sub"):
            fixed["b"] = torch.zeros(names["a"].shape)  # the same number of times over, it must not run away
        ways.append(Way(name="in place", source=f"a.{base}_({rest.removeprefix(', ')})", names=fixed))
    return Group(name="spelling", ways=tuple(ways))


def _operands(base: str, names: dict[str, Any]) -> Group:
    torch = load_torch()
    call = f"torch.{base}(a, b)"
    a = names["a"]
    given: dict[str, Any] = {
        "Python number": 2.0,
        "tensor of one number, no dimensions": torch.tensor(2.0),
        "float64 operand": names["b"].double(),
        "int64 operand": torch.ones(a.shape, dtype=torch.int64),
        "bfloat16 operand": names["b"].bfloat16(),
        "broadcast operand": torch.ones(()).expand(a.shape) if not a.dim() else torch.ones(1),
    }
    notes = {
        "float64 operand": "the other one is promoted",
        "int64 operand": "it is promoted",
        "bfloat16 operand": "it is promoted",
    }
    ways = [Way(name="tensor of the same shape and dtype", source=call, names=names)]
    ways += [
        Way(name=name, source=call, names={**names, "b": value}, note=notes.get(name, ""))
        for name, value in given.items()
    ]
    return Group(name="second operand", ways=tuple(ways))


def _layouts(base: str, inside: str, names: dict[str, Any], arity: int) -> Group:
    """On 4,096 numbers, so that whether the loop is vectorised shows."""
    torch = load_torch()
    call = f"torch.{base}({inside})"

    def pair(make: Callable[[], Any]) -> dict[str, Any]:
        return {**names, "a": make(), **({"b": make()} if arity == 2 else {})}

    def one(number: float = 1.0) -> Any:
        return torch.full((64, 64), number)

    ways = (
        Way(name="contiguous", source=call, names=pair(one)),
        Way(
            name="transposed", source=call, names=pair(lambda: one().t()), note="dense: the loop runs as if contiguous"
        ),
        Way(
            name="every second number",
            source=call,
            names=pair(lambda: torch.ones(64, 128)[:, ::2]),
            note="strided: no vectorised template",
        ),
        Way(
            name="rows broadcast",
            source=call,
            names={**names, "a": torch.ones(64, 1).expand(64, 64), "b": one()},
        ),
        Way(
            name="unaligned by 4 bytes",
            source=call,
            names=pair(lambda: torch.ones(64 * 64 + 1)[1:].view(64, 64)),
            note="contiguous, not on the vector's boundary",
        ),
    )
    return Group(name="layout, 64×64", ways=ways)


def _wrappers(operator: Operator, base: str, inside: str, names: dict[str, Any], *, backend: str | None) -> Group:
    torch = load_torch()
    function = getattr(torch, base)
    ways = [
        Way(name="bare", source=f"torch.{base}({inside})", names=names),
        Way(name="autograd.Function", source=f"f({inside})", names={**names, "f": _autograd_function(function)}),
        _library_way(operator, inside, names, function),
        _custom_op_way(operator, inside, names, function),
        Way(name="module call", source=f"f({inside})", names={**names, "f": _module(function)}),
        Way(name="tensor subclass, empty", source=f"torch.{base}({inside})", names=_as_subclass(names)),
    ]
    if backend is not None:
        ways += compiled_ways(function, inside, names, backend)
    return Group(name="wrapper", ways=tuple(ways))


def _as_subclass(names: dict[str, Any]) -> dict[str, Any]:
    torch = load_torch()

    class Empty(torch.Tensor):  # type: ignore[misc, name-defined]
        """Adds nothing."""

    return {**names, "a": names["a"].as_subclass(Empty)}


def _autograd_function(function: Callable[..., Any]) -> Callable[..., Any]:
    torch = load_torch()

    class Wrapped(torch.autograd.Function):  # type: ignore[misc, name-defined]
        """Calls the function and saves nothing."""

        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            return function(*args)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return grads

    apply: Callable[..., Any] = Wrapped.apply
    return apply


def _module(function: Callable[..., Any]) -> Any:
    torch = load_torch()

    class Layer(torch.nn.Module):  # type: ignore[misc, name-defined]
        """Calls the function."""

        def forward(self, *args: Any) -> Any:
            return function(*args)

    return Layer()


_made: dict[str, Any] = {}
"""Operators that were registered for a comparison; a name can be registered once in a process."""


def _library_way(operator: Operator, inside: str, names: dict[str, Any], function: Callable[..., Any]) -> Way:
    torch = load_torch()
    name = f"referee_variants::{operator.base}_impl"
    if name not in _made:
        args = ", ".join(f"Tensor {word.strip()}" for word in inside.split(","))
        torch.library.define(name, f"({args}) -> Tensor")
        torch.library.impl(name, "CPU")(lambda *values: function(*values))
        _made[name] = getattr(torch.ops.referee_variants, f"{operator.base}_impl")
    return Way(
        name="torch.library define and impl",
        source=f"f({inside})",
        names={**names, "f": _made[name]},
        note="Python body",
    )


def _custom_op_way(operator: Operator, inside: str, names: dict[str, Any], function: Callable[..., Any]) -> Way:
    torch = load_torch()
    name = f"referee_variants::{operator.base}_custom"
    if name not in _made:
        args = ", ".join(f"Tensor {word.strip()}" for word in inside.split(","))

        def body(*values: Any) -> Any:
            return function(*values)

        _made[name] = torch.library.custom_op(name, body, mutates_args=(), schema=f"({args}) -> Tensor")
    return Way(
        name="torch.library.custom_op", source=f"f({inside})", names={**names, "f": _made[name]}, note="Python body"
    )


def _active_modes(base: str, inside: str, names: dict[str, Any]) -> Group:
    torch = load_torch()
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Dispatch(TorchDispatchMode):  # type: ignore[misc]
        """Passes every operator on."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    class Function(TorchFunctionMode):  # type: ignore[misc]
        """Passes every function on."""

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    call = f"torch.{base}({inside})"
    wanting = {**names, "a": names["a"].clone().requires_grad_()}
    with torch.inference_mode():
        still = {**names, "a": names["a"].clone(), "b": names["b"].clone()}
    return Group(
        name="mode",
        ways=(
            Way(name="plain", source=call, names=names),
            Way(name="gradient wanted", source=call, names=wanting),
            Way(name="gradient wanted, no_grad", source=call, names=wanting, context=torch.no_grad),
            Way(name="inference mode", source=call, names=still, context=torch.inference_mode),
            Way(name="TorchDispatchMode active", source=call, names=names, context=Dispatch, note="re-enters Python"),
            Way(name="TorchFunctionMode active", source=call, names=names, context=Function, note="re-enters Python"),
            Way(name="subclass with __torch_dispatch__", source=call, names=_wrapped(names), note="re-enters Python"),
        ),
    )


def _wrapped(names: dict[str, Any]) -> dict[str, Any]:
    from referee.anatomy.scenario import passing_subclass

    wrap = passing_subclass().wrap
    return {**names, "a": wrap(names["a"]), "b": wrap(names["b"])}


def time_groups(
    groups: tuple[Group, ...], *, device: Device, budget_ns: int, progress: ProgressCallback = no_progress
) -> tuple[Variant, ...]:
    """Every way of every group, and what it costs beyond the first of its group; a part is held against nothing."""
    found: list[Variant] = []
    for group in groups:
        usable = [way for way in group.ways if not way.why_not and _works(way)]
        if not usable:
            continue
        timed = {way.name: Timed(way.source, way.names, way.context) for way in usable}
        first = timed[usable[0].name]
        pairs = [Pair(way.name, timed[way.name], NOTHING) for way in usable]
        pairs += [Pair(way.name, timed[way.name], first) for way in usable[1:] if not way.part]
        costs = time_pairs(pairs, device=device, budget_ns=budget_ns // len(groups), progress=progress)
        wholes = {cost.name: cost.hot for cost in costs[: len(usable)]}
        extras = {cost.name: cost.hot for cost in costs[len(usable) :]}
        for way in group.ways:
            found.append(_variant(group, way, wholes.get(way.name), extras.get(way.name)))
    return tuple(found)


def _variant(group: Group, way: Way, whole: Any, extra: Any) -> Variant:
    if whole is None:
        return Variant(group=group.name, name=way.name, ns=None, extra_ns=None, note=way.why_not or "torch refuses it")
    return Variant(
        group=group.name,
        name=way.name,
        ns=whole.point / way.repeats,
        extra_ns=None if extra is None else extra.point / way.repeats,
        ci_low_ns=None if extra is None else extra.low / way.repeats,
        ci_high_ns=None if extra is None else extra.high / way.repeats,
        note=way.note,
        n=whole.n,
    )


_COPIES = 20_000
"""Enough that starting a thread, some ten microseconds, adds less than a nanosecond to each copy."""


def reference_group(probe: Any) -> Group:
    """What copying and dropping a reference to a saved tensor costs, from one thread and from two at once."""
    torch = load_torch()
    a, b = torch.rand(8), torch.rand(8)

    def way(name: str, tensors: list[Any], note: str = "") -> Way:
        names = {"copy": probe.copy_references, "tensors": tensors}
        return Way(name=name, source=f"copy(tensors, {_COPIES})", names=names, note=note, repeats=_COPIES)

    return Group(
        name="reference to a saved tensor",
        ways=(
            way("one thread", [a]),
            way("two threads, a tensor each", [a, b]),
            way("two threads, one tensor", [a, a], "both write to one counter: its cache line goes to and fro"),
        ),
    )


def _works(way: Way) -> bool:
    try:
        with way.context():
            Timed(way.source, way.names).loop()(1)
    except (RuntimeError, TypeError):
        return False
    return True
