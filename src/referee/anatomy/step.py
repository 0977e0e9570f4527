"""What does a whole step leave for backward, and what do the grad modes cost and save? Tape, modes, and what will hurt.

The step is called as it is, once in each mode for its tape and memory, and timed by the measuring engine. A step that
runs backward itself is looked at just before it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from referee.anatomy.dissect import mode_context
from referee.anatomy.held import named_tensors
from referee.anatomy.tape import count_nodes, read_tape
from referee.bench.measure import measure
from referee.bench.plan import Plan, ProgressCallback, no_progress
from referee.device.compilers import compile_counters
from referee.device.discover import discover
from referee.device.host import load_torch
from referee.device.memory import MemoryUse, measure_memory
from referee.device.observe import Observation, observe
from referee.device.protocol import Device
from referee.device.provenance import Source, collect, mark_machine
from referee.device.settle import find_leaves
from referee.errors import RefereeError
from referee.records.anatomy import Anatomy, ModeCost, Tape
from referee.records.finding import Finding
from referee.units import NS_PER_S, format_bytes

ModeName = Literal["grad", "no_grad", "inference_mode"]

_MODES: tuple[ModeName, ...] = ("grad", "no_grad", "inference_mode")

_REPEATS = 4
"""Calls after which a graph that is kept from step to step has visibly grown."""

BUDGET_NS = 3 * NS_PER_S


@dataclass(frozen=True, kw_only=True)
class Glance:
    """One call, looked at: its tape, whether it ran backward itself, and its output."""

    tape: Tape
    ran_backward: bool


def dissect_step(
    step: Callable[[], object],
    *,
    device: Device,
    name: str = "step",
    model: Any = None,
    rebuild: Callable[[], Callable[[], object]] | None = None,
    target: Source | None = None,
    seen: Observation | None = None,
    budget_ns: int = BUDGET_NS,
    progress: ProgressCallback = no_progress,
) -> Anatomy:
    """The tape of ``step``, its grad modes side by side, and findings about what autograd does with it.

    ``rebuild`` makes the step anew: with it, buffers that a first call makes are looked at, made in inference mode and
    used outside. What the step raises in grad mode passes through; in the other modes it is their answer.
    """
    before = mark_machine()
    observation = observe(step, device) if seen is None else seen
    glance = look(step, parameters=_parameters(step, model))
    tape = glance.tape
    findings = [
        *_inference_tensors(step),
        *(_lazy_buffers(rebuild) if rebuild is not None else ()),
        *_held_graphs(step),
    ]
    if not glance.ran_backward and tape.saved_bytes and _looks_like_inference(model):
        findings.append(_never_runs(tape))
    modes = tuple(
        _cost(step, mode, device=device, budget_ns=budget_ns // len(_MODES), seen=observation, progress=progress)
        for mode in _MODES
    )
    findings += _mode_compiles(modes)
    whole = modes[0]
    return Anatomy(
        op=name,
        entry="step()",
        mode="grad",
        whole_ns=whole.ns,
        whole_cold_ns=None,
        whole_ci_low_ns=whole.ci_low_ns,
        whole_ci_high_ns=whole.ci_high_ns,
        ci_level=0.95,
        stages=(),
        remainder_ns=None,
        remainder_low_ns=None,
        remainder_high_ns=None,
        per_tensor_ns=None,
        dispatch_path=(),
        tape=tape,
        provenance=collect(
            device,
            dtype=observation.dtype,
            shapes=observation.shapes,
            method={**observation.method, "clock": "settled_amortised", "budget_ns": budget_ns},
            target=target,
            before=before,
            switches=observation.switches,
        ),
        unseparated=("the stages of a step: they are those of its operators, one by one (referee anatomy OP)",),
        modes=modes,
        findings=tuple(findings),
    )


def look(step: Callable[[], object], *, parameters: Sequence[Any] = ()) -> Glance:
    """Call ``step`` once and read the tape: before its own backward pass, or behind what it returns."""
    tapes: list[Tape] = []
    with _before_backward(lambda tensors: tapes.append(read_tape(tensors, parameters=parameters))):
        output = step()
    if tapes:
        return Glance(tape=max(tapes, key=lambda tape: len(tape.nodes)), ran_backward=True)
    return Glance(tape=read_tape(output, parameters=parameters), ran_backward=False)


@contextmanager
def _before_backward(see: Callable[[object], None]) -> Iterator[None]:
    """Show the tensors of every backward pass to ``see`` before it runs."""
    torch = load_torch()
    backward = torch.autograd.backward

    def seen(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        see(tensors)
        return backward(tensors, *args, **kwargs)

    torch.autograd.backward = seen
    try:
        yield
    finally:
        torch.autograd.backward = backward


def _parameters(step: object, model: Any) -> list[Any]:
    torch = load_torch()
    found = list(model.parameters()) if isinstance(model, torch.nn.Module) else []
    return found + [t for t in named_tensors(step).values() if isinstance(t, torch.nn.Parameter)]


def _cost(
    step: Callable[[], object],
    mode: ModeName,
    *,
    device: Device,
    budget_ns: int,
    seen: Observation,
    progress: ProgressCallback,
) -> ModeCost:
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
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return ModeCost(mode=mode, ns=None, ci_low_ns=None, ci_high_ns=None, why_not=lines[0][:160])
    return ModeCost(
        mode=mode,
        ns=found.median_ns,
        ci_low_ns=found.ci_low_ns,
        ci_high_ns=found.ci_high_ns,
        saved_bytes=glance.tape.saved_bytes,
        peak_bytes=memory.peak_bytes if memory is not None else None,
        nodes=len(glance.tape.nodes),
        allocations=memory.allocations if memory is not None else None,
        intermediates=intermediates,
        compiles=compiles,
    )


def _memory(step: Callable[[], object], device: Device) -> MemoryUse | None:
    try:
        return measure_memory(step, device)
    except RefereeError:  # this device's allocator cannot be watched
        return None


def count_intermediates(step: Callable[[], object]) -> int:
    """How many tensors with memory of their own do the operators of one call return? Views count for nothing."""
    from torch.utils._python_dispatch import TorchDispatchMode

    torch = load_torch()
    made = 0

    class Counter(TorchDispatchMode):  # type: ignore[misc]
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


def _inference_tensors(step: object) -> list[Finding]:
    """Parameters and buffers that were made in inference mode: where that will hurt, before it does."""
    torch = load_torch()
    found: list[Finding] = []
    for name, tensor in named_tensors(step).items():
        if not tensor.is_inference():
            continue
        trained = isinstance(tensor, torch.nn.Parameter) and tensor.requires_grad
        message = (
            f"Parameter {name} was made in inference mode: backward leaves it without a gradient or fails, "
            "and updating it raises"
            if trained
            else f"{name} was made in inference mode: updating it in place or saving it for backward raises outside"
        )
        found.append(
            Finding(
                code="inference-tensor",
                severity="warning",
                message=message,
                evidence={"name": name, "trained": trained},
                hint="Build the model outside of inference_mode, or clone the tensor outside of it.",
            )
        )
    return found


def _lazy_buffers(rebuild: Callable[[], Callable[[], object]]) -> list[Finding]:
    """What a first call makes when it runs in inference mode, and whether a call outside can go on with it."""
    torch = load_torch()
    try:
        step = rebuild()
        before = set(named_tensors(step))
        already = {name for name, tensor in named_tensors(step).items() if tensor.is_inference()}
        with torch.inference_mode():
            step()
        made = {n: t for n, t in named_tensors(step).items() if t.is_inference() and n not in already}
    except (RuntimeError, TypeError):  # a step that trains does not run in inference mode at all
        return []
    found: list[Finding] = []
    for name in made:
        when = "made" if name not in before else "replaced"
        fails = _fails_outside(step)
        after = f"; a later call under no_grad fails: {fails}" if fails else "; updating it in place later would fail"
        found.append(
            Finding(
                code="inference-tensor",
                severity="warning",
                message=f"{name} is {when} by a first call, and is an inference tensor if that runs in inference mode"
                f"{after}",
                evidence={"name": name, "fails": bool(fails)},
                hint="Warm up in the mode that serves.",
            )
        )
    return found


def _fails_outside(step: Callable[[], object]) -> str:
    try:
        with load_torch().no_grad():
            step()
    except RuntimeError as error:
        return str(error).strip().splitlines()[0][:120]
    return ""


def _held_graphs(step: Callable[[], object]) -> list[Finding]:
    """Variables whose graph grows from call to call: they keep the saved tensors of every step alive."""
    step()
    first = _graph_sizes(step)
    for _ in range(_REPEATS):
        step()
    found: list[Finding] = []
    for name, (nodes, held_bytes) in _graph_sizes(step).items():
        earlier = first.get(name, (0, 0))[0]
        grown = nodes - earlier
        if grown < _REPEATS:
            continue
        found.append(
            Finding(
                code="graph-held",
                severity="warning",
                message=f"{name} keeps the graphs of earlier steps: {earlier} nodes became {nodes} in {_REPEATS} calls"
                f" ({format_bytes(held_bytes)} of saved tensors)",
                evidence={"name": name, "nodes": nodes, "nodes_per_call": grown / _REPEATS, "saved_bytes": held_bytes},
                hint="Accumulate loss.detach() or loss.item().",
            )
        )
    return found


def _graph_sizes(step: object) -> dict[str, tuple[int, int]]:
    sizes: dict[str, tuple[int, int]] = {}
    for name, tensor in named_tensors(step).items():
        if tensor.grad_fn is not None:
            sizes[name] = (count_nodes(tensor), read_tape(tensor).saved_bytes)
    return sizes


def _looks_like_inference(model: Any) -> bool:
    """A model in eval mode, or none that says otherwise."""
    return model is not None and not getattr(model, "training", True)


def _never_runs(tape: Tape) -> Finding:
    return Finding(
        code="backward-never-runs",
        severity="warning",
        message=f"{format_bytes(tape.saved_bytes)} are saved in each call for a backward pass that never runs: "
        "eval() switches layers, it does not stop autograd",
        evidence={"saved_bytes": tape.saved_bytes, "nodes": len(tape.nodes)},
        hint="Wrap it in torch.no_grad() or torch.inference_mode().",
    )


def _mode_compiles(modes: Sequence[ModeCost]) -> list[Finding]:
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
