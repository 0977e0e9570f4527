"""What should compiling gain here? Eager's time against what the same operators should take as compiled code.

The step is recorded operator by operator and each is timed in its place. Of the compiled step, products keep their
library call; each run of other operators between two products becomes one kernel, which moves what it must and computes
what its operators cost when compiled by themselves. All costs are micro-benchmarks of this machine; nothing is fitted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from referee.device.host import load_torch
from referee.errors import CannotTell
from referee.records.remedy import Prediction
from referee.remedy.compiled_costs import ALONE_ELEMENTS, CompiledCosts
from referee.remedy.recording import GATHERS, Op, Recording, examples, replay_beside_ns, replay_ns

REPLACED_FRAC = 0.2
"""Where more than a fifth of the operators' time is in code that the compiler writes anew, measure it."""

_MOST_ALONE = 12
_LEAST_SHARE = 0.01
"""Operators that take this share of the step are timed by themselves, twelve of different kinds at most."""
_LEAST_ROWS_ELEMENTS = 1 << 15
_COSTLY = frozenset(["div", "div_", "addcdiv", "addcdiv_", "reciprocal", "remainder", "fmod", "atan2", "lerp"])
"""Fused operators whose arithmetic is more than an addition."""
_POINTWISE = frozenset(
    [
        "exp",
        "log",
        "sin",
        "cos",
        "tan",
        "tanh",
        "sigmoid",
        "gelu",
        "erf",
        "pow",
        "sqrt",
        "rsqrt",
        "silu",
        "softplus",
        "div",
        "div_",
        "addcdiv",
        "addcdiv_",
        "reciprocal",
        "sqrt_",
        "exp_",
        "sigmoid_",
        "tanh_",
        "log1p",
        "expm1",
        "mish",
        "hardswish",
        "elu",
    ]
)
_REDUCTIONS = frozenset(["mean", "sum", "amax", "amin"])
_REDUCING = _REDUCTIONS | frozenset({"native_layer_norm", "_softmax", "_log_softmax", "var_mean", "logsumexp"})
_LIBRARY = frozenset({"mm", "addmm", "bmm", "baddbmm"})
"""Products that the compiled wrapper calls in the library directly."""
_RECURRENT = frozenset(["mkldnn_rnn_layer", "_cudnn_rnn", "lstm", "gru"])
"""The compiler leaves these modules to eager and breaks its graph around them."""
_UNKNOWN_LOW, _UNKNOWN_HIGH = 0.3, 2.2
"""Code written anew was seen to take 0.3 (batch norm and pooling on one thread) to 2.2 times (gather and mean)."""


@dataclass(frozen=True)
class _Part:
    """One part of the compiled step's time, and by which factor it may be off.

    Parts of one ``kind`` stand on the same micro-benchmark and are off together; those of different kinds by
    themselves.
    """

    kind: str
    ns: float
    off: float
    low_ns: float | None = None
    high_ns: float | None = None

    @property
    def below(self) -> float:
        return self.ns - (self.ns / self.off if self.low_ns is None else self.low_ns)

    @property
    def above(self) -> float:
        return (self.ns * self.off if self.high_ns is None else self.high_ns) - self.ns


def _spread(parts: Sequence[_Part]) -> tuple[float, float]:
    """How far below and above their sum the parts may lie."""
    kinds = {part.kind for part in parts}
    return tuple(  # type: ignore[return-value]  # two of them
        math.hypot(*(sum(getattr(part, side) for part in parts if part.kind == kind) for kind in kinds))
        for side in ("below", "above")
    )


_ENTRY_OFF, _PRODUCT_OFF, _KERNEL_OFF, _STREAM_OFF, _ALONE_OFF = 1.35, 1.06, 1.5, 1.4, 1.35
"""By which factor a part may be off: spreads of these micro-benchmarks between places in a step and between runs."""
_STEP_OFF = 0.06
"""Eager's own time and memory layout, between two runs of one step."""
_DISTURBED = 3.0
"""The same operators one by one take about as long as the step; where they take three times as long, threads had to
wait for others that had lost their core, and no guess can stand on that."""
_LONG_NS = 1_000_000.0
"""Steps longer than this are called between the operators: slow episodes of a shared machine last longer."""


