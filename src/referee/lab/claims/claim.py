"""What is claimed? The list, each claim with the range in which its number must lie and what it teaches.

A claim states a number and the range of that number; whether it holds is found by the experiments, never written here.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nextafter

US = 1_000.0
MS = 1_000_000.0
MORE_THAN_NOTHING = nextafter(0.0, 1.0)
"""A claim that something costs, without a figure, holds where the whole interval lies above nothing."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim. ``measures`` says what number is taken, ``low`` and ``high`` where it lies if the claim is true.

    ``teaches`` is what follows where it holds, ``otherwise`` what follows where it differs. ``below`` and ``above`` say
    what may be the reason where the number lies outside; they are not tested.
    """

    id: str
    claimed: str
    measures: str
    low: float
    high: float
    unit: str
    teaches: str
    otherwise: str
    below: str = ""
    above: str = ""
    contradiction: str = ""
    undecided: str = ""
    """Why no number of ours decides the claim, where it states nothing that one could confirm or refute."""
    measures_recorded: str = ""
    """What is taken from recorded traces, where that is another number than what is measured live."""

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """The range as a record holds it: ``None`` where it is open."""
        return bounded(self.low, self.high)


def bounded(low: float, high: float) -> tuple[float | None, float | None]:
    """A range as a record holds it: ``None`` where it is open."""
    return (None if low == -inf else low, None if high == inf else high)
