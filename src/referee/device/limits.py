"""What must the reader know of a step before any number of it is shown? Findings, from what one call was seen to do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from referee.device.protocol import Device, Settling
from referee.records.finding import Finding
from referee.records.provenance import describe_shapes

if TYPE_CHECKING:
    from referee.device.observe import Observation

_RECORDING = frozenset({"lazy", "xla"})
"""Kinds of device on which a call records, and what nobody asks for never runs."""

_READS_BACK = frozenset(
    f"aten::{name}"
    for name in (
        *("_local_scalar_dense", "_to_copy", "copy_", "_copy_from", "equal", "is_nonzero"),
        *("nonzero", "index", "masked_select", "_unique2", "unique_dim", "unique_consecutive"),
    )
)
"""Operators that may hand a value or a shape to the host, and so make the device run what it needs."""

_FUNCTIONS = ("function", "partial", "method")
"""Types of what a factory of steps returns."""


def what_limits(seen: Observation, device: Device) -> tuple[Finding, ...]:
    """Everything that was seen to limit a number of this step on ``device``, or to forbid it."""
    return (*_of_tensors(seen), *_not_compiled(seen, device), *_unawaited(seen, device))


def _unawaited(seen: Observation, device: Device) -> Iterable[Finding]:
    """Is there work that waiting on ``device`` and on the outputs does not reach?"""
    kinds = {used.partition(":")[0]: used for used in seen.devices}
    away = [kind for kind in kinds if kind not in ("cpu", "meta", device.name.partition(":")[0])]
    # An asynchronous device is waited for through the outputs; what is recorded there runs for each call's own alone.
    missed = [kind for kind in away if kind in _RECORDING or not seen.outputs]
    if kinds and set(kinds) == {"meta"}:
        yield Finding(
            code="work-did-not-run",
            severity="fatal",
            message="Every tensor of the step is a fake one or lives on the meta device, which has shapes and no data: "
            "nothing is computed.",
            evidence={"operators": seen.n_ops, "computes_on": ", ".join(kinds.values())},
            hint="Make the tensors on the device to be measured.",
        )
    elif kinds and device.name.partition(":")[0] not in kinds and not away:
        yield Finding(
            code="computes-elsewhere",
            severity="warning",
            message=f"The step computes on {', '.join(kinds.values())} alone, and not on {device.name}, which was "
            "asked for: the number is that of the former.",
            evidence={"device": device.name, "computes_on": ", ".join(kinds.values())},
            hint="Let the target declare device, and make its model and its inputs there.",
        )
    if device.settling is Settling.SYNCHRONOUS and missed:
        where = kinds[missed[0]]
        yield Finding(
            code="computes-elsewhere",
            severity="fatal",
            message=f"The step computes on {where}, and the clock is that of {device.name}, which does not wait for "
            "that work.",
            evidence={"device": device.name, "computes_on": ", ".join(kinds[kind] for kind in missed)},
            hint=f"Name the device: --device {missed[0]}, or device={missed[0]!r}.",
        )
    runs = seen.outputs or seen.mutated or seen.backward or seen.ops.keys() & _READS_BACK
    if device.settling is Settling.LAZY and seen.ops and not runs:
        yield Finding(
            code="work-did-not-run",
            severity="fatal",
            message="The step returns no tensor and reads none back: a recording device runs nothing of it.",
            evidence={"operators": seen.n_ops, "device": device.name},
            hint="Return the output (or the loss).",
        )


def _not_compiled(seen: Observation, device: Device) -> Iterable[Finding]:
    """Does the step hold something compiled, and nothing was compiled in this process although it was called?"""
    if seen.compiled.startswith("torch.compile") and device.counters().get("compile.frames") == 0:
        yield Finding(
            code="not-compiled",
            severity="warning",
            message=f"The step holds {seen.compiled}, and nothing was compiled in its calls: what runs is eager.",
            evidence={"compiled": seen.compiled, "frames": 0},
            hint="Call what was compiled, and not a method of the module or the module inside it; compile a method by "
            "itself. TORCHDYNAMO_DISABLE and torch.compiler.disable leave everything eager as well.",
        )


def _odd_values(seen: Observation) -> Iterable[Finding]:
    """Do the inputs hold what data do not, or is an output no number?"""
    values = seen.values
    if values is not None and (values.nan or values.subnormal):
        what = "NaN" if values.nan else "subnormal numbers (nearer to zero than the format's full precision reaches)"
        yield Finding(
            code="odd-values",
            severity="warning",
            message=f"{values.nan or values.subnormal} of {values.tensors} floating inputs hold {what}: computing with "
            "them can take longer, or shorter, than with data.",
            evidence={"inputs": values.tensors, "nan": values.nan, "subnormal": values.subnormal},
            hint="Fill the inputs with random numbers of the size of real data.",
        )
    elif seen.nan_output:
        yield Finding(
            code="odd-values",
            severity="warning",
            message="The output holds NaN although the inputs do not: the step computes something else than it would "
            "with data.",
            evidence={"nan_output": True},
            hint="Look for a division by zero, a masked row, or a loss that has grown without bound.",
        )


def _of_tensors(seen: Observation) -> Iterable[Finding]:
    if seen.zero_inputs:
        yield Finding(
            code="zero-inputs",
            severity="fatal",
            message="Every input is all zeros, and zeros are faster than data on many chips.",
            evidence={"inputs": describe_shapes(seen.shapes)},
            hint="Fill the inputs with random numbers.",
        )
    yield from _odd_values(seen)
    written = [spec for spec in seen.mutated if spec.role == "input"]
    if written:
        yield Finding(
            code="inputs-mutated",
            severity="warning",
            message="The step writes to its inputs, so no two calls compute the same thing.",
            evidence={"inputs": describe_shapes(written), "count": sum(spec.count for spec in written)},
            hint="Write to a copy that the step makes, or say that the growth is meant.",
        )
    if seen.output in _FUNCTIONS and not seen.outputs:
        yield Finding(
            code="no-output",
            severity="warning",
            message=f"What the step returns is a {seen.output}, which was not called: the number is that of making it.",
            evidence={"type": str(seen.output)},
            hint="If what it returns is the step, call it once and hand that over: referee.bench(make_step()).",
        )
    elif seen.output is not None and not seen.outputs:
        yield Finding(
            code="no-output",
            severity="info",
            message=f"What the step returns ({seen.output}) holds no tensor: there is nothing of its own to settle on.",
            evidence={"type": str(seen.output)},
            hint="Return the output (or the loss).",
        )
