"""Which operators does the step issue, on what, and how long does each take amid the others?

The operators of one call, below autograd, are kept with the flow of data between them, so that they can be issued once
more one by one and each be timed in its own place: caches, allocations and freed memory are as in the step, which a
loop over one operator has not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from referee.device.host import load_torch
from referee.device.protocol import Device
from referee.device.settle import find_leaves
from referee.remedy.content import Kind, kind_of

GATHERS = frozenset({"embedding", "index", "index_select", "gather"})
"""Operators that read of a table only what they return."""
MOST_BYTES = 1 << 30
"""What operators return is held until the call is over, so that tensors can be told apart; no more than this."""
_ROUNDS, _ROUNDS_NS = 9, 1_500_000_000
"""Rounds of replay: nine where they fit this time, never fewer than three."""
_SHORT_ROUNDS, _SHORT_NS = 61, 200_000_000
"""Short steps are replayed up to so many times within this time: nine rounds fit into one slow episode."""


@dataclass(frozen=True)
class Made:
    """An argument that an earlier operator returned: the operator's number and the place among its tensors."""

    op: int
    leaf: int


@dataclass(frozen=True, eq=False)
class Op:
    """One operator as it was issued. ``reads`` are the tensors it was given, ``writes`` those it returned."""

    name: str
    call: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    kind: Kind
    optimizer: bool
    reads: tuple[tuple[int, int, int], ...]
    """For each tensor read: the number of its memory, elements, bytes."""
    writes: tuple[tuple[int, int, int], ...]
    in_place: bool

    @property
    def elements(self) -> int:
        """Of the largest tensor it touches."""
        return max((count for _, count, _ in (*self.reads, *self.writes)), default=0)

    @property
    def short(self) -> str:
        """``add`` of ``aten::add``."""
        return self.name.removeprefix("aten::").partition(".")[0]


@dataclass(eq=False)
class Recording:
    """The operators of one call in order; ``kept`` are the numbers of memory that outlive the call."""

    ops: list[Op] = field(default_factory=list)
    kept: set[int] = field(default_factory=set)
    module_calls: int = 0
    total_bytes: int = 0
    complete: bool = True

    @property
    def inputs(self) -> int:
        """How many different tensors' memory the call reads that it has not made itself."""
        made: set[int] = set()
        entered: set[int] = set()
        for op in self.ops:
            entered.update(memory for memory, _, _ in op.reads if memory not in made)
            made.update(memory for memory, _, _ in op.writes if memory not in entered)
        return len(entered)

    def groups(self) -> Iterator[list[int]]:
        """Runs of operators that a compiler may join: those between two products, outside of the optimizer."""
        run: list[int] = []
        for number, op in enumerate(self.ops):
            if op.kind == "product" or op.optimizer:
                if run:
                    yield run
                run = []
            elif op.kind in ("fused", "replaced", "random"):
                run.append(number)
        if run:
            yield run

    def traffic(self, run: Sequence[int]) -> Traffic:
        """What one kernel for this run must move: what it is given, and what others read of it or outlives the call."""
        made: dict[int, int] = {}
        read: dict[int, int] = {}
        written: dict[int, int] = {}
        for number in run:
            op = self.ops[number]
            most = max((size for _, _, size in op.writes), default=0) if op.short in GATHERS else MOST_BYTES
            read.update((memory, min(size, most)) for memory, _, size in op.reads if memory not in made)
            if op.in_place:
                written.update((memory, size) for memory, _, size in op.writes if memory not in made)
            else:
                made.update((memory, size) for memory, _, size in op.writes)
        later = {memory for op in self.ops[run[-1] + 1 :] for memory, _, _ in op.reads} | self.kept
        fresh = [size for memory, size in made.items() if memory in later]
        inside = sum(size for memory, size in made.items() if memory not in later)
        return Traffic(sum(read.values()), sum(written.values()) + sum(fresh), tuple(fresh), inside)


@dataclass(frozen=True)
class Traffic:
    """Bytes that a fused kernel reads and writes, what it writes into new memory one by one, and what it keeps to
    itself: written and read again when each operator is a kernel of its own."""

    read: int
    written: int
    fresh: tuple[int, ...]
    inside: int


def record(step: Callable[[], object], *, device: Device) -> Recording:
    """Call ``step`` once and keep what it issued. What it raises passes through."""
    from torch.nn.modules.module import register_module_forward_pre_hook
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    found = Recording()
    watch = _watch(found)

    def count_module(*_: Any) -> None:
        found.module_calls += 1

    def enter(*_: Any) -> None:
        watch.optimizing = True

    def leave(*_: Any) -> None:
        watch.optimizing = False

    hooks = (
        register_module_forward_pre_hook(count_module),
        register_optimizer_step_pre_hook(enter),
        register_optimizer_step_post_hook(leave),
    )
    try:
        with watch:
            output = step()
        device.settle(output)
    finally:
        for hook in hooks:
            hook.remove()
    found.kept = {_memory(leaf) for leaf in find_leaves(output, load_torch().Tensor)}
    watch.held.clear()
    return found


