"""What does compiled code cost on this machine? Micro-benchmarks of the compiler's own output, each run when asked for.

Compiled functions are measured, never the step itself: a trivial one (what entering costs), one of eight products (what
a call of the library costs from the compiled wrapper), one with pointwise work between them (what a kernel of the
compiler costs), one over many parameters (what checking each costs), and single operators by themselves.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from referee.bench.measure import measure
from referee.bench.plan import Plan
from referee.device.host import load_torch
from referee.device.protocol import Device
from referee.errors import CannotTell
from referee.records.measurement import Measurement
from referee.remedy.recording import Op, record, replay_ns
from referee.units import NS_PER_MS

ALONE_ELEMENTS = 1 << 16
"""A pointwise operator is timed by itself on so many elements: few enough for the cache, enough to outweigh a call."""
_PLAN = Plan(budget_ns=60 * NS_PER_MS, min_ns=30 * NS_PER_MS, clocks=("settled_amortised",))
_PRODUCTS = 8
_MANY = 24


@dataclass(frozen=True, eq=False)
class CompiledCosts:
    """Costs in nanoseconds; each is measured once, and only where it is asked for."""

    device: Device
    _known: dict[object, float] = field(default_factory=dict)

    @cached_property
    def entry_ns(self) -> float:
        """Entering a compiled function of one input, its only kernel left out."""
        return max(0.0, self._trivial_ns - self.group_ns)

    @cached_property
    def _trivial_ns(self) -> float:
        x = load_torch().ones(16)
        return self._compiled_ns(lambda x: x + 1, x)

    @cached_property
    def _layer(self) -> tuple[Any, Any, Any]:
        """Input, weight and bias of a small linear layer, the commonest product."""
        torch = load_torch()
        return torch.rand(16, 16), torch.eye(16), torch.zeros(16)

    @cached_property
    def _products_ns(self) -> tuple[float, float]:
        """A call with eight small products, and one with pointwise work after each of them."""
        linear = load_torch().nn.functional.linear

        def plain(x: Any, w: Any, b: Any) -> Any:
            for _ in range(_PRODUCTS):
                x = linear(x, w, b)
            return x

        def mixed(x: Any, w: Any, b: Any) -> Any:
            for _ in range(_PRODUCTS):
                x = linear(x, w, b).relu()
            return x

        return self._compiled_ns(plain, *self._layer), self._compiled_ns(mixed, *self._layer)

    @cached_property
    def group_ns(self) -> float:
        """One kernel of the compiler between two products: the call and its buffer."""
        plain, mixed = self._products_ns
        return max(300.0, (mixed - plain) / _PRODUCTS)

    @cached_property
    def product_ns(self) -> float:
        """What a small product costs from the compiled wrapper more than issued one by one (may be below zero)."""
        linear = load_torch().nn.functional.linear
        x, w, b = self._layer

        def eight() -> Any:
            y = x
            for _ in range(_PRODUCTS):
                y = linear(y, w, b)
            return y

        with load_torch().no_grad():
            recording = record(eight, device=self.device)
        times = replay_ns(recording, device=self.device)
        alone = [took for op, took in zip(recording.ops, times, strict=True) if op.kind == "product"]
        plain, _ = self._products_ns
        return (plain - self.entry_ns - 2 * self.parameter_ns) / _PRODUCTS - float(np.median(alone))

    @cached_property
    def parameter_ns(self) -> float:
        """Checking and handing over one more parameter."""
        torch = load_torch()
        model = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(16)) for _ in range(_MANY)])

        def summed(x: Any) -> Any:
            for parameter in model:
                x = x + parameter
            return x

        x = torch.ones(16)
        return max(0.0, (self._compiled_ns(summed, x) - self._trivial_ns) / _MANY)

    @cached_property
    def tape_ns(self) -> float:
        """What entering costs more where gradients are recorded: the compiled graph becomes a node of its own."""
        torch = load_torch()
        x, weight = torch.ones(16), torch.ones(16, requires_grad=True)

        def scaled(x: Any) -> Any:
            return x * weight

        return max(0.0, self._compiled_ns(scaled, x, grad=True) - self._compiled_ns(scaled, x))

    @cached_property
    def module_ns(self) -> float:
        """Checking one more module, its parameter left out."""
        torch = load_torch()
        model, x = torch.nn.Sequential(*[torch.nn.PReLU() for _ in range(_MANY)]), torch.ones(16)
        whole_ns = self._compiled_ns(lambda x: model(x), x)
        return max(0.0, (whole_ns - self._trivial_ns) / _MANY - self.parameter_ns)

    @cached_property
    def recurrent_ns(self) -> float:
        """What a recurrent module, which the compiler leaves to eager, costs more inside a compiled function."""
        torch = load_torch()
        cells = torch.nn.LSTM(4, 4, batch_first=True).eval()
        x = torch.rand(1, 1, 4)

        def within(x: Any) -> Any:
            return cells(x)[0][:, -1] + 1

        return max(0.0, self._compiled_ns(within, x) - self._ns(lambda: within(x)))

    @cached_property
    def arithmetic_ns(self) -> float:
        """One addition or product more, per element, in a kernel that has the element in a register already."""
        x = load_torch().rand(ALONE_ELEMENTS)

        def chain(x: Any) -> Any:
            y = x
            for _ in range(16):
                y = (y + x) * x
            return y

        one = self._compiled_ns(lambda x: x + 1, x)
        return max(0.0, (self._compiled_ns(chain, x) - one) / (31 * ALONE_ELEMENTS))

    def stream_ns(self, *, read: float, written: float, fresh: Sequence[float]) -> float:
        """Moving so many bytes through a kernel; ``fresh``: the sizes of what it writes into memory that is new."""
        if not read + written:
            return 0.0
        moved_ns, _ = self._stream((read + written) / 2)
        return moved_ns * (read + written) + sum(size * self._stream(size)[1] for size in fresh)

    def _stream(self, size: float) -> tuple[float, float]:
        """For arrays of about this size: ns per byte read or written, and ns more per byte written into new memory.

        New memory of the very size is asked for: allocators change their way at thresholds.
        """
        elements = max(1024, int(size) // 4)
        if ("stream", elements) not in self._known:
            torch = load_torch()
            x = torch.ones(elements)
            out, small, empty = torch.empty_like(x), torch.ones(4), torch.empty(4)
            call_ns = self._ns(lambda: torch.add(small, 1.0, out=empty))
            over_ns = self._ns(lambda: torch.add(x, 1.0, out=out))
            new_ns = self._ns(lambda: torch.add(x, 1.0))
            self._known["stream", elements] = max(1e-4, (over_ns - call_ns) / (8 * elements))
            self._known["new", elements] = max(0.0, (new_ns - over_ns) / (4 * elements))
        return self._known["stream", elements], self._known["new", elements]

    def alone_ns(
        self, op: Op, args: Sequence[Any], *, after: Op | None = None, rest: Sequence[Any] = ()
    ) -> float | None:
        """The operator compiled by itself (or with the reduction after it), without entering and its call.

        ``args`` are arguments to call it with; ``rest`` those of the second beyond the first one's output. ``None``
        where the compiler or the operator refuses.
        """
        key = (op.name, _signature(args, op.kwargs), None if after is None else (after.name, repr(list(rest))))
        if key not in self._known:
            self._known[key] = self._time_alone(op, args, after, rest)
        found = self._known[key]
        return None if found < 0 else found

    def _time_alone(self, op: Op, args: Sequence[Any], after: Op | None, rest: Sequence[Any]) -> float:
        torch = load_torch()
        call, kwargs, fixed = op.call, dict(op.kwargs), list(args)
        places = [k for k, value in enumerate(fixed) if isinstance(value, torch.Tensor)]

        def function(*tensors: Any) -> Any:
            given = list(fixed)
            for place, tensor in zip(places, tensors, strict=True):
                given[place] = tensor
            made = call(*given, **kwargs)
            first = made[0] if isinstance(made, (tuple, list)) else made
            return first if after is None else after.call(first, *rest)

        try:
            took = self._compiled_ns(function, *(fixed[place] for place in places))
        except Exception:  # noqa: BLE001 - a compiler fails in any way it likes; then nothing is known of this operator
            return -1.0
        return max(0.0, took - self.entry_ns - self.group_ns)

    def eager_ns(self, op: Op, args: Sequence[Any]) -> float:
        """The operator by itself as it is."""
        return self._ns(lambda: op.call(*args, **op.kwargs))

    def _compiled_ns(self, function: Callable[..., Any], *inputs: Any, grad: bool = False) -> float:
        torch = load_torch()
        # A code object of its own: the compiler counts recompilations by code object and gives up after eight.
        code = function.__code__.replace(co_name=f"micro_{id(function):x}")
        own = types.FunctionType(code, function.__globals__, code.co_name, function.__defaults__, function.__closure__)
        compiled = torch.compile(own, dynamic=False)
        with torch.set_grad_enabled(grad):
            compiled(*inputs)
        return self._ns(lambda: compiled(*inputs), grad=grad)

    def _ns(self, step: Callable[[], object], *, grad: bool = False) -> float:
        with load_torch().set_grad_enabled(grad):
            return time_of(measure(step, device=self.device, plan=_PLAN, name="micro-benchmark"))


def _signature(inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[object, ...]:
    torch = load_torch()

    def one(value: Any) -> object:
        if isinstance(value, torch.Tensor):
            return (tuple(value.shape), tuple(value.stride()), str(value.dtype))
        return repr(value)

    return (*map(one, inputs), *((name, one(value)) for name, value in sorted(kwargs.items())))


def time_of(found: Measurement) -> float:
    """The best figure a measurement has for a prediction: its median, its floor, or the least sample of a busy machine.

    Raises :class:`~referee.errors.CannotTell` where it has none.
    """
    least = min((float(sample) for sample in found.samples_ns if sample > 0), default=0.0)
    best = float(found.median_ns or found.floor_ns or least)
    if best <= 0:
        raise CannotTell(f"{found.name} could not be timed.")
    return best
