"""What ran, in which dtypes? Two modes that record a step: every operator below autocast, every call above it.

Below autocast the dispatch mode sees the operators with the dtypes they are really given, and autocast's own casts as
``_to_copy`` operators; above it the function mode sees the calls as Python makes them, which tells the user's own casts
from autocast's. Recording costs time: nothing recorded here is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.overrides import TorchFunctionMode

from referee.device.dispatch_mode import ListeningMode
from referee.device.watching import tensors_in
from referee.precision.place import module_stack

if TYPE_CHECKING:
    import torch

    from referee.precision.tape import Tape

CAST = "aten::_to_copy"
_EXPLICIT = frozenset({"to", "half", "float", "double", "bfloat16", "type", "type_as"})
_ATTRIBUTES = frozenset(
    {
        "__get__",
        "__set__",
        "backward",
        "requires_grad_",
        "size",
        "dim",
        "numel",
        "stride",
        "is_floating_point",
        "__len__",
    }
)
_NOT_WORK = ("profiler::", "prim::")
"""Marks that are operators by form, and the attributes of fake tensors."""
_SAME = frozenset({"aten::detach", "aten::alias", "aten::lift_fresh", "aten::_unsafe_view"})


@dataclass(frozen=True, kw_only=True)
class OpEvent:
    """One operator call: dtypes of its floating arguments and of its first floating result."""

    op: str
    backward: bool
    inputs: tuple[str, ...]
    output: str
    call: int | None
    """The Python call it belongs to, by its number; ``None`` in backward."""
    module: str
    view: bool = False
    """Whether it computes nothing: a view, or the same tensor under another name."""


@dataclass(frozen=True, kw_only=True)
class CastEvent:
    """One change of floating dtype: who asked (``autocast``, ``explicit``, ``backward``), and of what."""

    who: str
    backward: bool
    source: str
    target: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    tensor: int
    """Identity of the tensor: that of a weight, which outlives the step; others' may be used again."""
    weight: bool
    call: int | None
    nbytes: int


@dataclass(frozen=True, kw_only=True)
class CallEvent:
    """One Python call of a torch function: its name, where, the dtypes in and out, and the autocast state around it."""

    number: int
    name: str
    module: str
    inputs: tuple[str, ...]
    output: str
    outputs: tuple[str, ...]
    autocast: bool
    explicit: bool
    weights: tuple[int, ...] = ()


class Recording:
    """Everything that was recorded, in order."""

    def __init__(self, device_type: str) -> None:
        self.device_type = device_type
        self.ops: list[OpEvent] = []
        self.casts: list[CastEvent] = []
        self.calls: list[CallEvent] = []
        self.current: int | None = None
        self.explicit = False


@contextmanager
def recording(device_type: str, names: Mapping[int, str], *, tape: Tape | None = None) -> Iterator[Recording]:
    """Record what runs inside; ``names`` are the modules' paths by ``id``. ``tape`` is told of forward's operators."""
    found = Recording(device_type)
    with module_stack(names) as stack, CallRecorder(found, stack), OpRecorder(found, stack, tape=tape):
        yield found


