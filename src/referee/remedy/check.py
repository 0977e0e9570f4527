"""Does the fixed step still compute the same? Outputs, gradients and updates of one call, held against eager's.

Both sides start from the same weights, inputs and random numbers. Held against each other: the nesting of the output,
dtype, shape, strides and device of each tensor in it, which memory it shares, its values; the gradients left on the
parameters; how the call changed the parameters; the buffers that it changed (a norm's running statistics); which inputs
it wrote to.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from referee.device.host import load_torch
from referee.device.protocol import Device
from referee.device.settle import find_leaves
from referee.records.remedy import OutputCheck
from referee.remedy.fix import Fix, Loaded, Step
from referee.remedy.rounding import Against, distance, is_inexact, rms

TOLERANCE = {"float64": 1e-9, "float32": 2e-5, "float16": 4e-3, "bfloat16": 2e-2}
"""Largest relative error by norm, per dtype: some hundred rounding errors of float32 and float64, five to ten of the
half precisions, whose errors do not shrink by reordering sums. One element may be off by ten times as much of its own
size plus the tensor's root mean square. Gradients, which sum over the batch with cancellation, get ten times all that.
"""
GRADIENT_FACTOR = 10.0
ELEMENT_FACTOR = 10.0
_FLOOR = 1e-2
"""A gradient that is this small a part of all gradients' root mean square is compared on that scale: one that is zero
by mathematics consists of rounding errors alone."""
SEED = 20240229
_BY_VALUES = "values differ: relative error"


@dataclass(frozen=True)
class View:
    """One tensor of an output: what it is, whose memory it shares, and its values."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: str
    shares: tuple[str, ...]
    value: Any


@dataclass(frozen=True)
class Outcome:
    """What one call left behind."""

    nesting: str
    outputs: tuple[View, ...]
    numbers: tuple[float, ...]
    gradients: Mapping[int, Any]
    updates: Mapping[int, Any]
    written: tuple[int, ...]
    buffers: Mapping[int, Any] = field(default_factory=dict)
    """Those that the call changed, in order, as they are after it."""
    reuses_memory: bool = False


def pin_random() -> None:
    """The same random numbers from here on, in Python, NumPy and torch, on every device."""
    import numpy as np

    random.seed(SEED)
    np.random.seed(SEED % 2**32)
    load_torch().manual_seed(SEED)


def run_once(step: Step, loaded: Loaded, *, device: Device) -> Outcome:
    """Call ``step`` once with pinned random numbers and keep what it returned, left on parameters and wrote."""
    torch = load_torch()
    parameters = loaded.parameters()
    before = [p.detach().clone() for p in parameters]
    buffers = [b for m in loaded.roots for b in m.buffers()]
    kept = [b.detach().clone() for b in buffers]
    inputs = _inputs(loaded, parameters)
    held = [t.detach().clone() for t in inputs]
    pin_random()
    output = step()
    device.settle(output)
    arrays: list[Any] = find_leaves(output, _is_array)
    leaves = [_tensor(leaf) for leaf in arrays]
    places = {_storage(t): f"input {k}" for k, t in enumerate(inputs)}
    places.update({_storage(p): f"parameter {k}" for k, p in enumerate(parameters)})
    with torch.no_grad():
        return Outcome(
            nesting=nesting(output),
            outputs=tuple(_view(leaf, k, leaves, places) for k, leaf in enumerate(leaves)),
            numbers=tuple(numbers(output)),
            gradients={k: _dense(p.grad.detach()).clone() for k, p in enumerate(parameters) if p.grad is not None},
            updates={k: p.detach() - old for k, (p, old) in enumerate(zip(parameters, before, strict=True))},
            buffers=dict(
                enumerate(
                    b.detach().clone() for b, old in zip(buffers, kept, strict=True) if not _equal(b.detach(), old)
                )
            ),
            written=tuple(k for k, (t, old) in enumerate(zip(inputs, held, strict=True)) if not _equal(t, old)),
        )


def _is_array(item: object) -> bool:
    import numpy as np

    return isinstance(item, load_torch().Tensor) or (isinstance(item, np.ndarray) and item.dtype.kind in "fiubc")


def _tensor(leaf: Any) -> Any:
    torch = load_torch()
    return leaf if isinstance(leaf, torch.Tensor) else torch.as_tensor(leaf)


def reuses_memory(step: Step, *, device: Device) -> bool:
    """Whether a second call overwrites what the first one returned."""
    torch = load_torch()
    first = step()
    device.settle(first)
    mine = {_storage(t) for t in find_leaves(first, torch.Tensor) if t.numel()}
    second = step()
    device.settle(second)
    return bool(mine & {_storage(t) for t in find_leaves(second, torch.Tensor) if t.numel()})


def _inputs(loaded: Loaded, parameters: Sequence[Any]) -> list[Any]:
    own = {id(p) for p in parameters} | {id(b) for m in loaded.held.modules for b in m.buffers()}
    return [t for t in loaded.held.tensors if id(t) not in own]


