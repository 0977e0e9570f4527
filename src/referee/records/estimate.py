"""How sure is it? A point with its interval, the level of the interval, and what it stands on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A point estimate with its confidence interval ``[low, high]`` at ``level``.

    ``n`` is the number of samples, ``n_eff`` the number of independent samples they are worth (at most ``n``;
    correlated blocks are worth less). The unit is that of the samples.
    """

    point: float
    low: float
    high: float
    level: float
    n: int
    n_eff: float

    @property
    def half_width_frac(self) -> float:
        """Half of the interval's width as a share of the point (infinite for a point of zero)."""
        return (self.high - self.low) / 2 / abs(self.point) if self.point else float("inf")
