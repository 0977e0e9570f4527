"""What did the step do? Two modes that watch every operation while a step runs once, untimed.

The dispatch mode sees each operator below autograd, backward included; the function mode sees the Python calls, which
is where the autocast and grad states are still those of the user's code. On lazy devices the dispatch mode lies below
functionalisation, where tensors are inner ones and nothing is written in place: what enters and what is written to is
taken from the Python calls and the version counters there.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torch.overrides import TorchFunctionMode

from referee.device.dispatch_mode import ListeningMode
from referee.device.flops import arithmetic_dtype, flop_of
from referee.device.numbering import Numbering
from referee.device.state import read_state
from referee.device.switches import autocast, grad_mode
from referee.records.finding import Scalar

if TYPE_CHECKING:
    import torch

_LIFTS = frozenset({"aten::lift_fresh", "aten::lift", "aten::lift_fresh_copy"})
"""The operators by which a tensor made from Python numbers inside the step becomes visible: it did not enter."""

_LAZY = frozenset({"lazy", "xla"})

_NOT_WORK = "profiler::"
"""Marks that ``record_function`` and optimizers leave: operators by form, but no work."""

_CAST = "aten::_to_copy"
_NO_COMPUTING = frozenset({"__get__", "__set__", "backward", "_set_grad_enabled"})
"""Calls that are seen but say nothing about the state in which the step computes: attributes, and the switch itself."""

_EXPLICIT_CASTS = frozenset({"to", "half", "float", "double", "bfloat16", "type", "type_as"})


class Watch:
    """What both modes have seen so far."""

    def __init__(self, roles: Mapping[int, str], *, records: bool = False) -> None:
        self.roles = roles
        self.records = records
        """Whether the device is one that records, so that equal operators may be merged."""
        self.ops: Counter[str] = Counter()
        self.entered: dict[object, tuple[torch.Tensor, str]] = {}
        """Tensors that came from outside, by storage, with their role; kept alive so that no address is used twice."""
        self.mutated: dict[object, None] = {}
        self.random_ops: Counter[str] = Counter()
        self.elements: Counter[str] = Counter()
        """Elements that operators read, by dtype; casts and views apart."""
        self.devices: dict[str, None] = {}
        self.streams: set[tuple[str, int]] = set()
        """Device and number of every stream that work was put on."""
        self.casts: Counter[str] = Counter()
        self.made_elements = 0
        self.flop = 0
        self.arithmetic: dict[str, None] = {}
        """The dtypes that the counted arithmetic is done in."""
        self.numbering = Numbering()
        self.backward = False
        self.autocast: dict[str, None] = {}
        self.grad_modes: Counter[str] = Counter()
        self.switches: Counter[tuple[tuple[str, Scalar], ...]] = Counter()
        """The process-wide switches in force at each call."""
        self.explicit_casts = 0
        """How many explicit conversions of the user's are being carried out just now."""
        self._versions: dict[object, int] = {}
        self._made: set[object] = set()
        self._kept: list[torch.Tensor] = []
        self._anonymous: set[object] = set()

    def key(self, tensor: torch.Tensor) -> object:
        """What identifies the memory of ``tensor``: its storage, or the tensor itself where it has none."""
        if _has_storage(tensor):
            return tensor.untyped_storage()._cdata
        # Kept alive, so that the identity stays its own.
        key = ("no storage", id(tensor))
        if key not in self._anonymous:
            self._anonymous.add(key)
            self._kept.append(tensor)
        return key

    def reads(self, tensor: torch.Tensor, *, lifted: bool) -> object:
        """An operator takes ``tensor``: note it if it came from outside."""
        key = self.key(tensor)
        if lifted:
            self._made.add(key)
        if key not in self._made and key not in self.entered:
            self.entered[key] = (tensor, self.roles.get(id(tensor)) or _role(tensor))
            if is_lazy(tensor) and not tensor.is_inference():
                self._versions[key] = tensor._version
        self.devices[place(tensor)] = None
        return key

    def compare_versions(self) -> None:
        """After the step: which of the lazy tensors that entered were written to?"""
        for key, version in self._versions.items():
            if self.entered[key][0]._version != version:
                self.mutated[key] = None

    def runs_on(self, tensor: torch.Tensor) -> None:
        """Note the stream that work on ``tensor`` is put on just now."""
        if tensor.device.type == "cuda":
            import torch

            self.streams.add((str(tensor.device), torch.cuda.current_stream(tensor.device).cuda_stream))

    def makes(self, tensor: torch.Tensor) -> None:
        """An operator returns ``tensor``: whatever is not from outside was made here."""
        key = self.key(tensor)
        if key not in self.entered:
            self._made.add(key)


