"""Which regime is it, and what carries that answer? The verdict, its evidence, and what would change it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Regime = Literal[
    "launch-bound",
    "compute-bound",
    "sync-bound",
    "input-bound",
    "transfer-bound",
    "communication-bound",
    "cold",
    "overhead-bound",
    "mixed",
    "cannot-tell",
]


PAUSES_IN = "during most of these pauses, "
"""What stands, in the name of a step of the evidence, before the row in which the host stood still."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One step of the reasoning: a figure with its unit, the threshold it is held against, and what follows."""

    name: str
    value: float | int | str | None
    unit: str = ""
    threshold: str = ""
    so: str = ""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The named regime. ``undecided_because`` is a short reason where the regime is ``cannot-tell`` or ``mixed``."""

    regime: Regime
    evidence: tuple[Evidence, ...]
    undecided_because: str | None = None
    would_change: str = ""


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """Something to try: what it is, which loss it attacks, what it could recover, and on what that guess stands.

    ``low_ns``/``high_ns`` bound the gain per step; ``basis`` names where they come from; ``how`` is the line to run or
    change. A remedy here is predicted, never measured.
    """

    name: str
    attacks: str
    how: str
    low_ns: float | None
    high_ns: float | None
    basis: str
