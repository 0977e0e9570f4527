"""What only the garbage collector frees, which is off while the clock runs, is told where it takes much memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from referee.bench.measure import measure
from referee.bench.plan import Plan
from referee.device.fake import FakeSync
from referee.units import NS_PER_MS

PLAN = Plan(budget_ns=20 * NS_PER_MS, min_ns=10 * NS_PER_MS, clocks=("settled_amortised",))


class Growing(FakeSync):
    """Occupies so many bytes more with each call."""

    per_call = 0
    calls = 0

    def resident_bytes(self) -> int:
        return self.per_call * self.calls


def stepping(device: Growing, *, cyclic: bool) -> Callable[[], object]:
    def step() -> object:
        device.calls += 1
        held: list[object] = []
        held.append(held if cyclic else None)
        return device.run(host_ns=20_000)

    return step


@pytest.mark.parametrize(
    ("per_call", "cyclic", "told"), [(1 << 20, True, True), (1 << 20, False, False), (1 << 10, True, False)]
)
def test_memory_that_cycles_hold_is_told(per_call: int, cyclic: bool, told: bool) -> None:
    device = Growing()
    device.per_call = per_call
    found = measure(stepping(device, cyclic=cyclic), device=device, plan=PLAN)
    messages = [finding.message for finding in found.findings if finding.code == "results-kept"]
    assert bool(messages) is told
    assert not told or "in a cycle" in messages[0]
    assert found.median_ns == pytest.approx(20_000)


def test_this_process_occupies_memory() -> None:
    pytest.importorskip("torch")
    from referee.device.registry import open_device

    resident = open_device("cpu").resident_bytes()  # type: ignore[attr-defined]
    assert resident is None or resident > 1 << 20
