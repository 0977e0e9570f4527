"""Simulated traces whose limit is known by construction: the regime is found, and every nanosecond is accounted for."""

from __future__ import annotations

import random

import pytest

from referee.analysis.regime import decide
from referee.analysis.study import Study
from referee.testing import Workload, simulate

LOADS = {
    "plain": {},
    "loader": {"loader_ns": (5.5, 7.3)},
    "copy": {"copy_ns": (5.0, 7.0)},
    "collective": {"collective_ns": (5.0, 7.0)},
    "first": {"first_step_ns": (6.7, 8.0)},
    "graph": {"graph": True},
}


def workload(kind: str, seed: int) -> Workload:
    """A random workload of one kind; sizes are drawn evenly on a logarithmic scale."""
    draw = random.Random(f"{kind}-{seed}")
    chosen = {
        name: int(10 ** draw.uniform(*value)) if isinstance(value, tuple) else value
        for name, value in LOADS[kind].items()
    }
    return Workload(
        steps=draw.randint(2, 4),
        ops=draw.choice((5, 30, 100)),
        op_ns=int(10 ** draw.uniform(3.3, 4.8)),
        kernel_ns=int(10 ** draw.uniform(3.2, 5.3)),
        streams=draw.choice((1, 1, 2)),
        latency_ns=draw.choice((1_000, 2_000, 6_000, 14_000)),
        jitter=draw.choice((0.0, 0.2)),
        queue_length=draw.choice((1024, 20)),
        **chosen,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("kind", LOADS)
def test_the_limit_is_named_where_it_is_clear(kind: str) -> None:
    clear = 0
    for seed in range(12):
        simulation = simulate(workload(kind, seed), seed=seed)
        study = Study(simulation.trace)
        idle, totals, truth = study.idle, study.totals, simulation.truth
        causes = idle.host_starved_ns + idle.synchronised_ns + idle.dependency_ns + idle.other_ns
        assert causes == totals.idle_ns
        assert (totals.busy_ns, totals.window_ns) == (truth.busy_ns, truth.window_ns)
        assert tuple(step.kernels for step in study.steps) == truth.kernels_per_step
        if truth.regime is not None:
            clear += 1
            regime = decide(study.trace, totals, study.shares).regime
            # Per-op idle below 40 % of the window is called mixed, as part of it is what recording added.
            faint = regime == "mixed" and truth.regime == "launch-bound" and study.shares.frac("per-op") < 0.40
            assert regime == truth.regime or faint, (seed, workload(kind, seed))
    assert clear >= 6


def test_waits_set_the_time_where_the_host_waits_after_each_kernel() -> None:
    """The device works 80 µs, the host waits for it and then prepares for 60: without the wait both would overlap."""
    simulation = simulate(Workload(kernel_ns=80_000, op_ns=4_000, sync_every=1, after_sync_ns=60_000))
    study = Study(simulation.trace)
    assert decide(study.trace, study.totals, study.shares).regime == "sync-bound"


def test_half_of_the_rows_lost_is_no_idle_device() -> None:
    study = Study(simulate(Workload(lost_frac=0.6), seed=1).trace)
    decision = decide(study.trace, study.totals, study.shares)
    assert (decision.regime, decision.because) == ("cannot-tell", "lost-device-rows")