def guess_compile(
    recording: Recording,
    *,
    costs: CompiledCosts,
    step_ns: float,
    step: Callable[[], object] | None = None,
    trains: bool = False,
    records: bool = False,
) -> Prediction:
    """The range of compiled time over eager time, with its middle where the parts add up.

    ``step_ns`` is eager's time per call; with ``step`` a long one is timed again between the operators. ``records``:
    gradients are recorded and no backward runs. Raises :class:`~referee.errors.CannotTell` where the operators were
    disturbed while they were timed.
    """
    if step is None or step_ns < _LONG_NS:
        times = replay_ns(recording, device=costs.device)
    else:
        times, step_ns = replay_beside_ns(recording, step, device=costs.device)
    if sum(times) > _DISTURBED * step_ns:
        raise CannotTell("The operators issued one by one took far longer than the step: other work disturbed them.")
    parts = [
        *_entering(recording, costs, records=records),
        *_products(recording, times, costs),
        *_kernels(recording, times, costs),
    ]
    total_ns = sum(part.ns for part in parts)
    kept_ns = _kept_ns(recording, times, step_ns=step_ns)
    below_ns, above_ns = _spread(parts)
    share, named = _replaced(recording, times)
    wide = 1.3 if trains else 1.0
    floor = 0.01 * step_ns
    return Prediction(
        low=max(floor, ((total_ns - below_ns) / wide + kept_ns) * (1 - _STEP_OFF)) / step_ns,
        high=max(floor, ((total_ns + above_ns) * wide + kept_ns) * (1 + _STEP_OFF)) / step_ns,
        middle=max(floor, total_ns + kept_ns) / step_ns,
        basis=_basis(recording, costs, share),
        measure_it=named[:5] if share > REPLACED_FRAC else (),
    )


def _entering(recording: Recording, costs: CompiledCosts, *, records: bool = False) -> list[_Part]:
    ns = costs.entry_ns + recording.inputs * costs.parameter_ns + (costs.tape_ns if records else 0.0)
    if recording.module_calls:
        ns += recording.module_calls * costs.module_ns
    parts = [_Part("entry", ns, _ENTRY_OFF)]
    recurrent = sum(op.short in _RECURRENT for op in recording.ops)
    if recurrent:
        parts.append(_Part("recurrent", recurrent * costs.recurrent_ns - costs.entry_ns, _ENTRY_OFF))
    return parts


def _kept_ns(recording: Recording, times: Sequence[float], *, step_ns: float) -> float:
    """What stays eager: the optimizer, and modules that the compiler leaves alone with all they do around them."""
    kept = _left_alone(recording)
    if not kept:
        return 0.0
    share = sum(times[number] for number in kept) / max(1.0, sum(times))
    return share * step_ns


def _around(ops: Sequence[Op], number: int) -> range:
    """The operators of the module that a recurrent operator belongs to: up to the products on either side."""
    low, high = number, number
    while low > 0 and ops[low - 1].kind != "product":
        low -= 1
    while high + 1 < len(ops) and ops[high + 1].kind != "product":
        high += 1
    return range(low, high + 1)


def _left_alone(recording: Recording) -> set[int]:
    """The operators of the optimizer, and those of modules that the compiler leaves to eager."""
    found = {number for number, op in enumerate(recording.ops) if op.optimizer}
    for number, op in enumerate(recording.ops):
        if op.short in _RECURRENT:
            found.update(_around(recording.ops, number))
    return found


def _products(recording: Recording, times: Sequence[float], costs: CompiledCosts) -> list[_Part]:
    left = _left_alone(recording)
    numbers = [n for n, op in enumerate(recording.ops) if op.kind == "product" and n not in left]
    if not numbers:
        return []
    special = [n for n in numbers if recording.ops[n].short not in _LIBRARY]
    args = examples(recording, special)
    total, apart = 0.0, []
    for number in numbers:
        if number in args:
            op = recording.ops[number]
            make = _image_product if _is_image_product(op) else _fallback
            apart.append(make(op, args[number], times[number], costs))
        else:
            total += max(0.5 * times[number], times[number] + costs.product_ns)
    return [_Part("product", total, _PRODUCT_OFF), *apart]


def _fallback(op: Op, args: Sequence[Any], eager_ns: float, costs: CompiledCosts) -> _Part:
    """An operator without a place in the compiler: called through the dispatcher, with checks of what comes back."""
    took = costs.alone_ns(op, args)
    if took is None:
        return _Part("product", eager_ns, 1.15)
    more_ns = max(0.0, took + costs.group_ns - costs.eager_ns(op, args)) if eager_ns < _LONG_NS / 10 else 0.0
    return _Part("product", eager_ns + more_ns, 1.15)


