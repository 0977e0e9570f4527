"""The fakes are exact: enqueue, settled and device times to the nanosecond, and each trap is sprung."""

from __future__ import annotations

import gc
import math
import statistics
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from referee.device.fake import FakeAsync, FakeLazy, FakeSync
from referee.device.noise import AR1, Bimodal, Jitter, Preemption, Slowdown, SlowFirst, VirtualClock
from referee.errors import OptionError


def test_sync_pays_host_and_device_time_in_the_call() -> None:
    device = FakeSync()
    device.settle(device.run(host_ns=5, device_ns=20))
    assert device.now_ns() == 25


def test_async_returns_after_the_enqueue_and_settles_to_the_end() -> None:
    device = FakeAsync(settle_ns=7)
    outputs = [device.run(host_ns=5, device_ns=20) for _ in range(10)]
    assert device.now_ns() == 50
    device.settle(outputs)
    assert device.now_ns() == 5 + 10 * 20  # settling (7) is hidden behind the work
    device.settle(outputs)
    assert device.now_ns() == 5 + 10 * 20 + 7


def test_async_is_host_bound_when_the_host_is_slower() -> None:
    device = FakeAsync()
    for _ in range(10):
        output = device.run(host_ns=20, device_ns=5)
    device.settle(output)
    assert device.now_ns() == 10 * 20 + 5


@given(host_ns=st.integers(0, 50), device_ns=st.integers(1, 50), calls=st.integers(1, 60), entries=st.integers(1, 8))
def test_a_full_queue_blocks_the_host(host_ns: int, device_ns: int, calls: int, entries: int) -> None:
    """Against the recurrence: call k may return only when operation k - entries is done."""
    device = FakeAsync(queue_entries=entries)
    ends: list[int] = []
    now = 0
    for k in range(calls):
        device.run(host_ns=host_ns, device_ns=device_ns)
        now += host_ns
        if k >= entries:
            now = max(now, ends[k - entries])
        ends.append(max(now, ends[-1] if ends else 0) + device_ns)
        assert device.now_ns() == now
    device.settle()
    assert device.now_ns() == max(now, ends[-1])


def test_a_settle_covers_every_device_the_outputs_live_on() -> None:
    clock = VirtualClock()
    one, two = FakeAsync(clock=clock, name="one"), FakeAsync(clock=clock, name="two")
    here = one.run(host_ns=1, device_ns=10)
    there = two.run(host_ns=1, device_ns=500)
    one.settle(here)
    assert clock.now_ns == 11  # the other device is not awaited for an output that does not live there
    one.settle((here, there))
    assert clock.now_ns == 502


def test_the_timer_reads_device_time_alone() -> None:
    device = FakeAsync()
    timer = device.timer()
    assert timer is not None
    timer.start()
    for _ in range(4):
        device.run(host_ns=1, device_ns=30)
    timer.stop()
    # The first mark is reached at 0, the first operation starts when it is queued at 1.
    assert timer.elapsed_ns() == 4 * 30 + 1
    with pytest.raises(OptionError, match="both of its marks"):
        FakeAsync().timer().elapsed_ns()  # type: ignore[union-attr]


def test_lazy_only_records() -> None:
    device = FakeLazy()
    output = device.run(host_ns=5, device_ns=1_000)
    assert (device.now_ns(), device.ops_executed, device.ops_pending) == (5, 0, 1)
    device.wait()  # a barrier alone runs nothing
    assert (device.now_ns(), device.ops_executed) == (5, 0)
    device.materialise(output)  # materialising alone does not wait
    assert (device.now_ns(), device.ops_executed) == (5, 1)
    device.wait()
    assert device.now_ns() == 1_005


def test_lazy_drops_results_that_nobody_holds() -> None:
    device = FakeLazy()
    for _ in range(10):
        output = device.run(host_ns=5, device_ns=20)
    gc.collect()
    device.settle(output)
    assert (device.ops_executed, device.ops_dropped, device.work_ns) == (1, 9, 20)
    assert device.now_ns() == 50 + 20


def test_lazy_runs_what_is_kept_or_chained() -> None:
    kept = FakeLazy()
    kept.settle([kept.run(host_ns=5, device_ns=20) for _ in range(10)])
    assert (kept.ops_executed, kept.now_ns()) == (10, 250)
    chained = FakeLazy()
    output = chained.run(host_ns=5, device_ns=20)
    for _ in range(9):
        output = chained.run(host_ns=5, device_ns=20, reads=[output])
    chained.settle(output)
    assert (chained.ops_executed, chained.ops_dropped, chained.now_ns()) == (10, 0, 250)


def test_a_lazy_barrier_lets_work_leak_into_the_next_window() -> None:
    device = FakeLazy()
    first = device.run(host_ns=5, device_ns=1_000)
    device.wait()
    window_starts = device.now_ns()
    second = device.run(host_ns=5, device_ns=10)
    device.settle()  # everything recorded runs here, the neighbour's work included
    assert device.now_ns() - window_starts == 5 + 1_010
    assert first.done_ns is not None
    assert second.done_ns is not None


