"""What should a fix gain here? A range, from micro-benchmarks of this machine and what the step is made of.

Nothing is fitted: each constant is measured in the same process, or is the bound of a range whose source is stated.
Measuring is what counts; these ranges are the first guess, written down before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from referee.bench.measure import measure
from referee.bench.plan import Plan, Step
from referee.device.host import load_torch
from referee.device.protocol import Device
from referee.errors import CannotTell
from referee.records.remedy import Prediction
from referee.remedy.compile_guess import guess_compile
from referee.remedy.compiled_costs import CompiledCosts, time_of
from referee.remedy.content import Content
from referee.remedy.fix import Fix, Situation
from referee.remedy.recording import record
from referee.units import NS_PER_MS

_MICRO = Plan(budget_ns=60 * NS_PER_MS, min_ns=30 * NS_PER_MS, clocks=("settled_amortised",))
_COLD = 1.6
"""An operator amid others costs up to this much more than in a loop of its own (1.26 against 2.0 µs for an add)."""


@dataclass(frozen=True)
class Machine:
    """Costs on this machine, measured when first asked for. Nanoseconds per call."""

    device: Device

    @cached_property
    def op_ns(self) -> float:
        """One small operator, without the tape."""
        torch = load_torch()
        x = torch.ones(4, device=self._place)
        return self._ns(lambda: torch.add(x, x), grad=False)

    @cached_property
    def tape_ns(self) -> float:
        """What the tape adds to one small operator."""
        torch = load_torch()
        x = torch.ones(4, device=self._place, requires_grad=True)
        return max(0.0, self._ns(lambda: torch.add(x, x), grad=True) - self._ns(lambda: torch.add(x, x), grad=False))

    @cached_property
    def view_ns(self) -> float:
        """One view."""
        x = load_torch().ones(2, 2, device=self._place)
        return self._ns(lambda: x.t(), grad=False)

    @cached_property
    def module_ns(self) -> float:
        """Calling a module, without what it computes."""
        module = load_torch().nn.Identity()
        return self._ns(lambda: module(None), grad=False)

    @cached_property
    def bf16_ratio(self) -> float:
        """A matrix product in bfloat16 over one in float32."""
        torch = load_torch()
        a = torch.ones(256, 256, device=self._place)
        b = a.bfloat16()
        return self._ns(lambda: torch.mm(b, b), grad=False) / self._ns(lambda: torch.mm(a, a), grad=False)

    @cached_property
    def bf16_fixed_ns(self) -> float:
        """What a small matrix product costs more in bfloat16: libraries look up and reorder before they multiply."""
        torch = load_torch()
        a = torch.ones(16, 64, device=self._place)
        w = torch.ones(64, 64, device=self._place)
        low = (a.bfloat16(), w.bfloat16())
        return max(0.0, self._ns(lambda: torch.mm(*low), grad=False) - self._ns(lambda: torch.mm(a, w), grad=False))

    @property
    def _place(self) -> str:
        return "cpu" if self.device.name == "cpu" else self.device.name

    def _ns(self, step: Step, *, grad: bool) -> float:
        torch = load_torch()
        with torch.set_grad_enabled(grad):
            found = measure(step, device=self.device, plan=_MICRO, name="micro-benchmark")
        return time_of(found)


Maker = Callable[[Fix, Situation, Content, float, Machine], Prediction | None]


def predict(fix: Fix, situation: Situation, content: Content, *, step_ns: float, machine: Machine) -> Prediction | None:
    """The range for ``fix``, or ``None`` where only trying says. ``step_ns``: eager's time per call."""
    makers: dict[str, Maker] = {
        "inference-mode": _without_tape,
        "no-grad": _without_tape,
        "freeze": _without_tape,
        "fused-optimizer": _fused_optimizer,
        "foreach-optimizer": _foreach_optimizer,
        "autocast-bf16": _bf16,
        "larger-batch": _larger_batch,
        "compile": _compile,
        "compile-reduce-overhead": _graph,
        "cuda-graph": _graph,
    }
    maker = makers.get(fix.name)
    if maker is None or step_ns <= 0 or not content.n_ops:
        return None
    try:
        return maker(fix, situation, content, step_ns, machine)
    except CannotTell:
        return None


def _ranged(low_ns: float, high_ns: float, step_ns: float, basis: str, measure_it: tuple[str, ...] = ()) -> Prediction:
    floor = 0.02 * step_ns
    low, high = sorted((max(low_ns, floor) / step_ns, max(high_ns, floor) / step_ns))
    return Prediction(low=low, high=high, basis=basis, measure_it=measure_it)


