"""What does each grad mode cost a step, in time and in memory? Timed by the measuring engine, mode by mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from referee.anatomy.prepare import mode_context
from referee.anatomy.tape import read_dropped_tape, read_tape
from referee.bench.measure import measure
from referee.bench.plan import Plan, ProgressCallback
from referee.device.compilers import compile_counters
from referee.device.discover import discover
from referee.device.host import load_torch
from referee.device.memory import MemoryUse, measure_memory
from referee.device.observe import Observation
from referee.device.protocol import Device
from referee.device.settle import find_leaves
from referee.errors import RefereeError
from referee.records.anatomy import ModeCost, Tape
from referee.records.finding import Finding
from referee.records.measurement import Measurement

ModeName = Literal["grad", "no_grad", "inference_mode"]

MODES: tuple[ModeName, ...] = ("grad", "no_grad", "inference_mode")


@dataclass(frozen=True, kw_only=True)
class Glance:
    """One call, looked at: its tape, whether it ran backward itself or asked for gradients."""

    tape: Tape
    ran_backward: bool
    asked: bool = False
    """Whether it called ``torch.autograd.grad``, which leaves nothing at the parameters."""


def look(step: Callable[[], object], *, parameters: Sequence[Any] = ()) -> Glance:
    """Call ``step`` once and read the tape: before its own backward pass, or behind what it returns.

    Where no output carries a graph although operators recorded one, a second call under hooks says what they saved.
    """
    tapes: list[Tape] = []
    asked: list[object] = []
    with _before_backward(lambda tensors: tapes.append(read_tape(tensors, parameters=parameters)), asked=asked.append):
        output = step()
    if tapes:
        return Glance(tape=max(tapes, key=lambda tape: tape.size), ran_backward=True, asked=bool(asked))
    tape = read_tape(output, parameters=parameters)
    if not tape.size and not asked and load_torch().is_grad_enabled() and not discover(step).compiled:
        tape = read_dropped_tape(step, parameters=parameters) or tape
    return Glance(tape=tape, ran_backward=False, asked=bool(asked))


@contextmanager
def _before_backward(see: Callable[[object], None], *, asked: Callable[[object], None]) -> Iterator[None]:
    """Show the tensors of every backward pass to ``see`` before it runs; tell ``asked`` of ``torch.autograd.grad``."""
    torch = load_torch()
    backward, grad = torch.autograd.backward, torch.autograd.grad

    def seen(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        see(tensors)
        return backward(tensors, *args, **kwargs)

    def given(outputs: Any, *args: Any, **kwargs: Any) -> Any:
        asked(None)
        return grad(outputs, *args, **kwargs)

    torch.autograd.backward, torch.autograd.grad = seen, given
    try:
        yield
    finally:
        torch.autograd.backward, torch.autograd.grad = backward, grad


def mode_cost(
    step: Callable[[], object],
    mode: ModeName,
    *,
    device: Device,
    budget_ns: int,
    seen: Observation,
    progress: ProgressCallback,
) -> ModeCost:
    """The step in one mode: its time, tape and memory; what it raises there, other than in grad mode, is its answer."""
    context = mode_context("inference" if mode == "inference_mode" else mode)
    compiled_inside = bool(discover(step).compiled)  # a watching mode would make the compiler compile once more
    compiled = compile_counters()["compile.frames"]
    try:
        with context():
            glance = look(step)
            compiles = compile_counters()["compile.frames"] - compiled
            found = measure(step, device=device, plan=Plan(budget_ns=budget_ns), observation=seen, progress=progress)
            memory = _memory(step, device)
            intermediates = None if compiled_inside else count_intermediates(step)
    except (RuntimeError, TypeError) as error:
        if mode == "grad":
            raise
        return ModeCost(mode=mode, ns=None, ci_low_ns=None, ci_high_ns=None, why_not=_why_refused(error))
    return ModeCost(
        mode=mode,
        ns=found.median_ns,
        ci_low_ns=found.ci_low_ns,
        ci_high_ns=found.ci_high_ns,
        why_not=_why_untimed(found),
        saved_bytes=glance.tape.saved_bytes,
        peak_bytes=memory.peak_bytes if memory is not None else None,
        nodes=glance.tape.size,
        allocations=memory.allocations if memory is not None else None,
        intermediates=intermediates,
        compiles=compiles,
    )


def _why_refused(error: Exception) -> str:
    """What a mode without gradients refuses, in words; else the first line of what was raised."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    if "does not require grad and does not have a grad_fn" in lines[0]:
        return "the step runs backward itself, and no graph is recorded here"
    return lines[0][:160]


def _why_untimed(found: Measurement) -> str:
    """What kept the measurement from a number, in its own words."""
    if found.median_ns is not None:
        return ""
    return next((f.message for f in found.findings if f.severity == "fatal"), "no figure came out of the measurement")


def _memory(step: Callable[[], object], device: Device) -> MemoryUse | None:
    try:
        return measure_memory(step, device)
    except RefereeError:  # this device's allocator cannot be watched
        return None


def count_intermediates(step: Callable[[], object]) -> int:
    """How many tensors with memory of their own do the operators of one call return? Views count for nothing."""
    from referee.device.dispatch_mode import ListeningMode

    torch = load_torch()
    made = 0

    class Counter(ListeningMode):
        """Counts the outputs whose memory is no input's."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal made
            out = func(*args, **(kwargs or {}))
            given = {_memory_of(t) for t in find_leaves((args, kwargs), torch.Tensor)}
            made += len({_memory_of(t) for t in find_leaves(out, torch.Tensor)} - given - {None})
            return out

    with Counter():
        step()
    return made


def _memory_of(tensor: Any) -> int | None:
    try:
        return tensor.untyped_storage().data_ptr() or None
    except (RuntimeError, NotImplementedError):  # sparse and opaque tensors have no storage
        return None


def mode_compiles(modes: Sequence[ModeCost]) -> list[Finding]:
    """Whether a step compiled in one mode compiled again in the next."""
    again = [mode for mode in modes[1:] if mode.compiles]
    if not again:
        return []
    names = ", ".join(f"{mode.mode} {mode.compiles}" for mode in again)
    return [
        Finding(
            code="recompiled",
            severity="warning",
            message=f"A step compiled in grad mode compiles again in another mode: {names}",
            evidence={mode.mode: mode.compiles or 0 for mode in again},
            hint="Warm up in the mode that is served: the grad mode is guarded.",
        )
    ]
