"""Behind a preemption the caches fill again: what is timed meanwhile is not the step's time, and does not count."""

from __future__ import annotations

import math

import pytest

from referee.bench.loop import Block
from referee.bench.measure import measure
from referee.bench.plan import Plan
from referee.bench.sampling import MIN_RECOVERED, RECOVERY_NS, clean_blocks
from referee.device.fake import FakeSync
from referee.device.noise import Delay, Preemption, VirtualClock
from referee.units import NS_PER_MS

US = 1_000
CALL = 320 * US


def blocks(pattern: str, *, ns: int) -> list[Block]:
    """One block for each character: ``x`` was preempted."""
    return [Block(calls=1, issue_ns=ns, settled_ns=ns, switches=int(mark == "x")) for mark in pattern]


def marks(pattern: str, *, ns: int) -> str:
    return "".join("+" if clean else "-" for clean in clean_blocks(blocks(pattern, ns=ns)))


def test_blocks_within_the_recovery_do_not_count() -> None:
    rest = "." * MIN_RECOVERED
    found = marks("..x......x...." + rest, ns=RECOVERY_NS // 3 + 1)
    assert found == "++----+++----+" + "+" * MIN_RECOVERED


def test_a_block_as_long_as_the_recovery_counts_at_once() -> None:
    assert marks("x." * MIN_RECOVERED, ns=RECOVERY_NS) == "-+" * MIN_RECOVERED


def test_where_all_lie_within_the_recovery_those_that_were_not_preempted_count() -> None:
    assert marks("x.." * 30, ns=RECOVERY_NS // 10) == "-++" * 30
    assert marks("...", ns=RECOVERY_NS // 10) == "+++"
    assert marks("x...", ns=RECOVERY_NS // 10) == "-+++"


class Refilling:
    """The caches are cold behind each preemption: a fifth of a call more, which fades."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock, self._switches, self._at_ns = clock, 0, -(10**12)

    def delay(self, *, index: int, now_ns: int) -> Delay:
        if self._clock.switches != self._switches:
            self._switches, self._at_ns = self._clock.switches, now_ns
        return Delay(host_ns=int(CALL / 5 * math.exp(-(now_ns - self._at_ns) / (250 * US))))


def test_the_number_is_that_of_warm_caches() -> None:
    clock = VirtualClock(preemptions=Preemption.every(6 * NS_PER_MS, length_ns=4 * NS_PER_MS))
    device = FakeSync(clock=clock, noise=[Refilling(clock)])
    found = measure(lambda: device.run(host_ns=CALL), device=device, plan=Plan(budget_ns=400 * NS_PER_MS))
    assert found.median_ns == pytest.approx(CALL, rel=1e-3)
    assert found.p95_ns == pytest.approx(CALL, rel=5e-3), "nothing that was timed with cold caches counts"
    assert found.n == sum(found.clean) < 0.8 * found.blocks
    assert max(found.samples_ns) > 1.1 * CALL, "what does not count is kept in the record"
