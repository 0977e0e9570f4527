"""A core whose clock moves takes everything along: the chain between the blocks tells by how much."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.bench.core_clock import (
    EVERY_NS,
    ClockReader,
    ClockReading,
    check_clock,
    clock_ratio,
    core_clock,
    ratio_at_one_clock,
)
from referee.bench.follows import broken_figures
from referee.bench.measure import measure
from referee.bench.plan import Plan
from referee.bench.sweep import Built, sweep
from referee.bench.verify import verify
from referee.device.fake import FakeAsync, FakeSync
from referee.device.noise import Preemption, Slowdown, VirtualClock
from referee.device.registry import open_device
from referee.records.finding import Finding
from referee.records.measurement import CoreClock, Measurement, Sweep
from referee.records.provenance import NOT_READ
from referee.records.schema import from_json, to_json
from referee.report.compose import compose
from referee.report.text import render_text
from referee.units import NS_PER_MS, NS_PER_S

CALL_NS = 20_000
CHAIN_NS = 4_000
Edits: TypeAlias = Mapping[str, Callable[[CoreClock], object]]
PLAN = Plan(budget_ns=300 * NS_PER_MS, min_ns=200 * NS_PER_MS)


def on_a_core(
    *,
    percent: int = 100,
    from_ns: int = 0,
    preempted: bool = False,
    chain_ns: int = CHAIN_NS,
    findings: tuple[Finding, ...] = (),
) -> Measurement:
    """A step of 20 µs on a core that takes ``percent`` of its time from ``from_ns`` on."""
    slowdowns = [Slowdown(start_ns=from_ns, end_ns=100 * NS_PER_S, percent=percent)] if percent != 100 else []
    taken = Preemption.every(6 * NS_PER_MS, length_ns=4 * NS_PER_MS) if preempted else ()
    device = FakeSync(clock=VirtualClock(slowdowns=slowdowns, preemptions=taken))
    device.chain_work_ns = chain_ns
    return measure(lambda: device.run(host_ns=CALL_NS), device=device, plan=PLAN, findings=findings)


def clock_of(found: Measurement) -> CoreClock:
    assert found.core_clock is not None
    return found.core_clock


def codes(found: Measurement) -> set[str]:
    return {finding.code for finding in found.findings}


@given(percent=st.integers(50, 200))
@settings(max_examples=20, deadline=None)
def test_at_one_clock_the_figures_of_any_clock_are_the_same(percent: int) -> None:
    slow, usual = on_a_core(percent=percent), on_a_core()
    assert clock_of(slow).chain_ns == CHAIN_NS * percent // 100
    assert clock_of(slow).floor_ns == slow.floor_ns
    assert slow.floor_ns is not None
    assert usual.floor_ns is not None
    assert slow.floor_ns == pytest.approx(usual.floor_ns * percent / 100, rel=1e-3)
    assert clock_ratio(usual, slow) == pytest.approx(percent / 100, rel=1e-3)
    assert ratio_at_one_clock(usual, slow) == pytest.approx(1, rel=1e-3)


def test_it_is_read_every_few_milliseconds_and_costs_the_step_nothing() -> None:
    found = on_a_core()
    assert found.median_ns == CALL_NS
    calls = found.provenance.value("method.calls_per_block")
    assert isinstance(calls, int)
    timed_ns = sum(found.samples_ns) * calls
    assert len(clock_of(found).readings_ns) == pytest.approx(timed_ns / EVERY_NS, rel=0.1)


def test_no_more_is_said_of_the_clock_than_of_the_number() -> None:
    zeros = Finding(code="zero-inputs", severity="fatal", message="Every input is all zeros.")
    found = on_a_core(percent=110, from_ns=150 * NS_PER_MS, findings=(zeros,))
    assert (found.median_ns, found.core_clock) == (None, None)
    assert "zero-inputs" in codes(found)
    assert "core-clock-moved" not in codes(found)


def test_preempted_readings_do_not_count() -> None:
    assert clock_of(on_a_core(preempted=True)).chain_ns == CHAIN_NS


@pytest.mark.parametrize(("percent", "told"), [(101, False), (104, True), (90, True)])
def test_a_clock_that_moves_meanwhile_is_told(percent: int, told: bool) -> None:
    found = on_a_core(percent=percent, from_ns=150 * NS_PER_MS)
    assert ("core-clock-moved" in codes(found)) is told
    clock = clock_of(found)
    assert clock.high_ns / clock.low_ns == pytest.approx(max(percent / 100, 100 / percent), rel=1e-3)
    assert clock.floor_ns / clock.chain_ns == pytest.approx(CALL_NS / CHAIN_NS, rel=1e-3)
    assert clock.median_ns / clock.chain_ns == pytest.approx(CALL_NS / CHAIN_NS, rel=1e-3)


@given(at=st.lists(st.integers(30, 280), min_size=1, max_size=4, unique=True), seed=st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_however_the_clock_moves_the_floor_at_one_clock_is_the_same(at: list[int], seed: int) -> None:
    starts = sorted(at)
    ends = [*starts[1:], 100_000]
    slowdowns = [
        Slowdown(start_ns=start * NS_PER_MS, end_ns=end * NS_PER_MS, percent=100 + (seed + 7 * k) % 12)
        for k, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]
    device = FakeSync(clock=VirtualClock(slowdowns=slowdowns))
    device.chain_work_ns = CHAIN_NS
    clock = clock_of(measure(lambda: device.run(host_ns=CALL_NS), device=device, plan=PLAN))
    assert clock.floor_ns / clock.chain_ns == pytest.approx(CALL_NS / CHAIN_NS, rel=5e-3)
    assert clock.median_ns / clock.chain_ns == pytest.approx(CALL_NS / CHAIN_NS, rel=5e-3)


def test_where_nothing_can_be_read_nothing_is_said() -> None:
    device = FakeSync()
    assert measure(lambda: device.run(host_ns=CALL_NS), device=device, plan=PLAN).core_clock is None
    queued = FakeAsync()
    assert measure(lambda: queued.run(host_ns=1_000, device_ns=CALL_NS), device=queued, plan=PLAN).core_clock is None
    two = (ClockReading(0, CHAIN_NS), ClockReading(1, CHAIN_NS))
    assert core_clock(two, np.full(2, 1.0), usable=[True, True]) is None
    assert core_clock((*two, ClockReading(2, CHAIN_NS)), np.full(2, 1.0), usable=[False, False]) is None
    assert check_clock(None) == ()
    without = replace(on_a_core(), core_clock=None)
    assert clock_ratio(on_a_core(), without) is None
    assert ratio_at_one_clock(without, on_a_core()) is None


def test_a_reader_is_asked_once_where_the_device_keeps_no_chain() -> None:
    class Asked(FakeSync):
        asked = 0

        def chain_ns(self) -> int | None:
            self.asked += 1
            return None

    device: Asked = Asked()
    reader = ClockReader(device)
    for now_ns in range(0, 10 * EVERY_NS, EVERY_NS):
        reader.between_blocks(done=0, now_ns=now_ns)
    assert device.asked == 1
    assert reader.readings == ()


def test_verify_says_what_is_left_at_one_clock() -> None:
    saved, again = on_a_core(), on_a_core(percent=108)
    found = verify(saved, again)
    assert found.answer == "not-reproduced"  # the number is not the same; the reason is
    assert "the core itself ran slower here (the same instructions took 1.080 of their time then)" in found.why
    assert "at one clock the ratio is 1.000" in found.why
    assert found.core_clock_ratio == pytest.approx(1.08, rel=1e-3)
    assert found.ratio_at_one_clock == pytest.approx(1, rel=1e-3)
    assert "At one core clock" in render_text(compose(found), width=100, color=False)
    same = verify(saved, on_a_core())
    assert "core" not in same.why
    assert same.core_clock_ratio == 1.0


def test_a_faster_core_is_called_so() -> None:
    assert "faster here (the same instructions took 0.900 of" in verify(on_a_core(), on_a_core(percent=90)).why


def test_readings_survive_saving_and_edited_ones_are_named() -> None:
    found = on_a_core()
    assert from_json(to_json(found)) == found
    assert broken_figures(found) == ()
    edited = replace(found, core_clock=replace(clock_of(found), chain_ns=3_000.0))
    assert broken_figures(edited) == ("core_clock.chain_ns is 3.00 µs, its readings give 4.00 µs",)
    without = replace(found, core_clock=replace(clock_of(found), readings_ns=(), after_blocks=()))
    assert len(broken_figures(without)) == 5


@pytest.mark.parametrize(
    ("edited", "named"),
    [
        ({"readings_ns": lambda c: (*c.readings_ns, CHAIN_NS)}, "readings of the core's clock stand beside"),
        ({"after_blocks": lambda c: c.after_blocks[1:]}, "readings of the core's clock stand beside"),
        ({"readings_ns": lambda c: (0,) * len(c.readings_ns)}, "is no time"),
        ({"readings_ns": lambda c: tuple(-ns for ns in c.readings_ns), "chain_ns": lambda _: -CHAIN_NS}, "is no time"),
        ({"readings_ns": lambda c: (10**400, *c.readings_ns[1:])}, "is no time"),
        ({"after_blocks": lambda c: c.after_blocks[::-1]}, "not read in the order of the blocks"),
        ({"after_blocks": lambda c: tuple(at + 10**9 for at in c.after_blocks)}, "not read in the order of the blocks"),
        ({"chain_ns": lambda _: 0.0}, "core_clock.chain_ns"),
        ({"low_ns": lambda _: 0.0}, "core_clock.low_ns"),
        ({"high_ns": lambda _: 9_999.0}, "core_clock.high_ns"),
    ],
)
def test_readings_that_cannot_have_been_taken_are_named(edited: Edits, named: str) -> None:
    found = on_a_core()
    clock = clock_of(found)
    damaged = replace(found, core_clock=replace(clock, **{name: edit(clock) for name, edit in edited.items()}))
    held = verify(damaged, found)
    assert held.answer == "not-comparable"
    assert named in held.why
    assert "at one clock" not in held.why
    assert held.core_clock_ratio is None
    assert held.ratio_at_one_clock is None
    render_text(compose(damaged), width=80, color=False)
    render_text(compose(held), width=80, color=False)


def test_a_core_clock_without_a_headline_is_not_believed() -> None:
    bare = replace(on_a_core(), median_ns=None, floor_ns=None, ci_low_ns=None, ci_high_ns=None)
    assert broken_figures(bare) == ("core_clock stands there without a median_ns",)


@pytest.mark.parametrize(("section", "key"), [("chip", "model"), ("chip", "architecture"), ("software", "python")])
def test_the_chains_of_two_chips_are_not_held_against_each_other(section: str, key: str) -> None:
    here = on_a_core()

    def saying(value: str) -> Measurement:
        there = on_a_core(chain_ns=5 * CHAIN_NS)
        stated = {**getattr(there.provenance, section), key: value}
        return replace(there, provenance=replace(there.provenance, **{section: stated}))

    found = verify(saying("another"), here, ignoring=[f"{section}.{key}"])
    assert found.answer == "reproduced"
    assert (found.core_clock_ratio, found.ratio_at_one_clock) == (None, None)
    assert "core" not in found.why
    assert verify(saying(NOT_READ), here).core_clock_ratio == pytest.approx(1 / 5)


def test_an_older_record_without_it_is_read() -> None:
    found = replace(on_a_core(), core_clock=None)
    text = to_json(found).replace(b',\n "core_clock": null', b"")
    assert b"core_clock" not in text
    assert from_json(text) == found


def test_the_report_shows_how_far_it_moved() -> None:
    text = render_text(compose(on_a_core(percent=104, from_ns=150 * NS_PER_MS)), width=100, color=False)
    assert "Core clock" in text
    assert "within 4" in text


def test_the_real_chain_takes_microseconds() -> None:
    reader = ClockReader(open_device("cpu"))
    reader.between_blocks(done=7, now_ns=time.perf_counter_ns())
    (reading,) = reader.readings
    assert reading.done == 7
    assert 500 < reading.chain_ns < NS_PER_S


def test_points_of_a_sweep_measured_at_different_clocks_are_told() -> None:
    slowed = [Slowdown(start_ns=500 * NS_PER_MS, end_ns=100 * NS_PER_S, percent=105)]

    def swept(clock: VirtualClock) -> Sweep:
        device = FakeSync(clock=clock)
        device.chain_work_ns = CHAIN_NS

        def build(size: int) -> Built:
            return Built(step=lambda: device.run(host_ns=CALL_NS * size), items_per_call=size)

        return sweep(build, parameter="batch_size", values=[1, 2, 4, 8], device=device, plan=PLAN)

    (told,) = [f for f in swept(VirtualClock(slowdowns=slowed)).findings if f.code == "core-clock-moved"]
    assert told.evidence["ratio"] == pytest.approx(1.05, rel=1e-3)
    assert "5.0 % apart between the points: at step [batch_size=8]" in told.message
    assert not [f for f in swept(VirtualClock()).findings if f.code == "core-clock-moved"]


@pytest.mark.parametrize(("throttled", "grows", "named"), [(True, False, True), (False, True, False)])
def test_a_drift_is_the_cores_or_the_steps(throttled: bool, grows: bool, named: bool) -> None:
    steps = [(60 * k, 100 + 7 * k) for k in range(1, 5)] if throttled else []
    slowdowns = [
        Slowdown(start_ns=at * NS_PER_MS, end_ns=(at + 60) * NS_PER_MS if k < 3 else 100 * NS_PER_S, percent=percent)
        for k, (at, percent) in enumerate(steps)
    ]
    device = FakeSync(clock=VirtualClock(slowdowns=slowdowns))
    device.chain_work_ns = CHAIN_NS
    calls = count()
    found = measure(lambda: device.run(host_ns=CALL_NS + (next(calls) // 4 if grows else 0)), device=device, plan=PLAN)
    (drift,) = [finding for finding in found.findings if finding.code == "drifting"]
    assert drift.hint is not None
    assert ("The core's own clock did" in drift.hint) is named
    assert ("keeps something from call to call" in drift.hint) is not named
    assert "changes its clock" not in drift.hint


@pytest.mark.parametrize(
    ("percents", "words"), [((130, 121, 113, 106, 100), "slowed, or at rest"), ((100, 107, 114, 121, 128), "grows hot")]
)
def test_a_core_that_speeds_up_is_not_called_hot(percents: tuple[int, ...], words: str) -> None:
    ends = [60 * NS_PER_MS * k for k in range(1, 5)] + [100 * NS_PER_S]
    slowdowns = [
        Slowdown(start_ns=start_ns, end_ns=end_ns, percent=percent)
        for start_ns, end_ns, percent in zip([0, *ends], ends, percents, strict=False)
    ]
    device = FakeSync(clock=VirtualClock(slowdowns=slowdowns))
    device.chain_work_ns = CHAIN_NS
    found = measure(lambda: device.run(host_ns=CALL_NS), device=device, plan=PLAN)
    (drift,) = [finding for finding in found.findings if finding.code == "drifting"]
    assert drift.hint is not None
    assert "The core's own clock did" in drift.hint
    assert words in drift.hint


class Sleeping(FakeSync):
    """A device whose step sleeps for a share of its time, whatever the core's clock is."""

    chain_work_ns = CHAIN_NS
    waited_frac = 0.5

    def occupied_ns(self) -> int:
        return int(self.clock.now_ns * (1 - self.waited_frac))


@pytest.mark.parametrize(("waited_frac", "told"), [(0.05, True), (0.5, False), (0.97, False)])
def test_what_a_step_waits_is_not_brought_to_one_clock(waited_frac: float, told: bool) -> None:
    device = Sleeping()
    device.waited_frac = waited_frac
    found = measure(lambda: device.run(host_ns=CALL_NS), device=device, plan=PLAN)
    assert found.median_ns == CALL_NS
    assert (found.core_clock is not None) is told
    assert (verify(on_a_core(chain_ns=2 * CHAIN_NS), found).ratio_at_one_clock is not None) is told
