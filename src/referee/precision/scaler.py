"""What would ``GradScaler`` do? Its scale, step by step, from which steps overflow; in its own arithmetic.

Equal to ``torch.amp.GradScaler`` in scale, skips and growth tracker (tests hold it against the real one), because the
products are formed in double precision and rounded to float32 once, as its kernel does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

INIT_SCALE, GROWTH_FACTOR, BACKOFF_FACTOR, GROWTH_INTERVAL = 2.0**16, 2.0, 0.5, 2000
"""The defaults of ``torch.amp.GradScaler``."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How the scale moves."""

    init_scale: float = INIT_SCALE
    growth_factor: float = GROWTH_FACTOR
    backoff_factor: float = BACKOFF_FACTOR
    growth_interval: int = GROWTH_INTERVAL


@dataclass(frozen=True, kw_only=True)
class State:
    """The scale and how many clean steps in a row there were, before or after a step."""

    scale: float
    tracker: int


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """What happened: the scale in force at each step, which steps were skipped, and the state at the end."""

    scales: tuple[float, ...]
    skipped: tuple[bool, ...]
    end: State
    collapsed_at: int | None
    """The step after which the scale was 0: the next clean step multiplies by 1/0 and writes NaN into the weights."""

    @property
    def skips(self) -> int:
        """How many steps were skipped."""
        return sum(self.skipped)


def start(policy: Policy) -> State:
    """The state before the first step."""
    return State(scale=float(np.float32(policy.init_scale)), tracker=0)


def advance(state: State, *, overflow: bool, policy: Policy) -> State:
    """The state after one step."""
    if overflow:
        return State(scale=_float32(state.scale * policy.backoff_factor), tracker=0)
    tracker = state.tracker + 1
    if tracker < policy.growth_interval:
        return State(scale=state.scale, tracker=tracker)
    grown = _float32(state.scale * policy.growth_factor)
    return State(scale=grown if np.isfinite(grown) else state.scale, tracker=0)


def simulate(overflows: Iterable[bool], *, policy: Policy | None = None) -> Trajectory:
    """The trajectory over steps whose overflows are known beforehand, whatever the scale."""
    known = list(overflows)
    return simulate_against(lambda step, _: known[step], steps=len(known), policy=policy)


def simulate_against(
    overflows: Callable[[int, float], bool], *, steps: int, policy: Policy | None = None
) -> Trajectory:
    """The trajectory over ``steps`` steps, each of which overflows or not at the scale then in force."""
    policy = Policy() if policy is None else policy
    state = start(policy)
    scales: list[float] = []
    skipped: list[bool] = []
    collapsed_at = None
    for step in range(steps):
        overflow = overflows(step, state.scale)
        scales.append(state.scale)
        skipped.append(overflow)
        state = advance(state, overflow=overflow, policy=policy)
        if state.scale == 0 and collapsed_at is None:
            collapsed_at = step
    return Trajectory(scales=tuple(scales), skipped=tuple(skipped), end=state, collapsed_at=collapsed_at)


def over_gradients(limits: Sequence[float], *, steps: int, policy: Policy | None = None) -> Trajectory:
    """The trajectory over recorded steps, repeated: each overflows at scales above its limit."""
    return simulate_against(lambda step, scale: scale > limits[step % len(limits)], steps=steps, policy=policy)


def _float32(value: float) -> float:
    with np.errstate(over="ignore", under="ignore"):
        return float(np.float32(value))
