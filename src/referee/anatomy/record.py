"""How is what was timed written down? Stages, remainder, tape and provenance of one call, as a record."""

from __future__ import annotations

from functools import partial
from typing import Any

from referee.anatomy.arguments import Arguments
from referee.anatomy.prepare import Prepared, Request
from referee.anatomy.stages import FURTHER_TENSORS, Ladder, Step, Subject
from referee.anatomy.tape import read_tape_of_call
from referee.anatomy.timing import Cost
from referee.device.host import load_torch
from referee.device.protocol import Device
from referee.device.provenance import MachineMark, collect
from referee.records.anatomy import Anatomy, Stage, Tape
from referee.records.finding import Finding, Scalar
from referee.records.provenance import Provenance, TensorSpec
from referee.units import format_frac, format_ns


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
    remainder, low, high = _remainder(whole, parts)
    subject = prepared.subject
    return Anatomy(
        op=subject.operator.dotted,
        entry=subject.entry.expression,
        mode=request.mode + (" under autocast" if request.autocast else ""),
        whole_ns=whole.hot.point,
        whole_cold_ns=whole.cold.point if whole.cold is not None else None,
        whole_ci_low_ns=whole.hot.low,
        whole_ci_high_ns=whole.hot.high,
        ci_level=whole.hot.level,
        stages=tuple(_stage(step, cost) for step, cost in zip(ladder.steps, parts, strict=True)),
        remainder_ns=remainder,
        remainder_low_ns=low,
        remainder_high_ns=high,
        per_tensor_ns=per_tensor.hot.point / FURTHER_TENSORS if per_tensor is not None else None,
        per_tensor_low_ns=per_tensor.hot.low / FURTHER_TENSORS if per_tensor is not None else None,
        per_tensor_high_ns=per_tensor.hot.high / FURTHER_TENSORS if per_tensor is not None else None,
        dispatch_path=prepared.path,
        tape=_tape(subject),
        provenance=_provenance(request, subject, device=device, before=before),
        unseparated=(*ladder.unseparated, *prepared.notes),
        calls=subject.inner_calls,
        probe=probe,
        findings=(
            *_findings(probe),
            *(
                unexplained(whole.hot.point, remainder, low, high, known=_known(subject, remainder, probe))
                if parts
                else ()
            ),
        ),
    )


MOST_UNEXPLAINED = 0.10
"""A ladder whose remainder is larger does not say what the call is made of."""

_REPEATS_WITHIN_NS = 25.0
"""As near to each other as this two ladders of a call are promised to be; a smaller remainder is nothing to explain."""


def _known(subject: Subject, rest: float, probe: dict[str, Scalar]) -> tuple[str, str]:
    """Why a remainder is as large as it is, where that is known, and what to do about it; else two empty texts."""
    entry = subject.entry
    if probe["kind"] != "compiled" and rest > 0:
        return "what lies between its few stages needs the compiled probe", str(probe["mend"])
    if entry.in_python and rest > 0:
        why = (
            f"{entry.function} is written in Python, and what it does before it calls the operator is in the remainder"
        )
        return why, "With --way overload the operator itself is taken apart."
    if probe["kind"] == "compiled" and not probe["typed"] and entry.way != "overload" and rest < 0:
        why = (
            "the probe knows no operator with this C++ signature and packs its arguments in boxes, which torch does not"
        )
        return why, "With --way overload torch packs them as well, and the stages add up."
    return "", ""


def unexplained(
    whole: float, rest: float, low: float, high: float, known: tuple[str, str] = ("", "")
) -> tuple[Finding, ...]:
    """The finding that the stages do not add up: a remainder surely above a tenth of the whole and 25 ns, either way.

    ``known`` is why, where that is known, and its mend.
    """
    bound = max(MOST_UNEXPLAINED * whole, _REPEATS_WITHIN_NS)
    if -bound <= high and low <= bound:
        return ()
    way, (why, mend) = "less" if rest > 0 else "more", known
    so = "so they do not say what this call is made of"
    return (
        Finding(
            code="remainder-large",
            severity="warning",
            message=f"The stages add up to {format_ns(abs(rest))} {way} than the whole"
            f" ({format_frac(abs(rest) / whole, digits=0)} of it), {'because ' + why if why else so}",
            evidence={"whole_ns": whole, "remainder_ns": rest, "low_ns": low, "high_ns": high, "most": bound},
            hint=mend
            or "Measure again when the machine is quiet; if it stays, the function goes another way than its rungs.",
        ),
    )


def _stage(step: Step, cost: Cost) -> Stage:
    return Stage(
        name=cost.name,
        ns=cost.hot.point,
        cold_ns=cost.cold.point if cost.cold is not None else None,
        ci_low_ns=cost.hot.low,
        ci_high_ns=cost.hot.high,
        cold_low_ns=cost.cold.low if cost.cold is not None else None,
        cold_high_ns=cost.cold.high if cost.cold is not None else None,
        meaning=step.meaning,
        layer=step.layer,
        n=cost.hot.n,
    )


def _tape(subject: Subject) -> Tape:
    """What one call leaves for backward, made anew and dropped."""
    with (subject.autocast or subject.context)():
        call = partial(subject.operator.callable, *subject.actual.args, **subject.actual.kwargs)
        return read_tape_of_call(call, inputs=subject.actual.tensors)


def _provenance(request: Request, subject: Subject, *, device: Device, before: MachineMark) -> Provenance:
    return collect(
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
            hint=str(probe["mend"]),
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
