from __future__ import annotations

from dataclasses import dataclass

import pytest

from referee.bench.measure import measure
from referee.bench.plan import Plan
from referee.bench.work import check_flat, check_peak, check_table
from referee.device.fake import FakeAsync, FakeOutput
from referee.device.protocol import Device
from referee.records.provenance import TensorSpec
from referee.units import NS_PER_MS

SIZES = [256, 512, 1024, 2048, 4096]


def test_a_table_whose_times_do_not_depend_on_the_size_is_not_believed() -> None:
    """A published suite without a wait: 0.03 ms for every matrix product, whatever its size."""
    times = [30_000.0, 31_000, 30_500, 29_800, 30_200]
    flop = [2.0 * n**3 for n in SIZES]
    found = check_table([n**3 for n in SIZES], times, flop=flop, peak_flop_per_s=13.6e12)
    assert [(f.code, f.severity) for f in found] == [("flat-in-work", "warning"), ("above-peak", "fatal")]
    assert found[1].evidence["ratio"] == pytest.approx(2 * 4096**3 / 30.2e-6 / 13.6e12)
    assert "not waiting" in found[1].message


def test_the_same_table_with_the_wait_is() -> None:
    times = [40_000.0, 60_000, 250_000, 1_700_000, 12_000_000]
    found = check_table([n**3 for n in SIZES], times, flop=[2.0 * n**3 for n in SIZES], peak_flop_per_s=13.6e12)
    assert found == ()


def test_flat_times_over_little_growth_mean_nothing() -> None:
    assert check_flat([1, 2, 4], [100.0, 100, 100]) == ()
    assert check_flat([1], [100.0]) == ()


def test_growing_times_are_not_flat() -> None:
    assert check_flat([1, 8, 64], [100.0, 105, 130]) == ()


@pytest.mark.parametrize(("rate", "fatal"), [(0.99, False), (1.01, True)])
def test_the_peak_is_the_limit(rate: float, fatal: bool) -> None:
    found = check_peak(1_000.0, flop=rate * 1e6, peak_flop_per_s=1e12)
    assert bool(found) == fatal
    found = check_peak(1_000.0, bytes_moved=rate * 1e6, peak_bytes_per_s=1e12)
    assert bool(found) == fatal


def test_without_a_peak_nothing_is_said() -> None:
    assert check_peak(1.0, flop=1e12) == ()


@dataclass(frozen=True)
class Known:
    """An observation that knows the work of a call and the peak of the device."""

    flop: int | None
    peak: float | None
    dtype: str = "float32"
    shapes: tuple[TensorSpec, ...] = ()

    def peak_flop_per_s(self, device: Device) -> float | None:
        return self.peak


@pytest.mark.parametrize(
    ("flop", "peak", "fatal"),
    [(2_000_000, 1e12, False), (40_000_000, 1e12, True), (40_000_000, None, False), (None, 1e12, False)],
)
def test_a_headline_above_the_peak_is_no_headline(flop: int | None, peak: float | None, fatal: bool) -> None:
    """20 µs a call: 2 MFLOP are 0.1 TFLOP/s, 40 MFLOP are twice what the device can do."""
    device = FakeAsync()

    def step() -> FakeOutput:
        return device.run(host_ns=1_000, device_ns=20_000)

    plan = Plan(budget_ns=30 * NS_PER_MS, min_ns=10 * NS_PER_MS)
    found = measure(step, device=device, plan=plan, observation=Known(flop, peak))
    assert ("above-peak" in [f.code for f in found.findings]) == fatal
    assert (found.median_ns is None) == fatal
    assert found.flop == flop
