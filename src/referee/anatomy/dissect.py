"""What is one operator's call made of, here? Arguments, entry, path, ladder, tape: one record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from referee.anatomy.arguments import Arguments, Wish, make_arguments
from referee.anatomy.behind import behind_pairs, judge_behind
from referee.anatomy.entry import Way
from referee.anatomy.fallback import PythonProbe, build_python_ladder
from referee.anatomy.mix import make_mix
from referee.anatomy.operator import Operator, find_operator
from referee.anatomy.prepare import BUDGET_NS, Mode, Request, prepare
from referee.anatomy.probe import NoProbe, Probe, load_probe
from referee.anatomy.record import compose_record
from referee.anatomy.refusals import memory_errors
from referee.anatomy.scenario import MODES
from referee.anatomy.stages import KERNEL, Subject, build_ladder
from referee.anatomy.timing import time_pairs
from referee.anatomy.variants import make_groups, reference_group, time_groups
from referee.anatomy.witness import predict_paths, witness_paths
from referee.bench.plan import ProgressCallback, no_progress
from referee.device.host import load_torch
from referee.device.protocol import Device
from referee.device.provenance import MachineMark, mark_machine
from referee.errors import OptionError
from referee.records.anatomy import Anatomy
from referee.records.finding import Finding, Scalar
from referee.units import NS_PER_MS, format_ns

_VARIANTS_NS = 3_000 * NS_PER_MS


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
    if autocast:
        _check_autocast(device.name)
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
    with memory_errors(operator):
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


def _check_autocast(device: str) -> None:
    """Refuse autocast where torch has none for the device."""
    if not load_torch().amp.is_autocast_available(device.partition(":")[0]):
        raise OptionError(f"torch has no autocast on {device}.", hint="Leave --autocast out, or take another device.")


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
        how = {"kind": "python only", "why": probe.why, "mend": probe.mend}
    else:
        prepared = prepare(request, arguments, probe.module)
        ladder = build_ladder(prepared.subject, probe.module)
        typed = is_typed(prepared.subject, probe.module)
        how = {"kind": "compiled", "compiler": probe.compiler, "typed": typed}
    mix = make_mix(request.wish.device) if request.cold else None
    pairs = [ladder.whole, *(step.pair for step in ladder.steps), *([ladder.per_tensor] if ladder.per_tensor else ())]
    witness = behind_pairs(prepared.subject, ladder)
    costs = time_pairs([*pairs, *witness], device=device, budget_ns=request.budget_ns, mix=mix, progress=progress)
    found = compose_record(request, prepared, ladder, costs[: len(pairs)], probe=how, device=device, before=before)
    kernel_ns = sum(stage.ns for stage in found.stages if stage.layer == KERNEL)
    findings = (*found.findings, *judge_behind(costs[len(pairs) :], kernel_ns))
    if mix is not None and found.whole_cold_ns is None:
        findings = (*findings, _not_cold(found))
    return replace(found, findings=findings)


def _not_cold(found: Anatomy) -> Finding:
    return Finding(
        code="cold-not-taken",
        severity="info",
        message=f"A call of {format_ns(found.whole_ns)} was not taken apart amid other operators: it finds the caches"
        " as it left them itself, and its copies would have taken more than the budget.",
        evidence={"whole_ns": found.whole_ns},
        hint="Take the stages of the host apart on a smaller shape.",
    )


def is_typed(subject: Subject, module: Any) -> bool:
    """Whether the operator is called through its C++ signature, as torch's own functions do."""
    call = module.Call(subject.operator.name, subject.operator.overload, subject.plain.args, dict(subject.plain.kwargs))
    return bool(call.is_typed())
