"""When has enough been measured? Stopping rules, each with the word it ends a measurement with.

Rules are asked after every block. The cheap ones look at the clock; the one on the interval looks at the samples only
when their number has grown by a quarter, so that stopping stays linear in the number of samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from referee.bench.plan import MIN_BLOCKS, Plan
from referee.stats.interval import median_interval

STOP_REASONS: dict[str, str] = {
    "precise": "the interval of the median became as narrow as asked for",
    "budget": "the wall-clock budget ended",
    "blocks": "the greatest number of blocks was reached",
    "interrupted": "the user interrupted; what was measured until then was kept",
    "raised": "the step raised; what was measured until then was kept",
}
"""Every word a measurement's ``stop_reason`` may be, and what it means."""

CUT_SHORT = ("interrupted", "raised")
"""Those after which the step is not called again."""

_CHECK_GROWTH = 1.25


@dataclass(slots=True)
class Sampling:
    """What the rules are shown: when sampling began, the time now, and the clean per-call times so far."""

    start_ns: int
    now_ns: int = 0
    blocks: int = 0
    last_block_ns: int = 0
    clean_ns: list[float] = field(default_factory=list)


class StoppingRule(Protocol):
    """One reason to stop."""

    def reason(self, sampling: Sampling) -> str | None:
        """The word of :data:`STOP_REASONS` if this rule ends the sampling now."""


@dataclass(frozen=True)
class UntilTime:
    """Stop when another block as long as the last would end after ``until_ns``, but not before ``MIN_BLOCKS``."""

    until_ns: int

    def reason(self, sampling: Sampling) -> str | None:
        """``budget`` when the time is up."""
        if sampling.blocks < MIN_BLOCKS or sampling.now_ns + sampling.last_block_ns <= self.until_ns:
            return None
        return "budget"


@dataclass(frozen=True)
class MaxBlocks:
    """Stop after ``most`` blocks."""

    most: int

    def reason(self, sampling: Sampling) -> str | None:
        """``blocks`` when there are as many."""
        return "blocks" if sampling.blocks >= self.most else None


@dataclass
class UntilPrecise:
    """Stop when the median's interval is as narrow as ``frac`` of it on either side, after ``min_ns`` of sampling."""

    frac: float
    level: float
    min_ns: int
    min_blocks: int
    _next: int = 0

    def reason(self, sampling: Sampling) -> str | None:
        """``precise`` when the interval is narrow enough."""
        count = len(sampling.clean_ns)
        if count < max(self.min_blocks, self._next) or sampling.now_ns - sampling.start_ns < self.min_ns:
            return None
        self._next = int(count * _CHECK_GROWTH) + 1
        estimate = median_interval(sampling.clean_ns, level=self.level)
        return "precise" if estimate.half_width_frac <= self.frac else None


def rules_of(plan: Plan, *, until_ns: int) -> tuple[StoppingRule, ...]:
    """The rules that ``plan`` asks for, in the order in which they are asked."""
    return (
        UntilTime(until_ns),
        MaxBlocks(plan.max_blocks),
        UntilPrecise(
            frac=plan.precision_frac, level=plan.level, min_ns=plan.min_ns, min_blocks=max(MIN_BLOCKS, plan.min_blocks)
        ),
    )


def first_reason(rules: Sequence[StoppingRule], sampling: Sampling) -> str | None:
    """The word of the first rule that ends the sampling now, if any does."""
    for rule in rules:
        word = rule.reason(sampling)
        if word is not None:
            return word
    return None