def _storage(tensor: Any) -> int:
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):  # sparse, lazy and fake tensors have none to share
        return id(tensor)


def _view(leaf: Any, number: int, leaves: Sequence[Any], places: Mapping[int, str]) -> View:
    mine = _storage(leaf)
    shares = [f"output {k}" for k, other in enumerate(leaves) if k != number and _storage(other) == mine]
    if mine in places:
        shares.append(places[mine])
    return View(
        dtype=_kind(leaf),
        shape=tuple(leaf.shape),
        # The stride of a dimension of one element says nothing.
        stride=tuple(step if size > 1 else 0 for size, step in zip(leaf.shape, _strides(leaf), strict=True)),
        device=str(leaf.device),
        shares=tuple(shares),
        value=_dense(leaf.detach()).clone(),
    )


def _strides(leaf: Any) -> tuple[int, ...]:
    try:
        strides: tuple[int, ...] = tuple(leaf.stride())
    except (RuntimeError, NotImplementedError):
        return (0,) * int(leaf.dim())
    return strides


def _dense(tensor: Any) -> Any:
    """What is sparse or quantised as the values it stands for: few operators take it as it is."""
    if tensor.is_quantized:
        return tensor.dequantize()
    return tensor if tensor.layout == load_torch().strided else tensor.to_dense()


def _kind(leaf: Any) -> str:
    """The dtype, and the layout where it is not the usual one."""
    dtype = str(leaf.dtype).removeprefix("torch.")
    return dtype if leaf.layout == load_torch().strided else f"{dtype} {str(leaf.layout).removeprefix('torch.')}"


def _equal(a: Any, b: Any) -> bool:
    torch = load_torch()
    a, b = _dense(a), _dense(b)
    if not a.is_floating_point():
        return bool(torch.equal(a, b))
    return bool(torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(), b.nan_to_num()))


def nesting(output: object, depth: int = 0) -> str:
    """How an output is nested, in words: ``(tensor, {logits: tensor})``."""
    torch = load_torch()
    if isinstance(output, torch.Tensor):
        return "tensor"
    if isinstance(output, Mapping) and depth < 6:
        return "{" + ", ".join(f"{key}: {nesting(value, depth + 1)}" for key, value in output.items()) + "}"
    if isinstance(output, (list, tuple)) and depth < 6:
        return "(" + ", ".join(nesting(value, depth + 1) for value in output) + ")"
    if is_dataclass(output) and not isinstance(output, type) and depth < 6:
        held = ", ".join(f"{field.name}={nesting(getattr(output, field.name), depth + 1)}" for field in fields(output))
        return f"{type(output).__name__}({held})"
    if isinstance(output, str):
        return repr(output[:60])
    return type(output).__name__


def numbers(output: object) -> Iterator[float]:
    """The plain numbers in an output, in order."""
    if isinstance(output, (int, float)):
        yield float(output)
    elif isinstance(output, Mapping):
        for value in output.values():
            yield from numbers(value)
    elif isinstance(output, (list, tuple)):
        for value in output:
            yield from numbers(value)
    elif is_dataclass(output):
        yield from numbers([getattr(output, field.name) for field in fields(output)])


@dataclass
class _Found:
    """The two outcomes and what differs so far; ``exact``: float64's, to hold values that differ against."""

    eager: Outcome
    fixed: Outcome
    exact: Outcome | None
    differences: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def differs_by_values(check: OutputCheck) -> bool:
    """Whether rounded numbers are among what differs."""
    return any(_BY_VALUES in text for text in check.differences)


