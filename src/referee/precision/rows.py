"""How do the precisions stand side by side? One row for each, from the comparison and the errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from referee.precision.accuracy import Errors
from referee.precision.timing import Timed
from referee.precision.verdict import DOES_NOT_RUN
from referee.records.compare import Comparison, Pair
from referee.records.precision import PrecisionTiming

_LEAST_QUADS = 4
"""The interval of fewer quads is their spread by chance."""


def timing_rows(
    timed: Timed,
    errors: Mapping[str, Errors],
    *,
    audited: str = "",
    casts_ns: float | None = None,
    failed: Mapping[str, str] | None = None,
    why_no_errors: str = "",
) -> tuple[PrecisionTiming, ...]:
    """One row for each precision, those left out and those that ``failed`` to run included, with the reason.

    ``casts_ns`` is the cost of the casts in the precision ``audited``. What the rest gained is the time that would be
    left to float32 without what the casts cost: base − (time − casts).
    """
    base = errors.get("float32")
    base_row = _blank("float32", "base")
    if timed.alone is not None:
        base_row = replace(base_row, median_ns=timed.alone.median_ns)
    elif timed.comparisons:
        base_row = replace(base_row, median_ns=timed.comparisons[0].sides[0].median_ns)
    compared = [
        _with_errors(_row(one, casts_ns=casts_ns if one.sides[1].name == audited else None), errors)
        for one in timed.comparisons
    ]
    skipped = [
        _with_errors(replace(_blank(name, "cannot-tell"), ratio=timed.ratios.get(name), why_not=why), errors)
        for name, why in timed.skipped.items()
    ]
    left_out = [replace(_blank(name, DOES_NOT_RUN), why_not=why) for name, why in (failed or {}).items()]
    return (
        replace(_with_errors(base_row, errors), why_not="" if base else why_no_errors),
        *compared,
        *skipped,
        *left_out,
    )


def _row(compared: Comparison, *, casts_ns: float | None) -> PrecisionTiming:
    """The row of the second side, from its own comparison with float32."""
    (base, side), (pair,) = compared.sides, compared.pairs
    gain = None
    if casts_ns is not None and pair.ratio is not None and base.median_ns is not None:
        gain = base.median_ns - (pair.ratio * base.median_ns - casts_ns)
    low, high = bounds(pair)
    return replace(
        _blank(side.name, pair.answer),
        median_ns=side.median_ns,
        ratio=pair.ratio,
        ci_low=low,
        ci_high=high,
        casts_ns=casts_ns,
        kernel_gain_ns=gain,
        why_not=pair.why if pair.answer == "cannot-tell" else "",
    )


def _with_errors(row: PrecisionTiming, errors: Mapping[str, Errors]) -> PrecisionTiming:
    error = errors.get(row.name)
    if error is None:
        return row
    return replace(
        row,
        loss_error=error.loss,
        output_error=error.output,
        gradient_error=error.gradient,
        worst_gradient_error=error.worst_gradient,
        worst_parameter=error.worst_parameter,
    )


def bounds(pair: Pair | None) -> tuple[float | None, float | None]:
    """The interval of a pair; none where it stands on so few quads that it says nothing."""
    if pair is None or pair.clean_quads < _LEAST_QUADS:
        return None, None
    return pair.ci_low, pair.ci_high


def _blank(name: str, answer: str) -> PrecisionTiming:
    """A row of which nothing is known but its answer."""
    return PrecisionTiming(
        name=name,
        median_ns=None,
        ratio=None,
        ci_low=None,
        ci_high=None,
        answer=answer,
        casts_ns=None,
        kernel_gain_ns=None,
        loss_error=None,
        output_error=None,
        gradient_error=None,
    )
