"""How does the time grow with one parameter, at each setting of others? Several sweeps of one step, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from referee.records.finding import Finding, Scalar
from referee.records.measurement import Sweep
from referee.records.provenance import Provenance
from referee.records.shown import Shown


@dataclass(frozen=True, kw_only=True)
class SweepAt:
    """One sweep and what the other parameters were held at."""

    fixed: Mapping[str, Scalar]
    sweep: Sweep


@dataclass(frozen=True, kw_only=True, repr=False)
class SweepGrid(Shown):
    """Sweeps over one parameter, by one plan, at each combination of the others (schema ``referee.sweeps/1``).

    ``asked`` counts the combinations; those of which no value could be measured have a finding ``point-failed`` and no
    sweep. ``provenance`` is the first sweep's.
    """

    name: str
    parameter: str
    others: tuple[str, ...]
    asked: int
    sweeps: tuple[SweepAt, ...]
    provenance: Provenance
    findings: tuple[Finding, ...] = ()
    schema: str = "referee.sweeps/1"

    def __repr__(self) -> str:
        """Each sweep in a line of its own."""
        head = f"{self.name} over {self.parameter}, {len(self.sweeps)} sweeps over {', '.join(self.others)}"
        return "\n  ".join([head, *(repr(each.sweep) for each in self.sweeps)])


def words_of(fixed: Mapping[str, Scalar]) -> str:
    """``dtype=bfloat16, length=128``."""
    return ", ".join(f"{name}={value}" for name, value in fixed.items())
