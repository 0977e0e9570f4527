"""What is one operator's call made of, here? Arguments, entry, path, ladder, tape: one record."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from referee.anatomy.arguments import Arguments, Wish, make_arguments
from referee.anatomy.entry import Way, find_entry
from referee.anatomy.fallback import PythonProbe, build_python_ladder
from referee.anatomy.mix import make_mix
from referee.anatomy.operator import Operator, find_operator
from referee.anatomy.path import keys_of_call, predict, visited
from referee.anatomy.probe import NoProbe, Probe, load_probe
from referee.anatomy.scenario import MODES
from referee.anatomy.stages import FURTHER_TENSORS, Ladder, Subject, build_ladder
from referee.anatomy.tape import read_tape
from referee.anatomy.timing import Cost, time_pairs
from referee.anatomy.variants import make_groups, reference_group, time_groups
from referee.anatomy.witness import predict_paths, witness_paths
from referee.bench.plan import ProgressCallback, no_progress
from referee.device.host import load_torch
from referee.device.protocol import Device
from referee.device.provenance import MachineMark, collect, mark_machine
from referee.records.anatomy import Anatomy, PathEntry, Stage
from referee.records.finding import Finding, Scalar
from referee.records.provenance import TensorSpec
from referee.units import NS_PER_MS

Mode = Literal["grad", "no_grad", "inference"]

BUDGET_NS = 700 * NS_PER_MS

_VARIANTS_NS = 3_000 * NS_PER_MS


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is to be taken apart, and how."""

    operator: Operator
    wish: Wish = field(default_factory=Wish)
    mode: Mode = "grad"
    autocast: bool = False
    way: Way | None = None
    budget_ns: int = BUDGET_NS
    cold: bool = True


def dissect(
    op: str | Operator,
    *,
    device: Device,
    shapes: tuple[tuple[int, ...], ...] = (),
    dtype: str | None = None,
    mode: Mode = "grad",
    autocast: bool = False,
    way: Way | None = None,
    budget_ns: int = BUDGET_NS,
    cold: bool = True,
    variants: bool = False,
    paths: bool = False,
    witness: bool = False,
    announce: Callable[[str], None] = lambda _: None,
    progress: ProgressCallback = no_progress,
) -> Anatomy:
    """Take one call of ``op`` apart on ``device``.

    ``shapes`` are those of its tensors (one for all if one is given); without them, and for everything else, arguments
    are made up. ``mode`` ``grad``: the floating inputs require a gradient, where the operator has one. ``way`` fixes
    how it is called from Python (``function``, ``method`` or ``overload``; default: as people write it). ``variants``
    also times other ways to ask for the same, ``paths`` predicts the dispatch path in every mode, and ``witness`` holds
    it against recording kernels. Raises
    :class:`~referee.errors.OptionError` for an operator or shapes that do not exist, and
    :class:`~referee.errors.CannotTell` where no arguments are found.
    """
    operator = find_operator(op) if isinstance(op, str) else op
    request = Request(
        operator=operator,
        wish=Wish(shapes=shapes, dtype=dtype, device=device.name),
        mode=mode,
        autocast=autocast,
        way=way,
        budget_ns=budget_ns,
        cold=cold,
    )
    probe = load_probe(announce=announce)
    before = mark_machine()
    arguments = make_arguments(operator, request.wish)
    found = _dissect(request, arguments, probe, device=device, before=before, progress=progress)
    if variants:
        groups = make_groups(operator, shape=shapes[0] if shapes else (8,), compiled=True)
        if isinstance(probe, Probe):
            groups = (*groups, reference_group(probe.module))
        timed = time_groups(groups, device=device, budget_ns=_VARIANTS_NS, progress=progress)
        found = replace(found, variants=timed)
    if paths or witness:
        seen = (witness_paths if witness else predict_paths)(operator, arguments, MODES)
        found = replace(found, paths=seen)
    return found


def _dissect(
    request: Request,
    arguments: Arguments,
    probe: Probe | NoProbe,
    *,
    device: Device,
    before: MachineMark,
    progress: ProgressCallback,
) -> Anatomy:
    how: dict[str, Scalar]
    if isinstance(probe, NoProbe):
        prepared = prepare(request, arguments, PythonProbe(probe.why))
        ladder = build_python_ladder(prepared.subject)
        how = {"kind": "python only", "why": probe.why}
    else:
        prepared = prepare(request, arguments, probe.module)
        ladder = build_ladder(prepared.subject, probe.module)
        typed = is_typed(prepared.subject, probe.module)
        how = {"kind": "compiled", "compiler": probe.compiler, "typed": typed}
    mix = make_mix(request.wish.device) if request.cold else None
    pairs = [ladder.whole, *(step.pair for step in ladder.steps), *([ladder.per_tensor] if ladder.per_tensor else ())]
    costs = time_pairs(pairs, device=device, budget_ns=request.budget_ns, mix=mix, progress=progress)
    return compose_record(request, prepared, ladder, costs, probe=how, device=device, before=before)


