"""What can be said without a compiler? The whole, the call, the autograd node, the allocation, and no more.

From Python a redispatch costs more than the call it is part of, so that dispatch cannot be separated there: tried, it
came out at -12 to -180 ns where the probe reads +91. Rows that cannot be had are named, not approximated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from referee.anatomy.stages import ALLOCATION, AUTOGRAD, BINDING, Ladder, Step, Subject
from referee.anatomy.timing import NOTHING, Pair, Timed
from referee.device.host import load_torch

WHY = "argument parsing, dispatch, set-up, the kernel and the wrapping of the result: they need the compiled probe"


class PythonProbe:
    """Stands in for the compiled module where arguments and entries are prepared: it records by a Python mode."""

    def __init__(self, why: str) -> None:
        self.why = why

    def record(self, call: Callable[[], Any]) -> list[tuple[str, int]]:
        """The first operator that reaches Python's dispatch mode, which a composite one does not."""
        from torch.utils._python_dispatch import TorchDispatchMode

        seen: list[tuple[str, int]] = []

        class Recorder(TorchDispatchMode):  # type: ignore[misc]
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                schema = func._schema
                seen.append((f"{schema.name}.{schema.overload_name}".rstrip("."), 0))
                return func(*args, **(kwargs or {}))

        with Recorder():
            call()
        return seen


def build_python_ladder(subject: Subject) -> Ladder:
    """The stages that Python alone can tell apart."""
    entry = subject.entry
    names = dict(entry.names)
    plain = Timed(entry.expression, {**names, **_plain_names(subject)}, subject.context)
    actual = Timed(entry.expression, names, subject.context)
    look_up = Pair("look-up", Timed(entry.function, names))
    steps = (
        [Step(layer=BINDING, meaning=f"finding {entry.function} by name", pair=look_up)]
        if entry.way != "method"
        else []
    )
    if subject.actual is not subject.plain:
        meaning = "the node, its edges and what it saves, made and dropped again"
        steps.append(Step(layer=AUTOGRAD, meaning=meaning, pair=Pair("autograd node", actual, plain)))
    if len(subject.fresh) == 1:
        torch = load_torch()
        empty = Timed("torch.empty_like(model)", {"torch": torch, "model": subject.fresh[0]}, subject.context)
        meaning = "at most: an empty tensor like the output, its Python object and its own dispatch included"
        steps.append(Step(layer=ALLOCATION, meaning=meaning, pair=Pair("output allocation", empty, NOTHING)))
    return Ladder(
        whole=Pair("whole", Timed(entry.expression, names, subject.autocast or subject.context), NOTHING),
        per_tensor=None,
        steps=tuple(steps),
        unseparated=(WHY,),
    )


def _plain_names(subject: Subject) -> dict[str, Any]:
    torch = load_torch()
    tensors = iter(subject.plain.tensors)
    return {name: next(tensors) for name, value in subject.entry.names.items() if isinstance(value, torch.Tensor)}
