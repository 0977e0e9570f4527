"""Pairs on a virtual clock: differences are exact, hot and cold, and preempted blocks are left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from itertools import count

import pytest

from referee.anatomy.mix import Mix
from referee.anatomy.timing import NOTHING, Pair, Timed, time_pairs
from referee.device.fake import FakeSync
from referee.device.noise import Preemption, VirtualClock
from referee.errors import CannotTell

BUDGET_NS = 20_000_000


def spend(device: FakeSync, ns: int) -> Timed:
    return Timed("spend()", {"spend": lambda: device.clock.advance(ns)})


def test_a_pair_is_what_one_costs_beyond_the_other() -> None:
    device = FakeSync()
    pairs = [
        Pair("stage", spend(device, 1_300), spend(device, 1_000)),
        Pair("whole", spend(device, 1_300)),
        Pair("negative", spend(device, 1_000), spend(device, 1_040)),
    ]
    costs = time_pairs(pairs, device=device, budget_ns=BUDGET_NS)
    assert [cost.hot.point for cost in costs] == [pytest.approx(300), pytest.approx(1_300), pytest.approx(-40)]
    assert all(cost.cold is None for cost in costs)


def test_cold_is_the_mix_with_and_without() -> None:
    device = FakeSync()
    last = ["mix"]

    def target() -> None:
        # Twice as dear behind something else: what a cache that was used by others does.
        device.clock.advance(2_000 if last[0] == "mix" else 1_000)
        last[0] = "target"

    def other() -> None:
        device.clock.advance(700)
        last[0] = "mix"

    mix = Mix(groups=(("other()",), ("other()", "other()")), names={"other": other})
    timed = Timed("target()", {"target": target})
    (cost,) = time_pairs([Pair("op", timed)], device=device, budget_ns=BUDGET_NS, mix=mix)
    assert cost.hot.point == pytest.approx(1_000, rel=0.02)
    assert cost.cold is not None
    assert cost.cold.point == pytest.approx(2_000)


def test_preempted_blocks_are_left_out() -> None:
    clock = VirtualClock(preemptions=(Preemption(at_ns=at, length_ns=3_000_000) for at in count(300_000, 470_000)))
    device = FakeSync(clock=clock)
    (cost,) = time_pairs([Pair("op", spend(device, 1_000))], device=device, budget_ns=60_000_000)
    assert cost.hot.point == pytest.approx(1_000)


def test_a_budget_that_is_gone_leaves_the_least_number_of_rounds_of_either_kind() -> None:
    device = FakeSync()
    mix = Mix(groups=(("other()",),) * 40, names={"other": lambda: device.clock.advance(50_000)})
    (cost,) = time_pairs([Pair("op", spend(device, 1_000))], device=device, budget_ns=1, enough=0, mix=mix)
    assert cost.hot.point == pytest.approx(1_000)
    assert cost.cold is not None
    assert cost.cold.point == pytest.approx(1_000)
    assert (cost.hot.n, cost.cold.n) == (12, 12)


def test_calls_of_many_milliseconds_are_blocks_by_themselves_and_not_taken_cold() -> None:
    device, calls = FakeSync(), [0]

    def product(ns: int) -> None:
        calls[0] += 1
        device.clock.advance(ns)

    mix = Mix(groups=(("other()",),) * 40, names={"other": lambda: device.clock.advance(1_000)})
    pair = Pair("stage", timed(product, 30_000_000), timed(product, 20_000_000))
    (cost,) = time_pairs([pair], device=device, budget_ns=BUDGET_NS, enough=0, mix=mix)
    assert cost.hot.point == pytest.approx(10_000_000)
    assert cost.cold is None
    assert calls[0] <= 2 * (4 + 12), "four calls a side to see how long they are, and the fewest rounds"


def test_without_clean_blocks_there_is_no_number() -> None:
    clock = VirtualClock(preemptions=(Preemption(at_ns=at, length_ns=50_000) for at in count(10_000, 60_000)))
    with pytest.raises(CannotTell, match="without being preempted"):
        time_pairs([Pair("op", spend(FakeSync(clock=clock), 1_000))], device=FakeSync(clock=clock), budget_ns=1)


def test_a_long_call_that_is_never_left_alone_ends_early_with_what_it_took() -> None:
    clock = VirtualClock(preemptions=(Preemption(at_ns=at, length_ns=5_000_000) for at in count(1_000_000, 20_000_000)))
    device, calls = FakeSync(clock=clock), [0]

    def product() -> None:
        calls[0] += 1
        device.clock.advance(300_000_000)

    with pytest.raises(CannotTell, match=r"a call took [34]\d\d") as caught:
        time_pairs([Pair("whole", Timed("product()", {"product": product}))], device=device, budget_ns=BUDGET_NS)
    assert "Only 0 of 7 blocks" in str(caught.value)
    assert "smaller shape" in str(caught.value.hint)
    assert calls[0] < 12 + 6


def test_an_expression_with_values_runs_as_it_is_written() -> None:
    seen: list[int] = []
    Timed("seen.append(k)", {"seen": seen, "k": 4}).loop()(3)
    NOTHING.loop()(2)
    assert seen == [4, 4, 4]


def timed(call: Callable[[int], None], which: int) -> Timed:
    return Timed("call(which)", {"call": call, "which": which})


@pytest.mark.parametrize("block_ns", [30_000, 100_000, 150_000])
def test_long_calls_have_either_place_of_their_outputs_and_no_part_of_the_stage_before(block_ns: int) -> None:
    device, seen = FakeSync(), [0]

    def short(_: int) -> None:
        device.clock.advance(500)
        seen.append(-1)

    def long(extra: int) -> None:
        # Every other output lies where writing is dearer; the first call behind a short stage finds nothing at hand.
        device.clock.advance(20_000 + extra + 400 * (len(seen) % 2) + (3_000 if seen[-1] < 0 else 0))
        seen.append(extra)

    pairs = [Pair("before", timed(short, 0)), Pair("stage", timed(long, 300), timed(long, 0))]
    _, cost = time_pairs(pairs, device=device, budget_ns=BUDGET_NS, block_ns=block_ns)
    assert cost.hot.point == pytest.approx(300)
    assert (cost.hot.low, cost.hot.high) == (pytest.approx(300), pytest.approx(300))


def test_the_interval_of_long_calls_holds_what_each_half_of_the_time_says() -> None:
    device = FakeSync()
    middle_ns = device.now_ns() + BUDGET_NS // 2

    def call(extra: int) -> None:
        # From the middle on, memory lies where one of the two is dearer.
        device.clock.advance(20_000 + extra + (600 if extra and device.now_ns() > middle_ns else 0))

    (cost,) = time_pairs([Pair("stage", timed(call, 100), timed(call, 0))], device=device, budget_ns=BUDGET_NS)
    assert cost.hot.low == pytest.approx(100)
    assert cost.hot.high == pytest.approx(700)


def cheap_mode() -> tuple[Mix, Callable[[], AbstractContextManager[None]], FakeSync]:
    """A mix that costs 700 ns, and a context in which it costs 300."""
    device, costs = FakeSync(), [700]

    @contextmanager
    def mode() -> Iterator[None]:
        costs.append(300)
        yield
        costs.pop()

    names = {"other": lambda: device.clock.advance(costs[-1])}
    return Mix(groups=(("other()",), ("other()", "other()")), names=names), mode, device


def test_a_context_that_changes_the_mix_is_no_part_of_what_stands_in_it() -> None:
    mix, mode, device = cheap_mode()
    timed = replace(spend(device, 1_000), context=mode)
    (cost,) = time_pairs([Pair("op", timed)], device=device, budget_ns=BUDGET_NS, mix=mix)
    assert cost.cold is not None
    assert cost.cold.point == pytest.approx(1_000)


def test_sides_in_different_contexts_are_not_taken_cold() -> None:
    mix, mode, device = cheap_mode()
    inside, outside = replace(spend(device, 1_500), context=mode), spend(device, 1_000)
    pairs = [Pair("across", inside, outside), Pair("alike", outside)]
    across, alike = time_pairs(pairs, device=device, budget_ns=BUDGET_NS, mix=mix)
    assert across.hot.point == pytest.approx(500)
    assert across.cold is None
    assert alike.cold is not None
    assert alike.cold.point == pytest.approx(1_000)