def test_settling_exactly_these_outputs_leaves_the_others_recorded() -> None:
    device = FakeLazy()
    first = device.run(host_ns=5, device_ns=1_000)
    second = device.run(host_ns=5, device_ns=10)
    device.settle(second)
    assert (device.now_ns(), first.done_ns, device.ops_pending) == (20, None, 1)


def test_a_new_lazy_graph_is_compiled_once() -> None:
    device = FakeLazy(compile_ns=100)
    for length in (3, 3, 4, 3):
        device.settle([device.run(host_ns=0, device_ns=1, key="add") for _ in range(length)])
    assert device.counters()["UncachedCompile"] == 2
    assert device.now_ns() == 2 * 100 + 13


def test_identical_work_can_be_merged() -> None:
    device = FakeLazy(merge_identical=True)
    device.settle([device.run(host_ns=1, device_ns=50, key="mm") for _ in range(8)])
    assert (device.ops_executed, device.ops_merged, device.ops_dropped, device.now_ns()) == (1, 7, 0, 58)


def test_reading_a_value_back_waits_for_it_alone() -> None:
    device = FakeAsync()
    first = device.run(host_ns=1, device_ns=100)
    device.run(host_ns=1, device_ns=100)
    first.read()
    assert device.now_ns() == 101


def test_reading_the_clock_may_cost() -> None:
    device = FakeSync(read_ns=30)
    assert device.now_ns() - device.now_ns() == -30


def test_negative_work_is_refused() -> None:
    with pytest.raises(OptionError, match="negative"):
        FakeSync().run(host_ns=-1)


# the virtual machine


def test_preemptions_stop_computing_and_are_counted() -> None:
    clock = VirtualClock(preemptions=Preemption.every(100, length_ns=50))
    clock.advance(100)
    assert (clock.now_ns, clock.switches) == (100, 0)
    clock.advance(10)
    assert (clock.now_ns, clock.switches) == (160, 1)
    clock.advance(90)
    assert (clock.now_ns, clock.switches) == (300, 2)


def test_a_waiter_is_not_preempted() -> None:
    clock = VirtualClock(preemptions=[Preemption(100, 50)])
    clock.wait_until(120)
    assert (clock.now_ns, clock.switches) == (150, 0)


def test_slow_episodes_leave_no_trace_in_the_switches() -> None:
    clock = VirtualClock(slowdowns=[Slowdown(100, 300, 200)])
    clock.advance(150)
    assert (clock.now_ns, clock.switches) == (200, 0)
    clock.advance(150)
    assert clock.now_ns == 400


@given(st.lists(st.integers(1, 1_000), min_size=1, max_size=30))
def test_work_is_conserved_under_preemption(parts: list[int]) -> None:
    clock = VirtualClock(preemptions=Preemption.every(97, length_ns=31))
    for part in parts:
        clock.advance(part)
    assert clock.now_ns == sum(parts) + 31 * clock.switches


def test_endless_or_overlapping_preemptions_are_refused() -> None:
    with pytest.raises(OptionError, match="end before"):
        Preemption.every(10, length_ns=10)
    with pytest.raises(OptionError, match="backwards"):
        VirtualClock().advance(-1)


def test_noise_adds_to_each_operation() -> None:
    device = FakeSync(noise=[Jitter(host_ns=(0, 3)), SlowFirst(host_ns=1_000, calls=2)])
    times = []
    for _ in range(4):
        start_ns = device.now_ns()
        device.run(host_ns=10)
        times.append(device.now_ns() - start_ns)
    assert times == [1_010, 1_013, 10, 13]


def test_bimodal_has_the_stated_share() -> None:
    device = FakeSync(noise=[Bimodal(host_ns=90, slow_frac=0.3, seed=1)])
    slow = 0
    for _ in range(4_000):
        start_ns = device.now_ns()
        device.run(host_ns=10)
        slow += device.now_ns() - start_ns == 100
    assert 0.27 < slow / 4_000 < 0.33  # four standard deviations are 0.029


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.8])
def test_ar1_has_the_stated_correlation_and_spread(phi: float) -> None:
    noise = AR1(phi=phi, sigma_ns=1_000, seed=7)
    values = [noise.delay(index=i, now_ns=0).host_ns for i in range(20_000)]
    mean = statistics.fmean(values)
    spread = statistics.pstdev(values)
    lag1 = sum((a - mean) * (b - mean) for a, b in pairwise(values)) / len(values) / spread**2
    assert math.isclose(lag1, phi, abs_tol=0.03)
    assert math.isclose(spread, 1_000, rel_tol=0.05)


def test_ar1_by_slot_gives_one_value_per_stretch_of_time() -> None:
    noise = AR1(phi=0.5, sigma_ns=100, slot_ns=1_000)
    first = {noise.delay(index=i, now_ns=i * 10).host_ns for i in range(100)}
    assert len(first) == 1
    assert noise.delay(index=0, now_ns=1_000).host_ns not in first


def test_an_impossible_correlation_is_refused() -> None:
    with pytest.raises(OptionError, match="between -1 and 1"):
        AR1(phi=1.0, sigma_ns=1)
