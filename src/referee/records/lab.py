"""Which claims hold here? The record of ``referee lab`` (schema ``referee.lab/1``): claimed, measured, outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from referee.records.finding import Finding, Scalar
from referee.records.provenance import Provenance

Outcome = Literal["holds", "differs", "needs-device", "cannot-tell"]


@dataclass(frozen=True, kw_only=True)
class LabPart:
    """One further figure that a claim states: its number and interval in ``unit``, and how it came out by itself.

    ``measured`` and its interval are ``None`` where it could not be measured; an open end of the range is ``None``.
    """

    name: str
    outcome: Outcome
    measured: float | None = None
    low: float | None = None
    high: float | None = None
    unit: str = "ns"
    claimed_low: float | None = None
    claimed_high: float | None = None
    counted: bool = False
    """Whether it was counted, and so is exact."""


@dataclass(frozen=True, kw_only=True)
class LabRow:
    """One claim put to the test.

    ``measured`` with its interval from ``low`` to ``high`` is in ``unit`` (``ns``, ``ratio``, ``frac``, ``bytes``, or a
    plain word); the claim's own range is ``claimed_low`` to ``claimed_high``, ``None`` where it is open. ``holds``: the
    whole interval lies in the claim's range, and so does that of every other part of the claim that states a figure;
    ``differs``: one of these intervals lies outside of its range; ``cannot-tell``: one lies across a bound.
    """

    id: str
    claimed: str
    teaches: str
    """What one should take away, in a sentence."""
    measures: str
    """What the number is."""
    measured: float | None
    low: float | None
    high: float | None
    outcome: Outcome
    unit: str = "ratio"
    claimed_low: float | None = None
    claimed_high: float | None = None
    why: str = ""
    """How far apart and likely why; which device is missing; or what stands in the way of an answer."""
    contradiction: str = ""
    """Where the claim's own figures do not agree, with the sum."""
    basis: Literal["live", "recorded", "none"] = "none"
    sources: tuple[str, ...] = ()
    """The recorded traces that the number was taken from."""
    figures: Mapping[str, Scalar] | None = None
    """Other figures of the experiment."""
    how: str = ""
    """By which method, on what: operators, shapes, dtypes."""
    taken: str = ""
    """How often it was taken: calls, blocks, traces."""
    range_from: str = ""
    """Where the range comes from, if the claim itself states no figure."""
    untested: str = ""
    """What of the claim nothing here puts to the test, and why, or where it is tested."""
    untested_parts: tuple[str, ...] = ()
    """The names of these parts. An outcome beside one is that of the rest of the claim."""
    parts: tuple[LabPart, ...] = ()
    """The other figures that the claim states, each judged as the number is."""
    words: Mapping[str, str] | None = None
    """Terms of the trade that this row is the first to use, each with its meaning."""


@dataclass(frozen=True, kw_only=True)
class LabTrace:
    """A recorded trace that the rows could be answered from, and the chips that its file names."""

    name: str
    chips: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LabReport:
    """The claims in the order of the list, and where they were tested."""

    rows: tuple[LabRow, ...]
    provenance: Provenance
    took_ns: int
    findings: tuple[Finding, ...] = ()
    traces: tuple[LabTrace, ...] = ()
    """Every trace that was read, whichever rows it could answer."""
    command: str = ""
    """The command that made the report."""
    schema: str = "referee.lab/1"