def _without_tape(_: Fix, situation: Situation, content: Content, step_ns: float, machine: Machine) -> Prediction:
    nodes = content.n_ops - content.kinds["other"]
    saved_ns = nodes * machine.tape_ns
    basis = f"{nodes:,} operators, {machine.tape_ns:.0f} ns of tape each; half to twice of that"
    return _ranged(step_ns - 2 * saved_ns, step_ns - 0.5 * saved_ns, step_ns, basis)


def _optimizer_ns(content: Content, step_ns: float, machine: Machine) -> tuple[float, float]:
    low_ns = content.optimizer_ops * machine.op_ns
    return min(low_ns, 0.95 * step_ns), min(_COLD * 1.5 * low_ns, 0.95 * step_ns)


def _fused_optimizer(_: Fix, situation: Situation, content: Content, step_ns: float, machine: Machine) -> Prediction:
    low_ns, high_ns = _optimizer_ns(content, step_ns, machine)
    basis = (
        f"{content.optimizer_ops:,} operators of the optimizer at {machine.op_ns:.0f} ns hot to "
        f"{_COLD * 1.5 * machine.op_ns:.0f} ns in place, of which half to all go"
    )
    return _ranged(step_ns - high_ns, step_ns - 0.5 * low_ns, step_ns, basis)


def _foreach_optimizer(_: Fix, situation: Situation, content: Content, step_ns: float, machine: Machine) -> Prediction:
    low_ns, high_ns = _optimizer_ns(content, step_ns, machine)
    if situation.device_type == "cpu":
        basis = f"on the CPU one call per tensor remains of {content.optimizer_ops:,}: Python between them goes"
        return _ranged(step_ns - 0.6 * high_ns, step_ns + 0.1 * low_ns, step_ns, basis)
    return _ranged(step_ns - high_ns, step_ns - 0.5 * low_ns, step_ns, f"{content.optimizer_ops:,} launches become few")


def _bf16(_: Fix, situation: Situation, content: Content, step_ns: float, machine: Machine) -> Prediction:
    share, ratio = content.share("product"), machine.bf16_ratio
    products = content.kinds["product"]
    casts_ns = 3 * products * (machine.op_ns + machine.tape_ns)
    fixed_ns = products * machine.bf16_fixed_ns
    changed_ns = share * step_ns * (1 - ratio)
    basis = (
        f"{products:,} matrix products, {100 * share:.0f} % of the operators' time, {ratio:.2f} of the time in bf16; "
        f"none to all of it, one to six casts each, {machine.bf16_fixed_ns / 1000:.1f} µs more for a small product"
    )
    ends = (step_ns - changed_ns + casts_ns / 3, step_ns + 2 * casts_ns + 2 * fixed_ns)
    return _ranged(min(ends), max(ends), step_ns, basis)


def _larger_batch(fix: Fix, situation: Situation, content: Content, step_ns: float, machine: Machine) -> Prediction:
    each_ns = machine.op_ns + (machine.tape_ns if situation.seen.grad_mode == "grad" else 0.0)
    fixed_ns = content.n_ops * each_ns + content.module_calls * machine.module_ns
    low = min(1.0, 0.6 * fixed_ns / step_ns)
    # Matrix products of few rows read the whole weight either way: at the hopeful end they do not grow at all.
    high = min(1.0, 2 * _COLD * fixed_ns / step_ns + content.share("product"))
    gone = 1 - 1 / fix.items
    basis = (
        f"{content.n_ops:,} operators at {each_ns:.0f} ns and {content.module_calls:,} module calls are paid once for "
        f"{fix.items:g} times the items; matrix products grow not at all or fully, the rest stays within a tenth"
    )
    return _ranged((1 - gone * high) * step_ns * 0.9, (1 - gone * low) * step_ns * 1.1, step_ns, basis)


def _compile(_: Fix, situation: Situation, content: Content, step_ns: float, machine: Machine) -> Prediction | None:
    if situation.device_type != "cpu":
        return None  # what compiled code costs on other devices is not calibrated: measured alone
    loaded = situation.loaded
    recording = record(loaded.step, device=situation.device)
    if not recording.complete:
        return None  # too large to be held and issued once more
    return guess_compile(
        recording,
        costs=CompiledCosts(situation.device),
        step_ns=step_ns,
        step=loaded.step,
        trains=bool(situation.seen.backward),
        records=not situation.seen.backward
        and situation.seen.grad_mode == "grad"
        and any(parameter.requires_grad for parameter in loaded.parameters()),
    )


def _graph(_: Fix, situation: Situation, content: Content, step_ns: float, machine: Machine) -> Prediction:
    host_ns = content.n_ops * machine.op_ns
    basis = f"{content.n_ops:,} launches at {machine.op_ns:.0f} ns and more become one; the device's own time stays"
    return _ranged(step_ns - min(0.95 * step_ns, 3 * host_ns), step_ns * 1.02, step_ns, basis)
