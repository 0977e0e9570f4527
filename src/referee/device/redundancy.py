"""What does a recorded step hold that need not run? The answer of :mod:`referee.device.numbering`; loads no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Repeated:
    """What the outputs need and the step records more than once.

    ``operator`` is the one that costs most, recorded ``times`` times on the same inputs; ``operators`` counts, by name,
    the calls that an equal one went before. ``again`` builds the costliest on fresh inputs, as a step; ``None`` where
    inputs of its kind cannot be made up (indices, masks).
    """

    operator: str
    times: int
    operators: Mapping[str, int]
    work_frac: float
    again: Callable[[], Callable[[], Any]] | None = None


@dataclass(frozen=True, kw_only=True)
class Redundancy:
    """What a recorded step need not run. Shares are of the step's floating-point operations or of the elements that its
    operators read, whichever is larger; ``flop`` is the arithmetic of both kinds."""

    dropped: Mapping[str, int]
    """Calls that no output needs, by operator."""
    dropped_frac: float
    repeated: Repeated | None
    flop: int
