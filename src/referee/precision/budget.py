"""How much of the time is used? One clock from when the command began, and what is said where it was too short."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from referee.precision.subject import restored
from referee.records.finding import Finding
from referee.units import NS_PER_S, format_ns

if TYPE_CHECKING:
    from referee.device.protocol import Device
    from referee.precision.subject import Subject

USED_UP = "the --budget was used up"
"""Why something was left out."""

_READINGS = 14
"""Calls of the step that no answer does without: wrong use, the ranges, what runs at all, the audit."""

_LOADING_NS = 2 * NS_PER_S
"""What torch loads at a first call takes less than this."""

_OVER_FRAC = 0.1
"""A budget is exceeded when this share more than it was taken: what is being measured is not broken off."""


@dataclass
class Clock:
    """How much of the budget is used? ``spent_ns`` of it were before this clock was made."""

    device: Device
    budget_ns: int
    spent_ns: int = 0
    begin_ns: int = field(init=False)
    read_ns: int | None = None
    """How much was used when everything was read and timing began."""

    def __post_init__(self) -> None:
        self.begin_ns = self.device.now_ns() - self.spent_ns

    @property
    def used_ns(self) -> int:
        """How much is used."""
        return self.device.now_ns() - self.begin_ns

    @property
    def is_up(self) -> bool:
        """Whether nothing is left."""
        return self.used_ns >= self.budget_ns

    def at(self, frac: float) -> int:
        """When ``frac`` of what was left at the start is used, on the device's clock."""
        return self.begin_ns + self.spent_ns + int(frac * max(0, self.budget_ns - self.spent_ns))

    def before(self, frac: float) -> Callable[[], bool]:
        """A test whether less than ``frac`` of what was left at the start is used."""
        return lambda: self.device.now_ns() < self.at(frac)

    def timing_begins(self) -> None:
        """Everything is read."""
        self.read_ns = self.used_ns

    def findings(self) -> Iterator[Finding]:
        """Whether more was taken than the budget allows, and for what."""
        used = self.used_ns
        if used <= (1 + _OVER_FRAC) * self.budget_ns:
            return
        read = used if self.read_ns is None else self.read_ns
        parts = (
            f"{format_ns(self.spent_ns)} to load and call the step",
            f"{format_ns(max(0, read - self.spent_ns))} to read what it computes",
            f"{format_ns(max(0, used - read))} to time it",
        )
        yield Finding(
            code="over-budget",
            severity="info",
            message=f"This took {format_ns(used)}, more than the budget of {format_ns(self.budget_ns)}: "
            f"{', '.join(parts)}. What there was no time for is left out, and says so.",
            evidence={"taken_ns": used, "budget_ns": self.budget_ns, "before_ns": self.spent_ns, "read_ns": read},
            hint=f"Reading alone takes {format_ns(read)} here: a budget of about {format_ns(2 * read)} leaves time to "
            "compare.",
        )


def later_call_ns(subject: Subject, device: Device, *, call_ns: int) -> int:
    """What a call of the step takes once the first is over, which took ``call_ns`` and may have loaded parts of torch.

    One more call is made, and put back, unless the first took so long that loading cannot be most of it.
    """
    if call_ns > _LOADING_NS:
        return call_ns
    with restored(subject):
        begin_ns = device.now_ns()
        device.settle(subject.step())
        return min(call_ns, device.now_ns() - begin_ns)


def floor_words(budget_ns: int, *, spent_ns: int, call_ns: int) -> str:
    """Said before anything is done, where ``budget_ns`` is less than reading will take; empty where it is enough.

    ``call_ns`` is one watched call of the step, which takes longer than one that is not.
    """
    floor_ns = spent_ns + _READINGS * call_ns
    if floor_ns <= budget_ns:
        return ""
    used, needed = format_ns(spent_ns), format_ns(_READINGS * call_ns)
    return (
        f"--budget {format_ns(budget_ns)} is short: {used} of it are used already, and reading this step takes about "
        f"{needed} more ({_READINGS} calls) whatever the budget: little is timed then."
    )
