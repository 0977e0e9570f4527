"""What is claimed? The list in the order of the course, each claim with its range and what it teaches."""

from referee.lab.claims.claim import MS, US, Claim
from referee.lab.claims.diagnosing import DIAGNOSING
from referee.lab.claims.measuring import MEASURING
from referee.lab.claims.operators import OPERATORS

CLAIMS: tuple[Claim, ...] = (*MEASURING, *OPERATORS, *DIAGNOSING)

BY_ID: dict[str, Claim] = {claim.id: claim for claim in CLAIMS}

__all__ = ["BY_ID", "CLAIMS", "MS", "US", "Claim"]
