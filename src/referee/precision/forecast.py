"""What would ``GradScaler`` do on these gradients? Its default trajectory, from the scale at which they overflow."""

from __future__ import annotations

from referee.precision.scaler import Policy, Trajectory, over_gradients
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
    return ScalerForecast(
        steps=steps,
        init_scale=policy.init_scale,
        skips=found.skips,
        first_skips=next((k for k, skipped in enumerate(found.skipped) if not skipped), steps),
        steady_low=low,
        steady_high=high,
        collapsed_at=found.collapsed_at,
        changes=_changes(found),
    )


def highest_clean_scale(gradients: GradientRange) -> float | None:
    """The highest power of two at which no gradient overflowed, by the basis of the report."""
    run = gradients.basis == "run"
    clean = [
        point.exponent for point in gradients.scales if (point.overflow_frac if run else point.overflow_frac_cast) == 0
    ]
    return 2.0 ** max(clean) if clean else None


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
