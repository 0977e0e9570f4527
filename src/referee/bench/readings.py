"""How long does one thing take, read a few times beside others? The clean readings where there are enough of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

_MIN_CLEAN = 3


@dataclass
class Readings:
    """Times of one thing, those in which nothing preempted us apart."""

    clean: list[float] = field(default_factory=list)
    preempted: list[float] = field(default_factory=list)

    def add(self, reading: tuple[float, int]) -> None:
        """Note a time and how many involuntary switches fell into it."""
        (self.preempted if reading[1] else self.clean).append(reading[0])

    def typical(self) -> float:
        """The median of the clean ones; where there are too few, the least of all: preemption only lengthens."""
        return float(np.median(self.clean)) if self.undisturbed else self.least()

    def least(self) -> float:
        """The least of all, clean or not."""
        return min((*self.clean, *self.preempted))

    @property
    def undisturbed(self) -> bool:
        """Whether enough of them are clean to stand for themselves."""
        return len(self.clean) >= _MIN_CLEAN

    def spread(self) -> float:
        """Twice the distance from the lower quartile to the median: what disturbs a reading only lengthens it."""
        low, middle = np.quantile(self.clean if self.undisturbed else self.preempted, (0.25, 0.5))
        return float(2 * (middle - low))
