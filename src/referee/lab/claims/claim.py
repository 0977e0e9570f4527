"""What is claimed? The list, each claim with the range in which its number must lie and what it teaches.

A claim states a number and the range of that number; whether it holds is found by the experiments, never written here.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

US = 1_000.0
MS = 1_000_000.0
RESOLVED_NS = 10.0
"""A cost below this is lost in what a loop on this kind of machine can tell apart."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim. ``measures`` says what number is taken, ``low`` and ``high`` where it lies if the claim is true.

    ``below`` and ``above`` say what is likely the reason where the number lies outside.
    """

    id: str
    claimed: str
    measures: str
    low: float
    high: float
    unit: str
    teaches: str
    below: str = ""
    above: str = ""
    contradiction: str = ""
    measures_recorded: str = ""
    """What is taken from recorded traces, where that is another number than what is measured live."""

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """The range as a record holds it: ``None`` where it is open."""
        return bounded(self.low, self.high)


def bounded(low: float, high: float) -> tuple[float | None, float | None]:
    """A range as a record holds it: ``None`` where it is open."""
    return (None if low == -inf else low, None if high == inf else high)