class OpRecorder(ListeningMode):
    """Sees every operator below autograd and autocast."""

    def __init__(self, found: Recording, stack: Callable[[], str], *, tape: Tape | None = None) -> None:
        super().__init__()
        self._found, self._stack, self._tape = found, stack, tape

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        import torch

        kwargs = kwargs or {}
        name = func._schema.name
        result = func(*args, **kwargs)
        if name.startswith(_NOT_WORK):
            return result
        node = torch._C._current_autograd_node()
        backward = node is not None
        inputs = floating_dtypes((args, tuple(kwargs.values())))
        outputs = floating_dtypes(result)
        found = self._found
        # A graph task that a call started (a custom backward) belongs to backward, whatever the call.
        call = None if backward else found.current
        found.ops.append(
            OpEvent(
                op=name,
                backward=backward,
                inputs=inputs,
                output=outputs[0] if outputs else "",
                call=call,
                module="" if backward else self._stack(),
                view=func.is_view or name in _SAME,
            )
        )
        casts = name == CAST and inputs and outputs and inputs[0] != outputs[0]
        tape = None if backward else self._tape
        kept = bool(casts and tape and not found.explicit and tape.kept_cast(args[0], outputs[0]))
        if tape is not None:
            tape.note(func, args, kwargs, result, call=call, kept=kept)
        if casts and not kept:
            self._cast(args[0], result, backward=backward, call=call)
        return result

    def _cast(self, source: Any, result: Any, *, backward: bool, call: int | None) -> None:
        found = self._found
        leaf = self._tape.is_leaf(source) if self._tape is not None else source.is_leaf and source.requires_grad
        found.casts.append(
            CastEvent(
                who="backward" if backward else "explicit" if found.explicit else "autocast",
                backward=backward,
                source=dtype_word(source),
                target=dtype_word(result),
                shape=tuple(source.shape),
                stride=tuple(source.stride()),
                tensor=id(source),
                weight=bool(leaf),
                call=call,
                nbytes=source.numel() * (source.element_size() + result.element_size()),
            )
        )


class CallRecorder(TorchFunctionMode):  # type: ignore[misc]  # torch is not followed
    """Sees torch's functions as Python calls them.

    ``substitute`` may put others in the place of the arguments, and ``instead`` names what is called in the place of a
    function.
    """

    def __init__(
        self,
        found: Recording,
        stack: Callable[[], str],
        *,
        substitute: Callable[[Any], Any] | None = None,
        instead: Mapping[Any, Callable[..., Any]] | None = None,
    ) -> None:
        super().__init__()
        self._found, self._stack, self._substitute = found, stack, substitute
        self._instead = instead or {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        import torch

        name = getattr(func, "__name__", "") or type(func).__name__
        kwargs = kwargs or {}
        if self._substitute is not None:
            args, kwargs = self._substitute(args), self._substitute(kwargs)
        if name in _ATTRIBUTES or name.startswith("_record_function"):
            return func(*args, **kwargs)
        func = self._instead.get(func, func)
        found = self._found
        outer = found.current, found.explicit
        number = len(found.calls)
        found.current, found.explicit = number, name in _EXPLICIT
        given = list(tensors_in((args, tuple(kwargs.values()))))
        weights = tuple(id(t) for t in given if t.is_leaf and t.requires_grad)
        # Noted before the call, so that the order is that of the source; completed after it.
        found.calls.append(_call(number, name, self._stack(), given, (), found.explicit, False, weights))
        on = bool(torch.is_autocast_enabled(found.device_type))
        explicit = found.explicit
        try:
            result = func(*args, **kwargs)
        finally:
            found.current, found.explicit = outer
        found.calls[number] = _call(
            number, name, found.calls[number].module, given, list(tensors_in(result)), explicit, on, weights
        )
        return result


def _call(
    number: int,
    name: str,
    module: str,
    given: Any,
    made: Any,
    explicit: bool,
    autocast: bool,
    weights: tuple[int, ...],
) -> CallEvent:
    outputs = floating_dtypes(list(made))
    return CallEvent(
        number=number,
        name=name.strip("_") if name.startswith("__") else name,
        module=module,
        inputs=floating_dtypes(given),
        output=outputs[0] if outputs else "",
        outputs=outputs,
        autocast=autocast,
        explicit=explicit,
        weights=weights,
    )


def floating_dtypes(value: Any) -> tuple[str, ...]:
    """The dtypes of the floating tensors in ``value``, in order."""
    return tuple(dtype_word(tensor) for tensor in tensors_in(value) if tensor.is_floating_point())


def dtype_word(tensor: torch.Tensor) -> str:
    """``float32``."""
    return str(tensor.dtype).removeprefix("torch.")
