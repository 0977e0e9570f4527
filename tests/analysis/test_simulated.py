"""Simulated traces whose limit interventions show: the regime is found, and every nanosecond is accounted for."""

from __future__ import annotations

import pytest

from referee.analysis.regime import decide
from referee.analysis.study import Study
from referee.testing import Workload, draw_workload, limit_of, simulate
from referee.testing.workloads import KINDS

OPEN_FRAC = 0.05
"""This near to a threshold of the rule either answer is right."""


@pytest.mark.parametrize("kind", KINDS)
def test_the_diagnosis_names_what_interventions_name(kind: str) -> None:
    """The larger run of this, with its table, is benchmarks/diagnosis.py."""
    first = list(KINDS).index(kind)
    for seed in range(first, 14 * len(KINDS), len(KINDS)):
        workload = draw_workload(seed)
        simulation = simulate(workload, seed=seed)
        study = Study(simulation.trace)
        idle, totals = study.idle, study.totals
        assert idle.host_starved_ns + idle.synchronised_ns + idle.dependency_ns + idle.other_ns == totals.idle_ns
        if simulation.truth.lost_rows == 0:
            truth = simulation.truth
            assert (totals.busy_ns, totals.window_ns) == (truth.busy_ns, truth.window_ns)
            assert tuple(step.kernels for step in study.steps) == truth.kernels_per_step
        limit = limit_of(workload, seed=seed)
        if not limit.is_open(OPEN_FRAC):
            assert decide(study.trace, totals, study.shares).regime == limit.regime, (seed, limit)


def test_every_regime_of_the_simulation_is_among_those_drawn() -> None:
    drawn = {limit_of(draw_workload(seed), seed=seed).regime for seed in range(14 * len(KINDS))}
    assert drawn == {
        *("launch-bound", "compute-bound", "sync-bound", "input-bound", "transfer-bound", "communication-bound"),
        *("cold", "mixed", "cannot-tell"),
    }


def test_waits_set_the_time_where_the_host_waits_after_each_kernel() -> None:
    """The device works 80 µs, the host waits for it and then prepares for 60: without the wait both would overlap."""
    simulation = simulate(Workload(kernel_ns=80_000, op_ns=4_000, sync_every=1, after_sync_ns=60_000))
    study = Study(simulation.trace)
    assert decide(study.trace, study.totals, study.shares).regime == "sync-bound"


def test_clocks_that_disagree_name_no_host_and_leave_a_busy_device_busy() -> None:
    skewed = Study(simulate(Workload(clock_offset_ns=-40_000, kernel_ns=2_000), seed=1).trace)
    decision = decide(skewed.trace, skewed.totals, skewed.shares)
    assert (decision.regime, decision.because) == ("cannot-tell", "rows-before-launch")
    busy = Study(simulate(Workload(clock_offset_ns=-40_000, kernel_ns=60_000), seed=1).trace)
    assert decide(busy.trace, busy.totals, busy.shares).regime == "compute-bound"


def test_half_of_the_rows_lost_is_no_idle_device() -> None:
    study = Study(simulate(Workload(lost_frac=0.6), seed=1).trace)
    decision = decide(study.trace, study.totals, study.shares)
    assert (decision.regime, decision.because) == ("cannot-tell", "lost-device-rows")


def test_no_step_is_named_where_the_trace_is_not() -> None:
    """Per step as for the window: clocks that disagree, or half of the rows lost, name nobody."""
    skewed = Study(simulate(Workload(clock_offset_ns=-40_000, kernel_ns=2_000), seed=1).trace)
    assert {step.regime for step in skewed.steps} == {"cannot-tell"}
    lost = Study(simulate(Workload(lost_frac=0.6), seed=1).trace)
    assert {step.regime for step in lost.steps} == {"cannot-tell"}
    busy = Study(simulate(Workload(clock_offset_ns=-40_000, kernel_ns=60_000), seed=1).trace)
    assert {step.regime for step in busy.steps} == {"compute-bound"}
