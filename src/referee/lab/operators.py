"""The claims about one operator, as experiments: timed in pairs, counted on the tape, read off the dispatcher."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from math import log
from typing import Any

from referee.anatomy.mix import make_mix
from referee.anatomy.operator import find_operator
from referee.anatomy.path import keys_of_call, predict
from referee.anatomy.tape import read_tape
from referee.anatomy.timing import Pair, Timed, time_pairs
from referee.bench.sweep import Built, sweep
from referee.device.memory import measure_memory
from referee.device.observe import observe
from referee.errors import CannotTell
from referee.lab.laboratory import Laboratory, Reading, counted, estimated, less, share
from referee.lab.measuring import timed

_CHAIN = 10
_SIZES = tuple(1 << power for power in range(14, 28))
"""Elements of the tensors of E6: from far below the claim to far above it."""
_THOUSAND = 1_000


def _call(lab: Laboratory, source: str, **names: Any) -> Timed:
    context = names.pop("context", nullcontext)
    return Timed(source, {"t": lab.operators, **names}, context)


def amid_others(lab: Laboratory) -> Reading:
    """E1. An add with a tape, between other operators."""
    return _hot_and_cold(lab)[1]


def hot_against_cold(lab: Laboratory) -> Reading:
    """E19."""
    hot, cold = _hot_and_cold(lab)
    if hot.low <= 0:
        raise CannotTell("The hot figure cannot be told from nothing.")
    figures = {"hot_ns": hot.value, "cold_ns": cold.value}
    return Reading(value=cold.value / hot.value, low=cold.low / hot.high, high=cold.high / hot.low, figures=figures)


def _hot_and_cold(lab: Laboratory) -> tuple[Reading, Reading]:
    a = lab.operators.randn(8, requires_grad=True)
    pair = Pair("add", _call(lab, "t.add(a, a)", a=a))
    budget_ns = 3 * lab.plan.budget_ns
    (cost,) = time_pairs([pair], device=lab.device, budget_ns=budget_ns, mix=make_mix(), cold_frac=0.7)
    if cost.cold is None:
        raise CannotTell("The cold figure could not be taken.")
    return estimated(cost.hot), estimated(cost.cold)


def thousand(lab: Laboratory) -> Reading:
    """E3. At two sizes that both are small, so that what does not depend on the size is seen."""
    small, larger = lab.operators.randn(16), lab.operators.randn(256)

    def chain(x: Any) -> Callable[[], Any]:
        def step() -> Any:
            y = x
            for _ in range(_THOUSAND):
                y = lab.operators.add(y, x)
            return y

        return step

    first, second = timed(lab.time(chain(small))), timed(lab.time(chain(larger)))
    figures = {"16_elements_ns": first.value, "256_elements_ns": second.value}
    return Reading(value=first.value, low=first.low, high=first.high, figures=figures)


def crossing(lab: Laboratory) -> Reading:
    """E6. Between which sizes does the device become slower than the host? By the device's own clock."""
    device = lab.open("cuda")
    before: tuple[int, float] | None = None
    for elements in _SIZES:
        x = lab.operators.randn(elements).to(device.name)
        clocks = lab.time(partial(lab.operators.add, x, x), device=device).clocks
        if clocks.device_ns is None or clocks.enqueue_ns is None:
            continue  # so host-bound that the marks time the host's pace
        above = log(clocks.device_ns / clocks.enqueue_ns)
        if above > 0:
            if before is None:
                raise CannotTell(f"The device is slower than the host at {elements:,} elements already.")
            low, below = before
            value = low * (elements / low) ** (below / (below - above))
            return Reading(value=value, low=low, high=elements, figures={"enqueue_ns": clocks.enqueue_ns})
        before = (elements, above)
    raise CannotTell(f"The host is slower than the device up to {_SIZES[-1]:,} elements.")


def _encoder(lab: Laboratory) -> tuple[Any, Any]:
    layer = lab.operators.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    return layer, lab.operators.randn(2, 8, 64)


def layer_operators(lab: Laboratory) -> Reading:
    """E4."""
    layer, x = _encoder(lab)
    seen = observe(lambda: layer(x), lab.device)
    return counted(seen.n_ops, kinds=len(seen.ops))


def backward_operators(lab: Laboratory) -> Reading:
    """E5. What a step with backward runs beyond its forward, over the forward."""
    layer, x = _encoder(lab)

    def step() -> Any:
        loss = layer(x).square().mean()
        loss.backward()
        return loss.detach()

    def forward() -> Any:
        return layer(x).square().mean()

    step()  # gradients exist from now on, as in any step but the first
    once, both = observe(forward, lab.device).n_ops, observe(step, lab.device).n_ops
    return counted((both - once) / once, forward=once, backward=both - once)


def batch_knee(lab: Laboratory) -> Reading:
    """E8."""
    torch = lab.operators
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(6)))

    def build(size: int) -> Built:
        x = torch.randn(size, 64)
        return Built(step=lambda: model(x))

    values = [1, 4, 16, 64, 256, 1024]
    found = sweep(build, parameter="batch_size", values=values, device=lab.device, plan=lab.plan)
    fit = found.fit
    if fit.knee is None or fit.knee_low is None or fit.knee_high is None:
        raise CannotTell(f"No knee in the sweep: {fit.why_no_knee or 'no law fits'}.")
    return Reading(value=fit.knee, low=fit.knee_low, high=fit.knee_high, figures={"law": fit.law})