def place(tensor: torch.Tensor) -> str:
    """Where the data of ``tensor`` lie: on its device, or on ``meta`` for a fake one, which only names a device."""
    fake: Any = getattr(sys.modules.get("torch._subclasses.fake_tensor"), "FakeTensor", ())
    return "meta" if isinstance(tensor, fake) else str(tensor.device)


def _has_storage(tensor: torch.Tensor) -> bool:
    """Whether ``tensor`` has memory of its own to be known by. Asking a lazy tensor for it ends the process."""
    import torch

    return not is_lazy(tensor) and bool(torch._C._has_storage(tensor))


def is_lazy(tensor: torch.Tensor) -> bool:
    """Whether ``tensor`` lives on a device that records."""
    return tensor.device.type in _LAZY


def _role(tensor: torch.Tensor) -> str:
    import torch

    return "parameter" if isinstance(tensor, torch.nn.Parameter) else "input"


class DispatchWatch(ListeningMode):
    """Sees every operator below autograd."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.watch = watch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        import torch

        watch, schema = self.watch, func._schema
        kwargs = kwargs or {}
        if schema.name.startswith(_NOT_WORK):
            return func(*args, **kwargs)
        watch.ops[schema.name] += 1
        if torch.Tag.nondeterministic_seeded in func.tags:
            watch.random_ops[schema.name] += 1
        # Private, but the only way to tell the two passes apart: the node whose backward is running.
        node = torch._C._current_autograd_node()
        watch.backward = watch.backward or node is not None
        lifted = schema.name in _LIFTS
        pure_view = schema.name == _CAST or func.is_view
        for argument, value in _bind(schema, args, kwargs):
            for tensor in tensors_in(value):
                if not pure_view:
                    watch.elements[str(tensor.dtype).removeprefix("torch.")] += tensor.numel()
                if is_lazy(tensor):
                    continue
                key = watch.reads(tensor, lifted=lifted)
                if argument.alias_info is not None and argument.alias_info.is_write and key in watch.entered:
                    watch.mutated[key] = None
        result = func(*args, **kwargs)
        flop = flop_of(func, args, kwargs, result)
        watch.flop += flop
        if flop:
            watch.arithmetic[arithmetic_dtype(args, kwargs)] = None
        if watch.records:
            watch.numbering.note(func, args, kwargs, result, flop=flop)
        for tensor in tensors_in(result):
            watch.made_elements += tensor.numel()
            if not is_lazy(tensor):
                watch.makes(tensor)
                watch.runs_on(tensor)
        if schema.name == _CAST:
            self._cast(args[0], result, in_backward=node is not None)
        return result

    def _cast(self, source: torch.Tensor, result: torch.Tensor, *, in_backward: bool) -> None:
        """Count a change of floating dtype by who asked for it."""
        if source.dtype == result.dtype or not (source.is_floating_point() and result.is_floating_point()):
            return
        who = "backward" if in_backward else "explicit" if self.watch.explicit_casts else "autocast"
        self.watch.casts[who] += 1


class FunctionWatch(TorchFunctionMode):  # type: ignore[misc]  # torch is not followed
    """Sees torch's functions as Python calls them, with the user's autocast and grad states."""

    def __init__(self, watch: Watch, *, device_types: tuple[str, ...]) -> None:
        super().__init__()
        self.watch = watch
        self.device_types = device_types

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        import torch

        name = getattr(func, "__name__", "")
        if name not in _NO_COMPUTING:
            self.watch.grad_modes[grad_mode(torch)] += 1
            self.watch.switches[tuple(read_state().values.items())] += 1
            for kind in self.device_types:
                self.watch.autocast[autocast(torch, kind)] = None
            for tensor in tensors_in((args, tuple((kwargs or {}).values()))):
                if is_lazy(tensor):
                    self.watch.reads(tensor, lifted=False)
        explicit = name in _EXPLICIT_CASTS
        self.watch.explicit_casts += explicit
        try:
            result = func(*args, **(kwargs or {}))
        finally:
            self.watch.explicit_casts -= explicit
        for tensor in tensors_in(result):
            # Attributes too: a gradient that backward made is first seen when the optimizer asks its parameter for it.
            if is_lazy(tensor) and id(tensor) not in self.watch.roles:
                self.watch.makes(tensor)
        return result


def _bind(schema: Any, args: Any, kwargs: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Each argument of the schema with the value it was given."""
    for index, argument in enumerate(schema.arguments):
        if index < len(args):
            yield argument, args[index]
        elif argument.name in kwargs:
            yield argument, kwargs[argument.name]


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in an operator's argument or result: alone, in a list, or in a tuple."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