def _is_image_product(op: Op) -> bool:
    return op.short in ("convolution", "_convolution")


def _image_product(op: Op, args: Sequence[Any], eager_ns: float, costs: CompiledCosts) -> _Part:
    """On the CPU the compiler lays images and weights out with the channels last, the weights anew in each call."""
    torch = load_torch()
    if costs.device.name != "cpu" or args[0].dim() != 4:
        return _Part("product", eager_ns + costs.product_ns, 1.15)
    last = [_channels_last(a) if isinstance(a, torch.Tensor) and a.dim() == 4 else a for a in args]
    changed_ns = costs.eager_ns(op, last) - costs.eager_ns(op, args)
    weight_ns = costs.group_ns + costs.stream_ns(
        read=args[1].numel() * 4, written=args[1].numel() * 4, fresh=(args[1].numel() * 4,)
    )
    ns = max(0.3 * eager_ns, eager_ns + changed_ns + costs.product_ns) + weight_ns
    return _Part("image", ns, 1.25)


def _channels_last(tensor: Any) -> Any:
    return tensor.contiguous(memory_format=load_torch().channels_last)


def _kernels(recording: Recording, times: Sequence[float], costs: CompiledCosts) -> list[_Part]:
    """One kernel per run: its call, what it moves, and what it computes."""
    left = _left_alone(recording)
    runs = [run for run in recording.groups() if not left & set(run)]
    computed = _Computed(recording, times, costs, runs)
    parts = []
    for run in runs:
        moved = recording.traffic(run)
        parts.append(_Part("kernel", costs.group_ns, _KERNEL_OFF))
        stream_ns = costs.stream_ns(read=moved.read, written=moved.written, fresh=moved.fresh)
        parts.append(_Part("stream", stream_ns, _STREAM_OFF))
        parts.extend(computed.part(number) for number in run)
        parts.extend(_reread(recording.ops[number], costs) for number in run[1:] if number not in computed.paired)
    return parts


def _reread(op: Op, costs: CompiledCosts) -> _Part:
    """A reduction needs its whole row before the next operator: what it is given is written once and read once more."""
    if op.short not in _REDUCING or not op.reads:
        return _Part("reread", 0.0, 1.0)
    size = float(op.reads[0][2])
    ns = costs.stream_ns(read=size, written=size, fresh=(size,))
    return _Part("reread", ns, 1.0, low_ns=0.0, high_ns=2 * ns)


