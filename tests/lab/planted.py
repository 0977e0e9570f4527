"""Laboratories with something planted: a device, an operator, a model or a trace whose cost is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from referee.analysis.diagnose import diagnose
from referee.anatomy.mix import Mix
from referee.anatomy.stages import ALLOCATION, AUTOGRAD, BINDING, DISPATCH, RESOLUTION, SETUP
from referee.bench.plan import Plan
from referee.device.fake import FakeDevice, FakeSync
from referee.errors import DeviceMissing
from referee.lab.claims import BY_ID
from referee.lab.claims.operators import REFERENCES
from referee.lab.key_set import KeySet
from referee.lab.laboratory import Laboratory, Recorded
from referee.lab.run import EXPERIMENTS, put_to_test
from referee.records.estimate import Estimate
from referee.records.lab import LabRow
from referee.testing import Workload, simulate
from referee.trace.builder import TraceBuilder
from referee.trace.columns import Trace
from referee.trace.reader import read_trace
from referee.units import NS_PER_MS

PLAN = Plan(budget_ns=30 * NS_PER_MS, min_ns=10 * NS_PER_MS, warmup_min_ns=NS_PER_MS)

_FILES = TemporaryDirectory()
"""Made traces, as long as the tests run."""

Cost = Callable[[int], int]
"""Rows of the input → nanoseconds."""


def missing(name: str) -> FakeDevice:
    raise DeviceMissing(f"No device {name} here.")


def stage(name: str, layer: str, ns: float) -> Any:
    return SimpleNamespace(name=name, layer=layer, ns=ns, ci_low_ns=ns, ci_high_ns=ns, n=90)


AS_CLAIMED = {BINDING: 1_500.0, RESOLUTION: 700.0, DISPATCH: 300.0, AUTOGRAD: 1_500.0, ALLOCATION: 700.0, SETUP: 500.0}
"""What the course says of each layer between the call and the kernel, in its middle."""


def anatomy(
    *,
    contended_ns: float = 35.0,
    beside_ns: float = 1.0,
    instead: Mapping[str, float] | None = None,
) -> Any:
    """An anatomy in which every part is as the course has it, but for the layers in ``instead``."""
    costs = {**AS_CLAIMED, **(instead or {})}
    shared = {"one thread": 0.0, "two threads, a tensor each": beside_ns, "two threads, one tensor": contended_ns}
    variants = [
        SimpleNamespace(group=REFERENCES, name=name, ns=10 + ns, extra_ns=ns, ci_low_ns=ns, ci_high_ns=ns, n=80)
        for name, ns in shared.items()
    ]
    stages = tuple(stage(layer, layer, ns) for layer, ns in costs.items())
    whole_ns = sum(costs.values()) + REST_NS
    return SimpleNamespace(stages=stages, variants=tuple(variants), whole_ns=whole_ns)


REST_NS = 100.0
"""What the whole call takes beyond its stages."""


def key_sets(*each_ns: float, within_ns: float = 0.0, equal_ns: float = 0.0) -> Callable[..., tuple[KeySet, ...]]:
    """A making for each figure of one more tensor, give or take ``within_ns``; equal calls differ by ``equal_ns``."""

    def estimate(point: float, within: float = 0.0) -> Estimate:
        return Estimate(point=point, low=point - within, high=point + within, level=0.95, n=80, n_eff=40.0)

    def one(ns: float) -> KeySet:
        further = 7 * ns
        return KeySet(
            one=estimate(100.0),
            eight=estimate(100.0 + further),
            further=estimate(further, 7 * within_ns),
            equal=estimate(equal_ns),
        )

    return lambda *_: tuple(one(ns) for ns in each_ns)


def no_anatomy(*_: Any, **__: Any) -> Any:
    return SimpleNamespace(stages=(), variants=(), whole_ns=None)


def laboratory(device: FakeDevice | None = None, **fields: Any) -> Laboratory:
    fields.setdefault("operators", None)
    fields.setdefault("mix", lambda: Mix(groups=(("pass",),), names={}))
    fields.setdefault("take_apart", lambda *_, **__: anatomy())
    fields.setdefault("key_sets", key_sets(12.0))
    fields.setdefault("cpu_mhz", lambda: 2_000.0)
    fields.setdefault("recorded_steps_ns", lambda *_: [300_000] * 20)
    fields.setdefault("scheduled_steps", lambda _: (2, 3, 4))
    return Laboratory(device=device or FakeSync(), plan=PLAN, open=fields.pop("open", missing), **fields)


def row(claim: str, lab: Laboratory) -> LabRow:
    return put_to_test(BY_ID[claim], EXPERIMENTS[claim], lab)


class Taping:
    """Whether a tape is being built, and the contexts that switch it off."""

    def __init__(self) -> None:
        self.on = True

    @contextmanager
    def no_grad(self) -> Iterator[None]:
        before, self.on = self.on, False
        try:
            yield
        finally:
            self.on = before


def planted(device: FakeDevice, *, tapes: dict[str, int] | None = None, tape: int = 0, **costs_ns: int) -> Any:
    """Stands for ``torch``: functions of these names take so long on the device's clock, and nothing is computed.

    With a tape (outside ``no_grad``) each takes ``tape`` more, or what ``tapes`` gives for its name.
    """
    taping = Taping()

    def make(name: str, cost_ns: int) -> Callable[..., Any]:
        more = (tapes or {}).get(name, tape)
        return lambda *_: device.run(host_ns=cost_ns + more * taping.on)

    functions = {name: make(name, cost) for name, cost in costs_ns.items()}
    return SimpleNamespace(
        randn=lambda *_, **__: None, no_grad=taping.no_grad, inference_mode=taping.no_grad, **functions
    )


class Output:
    """What a planted model returns: it can be reduced, run backward and detached, at no cost."""

    def square(self) -> Output:
        return self

    mean = detach = square

    def backward(self) -> None:
        pass


class Model:
    """Layers in a row; each takes what was planted for the rows of its input."""

    def __init__(self, device: FakeDevice, layers: int, cost: Cost, taping: Taping, tape: int) -> None:
        self.device, self.layers, self.cost, self.taping, self.tape = device, layers, cost, taping, tape

    def __call__(self, x: Any) -> Output:
        rows = x.shape[0]
        self.device.run(host_ns=self.layers * (self.cost(rows) + self.tape * self.taping.on))
        return Output()

    def parameters(self) -> list[Any]:
        return []


def planted_models(device: FakeDevice, cost: Cost, *, tape: int = 0, once_ns: int = 0) -> Any:
    """Stands for ``torch``: a linear layer costs ``cost(rows)`` and ``tape`` with a tape; anything else is free.

    An optimizer's first step takes ``once_ns``.
    """
    taping = Taping()

    def linear(*_: Any, **__: Any) -> Model:
        return Model(device, 1, cost, taping, tape)

    def sequential(*parts: Model | None) -> Model:
        return Model(device, sum(part is not None for part in parts), cost, taping, tape)

    def adam(_: Any) -> Any:
        first = iter([once_ns])
        return SimpleNamespace(zero_grad=lambda: None, step=lambda: device.run(host_ns=next(first, 0)))

    return SimpleNamespace(
        randn=lambda *shape, **__: SimpleNamespace(shape=shape),
        nn=SimpleNamespace(Linear=linear, Sequential=sequential, ReLU=lambda: None),
        optim=SimpleNamespace(Adam=adam),
        no_grad=taping.no_grad,
    )


def of(trace: Trace, name: str = "made") -> Recorded:
    return Recorded(name=name, trace=trace, report=diagnose(trace))


def simulated(name: str = "made", **workload: Any) -> Recorded:
    return of(simulate(Workload(**workload)).trace, name)


def launches(
    *,
    launch_ns: int = 5_000,
    kernel_ns: int = 3_000,
    delay_ns: int | None = None,
    linked: int = 20,
    call: str = "cudaLaunchKernel",
    multiprocessors: int | None = None,
    blocks: int = 1,
    wait_ns: int | None = 200_000,
) -> Recorded:
    """Twenty launches, one every 100 µs, each with one elementwise kernel that starts ``delay_ns`` after the call.

    Only the first ``linked`` calls are in the file; each kernel has ``blocks`` blocks. 10 µs behind the last launch the
    device is synchronised, which takes ``wait_ns``.
    """
    builder = TraceBuilder(source="made")
    if multiprocessors:
        builder.device_properties("made", sm_count=multiprocessors)
    after_ns = launch_ns + 1_000 if delay_ns is None else delay_ns
    for number in range(20):
        at_ns = number * 100_000
        if number < linked:
            builder.launch(call, at_ns, launch_ns, correlation=number + 1)
        shape = {"grid": [blocks, 1, 1], "block": [128, 1, 1]} if multiprocessors else {}
        builder.kernel("vectorized_elementwise_kernel", at_ns + after_ns, kernel_ns, correlation=number + 1, **shape)
    if wait_ns is not None:
        builder.sync(19 * 100_000 + launch_ns + 10_000, wait_ns, name="cudaDeviceSynchronize")
    return of(builder.build()) if not multiprocessors else _read_back(builder)


def _read_back(builder: TraceBuilder) -> Recorded:
    """Through a file, because the shapes of launches are read from one; it stays, because they may be read again."""
    with NamedTemporaryFile(suffix=".json", dir=_FILES.name, delete=False) as file:
        file.write(builder.to_json())
    return of(read_trace(Path(file.name)))
