"""The simulated scaler against the real one."""

from __future__ import annotations

import numpy as np
import pytest

from referee.precision.scaler import Policy, over_gradients, simulate, simulate_against

torch = pytest.importorskip("torch")

STEPS = 60


def real(policy: Policy, overflows: list[bool]) -> tuple[list[float], list[bool], float, int, bool]:
    """Scales, skips, the state at the end, of ``torch.amp.GradScaler`` on a parameter whose gradients are planted.

    A clean gradient is zero, which is clean at every scale; the optimizer, called or not, tells the skips.
    """
    scaler = torch.amp.GradScaler(
        "cpu",
        init_scale=policy.init_scale,
        growth_factor=policy.growth_factor,
        backoff_factor=policy.backoff_factor,
        growth_interval=policy.growth_interval,
    )
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    scaler.scale(torch.zeros(()))
    scales, skips = [], []
    for overflow in overflows:
        scales.append(scaler.get_scale())
        weight.grad = torch.full((1,), float("inf") if overflow else 0.0)
        taken: list[bool] = []
        hook = optimizer.register_step_post_hook(lambda *_, taken=taken: taken.append(True))
        # After a collapse 1/scale is infinite and 0 × inf is no number, so the gradient is found unfit: the steps of
        # a collapsed scaler are compared up to there only.
        scaler.step(optimizer)
        scaler.update()
        hook.remove()
        skips.append(not taken)
    state = scaler.state_dict()
    return scales, skips, state["scale"], state["_growth_tracker"]


def policies(count: int) -> list[tuple[Policy, list[bool]]]:
    random = np.random.default_rng(0)
    made = []
    for _ in range(count):
        policy = Policy(
            init_scale=float(2.0 ** random.integers(-140, 121) * random.choice([1.0, 1.3])),
            growth_factor=float(random.choice([1.5, 2.0, 4.0, 1.1])),
            backoff_factor=float(random.choice([0.25, 0.5, 0.7, 0.9])),
            growth_interval=int(random.integers(1, 11)),
        )
        made.append((policy, [bool(x) for x in random.random(STEPS) < random.choice([0.05, 0.3, 0.8])]))
    return made


def test_equal_to_the_real_scaler_on_a_thousand_patterns() -> None:
    for policy, overflows in policies(1_000):
        found = simulate(overflows, policy=policy)
        alive = STEPS if found.collapsed_at is None else found.collapsed_at + 1
        scales, skips, scale, tracker = real(policy, overflows[:alive])
        assert list(found.scales[:alive]) == scales, policy
        assert list(found.skipped[:alive]) == skips, policy
        if alive == STEPS:
            assert (found.end.scale, found.end.tracker) == (scale, tracker), policy


def test_a_scale_that_cannot_grow_stays() -> None:
    found = simulate([False] * 5, policy=Policy(init_scale=2.0**127, growth_factor=4.0, growth_interval=1))
    assert set(found.scales) == {2.0**127}
    assert found.end.tracker == 0


def test_collapse_is_named_at_its_step() -> None:
    found = simulate([True] * 400, policy=Policy(init_scale=2.0**16))
    assert found.collapsed_at is not None
    assert found.scales[found.collapsed_at] > 0
    assert found.scales[found.collapsed_at + 1] == 0


def test_after_a_collapse_the_next_clean_step_of_the_real_one_breaks_the_weights() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**-148)
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler.scale(torch.zeros(()))
    for _ in range(3):
        weight.grad = torch.full((1,), float("inf"))
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 0
    weight.grad = torch.zeros(1)
    scaler.step(optimizer)
    assert not torch.isfinite(weight).all()


def test_over_recorded_gradients_the_scale_settles_at_the_limit() -> None:
    found = over_gradients([2.0**20], steps=20_000, policy=Policy())
    assert max(found.scales) == 2.0**21
    assert min(found.scales[10_000:]) == 2.0**20
    assert found.skips == sum(scale > 2.0**20 for scale in found.scales)


def test_overflow_may_depend_on_step_and_scale() -> None:
    found = simulate_against(lambda step, scale: scale > 8 and step > 1, steps=6, policy=Policy(init_scale=32.0))
    assert found.scales == (32.0, 32.0, 32.0, 16.0, 8.0, 8.0)
    assert found.skipped == (False, False, True, True, False, False)
