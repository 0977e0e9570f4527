"""What is claimed? The list in the order of the course, each claim with its range and what it teaches."""

from __future__ import annotations

from collections.abc import Sequence

from referee.errors import OptionError
from referee.lab.claims.claim import MS, US, Claim
from referee.lab.claims.diagnosing import DIAGNOSING
from referee.lab.claims.measuring import MEASURING
from referee.lab.claims.methods import METHODS, Method
from referee.lab.claims.operators import OPERATORS

CLAIMS: tuple[Claim, ...] = (*MEASURING, *OPERATORS, *DIAGNOSING)

BY_ID: dict[str, Claim] = {claim.id: claim for claim in CLAIMS}


def select(ids: Sequence[str]) -> tuple[Claim, ...]:
    """The claims named, in the order of the list; all of them where none is named."""
    wanted = {word.upper() for word in ids}
    unknown = sorted(wanted - set(BY_ID))
    if unknown:
        raise OptionError(f"{unknown[0]} is no claim.", hint="`referee lab --list` lists them.")
    return tuple(claim for claim in CLAIMS if not wanted or claim.id in wanted)


__all__ = ["BY_ID", "CLAIMS", "METHODS", "MS", "US", "Claim", "Method", "select"]
