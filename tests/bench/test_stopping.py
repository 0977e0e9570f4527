from __future__ import annotations

import pytest

import referee.bench.stopping as stopping
from referee.bench.loop import Block
from referee.bench.plan import MIN_BLOCKS, Plan
from referee.bench.sampling import stolen_frac, usable_blocks
from referee.bench.stopping import STOP_REASONS, MaxBlocks, Sampling, UntilPrecise, UntilTime, first_reason, rules_of


def test_looking_at_the_interval_stays_linear_in_the_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that sorts everything after each sample is quadratic and practically hangs on a noisy step."""
    looked: list[int] = []
    real = stopping.median_interval

    def counted(samples: list[float], *, level: float):  # type: ignore[no-untyped-def]
        looked.append(len(samples))
        return real(samples, level=level)

    monkeypatch.setattr(stopping, "median_interval", counted)
    rule = UntilPrecise(frac=1e-9, level=0.95, min_ns=0, min_blocks=30)
    seen = Sampling(start_ns=0)
    for k in range(20_000):
        seen.clean_ns.append(100.0 + k * 0.6180339887 % 7)
        seen.now_ns += 1
        assert rule.reason(seen) is None
    assert sum(looked) < 6 * 20_000


def test_the_budget_ends_before_a_block_that_would_not_fit() -> None:
    rule = UntilTime(1_000)
    assert rule.reason(Sampling(start_ns=0, now_ns=800, blocks=9, last_block_ns=150)) is None
    assert rule.reason(Sampling(start_ns=0, now_ns=900, blocks=9, last_block_ns=150)) == "budget"


def test_three_blocks_are_made_whatever_the_budget() -> None:
    late = Sampling(start_ns=0, now_ns=10**12, blocks=MIN_BLOCKS - 1, last_block_ns=10**9)
    assert UntilTime(1_000).reason(late) is None


def test_a_narrow_interval_within_the_shortest_time_does_not_end_it() -> None:
    """An interval that is narrow inside one slow episode is narrow about the wrong value."""
    rule = UntilPrecise(frac=0.01, level=0.95, min_ns=1_000, min_blocks=5)
    seen = Sampling(start_ns=0, now_ns=999, blocks=50, clean_ns=[100.0] * 50)
    assert rule.reason(seen) is None
    seen.now_ns = 1_000
    assert rule.reason(seen) == "precise"


def test_every_word_is_documented() -> None:
    rules = rules_of(Plan(), until_ns=0)
    for seen in (
        Sampling(start_ns=0, now_ns=1, blocks=10**6, last_block_ns=1),
        Sampling(start_ns=0, now_ns=10**12, blocks=50, clean_ns=[1.0] * 50),
    ):
        assert first_reason(rules, seen) in STOP_REASONS
    assert MaxBlocks(1).reason(Sampling(start_ns=0, blocks=1)) in STOP_REASONS


def block(ns: int, switches: int) -> Block:
    return Block(calls=1, issue_ns=ns, settled_ns=ns, switches=switches)


def test_clean_blocks_alone_count_where_there_are_three() -> None:
    blocks = [block(100_000, 0)] * 3 + [block(4_000_000, 1)] * 50
    assert usable_blocks(blocks) == (True,) * 3 + (False,) * 50


def test_short_blocks_that_are_all_preempted_give_nothing() -> None:
    """Two threads on busy cores: each call waits for the other thread's slice, and reads many times its cost."""
    blocks = [block(8_000_000, 1)] * 43
    assert stolen_frac(blocks) >= 0.5
    assert not any(usable_blocks(blocks))


def test_long_blocks_with_a_few_switches_count() -> None:
    blocks = [block(1_000_000_000, 10)] * 5
    assert stolen_frac(blocks) <= 0.04
    assert all(usable_blocks(blocks))


def test_threads_that_wait_for_one_that_lost_its_core_give_nothing() -> None:
    """35 ms a call with a single switch: few switches, but the threads waited for a processor most of the time."""
    blocks = [Block(1, 35_000_000, 35_000_000, 1, stolen_ns=30_000_000, exact=False)] * 8
    assert not any(usable_blocks(blocks))
    exact = [Block(1, 35_000_000, 35_000_000, 1, stolen_ns=20_000_000, exact=True)] * 8
    assert all(usable_blocks(exact)), "of one thread it is known what it lost"