def _watch(found: Recording) -> Any:
    from referee.device.dispatch_mode import ListeningMode

    torch = load_torch()

    class Watch(ListeningMode):
        def __init__(self) -> None:
            super().__init__()
            self.optimizing = False
            self.held: dict[int, tuple[Any, Made]] = {}

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            from torch.utils._pytree import tree_map

            kwargs = kwargs or {}
            given = find_leaves((args, kwargs), torch.Tensor)
            reads = tuple(map(_size, given))

            def reference(value: Any) -> Any:
                return self.held[id(value)][1] if id(value) in self.held else value

            kept_args, kept_kwargs = tree_map(reference, args), tree_map(reference, kwargs)
            output = func(*args, **kwargs)
            made = find_leaves(output, torch.Tensor)
            found.total_bytes += sum(leaf.numel() * leaf.element_size() for leaf in made)
            if found.total_bytes > MOST_BYTES:
                found.complete = False
                self.held.clear()
                return output
            name = str(func._schema.name)
            found.ops.append(
                Op(
                    name=name,
                    call=func,
                    args=tuple(kept_args),
                    kwargs=kept_kwargs,
                    kind=kind_of(name),
                    optimizer=self.optimizing,
                    reads=reads,
                    writes=tuple(map(_size, made)),
                    in_place=bool(func._schema.is_mutable),
                )
            )
            for place, leaf in enumerate(made):
                self.held[id(leaf)] = (leaf, Made(len(found.ops) - 1, place))
            return output

    return Watch()


def _memory(tensor: Any) -> int:
    try:
        return int(tensor.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):  # sparse and lazy tensors have none
        return id(tensor)


def _size(tensor: Any) -> tuple[int, int, int]:
    return _memory(tensor), int(tensor.numel()), int(tensor.numel() * tensor.element_size())


def replay_beside_ns(recording: Recording, step: Callable[[], object], *, device: Device) -> tuple[list[float], float]:
    """Each operator's time, and that of the whole step called in between: what slows a machine slows both."""
    whole: list[int] = []

    def call() -> None:
        start_ns = time.perf_counter_ns()
        device.settle(step())
        whole.append(time.perf_counter_ns() - start_ns)

    times = replay_ns(recording, device=device, between=call)
    return times, float(median(whole[1:] or whole))


def replay_ns(recording: Recording, *, device: Device, between: Callable[[], object] = lambda: None) -> list[float]:
    """Each operator's time in its own place, in order: the median over rounds, issued as torch's own objects are.

    ``between`` is called before each round.
    An operator that cannot be issued again (it reads a value back, it frees what it was given) counts as nothing.
    """
    torch = load_torch()
    ops = recording.ops
    last_use = _last_uses(ops)
    samples: list[list[int]] = [[] for _ in ops]
    begun_ns = time.perf_counter_ns()
    for done in range(_SHORT_ROUNDS):
        spent_ns = time.perf_counter_ns() - begun_ns
        if done >= _ROUNDS and spent_ns > _SHORT_NS:
            break
        # In the caller's own grad mode: a step that trains needs its tape.
        between()
        with torch.no_grad():
            _issue(ops, last_use, samples, settle=device.settle if device.name != "cpu" else None)
        if done >= 2 and time.perf_counter_ns() - begun_ns > _ROUNDS_NS:
            break
    return [median(taken[1:] or taken) if taken else 0.0 for taken in samples]


def _issue(
    ops: Sequence[Op],
    last_use: Mapping[int, Sequence[int]],
    samples: Sequence[list[int]],
    *,
    settle: Callable[[object], None] | None,
) -> None:
    """Issue all operators once in order, and add each one's time to its samples."""
    from torch.utils._pytree import tree_map

    torch = load_torch()
    results: dict[int, list[Any]] = {}

    def value(item: Any) -> Any:
        return results[item.op][item.leaf] if isinstance(item, Made) else item

    for number, op in enumerate(ops):
        try:
            args, kwargs = tree_map(value, op.args), tree_map(value, op.kwargs)
            start_ns = time.perf_counter_ns()
            output = op.call(*args, **kwargs)
            if settle is not None:
                settle(output)
            samples[number].append(time.perf_counter_ns() - start_ns)
        except (RuntimeError, KeyError, IndexError, TypeError):
            continue
        results[number] = find_leaves(output, torch.Tensor)
        del output, args, kwargs
        for gone in last_use.get(number, ()):
            results.pop(gone, None)


def examples(recording: Recording, numbers: Sequence[int]) -> dict[int, list[Any]]:
    """The arguments of these operators as they are when their turn comes, copied."""
    from torch.utils._pytree import tree_map

    torch = load_torch()
    results: dict[int, list[Any]] = {}
    found: dict[int, list[Any]] = {}

    def value(item: Any) -> Any:
        return results[item.op][item.leaf] if isinstance(item, Made) else item

    last_use = _last_uses(recording.ops)
    with torch.no_grad():
        for number, op in enumerate(recording.ops):
            try:
                args, kwargs = tree_map(value, op.args), tree_map(value, op.kwargs)
                if number in numbers:
                    found[number] = [a.detach().clone() if isinstance(a, torch.Tensor) else a for a in args]
                results[number] = find_leaves(op.call(*args, **kwargs), torch.Tensor)
            except (RuntimeError, KeyError, IndexError, TypeError):
                continue
            for gone in last_use.get(number, ()):
                results.pop(gone, None)
    return found


def _last_uses(ops: Sequence[Op]) -> dict[int, list[int]]:
    """After which operator is nobody left who reads an earlier one's output?"""
    last: dict[int, int] = {}
    for number, op in enumerate(ops):
        last[number] = number
        for item in find_leaves((op.args, dict(op.kwargs)), Made):
            last[item.op] = number
    gone: dict[int, list[int]] = {}
    for made, used in last.items():
        gone.setdefault(used, []).append(made)
    return gone
