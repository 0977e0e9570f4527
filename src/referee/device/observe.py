"""What does this step do? One untimed call, watched: what enters, what comes out, which operators, which switches.

A step that contains compiled code is called without watching, because the watching modes would make the compiler
compile it once more for them; then what is known comes from the step's closure and its outputs, and ``basis`` says so.
"""

from __future__ import annotations

import inspect
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from referee.device.discover import Held, discover
from referee.device.flops import cpu_ceiling_flop_per_s
from referee.device.host import load_torch
from referee.device.kept import Holdings, Kept
from referee.device.limits import what_limits
from referee.device.protocol import Device, HandsOver, NotesWrites, Settling
from referee.device.redundancy import Redundancy
from referee.device.settle import find_leaves
from referee.device.switches import autocast, grad_mode
from referee.device.training import training_mode
from referee.device.unwatched import told_grad_mode
from referee.device.values import Values, look_at
from referee.device.watchers import entering, read_watchers, watcher_findings
from referee.errors import OptionError
from referee.records.finding import Finding, Scalar
from referee.records.peaks import find_peak
from referee.records.provenance import NOT_READ, TensorSpec

if TYPE_CHECKING:
    import torch

    from referee.device.watching import Watch

Basis = Literal["operators", "closure"]


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What one call of a step was seen to do.

    ``shapes`` are the tensors that entered from outside; roles are ``input``, ``parameter``, ``buffer``, ``gradient``
    and ``state`` (an optimizer's). ``ops`` counts operators below autograd (backward included; composite operators
    are seen as their parts), ``n_ops`` is their sum. Casts are changes of floating dtype in this call, by who asked:
    ``autocast``, ``explicit`` (the user's own conversions), ``backward``. Where ``basis`` is ``closure`` the operators
    could not be watched and what concerns them is empty or ``None``.
    """

    dtype: str
    shapes: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    output: object
    """``None``, an unstarted coroutine or generator, or the name of the output's type: the output itself is gone."""
    basis: Basis
    call_ns: int
    """Host time of this one call, watching included, settled: where it was the first, first-time costs are in it."""
    ops: Mapping[str, int] = field(default_factory=dict)
    elements: int = 0
    """How many elements the operators read and made in all: what is made inside a step grows here."""
    random_ops: Mapping[str, int] = field(default_factory=dict)
    casts: Mapping[str, int] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    streams: int | None = None
    """How many streams work was put on (CUDA): above one, marks on the current stream may miss work."""
    zero_inputs: bool | None = None
    """Whether every input is all zeros; ``None`` where there is no input or it was not looked at."""
    mutated: tuple[TensorSpec, ...] = ()
    """What entered and was written to."""
    requires_grad: bool = False
    backward: bool | None = None
    grad_mode: str = "grad"
    autocast: str = "off"
    autocast_site: str = "nowhere"
    in_force: Mapping[str, Scalar] = field(default_factory=dict)
    """The process-wide switches, by their names in provenance, as most of the step's calls met them."""
    threads: int | None = None
    """How many intra-op threads most of the step's calls met; ``None`` where that was not watched."""
    training_mode: str = NOT_READ
    """Whether layers that ask for it are as in training or as in use."""
    compiled: str = "no"
    fill: str = "not read"
    nan_output: bool = False
    """Whether an output holds something that is no number."""
    values: Values | None = None
    """What the inputs hold; ``None`` where they were not seen."""
    flop: int | None = None
    """Floating-point operations of matrix products, convolutions and attention; ``None`` where nothing was watched.

    On a device that records, what need not run does not count.
    """
    arithmetic: tuple[str, ...] = ()
    """The dtypes that it is done in: not always the one that most elements have."""
    redundancy: Redundancy | None = None
    """What the step records and need not run, on a device that records."""
    kept: Kept | None = None
    """What the step held after the call, and what of it the call had added; ``None`` where that was not looked at."""
    findings: tuple[Finding, ...] = ()
    """What the reader should know before any number of this step is shown."""

    @property
    def n_ops(self) -> int:
        """How many operators ran below autograd; 0 where they could not be watched."""
        return sum(self.ops.values())

    def peak_flop_per_s(self, device: Device) -> float | None:
        """More arithmetic per second than this nothing does on ``device``: by its name, on the CPU measured here.

        ``None`` where neither is known, or where the step computes elsewhere as well.
        """
        kind = device.name.partition(":")[0]
        if any(used.partition(":")[0] not in (kind, "cpu") for used in self.devices):
            return None
        dtypes = self.arithmetic or (self.dtype,)
        if kind in ("cpu", "lazy"):
            return cpu_ceiling_flop_per_s(dtypes)
        peak = find_peak(str((device.describe() or {}).get("name", "")))
        autocast = self.autocast != "off"
        return None if peak is None else max(peak.most_flop_per_s(dtype, autocast=autocast) for dtype in dtypes)

    @property
    def switches(self) -> Mapping[str, Scalar]:
        """The provenance switches as they are inside the step."""
        return {
            **self.in_force,
            "grad_mode": self.grad_mode,
            "autocast": NOT_READ if self.autocast == "off" and self.autocast_site == NOT_READ else self.autocast,
            "autocast_site": self.autocast_site,
            "training_mode": self.training_mode,
            "compile": self.compiled,
        }

    @property
    def method(self) -> Mapping[str, Scalar]:
        """What provenance states of the inputs."""
        return {"input_fill": self.fill}


def observe(step: Callable[[], object], device: Device) -> Observation:
    """Call ``step`` once and say what it does. Settles its outputs; what it raises passes through.

    Never under a profiler, whose record would hold every operator twice: raises
    :class:`~referee.errors.OptionError` then.
    """
    if device.name.startswith("fake-"):
        return _observe_fake(step, device)
    torch = load_torch()
    if torch.autograd.profiler._is_profiler_enabled:
        raise OptionError("A step cannot be observed while a profiler is recording.", hint="Observe it before.")
    held = discover(step)
    observed = _observe_blind if held.compiled else _observe_watched
    before = Holdings(step, held)
    watchers = dict.fromkeys(read_watchers(torch))
    with entering() as inside:
        seen = observed(torch, step, device, held)
    watchers |= inside
    mode = training_mode(held.modules)
    findings = (*what_limits(seen, device), *watcher_findings(tuple(watchers)))
    in_force = {**seen.in_force, "debugger": ", ".join(watchers) or "off"}
    return replace(seen, kept=before.after(), findings=findings, in_force=in_force, training_mode=mode)


def _observe_fake(step: Callable[[], object], device: Device) -> Observation:
    """A fake device computes nothing: there is a call and an output, and no tensor."""
    output, call_ns = _call(step, device)
    return Observation(
        dtype="none", shapes=(), outputs=(), output=_output(output), basis="closure", call_ns=call_ns, fill="none"
    )


def _call(step: Callable[[], object], device: Device) -> tuple[object, int]:
    start_ns = time.perf_counter_ns()
    output = step()
    device.settle(output)
    return output, time.perf_counter_ns() - start_ns


def _observe_watched(torch: Any, step: Callable[[], object], device: Device, held: Held) -> Observation:
    from referee.device.watching import DispatchWatch, FunctionWatch, Watch, place

    kinds = tuple(dict.fromkeys([device.name.partition(":")[0], "cpu"]))
    around = _autocast_now(torch, kinds)
    watch = Watch(held.roles(), records=device.settling is Settling.LAZY)
    with FunctionWatch(watch, device_types=kinds), DispatchWatch(watch):
        start_ns = time.perf_counter_ns()
        output = step()
    watch.compare_versions()
    entered = watch.entered
    outputs = find_leaves(output, torch.Tensor)
    left = [entered[key][0] for key in watch.mutated] + (_with_gradients(entered) if watch.backward else [])
    whole = bool(watch.mutated) or (bool(left) and isinstance(device, HandsOver))
    # Before settling: what it holds would be run with the rest. A step that writes may need any result.
    redundancy = watch.numbering.close(None if whole or not outputs else outputs)
    if isinstance(device, NotesWrites):
        device.note_writes(left if whole else ())
    device.settle(output)
    call_ns = time.perf_counter_ns() - start_ns
    inputs = [tensor for tensor, role in entered.values() if role == "input"]
    inside = [state for state in watch.autocast if state != "off"]
    zero = _all_zero(torch, inputs)
    return Observation(
        dtype=_dominant(watch, outputs),
        shapes=describe((tensor, role) for tensor, role in entered.values()),
        outputs=describe((tensor, "output") for tensor in outputs),
        output=_output(output),
        basis="operators",
        call_ns=call_ns,
        ops=dict(watch.ops.most_common()),
        elements=sum(watch.elements.values()) + watch.made_elements,
        random_ops=dict(watch.random_ops),
        casts={who: watch.casts[who] for who in ("autocast", "explicit", "backward")},
        devices=tuple(dict.fromkeys((*watch.devices, *map(place, outputs)))),
        streams=len(watch.streams) if device.name.startswith("cuda") else None,
        zero_inputs=zero,
        values=look_at(inputs),
        nan_output=look_at(outputs).nan > 0,
        mutated=describe(entered[key] for key in watch.mutated),
        requires_grad=any(tensor.requires_grad for tensor in outputs),
        backward=watch.backward,
        grad_mode=_grad_mode(watch, around=grad_mode(torch)),
        autocast=", ".join(inside) or "off",
        autocast_site=_site(around, inside),
        in_force=_in_force(watch),
        threads=_threads(watch),
        fill=_fill(zero, inputs),
        arithmetic=tuple(watch.arithmetic),
        flop=watch.flop - (0 if redundancy is None else redundancy.flop),
        redundancy=redundancy,
    )


def _observe_blind(torch: Any, step: Callable[[], object], device: Device, held: Held) -> Observation:
    """What the closure and the outputs tell."""
    kinds = tuple(dict.fromkeys([device.name.partition(":")[0], "cpu"]))
    around = _autocast_now(torch, kinds)
    told = told_grad_mode([*held.tensors, *(p for module in held.modules for p in module.parameters())])
    output, call_ns = _call(step, device)
    roles = held.roles()
    parameters = [p for module in held.modules for p in (*module.parameters(), *module.buffers())]
    held_tensors = {id(tensor): tensor for tensor in (*held.tensors, *parameters)}
    entered = [(tensor, roles.get(id(tensor), "input")) for tensor in held_tensors.values()]
    inputs = [tensor for tensor, role in entered if role == "input"]
    outputs = find_leaves(output, torch.Tensor)
    zero = _all_zero(torch, inputs)
    return Observation(
        dtype=_most(tensor for tensor in (*held_tensors.values(), *outputs)),
        shapes=describe(entered),
        outputs=describe((tensor, "output") for tensor in outputs),
        output=_output(output),
        basis="closure",
        call_ns=call_ns,
        devices=tuple(dict.fromkeys(str(tensor.device) for tensor in (*held_tensors.values(), *outputs))),
        zero_inputs=zero,
        values=look_at(inputs),
        nan_output=look_at(outputs).nan > 0,
        requires_grad=any(tensor.requires_grad for tensor in outputs),
        grad_mode=told(outputs),
        autocast=around or "off",
        autocast_site="around the step" if around else NOT_READ,
        compiled=", ".join(dict.fromkeys(held.compiled)),
        fill=_fill(zero, inputs),
    )


def _with_gradients(entered: Mapping[object, tuple[torch.Tensor, str]]) -> list[torch.Tensor]:
    """What backward has left a gradient in, which belongs to the step as much as its outputs do.

    A device that is handed each call's graph runs them with it. Where calls are settled together, gradients of all but
    the last have died by then, so that nothing could make them count: there it is a finding.
    """
    return [tensor for tensor, _ in entered.values() if tensor.is_leaf and tensor.grad is not None]


def _autocast_now(torch: Any, kinds: Iterable[str]) -> str:
    return ", ".join(state for kind in kinds if (state := autocast(torch, kind)) != "off")


def _grad_mode(watch: Watch, *, around: str) -> str:
    """The mode most calls were made in; a step that ran backward records gradients, whatever its optimizer does."""
    if watch.backward:
        return "grad"
    return watch.grad_modes.most_common(1)[0][0] if watch.grad_modes else around


def _in_force(watch: Watch) -> dict[str, Scalar]:
    """What a step that sets a switch computes under, even where it puts it back."""
    if not watch.switches:
        return {}
    ((values, _),) = watch.switches.most_common(1)
    return {path.removeprefix("switches."): value for path, value in values if path.startswith("switches.")}


def _threads(watch: Watch) -> int | None:
    """With how many threads a step computes that sets their number, even where it puts it back."""
    if not watch.switches:
        return None
    ((values, _),) = watch.switches.most_common(1)
    threads = dict(values).get("chip.threads")
    return threads if isinstance(threads, int) else None


def _site(around: str, inside: list[str]) -> str:
    if around:
        return "around the step"
    return "inside the step" if inside else "nowhere"


def describe(tensors: Iterable[tuple[torch.Tensor, str]]) -> tuple[TensorSpec, ...]:
    """The tensors as records, equal ones counted together, inputs first and then in order of appearance."""
    counts: Counter[TensorSpec] = Counter(_spec(tensor, role) for tensor, role in tensors)
    specs = [replace(spec, count=count) for spec, count in counts.items()]
    return tuple(sorted(specs, key=lambda spec: spec.role != "input"))


def _spec(tensor: torch.Tensor, role: str) -> TensorSpec:
    try:
        stride = tuple(int(step) for step in tensor.stride())
    except (RuntimeError, NotImplementedError, AttributeError):  # sparse and nested layouts have none
        stride = ()
    return TensorSpec(
        role=role,
        shape=_shape(tensor),
        stride=stride,
        dtype=str(tensor.dtype).removeprefix("torch."),
        device=str(tensor.device),
    )


def _shape(tensor: torch.Tensor) -> tuple[int, ...]:
    """The sizes; -1 where the parts of a nested tensor differ."""
    if not tensor.is_nested:
        return tuple(int(size) for size in tensor.shape)
    sizes = []
    for dimension in range(tensor.dim()):
        try:
            sizes.append(int(tensor.size(dimension)))
        except (RuntimeError, AttributeError):  # no number, or a symbol for the parts' sizes
            sizes.append(-1)
    return tuple(sizes)


def _dominant(watch: Watch, outputs: list[torch.Tensor]) -> str:
    """The floating dtype that most elements read by operators had, else any dtype, else the outputs'."""
    floating = {name: count for name, count in watch.elements.items() if "float" in name or name.startswith("complex")}
    counts = floating or dict(watch.elements)
    return max(counts, key=lambda name: counts[name]) if any(counts.values()) else _most(outputs)


def _most(tensors: Iterable[torch.Tensor]) -> str:
    elements: Counter[str] = Counter()
    for tensor in tensors:
        weight = tensor.numel() + 1  # an empty tensor still has a dtype
        # Integers (token numbers, labels) name the dtype only where there is nothing else.
        elements[str(tensor.dtype).removeprefix("torch.")] += weight * (1 << 40 if tensor.is_floating_point() else 1)
    return elements.most_common(1)[0][0] if elements else "none"


def _all_zero(torch: Any, inputs: list[torch.Tensor]) -> bool | None:
    """Whether all inputs hold zeros only; reads values back, so never inside a timed window.

    Sparse, nested and quantised tensors are not compared: where there is one, zeros elsewhere leave it unknown.
    """
    filled = [tensor for tensor in inputs if tensor.numel() and tensor.device.type != "meta"]
    with torch.no_grad():
        holding = [_holds_data(torch, tensor) for tensor in filled]
    if True in holding:
        return False
    return True if holding and None not in holding else None


def _holds_data(torch: Any, tensor: torch.Tensor) -> bool | None:
    """Whether anything but zeros is in ``tensor``; ``None`` where it does not say."""
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        return None
    try:
        return bool(tensor.detach().ne(0).any())
    except (RuntimeError, TypeError, NotImplementedError):  # a class or a format of its own: fake, masked, packed
        return None


def _fill(zero: bool | None, inputs: list[torch.Tensor]) -> str:
    if not inputs:
        return "no inputs seen"
    return "all zeros" if zero else "as the target fills them"


def _output(output: object) -> object:
    """What is kept of the output: nothing that holds memory."""
    if output is None or inspect.iscoroutine(output) or inspect.isgenerator(output) or inspect.isasyncgen(output):
        return output
    return type(output).__name__
