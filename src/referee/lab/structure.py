"""What does eager mode make of a call? The counted claims: operators, dispatches, nodes, saved tensors, requests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from referee.anatomy.tape import read_tape
from referee.device.memory import measure_memory
from referee.device.observe import Observation, observe
from referee.errors import CannotTell
from referee.lab.claims.claim import MS
from referee.lab.claims.operators import LAYER_OPS, LAYERS, STEP_MS, STEP_OPS
from referee.lab.laboratory import Laboratory, Part, Reading, counted, share, told
from referee.lab.measuring import timed
from referee.units import format_bytes, format_frac, format_ns, format_ratio

_CHAIN = 10
_WIDE = 1 << 16
"""Elements that no cache of small requests hides."""


def _encoder(lab: Laboratory) -> tuple[Any, Any]:
    layer = lab.operators.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    return layer, lab.operators.randn(2, 8, 64)


def _spelled_out(lab: Laboratory) -> Callable[[], AbstractContextManager[Any]]:
    """Makes the context in which attention is a matter of single operators.

    A step holds this and not the laboratory, from which everything can be reached that other experiments have left.
    """
    attention = getattr(lab.operators.nn, "attention", None)
    return nullcontext if attention is None else partial(attention.sdpa_kernel, attention.SDPBackend.MATH)


def _watched(lab: Laboratory, step: Callable[[], object]) -> Observation:
    """What ``step`` ran; raises :class:`~referee.errors.CannotTell` where it could not be watched: none is no count."""
    seen = observe(step, lab.device)
    if seen.basis != "operators":
        raise CannotTell("The operators could not be watched: something that the step holds is compiled or a fake.")
    return seen


def layer_operators(lab: Laboratory) -> Reading:
    """E4. Unfused, as the claim has it; beside it with today's fused attention, and the step of a whole model."""
    layer, x = _encoder(lab)
    spelled_out = _spelled_out(lab)

    def step(given: Any = x) -> Any:
        with spelled_out():
            loss = layer(given).square().mean()
            loss.backward()
        return loss.detach()

    def unfused() -> Any:
        with spelled_out():
            return layer(x)

    step()
    seen, fused = _watched(lab, unfused), _watched(lab, lambda: layer(x))
    whole = LAYERS * _watched(lab, step).n_ops
    with_fused = LAYERS * sum(_forward_and_backward(lab, layer, x, nullcontext))
    spent = step_time(lab, step)
    note = told(_issuing(lab, step, x, spent, whole // LAYERS), _with_fused(fused.n_ops, with_fused))
    (low, high), (shortest, longest) = STEP_OPS, STEP_MS
    operators = Part(
        name=f"{LAYERS} × one layer's step",
        value=whole,
        low=whole,
        high=whole,
        claimed_low=low,
        claimed_high=high,
        unit="operators",
    )
    duration = Part(
        name=f"the time of {LAYERS} × one layer's step",
        value=LAYERS * spent.value,
        low=LAYERS * spent.low,
        high=LAYERS * spent.high,
        claimed_low=shortest * MS,
        claimed_high=longest * MS,
    )
    found = counted(
        seen.n_ops, kinds=len(seen.ops), fused=fused.n_ops, step=whole, fused_step=with_fused, step_ns=duration.value
    )
    taken = f"operators {found.taken}; the step's time {spent.taken}"
    return replace(found, note=note, parts=(operators, duration), taken=taken)


def _issuing(lab: Laboratory, step: Callable[[Any], object], x: Any, spent: Reading, operators: int) -> str:
    """What an operator of the step takes, and how much of that is left where there is less to work on."""
    each = spent.value / operators
    small = x[:1, :1].contiguous()
    step(small)
    fewer, left = _watched(lab, lambda: step(small)).n_ops, step_time(lab, lambda: step(small))
    note = (
        f"{LAYERS} × one layer's step take this CPU {format_ns(LAYERS * spent.value)}, which is {format_ns(each)} an "
        f"operator. At batch 1 and length 1 it has {x.shape[0] * x.shape[1]} times fewer rows to work on; its "
        f"{fewer:,} operators a layer, instead of {operators:,}, take {format_ns(left.value / fewer)} each, "
        f"{format_frac(left.value / fewer / each)} of that"
    )
    add = lab.kept.get("hot and cold")
    if add is None:
        return f"{note}."
    return (
        f"{note}; the add of E1, amid others, takes {format_ns(add[1].value)}. Why an operator of this step takes "
        f"{format_ratio(each / add[1].value)} that add is not tested: it holds Python's modules, autograd's engine and "
        "products beside additions."
    )


def _with_fused(layer: int, steps: int) -> str:
    """What a fused attention makes of both counts, which the claim, of unfused layers, says nothing of."""
    ways = {True: "within", False: "outside of"}
    (least, most), (low, high) = LAYER_OPS, STEP_OPS
    return (
        f"With a fused attention the layer's forward has {layer} operators, {ways[least <= layer <= most]} the claim's "
        f"{least} to {most}, and {LAYERS} × its step {steps:,}, {ways[low <= steps <= high]} the claim's {low:,} to "
        f"{high:,}; but the claim is of unfused layers, so that neither figure counts for it or against it."
    )


def step_time(lab: Laboratory, step: Callable[[], object]) -> Reading:
    """What one layer's step takes, issued eagerly."""
    return timed(lab.time(step))


def backward_operators(lab: Laboratory) -> Reading:
    """E5. What a step with backward runs beyond its forward, over the forward; with a fused attention beside it."""
    layer, x = _encoder(lab)
    once, more = _forward_and_backward(lab, layer, x, _spelled_out(lab))
    fused, beyond = _forward_and_backward(lab, layer, x, nullcontext)
    note = f"{once} operators forward, {more} backward; with a fused attention {fused} and {beyond}, "
    note += f"which is {format_ratio(beyond / fused)}."
    teaches = f"A training step issues {format_ratio(1 + more / once)} the operators of its forward in this layer."
    return replace(counted(more / once, forward=once, backward=more), note=note, teaches=teaches)


def _forward_and_backward(lab: Laboratory, layer: Any, x: Any, context: Callable[[], Any]) -> tuple[int, int]:
    def forward() -> Any:
        with context():
            return layer(x).square().mean()

    def step() -> Any:
        loss = forward()
        loss.backward()
        return loss.detach()

    step()  # gradients exist from now on, as in any step but the first
    once, both = _watched(lab, forward).n_ops, _watched(lab, step).n_ops
    return once, both - once


def nodes(lab: Laboratory) -> Reading:
    """E11. A forward alone."""
    y = x = lab.operators.randn(8, requires_grad=True)
    for _ in range(_CHAIN):
        y = lab.operators.mul(y, x)
    tape = read_tape(y, inputs=(x,))
    found = counted((len(tape.nodes) - tape.accumulators) / _CHAIN, nodes=len(tape.nodes), operators=_CHAIN)
    each = tape.edges / _CHAIN
    edges = Part.exact("edges for each operator of two inputs", each, claimed=2, unit="edges")
    return replace(found, parts=(edges,))


def saved(lab: Laboratory) -> Reading:
    """E12."""
    torch = lab.operators
    a, b = torch.randn(8, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)

    def kept(output: Any, *inputs: Any) -> int:
        return read_tape(output, inputs=inputs).saved_tensors

    output = torch.relu(a)
    (only,) = read_tape(output, inputs=(a,)).nodes[0].saved or (None,)
    with torch.no_grad():
        without = torch.mm(a, b)
    wide = torch.randn(_WIDE, requires_grad=True)

    def chain() -> Any:
        y = wide
        for _ in range(_CHAIN):
            y = torch.relu(y)
        return y

    def untaped() -> Any:
        with torch.no_grad():
            return chain()

    held, freed = (measure_memory(step, lab.device).peak_bytes for step in (chain, untaped))
    found = share(
        {
            "mm saves two": kept(torch.mm(a, b), a, b) == 2,
            "relu saves one": only is not None,
            "relu's is its output": only is not None and only.role == "activation",
            "no_grad saves none": kept(without, a, b) == 0,
            "no_grad lowers the peak": freed < held,
        }
    )
    note = f"Ten relu on {wide.numel():,} elements hold {format_bytes(held)} at most with a tape, "
    return replace(found, note=told(found.note, f"{note}{format_bytes(freed)} under no_grad."))


def versions(lab: Laboratory) -> Reading:
    """E13."""
    torch = lab.operators
    x = torch.randn(8, requires_grad=True)
    y = x * 2
    z = (y * y).sum()
    before = y._version
    with torch.no_grad():
        y.add_(1)
    return share({"version moved": y._version > before, "backward refused": _refused(z.backward)})


def _refused(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except RuntimeError:
        return True
    return False


def inference(lab: Laboratory) -> Reading:
    """E15."""
    torch = lab.operators
    with torch.inference_mode():
        t = torch.randn(4)
        view = t.view(2, 2)
    w = torch.randn(4, requires_grad=True)
    return share(
        {
            "no version counter": _refused(lambda: t._version),
            "a view is not tracked": not view._is_view(),
            "w + t works": not _refused(lambda: w + t),
            "w * t is refused": _refused(lambda: w * t),
            "an update outside is refused": _refused(lambda: t.add_(1)),
            "a clone works": not _refused(lambda: w * t.clone()),
        }
    )


def compiled_nodes(lab: Laboratory) -> Reading:
    """E16. Traced ahead of time, without a code generator."""
    torch = lab.operators

    def chain(x: Any) -> Any:
        for _ in range(_CHAIN):
            x = torch.sin(x) * 2
        return x

    x = torch.randn(8, requires_grad=True)
    eager, output = chain(x), torch.compile(chain, backend="aot_eager")(x)
    left, plain = read_tape(output, inputs=(x,)), read_tape(eager, inputs=(x,))
    eager_nodes = len(plain.nodes) - plain.accumulators
    found = counted(len(left.nodes) - left.accumulators, eager_nodes=eager_nodes)
    return replace(found, note=f"The same function run eagerly leaves {eager_nodes}.")


def requests(lab: Laboratory) -> Reading:
    """E18. With a step that hands over memory beside it."""
    torch = lab.operators
    x, out = torch.randn(1024), torch.empty(1024)

    def chain() -> Any:
        y = x
        for _ in range(_CHAIN):
            y = torch.add(y, x)
        return y

    def planned() -> Any:
        for _ in range(_CHAIN):
            torch.add(x, x, out=out)
        return out

    eager, kept = (measure_memory(step, lab.device).allocations for step in (chain, planned))
    note = f"{_CHAIN} operators made {eager} requests; with out= they made {kept}."
    part = Part.exact("with memory planned ahead (out=)", kept, claimed=0, unit="requests")
    return replace(counted(eager / _CHAIN, with_out=kept), note=note, parts=(part,))