def batch_growth(lab: Laboratory) -> Reading:
    """D5."""
    torch = lab.operators
    model = torch.nn.Sequential(*(m for _ in range(4) for m in (torch.nn.Linear(32, 32), torch.nn.ReLU())))
    one, eight = torch.randn(1, 32), torch.randn(8, 32)
    return lab.ratio(Timed("m(x)", {"m": model, "x": eight}), Timed("m(x)", {"m": model, "x": one}))


def served_batch(lab: Laboratory) -> Reading:
    """D8. The price cancels: items per second at one size over those at another."""
    torch = lab.operators
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))
    one, many = torch.randn(1, 64), torch.randn(256, 64)
    grown = lab.ratio(Timed("m(x)", {"m": model, "x": many}), Timed("m(x)", {"m": model, "x": one}))
    return Reading(value=256 / grown.value, low=256 / grown.high, high=256 / grown.low, figures=grown.figures)


def _path(lab: Laboratory) -> tuple[str, ...]:
    """The keys with a kernel that a matmul visits under autocast and autograd, in order."""
    torch = lab.operators
    x = torch.randn(4, 4, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        path = predict(find_operator("aten.mm"), keys_of_call((x, x)))
    return tuple(entry.key for entry in path if entry.visited)


def priority(lab: Laboratory) -> Reading:
    """E9."""
    keys = _path(lab)

    def place(start: str) -> int:
        return next((index for index, key in enumerate(keys) if key.startswith(start)), -1)

    autocast, autograd, backend = place("Autocast"), place("Autograd"), place("CPU")
    found = share({"autocast above autograd": 0 <= autocast < autograd, "autograd above CPU": 0 <= autograd < backend})
    return Reading(value=found.value, low=found.low, high=found.high, note=" → ".join(keys), figures=found.figures)


def dispatches(lab: Laboratory) -> Reading:
    """E10."""
    keys = _path(lab)
    return counted(len(keys), path=", ".join(keys))


def nodes(lab: Laboratory) -> Reading:
    """E11. A forward alone."""
    y = x = lab.operators.randn(8, requires_grad=True)
    for _ in range(_CHAIN):
        y = lab.operators.mul(y, x)
    tape = read_tape(y, inputs=(x,))
    return counted((len(tape.nodes) - tape.accumulators) / _CHAIN, nodes=len(tape.nodes), operators=_CHAIN)


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
    return share(
        {
            "mm saves two": kept(torch.mm(a, b), a, b) == 2,
            "relu saves one": only is not None,
            "relu's is its output": only is not None and only.role == "activation",
            "no_grad saves none": kept(without, a, b) == 0,
        }
    )


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


def _refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except RuntimeError:
        return True
    return False


def tape_cost(lab: Laboratory) -> Reading:
    """E14."""
    torch = lab.operators
    model = torch.nn.Sequential(*(m for _ in range(4) for m in (torch.nn.Linear(64, 64), torch.nn.ReLU())))
    x = torch.randn(8, 64)
    names = {"m": model, "x": x}
    return less(lab.ratio(Timed("m(x)", names), Timed("m(x)", names, torch.no_grad)), 1.0)


def inference(lab: Laboratory) -> Reading:
    """E15."""
    torch = lab.operators
    with torch.inference_mode():
        t = torch.randn(4)
    w = torch.randn(4, requires_grad=True)
    return share(
        {
            "no version counter": _refused(lambda: t._version),
            "w + t works": not _refused(lambda: w + t),
            "w * t is refused": _refused(lambda: w * t),
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
    return counted(len(left.nodes) - left.accumulators, eager_nodes=len(plain.nodes) - plain.accumulators)


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
    return counted(eager / _CHAIN, with_out=kept)


def per_argument(lab: Laboratory) -> Reading:
    """E20. Operators of one, two and three tensors that compute next to nothing; the slope of the outer two."""
    torch = lab.operators
    names = {"a": torch.randn(1)}
    no_grad: Callable[[], AbstractContextManager[Any]] = torch.no_grad
    one, three = (_call(lab, source, context=no_grad, **names) for source in ("t.neg(a)", "t.addcmul(a, a, a)"))
    (found,) = lab.pairs((Pair("two more arguments", three, one),))
    return Reading(value=found.point / 2, low=found.low / 2, high=found.high / 2)


def saving(lab: Laboratory) -> Reading:
    """E21. What a tape adds to mul, which saves two tensors, less what it adds to add, which saves none."""
    torch = lab.operators
    a = torch.randn(8, requires_grad=True)

    def beyond(name: str) -> Pair:
        source = f"t.{name}(a, a)"
        return Pair(name, _call(lab, source, a=a), _call(lab, source, a=a, context=torch.no_grad))

    mul, add = lab.pairs((beyond("mul"), beyond("add")))
    figures = {"mul_ns": mul.point, "add_ns": add.point}
    value = mul.point - add.point
    return Reading(value=value, low=mul.low - add.high, high=mul.high - add.low, figures=figures)
