"""One suite over every device that is here: what a clock needs to be believed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import pytest

from referee.device.fake import FakeAsync, FakeLazy, FakeSync
from referee.device.protocol import Device, Settling
from referee.device.registry import open_device
from referee.errors import DeviceMissing, PackageMissing
from referee.records.provenance import REGISTRY

HOST_NS = 1_000
DEVICE_NS = 20_000


@dataclass
class Bench:
    """A device and one step on it: something small that returns one output."""

    device: Device
    step: Callable[[], Any]


@dataclass
class Holder:
    """Outputs as a model library returns them."""

    loss: Any
    extra: dict[str, Any] = field(default_factory=dict)


FAKES = {
    "fake-sync": FakeSync,
    "fake-async": lambda: FakeAsync(settle_ns=500),
    "fake-lazy": lambda: FakeLazy(settle_ns=500, compile_ns=9_000),
}
REAL = ("cpu", "xla", "lazy", "cuda", "xpu", "mps")
"""Where XLA is here it goes before ``lazy``: the one that is opened first has the process."""


def open_bench(name: str) -> Bench:
    if name in FAKES:
        fake = FAKES[name]()
        return Bench(fake, lambda: fake.run(host_ns=HOST_NS, device_ns=DEVICE_NS))
    try:
        device = open_device(name)
    except (DeviceMissing, PackageMissing) as error:
        pytest.skip(str(error))
    import torch

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(32, 32, generator=generator).to(name)
    device.settle(x)
    return Bench(device, lambda: x @ x)


@pytest.fixture(params=[*FAKES, *REAL])
def bench(request: pytest.FixtureRequest) -> Bench:
    return open_bench(request.param)


def test_the_clock_never_goes_back(bench: Bench) -> None:
    readings = [bench.device.now_ns() for _ in range(50)]
    assert readings == sorted(readings)
    assert all(isinstance(reading, int) for reading in readings)


def test_settling_waits_at_least_as_long_as_enqueueing(bench: Bench) -> None:
    bench.device.settle(bench.step())
    start_ns = bench.device.now_ns()
    output = bench.step()
    enqueued_ns = bench.device.now_ns()
    bench.device.settle(output)
    assert start_ns < enqueued_ns <= bench.device.now_ns()


def test_a_settled_output_needs_no_more_waiting(bench: Bench) -> None:
    """After settling, settling again starts nothing and compiles nothing."""
    output = bench.step()
    bench.device.settle(output)
    counters = bench.device.counters()
    bench.device.settle(output)
    assert bench.device.counters() == counters


@pytest.mark.parametrize(
    "nest",
    [
        lambda o: (o,),
        lambda o: [[o], ()],
        lambda o: {"a": {"b": o}},
        lambda o: Holder(loss=None, extra={"logits": o}),
        lambda o: (None, 3, "text", Holder(loss=o)),
    ],
    ids=["tuple", "lists", "dicts", "dataclass", "mixed"],
)
def test_outputs_are_found_in_any_nesting(bench: Bench, nest: Callable[[Any], Any]) -> None:
    output = bench.step()
    bench.device.settle(nest(output))
    assert _is_done(bench.device, output)


def _is_done(device: Device, output: Any) -> bool:
    """Whether the work behind ``output`` has run, by means other than the settling under test."""
    if isinstance(device, FakeSync | FakeAsync | FakeLazy):
        return device.ops_executed == device.ops_recorded and output.done_ns <= device.clock.now_ns
    if device.settling is Settling.LAZY:
        return graphs_run_for(output) == 0
    if device.settling is Settling.ASYNCHRONOUS:
        import torch

        event = torch.Event(output.device)
        event.record()
        return bool(event.query())  # an event is reached at once only on an idle stream
    return True  # a synchronous call is done when it returns


METRICS = {"lazy": "torch._lazy.metrics", "xla": "torch_xla.debug.metrics"}


def graphs_run_for(output: Any) -> int:
    """How many graphs must still run to materialise ``output``: 0 where it already is."""
    from referee.device.barrier import materialise

    metrics = import_module(METRICS[output.device.type])

    def graphs() -> int:
        return sum(metrics.counter_value(name) or 0 for name in ("CachedCompile", "UncachedCompile"))

    before = graphs()
    materialise([output])
    return graphs() - before


def test_settling_nothing_is_allowed(bench: Bench) -> None:
    for outputs in (None, (), {}, 3.5, "text", [None]):
        bench.device.settle(outputs)


def test_the_timer_fits_the_kind_of_device(bench: Bench) -> None:
    timer = bench.device.timer()
    if bench.device.settling is not Settling.ASYNCHRONOUS:
        assert timer is None
        return
    assert timer is not None
    bench.device.settle(bench.step())
    timer.start()
    output = bench.step()
    timer.stop()
    assert timer.elapsed_ns() > 0
    bench.device.settle(output)


def test_counters_stand_still_over_identical_steps(bench: Bench) -> None:
    for _ in range(3):
        bench.device.settle(bench.step())
    before = dict(bench.device.counters())
    for _ in range(5):
        bench.device.settle(bench.step())
    assert dict(bench.device.counters()) == before
    assert all(isinstance(value, int) for value in before.values())


def test_involuntary_switches_are_counted_upwards(bench: Bench) -> None:
    first = bench.device.involuntary_switches()
    bench.step()
    assert bench.device.involuntary_switches() >= first >= 0


def test_the_description_uses_provenance_keys(bench: Bench) -> None:
    described = bench.device.describe()
    if bench.device.settling is Settling.SYNCHRONOUS:
        assert described is None
        return
    assert described is not None
    assert described["name"]
    assert all(f"accelerator.{key}" in REGISTRY for key in described)


def test_a_block_is_long_against_the_clock_and_short_against_a_slice(bench: Bench) -> None:
    assert 50_000 <= bench.device.block_target_ns <= 10_000_000


def test_the_name_opens_the_same_device(bench: Bench) -> None:
    again = open_device(bench.device.name)
    assert again.name == bench.device.name
    assert again.settling is bench.device.settling
