from __future__ import annotations

import pytest

from referee.bench.selftest import make_spin, settle_ns, time_spin
from referee.device.fake import FakeLazy, FakeSync


@pytest.mark.parametrize("length_ns", [0, 10_000, 1_000_000])
def test_a_spin_on_a_virtual_clock_agrees_with_its_own_reading(length_ns: int) -> None:
    """Each reading costs 500 ns: the spin's own interval leaves out exactly one of its readings, and nothing else."""
    device = FakeSync(read_ns=500)
    own_ns, beyond_ns = time_spin(length_ns, device=device, clock=device.now_ns)
    assert own_ns == max(length_ns, 500)
    assert beyond_ns == 500


def test_a_clock_that_loses_time_is_found_out() -> None:
    """The device's clock runs one percent slow against the one the spin reads."""
    device = FakeSync(read_ns=500)

    def fast() -> int:
        return device.now_ns() * 101 // 100

    own_ns, beyond_ns = time_spin(100_000, device=device, clock=fast)
    assert beyond_ns == pytest.approx(-own_ns / 101 + 500, abs=600)


def test_a_spin_keeps_how_long_each_call_took() -> None:
    device = FakeSync(read_ns=500)
    spin = make_spin(10_000, clock=device.now_ns)
    for _ in range(3):
        spin.call()
    assert spin.took_ns == [10_000] * 3


def test_a_settle_that_is_part_of_the_time_is_part_of_what_an_empty_callable_says_of_itself() -> None:
    assert settle_ns(FakeLazy(settle_ns=5_000)) == 5_000
    assert settle_ns(FakeSync(settle_ns=5_000)) == 0
