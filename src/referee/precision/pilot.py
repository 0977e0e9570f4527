"""How long does an answer take here, and are the threads left in peace? A few calls of the step before comparing it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from referee.bench.loop import Block, run_block
from referee.bench.sampling import SLICE_NS
from referee.bench.sides import undisturbed
from referee.device.host import load_torch
from referee.records.finding import Finding
from referee.stats.paired import MIN_LONG_QUADS, MIN_QUADS
from referee.units import NS_PER_MS, NS_PER_S

if TYPE_CHECKING:
    from referee.device.protocol import Device

_PILOT_NS, _LEAST_CALLS = 150 * NS_PER_MS, 4
"""A pilot lasts this long, and has this many timed calls at least."""

_DISTURBED_FRAC = 0.25
"""Quads of blocks of which more are preempted are too seldom clean to be waited for."""

_SPARE = 1.2
"""Quads taken for each one needed: on a machine at peace one in ten is lost."""

_BALANCED = 2
"""Answers on short blocks stand on the mean of two quads each."""

_WARMUP_SHARE = 1 / 6
"""Share of a comparison's budget that each side's warm-up may take on top of it."""

_LEAST_NS = NS_PER_S
"""The shortest budget that a comparison of separate objects is promised for."""


@dataclass(frozen=True, kw_only=True)
class Pilot:
    """What a few calls of a step showed: the least time of a call, the mean one, and whether others took its cores."""

    ns: int
    mean_ns: int
    disturbed: bool


def try_step(step: Callable[[], object], *, device: Device, until_ns: int) -> Pilot:
    """Call ``step`` once to warm it, then time single calls for a moment: one at least, no more after ``until_ns``."""
    device.settle(step())
    blocks: list[Block] = []
    begin_ns = device.now_ns()
    while len(blocks) < _LEAST_CALLS or device.now_ns() - begin_ns < _PILOT_NS:
        if blocks and device.now_ns() >= until_ns:
            break
        blocks.append(run_block(step, device=device, calls=1))
    hurt = sum(not undisturbed(block) for block in blocks)
    least, spent = min(block.settled_ns for block in blocks), sum(block.settled_ns for block in blocks)
    return Pilot(
        ns=least, mean_ns=spent // len(blocks), disturbed=least > SLICE_NS and hurt > _DISTURBED_FRAC * len(blocks)
    )


@dataclass(frozen=True, kw_only=True)
class Price:
    """What one comparison costs: the budget that should give an answer, the least that can, and all of it with warm-up.

    Of three quads two compare the sides and one compares a side with itself; in the mean each quad that counts costs
    three calls of either side.
    """

    budget_ns: int
    least_ns: int

    @property
    def warmup_ns(self) -> int:
        """The longest warm-up of one side."""
        return int(_WARMUP_SHARE * self.budget_ns)

    @property
    def whole_ns(self) -> int:
        """The budget and both warm-ups."""
        return self.budget_ns + 2 * self.warmup_ns


def price_of(a: Pilot, b: Pilot, *, device: Device) -> Price:
    """What comparing two sides costs whose calls last as long as the pilots say, the machine being as busy."""
    block = device.block_target_ns
    long = min(a.ns, b.ns) > SLICE_NS
    quads = MIN_LONG_QUADS if long else MIN_QUADS * _BALANCED
    least = quads * 3 * (max(a.mean_ns, block) + max(b.mean_ns, block))
    return Price(budget_ns=max(_LEAST_NS, int(_SPARE * least)), least_ns=least)


@contextmanager
def threads_for(*, one: bool) -> Iterator[None]:
    """While entered, one thread computes where ``one`` says so."""
    torch = load_torch()
    before = torch.get_num_threads()
    if one:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def may_use_one_thread(device: Device) -> bool:
    """Whether there are several threads on the host that could be made one."""
    return device.name == "cpu" and load_torch().get_num_threads() > 1


def one_thread_finding(threads: int) -> Finding:
    """Said where the session's threads could not be timed."""
    return Finding(
        code="disturbed",
        severity="warning",
        message=f"Other processes kept taking the cores of the {threads} threads, so that no step was left in peace: "
        "the times are those of one thread.",
        evidence={"threads": threads, "timed_with": 1},
        hint="On a machine with idle cores all threads are timed; --threads says how many.",
    )