class _Computed:
    """What each operator of a fused kernel computes, in time beyond moving data."""

    def __init__(
        self, recording: Recording, times: Sequence[float], costs: CompiledCosts, runs: Sequence[Sequence[int]]
    ) -> None:
        self._ops, self._times, self._costs = recording.ops, times, costs
        self._images = any(_is_image_product(op) for op in recording.ops) and costs.device.name == "cpu"
        wanted = [n for run in runs for n in run if self._is_costly(self._ops[n])]
        total = max(1.0, sum(times))
        kinds: dict[object, list[int]] = {}
        for number in wanted:
            op = self._ops[number]
            kinds.setdefault(
                op.short if op.short in _POINTWISE else (op.short, op.reads[:1][0][1:] if op.reads else ()), []
            ).append(number)
        shares = {kind: sum(times[n] for n in numbers) / total for kind, numbers in kinds.items()}
        chosen = [k for k in sorted(kinds, key=lambda k: -shares[k]) if shares[k] >= _LEAST_SHARE][:_MOST_ALONE]
        self._timed = {n for kind in chosen for n in kinds[kind]}
        self._pairs = self._find_pairs()
        self._args = examples(recording, sorted(self._timed))

    @property
    def paired(self) -> set[int]:
        """Reductions that are joined with the gather before them."""
        return set(self._pairs.values())

    @staticmethod
    def _is_costly(op: Op) -> bool:
        return op.kind == "replaced" or op.short in _COSTLY

    def _find_pairs(self) -> dict[int, int]:
        """Gathers whose rows are reduced at once: the compiler joins the two and no longer works on many at a time."""
        pairs = {}
        for number, op in enumerate(self._ops[:-1]):
            after = self._ops[number + 1]
            joined = op.writes and after.reads and after.reads[0][0] == op.writes[0][0]
            if op.short in GATHERS and after.short in _REDUCTIONS and joined:
                pairs[number] = number + 1
        return pairs

    def part(self, number: int) -> _Part:
        """The time that this operator adds."""
        op = self._ops[number]
        if number in self._pairs.values():
            return _Part("none", 0.0, 1.0)
        if not self._is_costly(op):
            return _Part("arithmetic", op.elements * self._costs.arithmetic_ns, _STREAM_OFF)
        if number not in self._timed or number not in self._args:
            guess = 0.3 * self._times[number]
            return _Part(op.short, guess, 1.0, low_ns=0.0, high_ns=self._times[number])
        found = self._alone(number)
        if found is None:
            took = self._times[number]
            return _Part(op.short, took, 1.0, low_ns=_UNKNOWN_LOW * took, high_ns=_UNKNOWN_HIGH * took)
        return _Part(op.short, found, _ALONE_OFF)

    def _alone(self, number: int) -> float | None:
        op, args = self._ops[number], list(self._args[number])
        if op.short in _POINTWISE:
            return self._pointwise(op, args)
        if number in self._pairs:
            after = self._ops[self._pairs[number]]
            took = self._costs.alone_ns(op, args, after=after, rest=after.args[1:])
            return None if took is None else max(0.0, took - self._moved_ns(op, 1.0, after=after))
        factor = 1.0
        if op.short not in GATHERS:
            args, factor = _enlarged(op, args)
        if self._images:
            args = [_channels_last(a) if hasattr(a, "dim") and a.dim() == 4 else a for a in args]
        took = self._costs.alone_ns(op, args)
        return None if took is None else max(0.0, took - self._moved_ns(op, factor)) / factor

    def _pointwise(self, op: Op, args: Sequence[Any]) -> float | None:
        torch = load_torch()
        made = [
            a.flatten().abs().add(0.1).repeat(-(-ALONE_ELEMENTS // max(1, a.numel())))[:ALONE_ELEMENTS]
            if isinstance(a, torch.Tensor) and a.dim() and a.is_floating_point()
            else a
            for a in args
        ]
        took = self._costs.alone_ns(op, made)
        if took is None:
            return None
        size = 4.0 * ALONE_ELEMENTS
        read = size * sum(isinstance(a, torch.Tensor) for a in made)
        moved = self._costs.stream_ns(read=read, written=size, fresh=() if op.in_place else (size,))
        return max(0.0, took - moved) / ALONE_ELEMENTS * op.elements

    def _moved_ns(self, op: Op, factor: float, *, after: Op | None = None) -> float:
        written = [size * factor for _, _, size in (after or op).writes[:1]]
        read = op.reads if op.short not in GATHERS else op.writes[:1]
        return self._costs.stream_ns(
            read=factor * sum(size for _, _, size in read), written=sum(written), fresh=tuple(written)
        )


def _enlarged(op: Op, args: Sequence[Any]) -> tuple[list[Any], float]:
    """Arguments with more rows where there are few, so that the operator's time stands out; and how many times."""
    torch = load_torch()
    first = next((a for a in args if isinstance(a, torch.Tensor) and a.dim()), None)
    if first is None or not first.numel() or first.numel() >= _LEAST_ROWS_ELEMENTS:
        return list(args), 1.0
    times = -(-_LEAST_ROWS_ELEMENTS // first.numel())
    rows = first.shape[0]
    return [
        a.repeat(times, *[1] * (a.dim() - 1))
        if isinstance(a, torch.Tensor) and a.dim() == first.dim() and a.shape[0] == rows
        else a
        for a in args
    ], float(times)


def _replaced(recording: Recording, times: Sequence[float]) -> tuple[float, tuple[str, ...]]:
    """The share of the operators' time that is in code written anew, and those operators, the longest first."""
    by_name: dict[str, float] = {}
    for op, took in zip(recording.ops, times, strict=True):
        if op.kind == "replaced" and not op.optimizer:
            by_name[op.name] = by_name.get(op.name, 0.0) + took
    share = sum(by_name.values()) / max(1.0, sum(times))
    return share, tuple(sorted(by_name, key=lambda name: -by_name[name]))


def _basis(recording: Recording, costs: CompiledCosts, share: float) -> str:
    fused = sum(op.kind in ("fused", "replaced", "random") and not op.optimizer for op in recording.ops)
    products = sum(op.kind == "product" for op in recording.ops)
    kernels = sum(1 for _ in recording.groups())
    return (
        f"{products:,} products stay, {fused:,} operators become {kernels:,} kernels, "
        f"{costs.entry_ns / 1000:.0f} µs of entering and {recording.inputs:,} tensors to check come; "
        f"{100 * share:.0f} % of the operators' time is code written anew, timed by itself"
    )
