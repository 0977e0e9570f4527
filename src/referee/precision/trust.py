"""Are the numbers of a low precision good for anything? Not where they are further from the exact ones than zeros."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite

from referee.records.finding import Finding
from referee.records.precision import PrecisionTiming
from referee.units import format_number

AS_ZEROS = 1.0
"""The relative error, by norm, of an answer that is zero throughout: from there on nothing of it can be used."""


def why_wrong(row: PrecisionTiming) -> str:
    """Why this precision cannot be used whatever it gains, in words; empty where it can, or nothing is known."""
    for what, error in (("gradient", row.gradient_error), ("output", row.output_error)):
        if error is not None and not isfinite(error):
            return f"its {what} is infinite or no number, where float64's is a number"
        if error is not None and error >= AS_ZEROS:
            return f"its {what} is wrong by {format_number(error)} times the size of the right one"
    return ""


def trust_findings(rows: Sequence[PrecisionTiming]) -> Iterator[Finding]:
    """One finding for each low precision that is wrong throughout, while float32 is right."""
    if any(why_wrong(row) for row in rows if row.name == "float32"):
        return
    for row in rows:
        words = why_wrong(row)
        if words:
            yield Finding(
                code="precision-wrong",
                severity="warning",
                message=f"{row.name} cannot be used for this step as it is: {words}.",
                evidence={
                    "precision": row.name,
                    "gradient_error": _told(row.gradient_error),
                    "output_error": _told(row.output_error),
                    "worst_parameter": row.worst_parameter or None,
                },
                hint="Look for large numbers that nearly cancel or saturate (a norm of values far from zero, a softmax "
                "of large scores, a sum of many squares), and compute these in float32: x.float() inside "
                "torch.autocast(…, enabled=False).",
            )


def _told(error: float | None) -> float | str | None:
    return error if error is None or isfinite(error) else str(error)
