"""The claims about batch sizes, sizes and fixes follow the costs that were planted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from referee.device.fake import FakeAsync, FakeDevice, FakeSync
from referee.units import format_ratio

from .planted import Taping, laboratory, missing, planted_models, row


@pytest.mark.parametrize(
    ("fixed_ns", "per_row_ns", "outcome"), [(10_000, 100, "holds"), (10_000, 0, "differs"), (0, 1_000, "differs")]
)
def test_a_sweep_shows_both_regimes_or_one(fixed_ns: int, per_row_ns: int, outcome: str) -> None:
    device = FakeSync()
    operators = planted_models(device, lambda rows: fixed_ns + per_row_ns * rows)
    found = row("E8", laboratory(device, operators=operators))
    assert found.outcome == outcome
    assert ("the knee is at a batch of" in found.why) == (outcome == "holds")


@pytest.mark.parametrize(("per_row_ns", "outcome"), [(0, "holds"), (10_000, "differs")])
def test_eight_times_the_batch_takes_what_was_planted(per_row_ns: int, outcome: str) -> None:
    device = FakeSync()

    def cost(rows: int) -> int:
        return 10_000 + (per_row_ns if rows <= 8 else 1_000) * rows

    found = row("D5", laboratory(device, operators=planted_models(device, cost)))
    ratio = (10_000 + 8 * per_row_ns) / (10_000 + per_row_ns)
    assert (found.measured, found.outcome) == (pytest.approx(ratio, rel=0.01), outcome)


@pytest.mark.parametrize(
    ("fixed_ns", "told"), [(10_000, "overhead sets the time"), (100, "arithmetic sets much of it")]
)
def test_the_share_of_arithmetic_in_the_small_step_is_measured(fixed_ns: int, told: str) -> None:
    """A layer takes what was planted and 30 ns for each element of its input, of which a row of 1 × 1 has one."""
    device = FakeSync()
    names = planted_models(device, lambda elements: fixed_ns + 30 * elements)
    names.randn = lambda rows, width: SimpleNamespace(shape=(rows * width,))
    found = row("D5", laboratory(device, operators=names))
    assert told in found.why


def test_a_step_that_is_work_must_move() -> None:
    """Where nothing moves with the batch, that a small step does not says nothing about it."""
    device = FakeSync()
    found = row("D5", laboratory(device, operators=planted_models(device, lambda _: 10_000)))
    assert (found.measured, found.outcome) == (pytest.approx(1, rel=0.01), "differs")
    assert "A step that is work, at eight times its batch: 1.00× is below the 1.25× that the claim allows." in found.why


@pytest.mark.parametrize(("fixed_ns", "outcome"), [(100_000, "holds"), (0, "differs")])
def test_a_dollar_buys_more_in_larger_batches_or_not(fixed_ns: int, outcome: str) -> None:
    device = FakeSync()
    found = row("D8", laboratory(device, operators=planted_models(device, lambda rows: fixed_ns + 1_000 * rows)))
    ratio = 256 * (fixed_ns + 1_000) / (fixed_ns + 256_000)
    times = format_ratio(256 / ratio)
    assert f"256 times the samples take {times} the time, and 256 ÷ {times.rstrip('×')} is {format_ratio(ratio)}: " in (
        found.why
    )
    assert (found.measured, found.outcome) == (pytest.approx(ratio, rel=0.01), outcome)


@pytest.mark.parametrize(("per_million_ns", "outcome"), [(4_000, "holds"), (100, "differs"), (60_000, "differs")])
def test_the_size_at_which_the_device_takes_over_is_found(per_million_ns: int, outcome: str) -> None:
    """The host needs 8 µs; the device 1 µs and what was planted per million elements."""
    device = FakeAsync()

    def add(size: int, _: int) -> Any:
        return device.run(host_ns=8_000, device_ns=1_000 + per_million_ns * size // 10**6)

    names = SimpleNamespace(randn=lambda size: SimpleNamespace(to=lambda _: size), add=add)
    found = row("E6", laboratory(operators=names, open=lambda _: device))
    assert found.outcome == outcome
    assert found.low is not None
    assert found.high is not None
    assert found.low <= 7_000 / per_million_ns * 10**6 <= found.high


class _Moved:
    """A model or a tensor that is where it is told to be."""

    def __init__(self, call: Any = None, rows: int = 0) -> None:
        self.call, self.rows = call, rows

    def to(self, _: str) -> _Moved:
        return self

    def __call__(self, x: _Moved) -> Any:
        return self.call(x)


@pytest.mark.parametrize(
    ("compiled_ns", "graph_ns", "outcome", "share"),
    [(20_000, 22_000, "holds", 1.0), (60_000, 30_000, "differs", 0.75), (150_000, 200_000, "differs", 0.25)],
)
def test_the_order_of_the_fixes_is_measured(compiled_ns: int, graph_ns: int, outcome: str, share: float) -> None:
    """Eagerly 100 µs a step; eight times the batch takes twice as long."""
    device = FakeAsync()

    def taking(ns: int) -> Any:
        return device.run(host_ns=ns, device_ns=1_000)

    names = SimpleNamespace(
        nn=SimpleNamespace(
            Sequential=lambda *_: _Moved(lambda x: taking(100_000 if x.rows == 4 else 200_000)),
            Linear=lambda *_: None,
            GELU=lambda: None,
        ),
        randn=lambda rows, _: _Moved(rows=rows),
        compile=lambda _: lambda _: taking(compiled_ns),
        no_grad=Taping().no_grad,
    )
    lab = laboratory(operators=names, open=lambda _: device, replaying=lambda *_: lambda: taking(graph_ns))
    found = row("D6", lab)
    assert (found.measured, found.outcome) == (share, outcome)
    assert "larger batch 4.00×" in found.why


@pytest.mark.parametrize(("small_ns", "outcome"), [(9_000, "holds"), (5_000, "differs"), (2_000, "differs")])
def test_a_faster_device_on_small_work(small_ns: int, outcome: str) -> None:
    """One device needs 40 µs for the large product and what was planted for the small one; the other 90 and 5 µs."""
    costs = {"cuda:0": {4096: 90_000, 32: 5_000}, "cuda:1": {4096: 40_000, 32: small_ns}}
    devices = {name: FakeAsync(name=name) for name in costs}

    def randn(size: int, _: int) -> Any:
        return SimpleNamespace(to=lambda name: (name, size))

    def mm(x: tuple[str, int], _: object) -> Any:
        return devices[x[0]].run(host_ns=500, device_ns=costs[x[0]][x[1]])

    found = row("D7", laboratory(operators=SimpleNamespace(randn=randn, mm=mm), open=lambda name: devices[name]))
    assert (found.measured, found.outcome) == (pytest.approx(small_ns / 5_000, rel=0.02), outcome)


def test_two_equal_devices_cannot_tell_what_a_faster_one_does() -> None:
    device = FakeAsync()
    names = SimpleNamespace(
        randn=lambda size, _: SimpleNamespace(to=lambda _: size),
        mm=lambda *_: device.run(host_ns=500, device_ns=9_000),
    )
    assert row("D7", laboratory(operators=names, open=lambda _: device)).outcome == "needs-device"


def test_one_device_is_not_two() -> None:
    device = FakeAsync()

    def only_first(name: str) -> FakeDevice:
        return device if name == "cuda:0" else missing(name)

    found = row("D7", laboratory(operators=SimpleNamespace(), open=only_first))
    assert found.outcome == "needs-device"
    assert found.why.startswith("Needs two CUDA devices of different speed. Recorded traces cannot answer it: ")
    assert found.teaches.startswith("Nothing yet: it is not settled here. If the claim holds: Where the CPU sets ")