def is_typed(subject: Subject, module: Any) -> bool:
    """Whether the operator is called through its C++ signature, as torch's own functions do."""
    call = module.Call(subject.operator.name, subject.operator.overload, subject.plain.args, dict(subject.plain.kwargs))
    return bool(call.is_typed())


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A call that is ready to be taken apart, and what was noticed on the way."""

    subject: Subject
    path: tuple[PathEntry, ...]
    notes: tuple[str, ...] = ()


def prepare(request: Request, plain: Arguments, module: Any) -> Prepared:
    """Everything about the call that is known before it is timed."""
    operator = request.operator
    context = mode_context(request.mode)
    notes: list[str] = []
    if request.mode == "inference":
        with context():
            plain = map_tensors(plain, lambda tensor: tensor.clone())
    given = plain
    actual = _actual(request, plain, notes)
    autocast = _autocast_context(request) if request.autocast else None
    with context():
        entry = find_entry(operator, actual, record=module.record, way=request.way)
        keys = keys_of_call(plain.tensors, device=request.wish.device)
        names = visited(predict(operator, keys))
    with (autocast or context)():
        path = predict(operator, keys_of_call(actual.tensors, device=request.wish.device))
        outputs, calls = _call_once(operator, actual, module)
    fresh = tuple(o for o in outputs if not _shares(o, plain) and not _shares(o, actual))
    composite = any(entry.kernel == "composite" for entry in path if entry.visited)
    wanting = actual
    if autocast is not None:
        plain, wanting = _as_cast(plain, outputs), _as_cast(actual, outputs)
    subject = Subject(
        operator=operator,
        entry=entry,
        plain=plain,
        wanting=plain if actual is given else wanting,
        actual=actual,
        keys=names,
        outputs=outputs,
        fresh=tuple(o.detach() for o in fresh),
        context=context,
        autocast=autocast,
        inner_calls=calls if composite else (),
    )
    return Prepared(subject=subject, path=path, notes=tuple(notes))


def _as_cast(arguments: Arguments, outputs: tuple[Any, ...]) -> Arguments:
    """The arguments in the dtype of the output under autocast: what it casts them to."""
    dtype = next((output.dtype for output in outputs if output.is_floating_point()), None)

    def cast(tensor: Any) -> Any:
        if dtype is None or not tensor.is_floating_point():
            return tensor
        return tensor.detach().to(dtype).requires_grad_(tensor.requires_grad)

    return map_tensors(arguments, cast)


def mode_context(mode: Mode) -> Callable[[], AbstractContextManager[Any]]:
    """The context manager of a grad mode."""
    torch = load_torch()
    contexts: dict[str, Callable[[], AbstractContextManager[Any]]] = {
        "grad": nullcontext,
        "no_grad": torch.no_grad,
        "inference": torch.inference_mode,
    }
    return contexts[mode]


def _autocast_context(request: Request) -> Callable[[], AbstractContextManager[Any]]:
    torch = load_torch()
    device, mode = request.wish.device.partition(":")[0], mode_context(request.mode)
    if mode is nullcontext:
        # The cache of casts would hide what a cast costs, and hold on to weights between blocks.
        return lambda: torch.autocast(device, dtype=torch.bfloat16, cache_enabled=False)

    from contextlib import contextmanager

    @contextmanager
    def both() -> Any:
        with mode(), torch.autocast(device, dtype=torch.bfloat16, cache_enabled=False):
            yield

    return both


def _actual(request: Request, plain: Arguments, notes: list[str]) -> Arguments:
    """The arguments that the mode asks for: with gradients wanted, where the operator can give them."""
    if request.mode != "grad":
        return plain
    operator = request.operator
    if operator.in_place:
        notes.append("autograd node: an in-place call would lengthen the graph with each repetition")
        return plain
    torch = load_torch()
    wanted = map_tensors(plain, lambda t: t.detach().clone().requires_grad_(t.is_floating_point() or t.is_complex()))
    try:
        outputs = operator.callable(*wanted.args, **wanted.kwargs)
    except RuntimeError:
        notes.append("autograd node: the operator refuses arguments that require a gradient")
        return plain
    found = _flat(outputs, torch)
    if not any(o.requires_grad for o in found):
        notes.append("autograd node: no output has a gradient")
        return plain
    return wanted


def map_tensors(arguments: Arguments, change: Callable[[Any], Any]) -> Arguments:
    """The arguments with every tensor replaced by what ``change`` makes of it."""
    torch = load_torch()

    def one(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return change(value)
        if isinstance(value, (list, tuple)):
            return type(value)(one(item) for item in value)
        return value

    return Arguments(args=tuple(map(one, arguments.args)), kwargs={k: one(v) for k, v in arguments.kwargs.items()})


def _call_once(operator: Operator, arguments: Arguments, module: Any) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """The output tensors of one call, and the operators that it called itself."""
    found: list[Any] = []
    seen = module.record(lambda: found.append(operator.callable(*arguments.args, **arguments.kwargs)))
    calls = tuple(name for name, depth in seen if depth == 1)
    return _flat(found[0], load_torch()), calls


def _flat(value: Any, torch: Any) -> tuple[Any, ...]:
    if isinstance(value, torch.Tensor):
        return (value,)
    if isinstance(value, (list, tuple)):
        return tuple(tensor for item in value for tensor in _flat(item, torch))
    return ()


def _shares(output: Any, arguments: Arguments) -> bool:
    """Whether an output has no memory of its own (or none that can be compared)."""
    try:
        own = output.untyped_storage().data_ptr()
        return own != 0 and any(own == t.untyped_storage().data_ptr() for t in arguments.tensors)
    except (RuntimeError, NotImplementedError):  # sparse and opaque tensors have no storage
        return True


def compose_record(
    request: Request,
    prepared: Prepared,
    ladder: Ladder,
    costs: tuple[Cost, ...],
    *,
    probe: dict[str, Scalar],
    device: Device,
    before: MachineMark,
) -> Anatomy:
    """The record of what was timed."""
    whole, *parts = costs
    per_tensor = parts.pop() if ladder.per_tensor is not None else None
    stages = tuple(
        Stage(
            name=cost.name,
            ns=cost.hot.point,
            cold_ns=cost.cold.point if cost.cold is not None else None,
            ci_low_ns=cost.hot.low,
            ci_high_ns=cost.hot.high,
            cold_low_ns=cost.cold.low if cost.cold is not None else None,
            cold_high_ns=cost.cold.high if cost.cold is not None else None,
            meaning=step.meaning,
            layer=step.layer,
        )
        for step, cost in zip(ladder.steps, parts, strict=True)
    )
    remainder, low, high = _remainder(whole, parts)
    subject = prepared.subject
    with (subject.autocast or subject.context)():
        outputs = subject.operator.callable(*subject.actual.args, **subject.actual.kwargs)
        tape = read_tape(outputs, inputs=subject.actual.tensors)
    return Anatomy(
        op=subject.operator.dotted,
        entry=subject.entry.expression,
        mode=request.mode + (" under autocast" if request.autocast else ""),
        whole_ns=whole.hot.point,
        whole_cold_ns=whole.cold.point if whole.cold is not None else None,
        whole_ci_low_ns=whole.hot.low,
        whole_ci_high_ns=whole.hot.high,
        ci_level=whole.hot.level,
        stages=stages,
        remainder_ns=remainder,
        remainder_low_ns=low,
        remainder_high_ns=high,
        per_tensor_ns=per_tensor.hot.point / FURTHER_TENSORS if per_tensor is not None else None,
        dispatch_path=prepared.path,
        tape=tape,
        provenance=collect(
            device,
            dtype=_dtype(subject.actual),
            shapes=[tensor_spec(value) for value in subject.entry.names.values() if _is_tensor(value)],
            method={
                "clock": "enqueue" if device.name != "cpu" else "settled_amortised",
                "budget_ns": request.budget_ns,
                "input_fill": "uniform, 0.25 to 1",
                "cache_state": "warm",
                "gc": "disabled in the timed window",
                "statistic": "differences of lower quartiles of clean blocks, each stage a pair of its own",
                "target": subject.operator.dotted,
            },
            before=before,
            switches={"grad_mode": request.mode.replace("inference", "inference_mode")},
        ),
        unseparated=(*ladder.unseparated, *prepared.notes),
        calls=subject.inner_calls,
        probe=probe,
        findings=_findings(probe),
    )


def _remainder(whole: Cost, parts: list[Cost]) -> tuple[float, float, float]:
    """The whole less all stages, and the interval that their own intervals leave it (independent, so in squares)."""
    rest = whole.hot.point - sum(part.hot.point for part in parts)
    below = sum((cost.hot.point - cost.hot.low) ** 2 for cost in (whole, *parts)) ** 0.5
    above = sum((cost.hot.high - cost.hot.point) ** 2 for cost in (whole, *parts)) ** 0.5
    return rest, rest - below, rest + above


def _findings(probe: dict[str, Scalar]) -> tuple[Finding, ...]:
    if probe["kind"] == "compiled":
        return ()
    return (
        Finding(
            code="no-probe",
            severity="warning",
            message=f"The compiled probe is missing ({probe['why']}), so that most stages cannot be told apart",
            hint="Install a C++ compiler (g++ or clang++), or name one with CXX.",
        ),
    )


def _is_tensor(value: Any) -> bool:
    return isinstance(value, load_torch().Tensor)


def _dtype(arguments: Arguments) -> str:
    names = {str(tensor.dtype).removeprefix("torch.") for tensor in arguments.tensors}
    return ", ".join(sorted(names)) or "none"


def tensor_spec(tensor: Any) -> TensorSpec:
    """The tensor as the provenance states it."""
    return TensorSpec(
        role="input",
        shape=tuple(tensor.shape),
        stride=tuple(tensor.stride()) if tensor.layout == load_torch().strided else (),
        dtype=str(tensor.dtype).removeprefix("torch."),
        device=str(tensor.device),
    )