def hold_against(eager: Outcome, fixed: Outcome, *, fix: Fix, dtype: str, exact: Outcome | None = None) -> OutputCheck:
    """Does ``fixed`` match ``eager``? ``dtype`` is the one the step computes in; the fix's own lower one counts.

    With ``exact``, the outcome in float64, values that differ by more than the tolerance match where the fix is as near
    it as eager is (:class:`~referee.remedy.rounding.Against`); the notes then say so, with the figures.
    """
    precision = fix.precision or (dtype if dtype in TOLERANCE else "float32")
    found = _Found(eager, fixed, exact)
    if eager.nesting != fixed.nesting:
        found.differences.append(f"the output is nested as {fixed.nesting}, eager's as {eager.nesting}")
    if len(eager.outputs) == len(fixed.outputs):
        for number, (a, b) in enumerate(zip(eager.outputs, fixed.outputs, strict=True)):
            _hold_view(found, number, a, b, fix=fix)
    worst_output = _tensors(found, "output", _values, TOLERANCE[precision])
    if eager.numbers and len(eager.numbers) == len(fixed.numbers):
        worst_output = max(worst_output or 0.0, _tensors(found, "number", _numbers, TOLERANCE[precision]) or 0.0)
    gradient_tolerance = GRADIENT_FACTOR * TOLERANCE[precision]
    worst_gradient = _tensors(found, "gradient", lambda side: side.gradients, gradient_tolerance, floor=_FLOOR)
    if not fix.warms_up:
        _tensors(found, "changed buffer", lambda side: side.buffers, gradient_tolerance)
    worst_update = _updates(found, eager.updates, fixed.updates, fix.update_tolerance)
    if eager.written != fixed.written:
        found.differences.append(f"it writes to inputs {list(fixed.written)}, eager to {list(eager.written)}")
    if fixed.reuses_memory and not eager.reuses_memory:
        text = "a call overwrites what the call before it returned: clone what is to be kept"
        (found.notes if fix.reuses_memory else found.differences).append(text)
    tolerance = (
        f"{precision}: relative error by norm up to {TOLERANCE[precision]:g} for outputs, {gradient_tolerance:g} for "
        f"gradients and buffers, {fix.update_tolerance:g} for updates; one element up to {ELEMENT_FACTOR:g} times that"
    )
    compared = (eager.outputs, eager.numbers, eager.gradients, eager.buffers, eager.written)
    nothing = not any(compared) and worst_update is None and not found.differences
    if nothing:
        found.notes.append("nothing could be compared: the step returns no tensor and no number, and changes nothing")
    return OutputCheck(
        match=None if nothing else not found.differences,
        tolerance=tolerance,
        differences=tuple(found.differences),
        notes=tuple(found.notes),
        worst_output=worst_output,
        worst_gradient=worst_gradient,
        worst_update=worst_update,
    )


def _hold_view(found: _Found, number: int, a: View, b: View, *, fix: Fix) -> None:
    for what, before, after in (
        ("dtype", a.dtype, b.dtype),
        ("shape", a.shape, b.shape),
        ("device", a.device, b.device),
        ("memory shared", ", ".join(a.shares) or "none", ", ".join(b.shares) or "none"),
    ):
        if before != after:
            found.differences.append(f"output {number}: {what} changed: {before} → {after}")
    if a.stride != b.stride and a.shape == b.shape:
        text = f"output {number}: strides changed: {a.stride} → {b.stride}"
        (found.notes if fix.strides else found.differences).append(text)


def _values(side: Outcome) -> Mapping[int, Any]:
    return {k: view.value for k, view in enumerate(side.outputs)}


def _numbers(side: Outcome) -> Mapping[int, Any]:
    torch = load_torch()
    return {0: torch.tensor(side.numbers, dtype=torch.float64)}


def _tensors(
    found: _Found, what: str, of: Callable[[Outcome], Mapping[int, Any]], tolerance: float, *, floor: float = 0.0
) -> float | None:
    """Compare tensors by number; adds what differs and answers the largest relative error by norm."""
    torch = load_torch()
    a, b = of(found.eager), of(found.fixed)
    if a.keys() != b.keys():
        found.differences.append(f"{what}s exist for {len(b)} tensors, in eager for {len(a)}")
    worst: float | None = None
    overall = rms([value for value in a.values() if value.is_floating_point()])
    least = floor * overall
    against = None if found.exact is None else Against(exact=of(found.exact), scale=overall, floor=least)
    for key in sorted(a.keys() & b.keys()):
        mine, other = a[key], b[key]
        if mine.shape != other.shape or not mine.numel():
            continue
        if not is_inexact(mine):
            if not torch.equal(mine, other):
                found.differences.append(f"{what} {key}: values differ in {int((mine != other).sum())} places")
            continue
        error, element = distance(mine, other, floor=least)
        worst = max(worst or 0.0, error)
        if math.isnan(error):
            found.differences.append(f"{what} {key}: not a number where eager is finite")
        elif error > tolerance or element > ELEMENT_FACTOR * tolerance:
            text = f"{error:.2g} by norm (allowed {tolerance:g}), one element {element:.2g}"
            if against is None:
                found.differences.append(f"{what} {key}: {_BY_VALUES} {text}")
                continue
            rounding, words = against.judge(key, mine, other, tolerance=tolerance, element_factor=ELEMENT_FACTOR)
            if rounding:
                found.notes.append(f"{what} {key} differs from eager's by {text}; {words}")
            else:
                found.differences.append(f"{what} {key}: {_BY_VALUES} {text}; {words}")
    return worst


def _updates(found: _Found, a: Mapping[int, Any], b: Mapping[int, Any], tolerance: float) -> float | None:
    """All parameters' changes together, by norm: single elements turn by a full step where Adam meets noise."""
    apart = size = 0.0
    for key in a.keys() & b.keys():
        mine, other = a[key].double(), b[key].to(a[key].device).double()
        if mine.shape == other.shape:
            apart, size = apart + float((mine - other).square().sum()), size + float(mine.square().sum())
    if not size:
        if apart:
            found.differences.append("it changes parameters, eager does not")
        return None
    error = math.sqrt(apart / size)
    if not error <= tolerance:
        found.differences.append(f"updates differ: relative error {error:.2g} by norm (allowed {tolerance:g})")
    return error
