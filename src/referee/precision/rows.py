"""How do the precisions stand side by side? One row for each, from the comparison and the errors."""

from __future__ import annotations

from collections.abc import Mapping

from referee.precision.accuracy import Errors
from referee.precision.verdict import DOES_NOT_RUN
from referee.records.compare import Comparison, Pair, Side
from referee.records.measurement import Measurement
from referee.records.precision import PrecisionTiming

_LEAST_QUADS = 4
"""The interval of fewer quads is their spread by chance."""


def timing_rows(
    compared: Comparison | Measurement,
    errors: Mapping[str, Errors],
    *,
    audited: str = "",
    casts_ns: float | None = None,
    failed: Mapping[str, str] | None = None,
    why_no_errors: str = "",
) -> tuple[PrecisionTiming, ...]:
    """One row for each precision that was timed, then those that ``failed`` to run, with the reason.

    ``casts_ns`` is the cost of the casts in the precision ``audited``. What the rest gained is the time that would be
    left to float32 without what the casts cost: base − (time − casts).
    """
    left_out = tuple(_failed(name, why) for name, why in (failed or {}).items())
    if isinstance(compared, Measurement):
        return (_alone(compared, errors.get("float32"), why_no_errors=why_no_errors), *left_out)
    pairs = {pair.name: pair for pair in compared.pairs}
    base_ns = compared.sides[0].median_ns
    rows = [
        _row(
            side,
            pairs.get(side.name),
            errors.get(side.name),
            base_ns=base_ns,
            casts_ns=casts_ns if side.name == audited else None,
            why_no_errors=why_no_errors if side is compared.sides[0] else "",
        )
        for side in compared.sides
    ]
    return (*rows, *left_out)


def _alone(found: Measurement, error: Errors | None, *, why_no_errors: str) -> PrecisionTiming:
    """The row of float32 where nothing else runs here."""
    return PrecisionTiming(
        name="float32",
        median_ns=found.median_ns,
        ratio=None,
        ci_low=None,
        ci_high=None,
        answer="base",
        casts_ns=None,
        kernel_gain_ns=None,
        loss_error=error.loss if error else None,
        output_error=error.output if error else None,
        gradient_error=error.gradient if error else None,
        why_not="" if error else why_no_errors,
    )


def _row(
    side: Side,
    pair: Pair | None,
    error: Errors | None,
    *,
    base_ns: float | None,
    casts_ns: float | None,
    why_no_errors: str,
) -> PrecisionTiming:
    gain = None
    if casts_ns is not None and pair is not None and pair.ratio is not None and base_ns is not None:
        gain = base_ns - (pair.ratio * base_ns - casts_ns)
    unanswered = pair.why if pair is not None and pair.answer == "cannot-tell" else ""
    interval = bounds(pair)
    return PrecisionTiming(
        name=side.name,
        median_ns=side.median_ns,
        ratio=None if pair is None else pair.ratio,
        ci_low=interval[0],
        ci_high=interval[1],
        answer="base" if pair is None else pair.answer,
        casts_ns=casts_ns,
        kernel_gain_ns=gain,
        loss_error=error.loss if error else None,
        output_error=error.output if error else None,
        gradient_error=error.gradient if error else None,
        worst_gradient_error=error.worst_gradient if error else None,
        worst_parameter=error.worst_parameter if error else "",
        why_not=unanswered or ("" if error else why_no_errors),
    )


def bounds(pair: Pair | None) -> tuple[float | None, float | None]:
    """The interval of a pair; none where it stands on so few quads that it says nothing."""
    if pair is None or pair.clean_quads < _LEAST_QUADS:
        return None, None
    return pair.ci_low, pair.ci_high


def _failed(name: str, why: str) -> PrecisionTiming:
    return PrecisionTiming(
        name=name,
        median_ns=None,
        ratio=None,
        ci_low=None,
        ci_high=None,
        answer=DOES_NOT_RUN,
        casts_ns=None,
        kernel_gain_ns=None,
        loss_error=None,
        output_error=None,
        gradient_error=None,
        why_not=why,
    )
