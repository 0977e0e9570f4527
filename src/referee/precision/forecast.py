"""What would ``GradScaler`` do on these gradients? Its default trajectory, from the scale at which they overflow."""

from __future__ import annotations

from referee.precision.scaler import Policy, State, Trajectory, advance, over_gradients
from referee.records.precision import GradientRange, ScalerForecast

STEPS = 20_000
"""Steps simulated: ten of the default growth intervals, so that the steady cycle shows."""


def forecast(gradients: GradientRange, *, policy: Policy | None = None, steps: int = STEPS) -> ScalerForecast | None:
    """The forecast; ``None`` where no scale is known at which the gradients do not overflow.

    The highest power of two at which nothing overflowed is the limit; gradients are taken to stay as they are now,
    which they do not: it says where the scale would settle today.
    """
    policy = Policy() if policy is None else policy
    limit = highest_clean_scale(gradients)
    if limit is None:
        return None
    found = over_gradients([limit], steps=steps, policy=policy)
    low, high = _steady(found)
    first = next((k for k, skipped in enumerate(found.skipped) if not skipped), steps)
    # It is steady once an overflow has turned it back: at the start, or after it has grown.
    turned = first > 0 or any(found.skipped[first:])
    return ScalerForecast(
        steps=steps,
        init_scale=policy.init_scale,
        skips=found.skips,
        first_skips=first,
        steady_low=low,
        steady_high=high,
        collapsed_at=found.collapsed_at,
        changes=_changes(found),
        rising=not turned,
        overflows_at=None if turned else _first_overflow(found, limit, steps=steps, policy=policy),
    )


def highest_clean_scale(gradients: GradientRange) -> float | None:
    """The highest power of two at which no gradient overflowed.

    By the real backwards where one of them overflowed; where none did they say nothing of higher scales, and the cast,
    which is counted at every power of two, has the word.
    """
    run = [point for point in gradients.scales if point.overflow_frac is not None]
    if any(point.overflow_frac for point in run):
        clean = [point.exponent for point in run if point.overflow_frac == 0]
    else:
        clean = [point.exponent for point in gradients.scales if point.overflow_frac_cast == 0]
    return 2.0 ** max(clean) if clean else None


def _first_overflow(found: Trajectory, limit: float, *, steps: int, policy: Policy) -> int | None:
    """The step at which a scale that has only grown until now first overflows; ``None`` where it grows no further."""
    scale, step = found.end.scale, steps - found.end.tracker
    while scale <= limit:
        grown = advance(State(scale=scale, tracker=policy.growth_interval - 1), overflow=False, policy=policy).scale
        if grown <= scale:
            return None
        scale, step = grown, step + policy.growth_interval
    return step


def _steady(found: Trajectory) -> tuple[float, float]:
    """Lowest and highest scale in force in the second half of the steps."""
    half = found.scales[len(found.scales) // 2 :]
    return min(half), max(half)


def _changes(found: Trajectory) -> tuple[tuple[int, float], ...]:
    changes = [(0, found.scales[0])] if found.scales else []
    changes += [
        (step, scale)
        for step, (before, scale) in enumerate(zip(found.scales, found.scales[1:], strict=False), start=1)
        if scale != before
    ]
    return tuple(changes)
