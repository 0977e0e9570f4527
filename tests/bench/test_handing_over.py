"""A backend that merges equal calls of one graph: each call is handed over by itself, so that each of them runs."""

from __future__ import annotations

import pytest

from referee.bench.measure import measure
from referee.bench.plan import Plan
from referee.bench.settling import settle_words
from referee.device.fake import FakeLazy
from referee.units import NS_PER_MS

PLAN = Plan(budget_ns=60 * NS_PER_MS, min_ns=20 * NS_PER_MS)
HOST, DEVICE = 5_000, 200_000


class Merging(FakeLazy):
    """As XLA: equal computations that are materialised together run once. Counts what it ran."""

    def __init__(self) -> None:
        super().__init__(merge_identical=True)

    def hand_over(self, outputs: object) -> None:
        self.materialise(outputs)

    def stages(self) -> dict[str, int]:
        return {"executions": self.ops_executed, "execute_ns": self.work_ns}


def test_a_loop_of_equal_calls_is_not_counted_once() -> None:
    device = Merging()
    found = measure(lambda: device.run(host_ns=HOST, device_ns=DEVICE), device=device, plan=PLAN)
    assert found.provenance.value("method.calls_per_block") > 1
    # Recording runs beside the device, except that of a block's first call.
    assert found.median_ns == pytest.approx(DEVICE, rel=0.02)
    assert found.stages == {"executions": 1.0, "execute_ns": DEVICE}
    assert "handed over" in settle_words(device)


def test_what_a_naive_loop_claims_is_taken_without_handing_over() -> None:
    device = Merging()
    found = measure(lambda: device.run(host_ns=HOST, device_ns=DEVICE), device=device, plan=PLAN)
    assert found.naive_ns == pytest.approx(HOST, rel=0.01)


def test_a_result_that_is_kept_runs_nothing_and_is_refused() -> None:
    device = Merging()
    kept = device.run(host_ns=HOST, device_ns=DEVICE)

    def step() -> object:
        device.clock.advance(HOST)
        return kept

    found = measure(step, device=device, plan=PLAN)
    assert found.median_ns is None
    assert "work-did-not-run" in [finding.code for finding in found.findings]
