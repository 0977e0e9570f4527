"""The simulation: what the reader and the totals find is what was simulated; its truth is its own."""

from __future__ import annotations

import doctest
from dataclasses import replace
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.testing import (
    Workload,
    draw_workload,
    intervene,
    limit_of,
    limits,
    named_by_rule,
    simulate,
    simulate_ranks,
    simulation,
    truth_of,
    workloads,
)
from referee.trace.columns import NONE, Kind
from referee.trace.reader import parse_trace
from referee.trace.totals import kernels_per_step, totals

WORKLOADS = st.builds(
    Workload,
    steps=st.integers(1, 4),
    ops=st.integers(1, 30),
    op_ns=st.integers(0, 30_000),
    kernel_ns=st.integers(1, 60_000),
    streams=st.integers(1, 3),
    queue_length=st.integers(1, 40),
    loader_ns=st.sampled_from([0, 100_000]),
    copy_ns=st.sampled_from([0, 50_000]),
    sync_every=st.integers(0, 5),
    collective_ns=st.sampled_from([0, 80_000]),
    first_step_ns=st.sampled_from([0, 3_000_000]),
    graph=st.booleans(),
    jitter=st.sampled_from([0.0, 0.2]),
)


@pytest.mark.parametrize("module", [simulation, limits, workloads])
def test_the_examples_in_the_docstrings(module: ModuleType):
    assert doctest.testmod(module).failed == 0


@given(WORKLOADS, st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_totals_are_those_of_the_simulation(workload: Workload, seed: int):
    simulation = simulate(workload, seed=seed)
    found, truth = totals(parse_trace(simulation.file)), simulation.truth
    assert (found.kernels, found.launches, found.device_rows) == (truth.kernels, truth.launches, truth.device_rows)
    assert (found.busy_ns, found.window_ns) == (truth.busy_ns, truth.window_ns)
    assert found.idle_ns == sum(truth.waited_ns.values())
    assert found.device_rows_without_launch == found.launches_without_device_rows == 0
    assert kernels_per_step(simulation.trace) == truth.kernels_per_step


@given(WORKLOADS)
@settings(max_examples=30, deadline=None)
def test_no_row_starts_before_its_submission_or_overlaps_on_its_stream(workload: Workload):
    trace = simulate(workload).trace
    rows, launch = trace.rows, trace.links.launch_of
    device = rows.of(Kind.KERNEL, Kind.MEMCPY)
    assert (rows.start_ns[device] >= rows.start_ns[launch[device]]).all()
    assert not {"stream-overlap", "rows-before-launch", "duplicate-correlation"} & {f.code for f in trace.findings}


def test_a_full_queue_blocks_and_changes_no_device_time():
    wide = Workload(op_ns=1_000, kernel_ns=50_000)
    narrow = replace(wide, queue_length=4)
    assert simulate(wide).truth.blocked_launches == 0
    assert simulate(narrow).truth.blocked_launches > 200
    assert simulate(narrow).truth.busy_ns == simulate(wide).truth.busy_ns


def test_lost_rows_are_missing_from_the_trace_alone():
    simulation = simulate(Workload(lost_frac=0.3), seed=5)
    found = totals(simulation.trace)
    assert simulation.truth.lost_rows > 50
    assert found.device_rows == simulation.truth.device_rows - simulation.truth.lost_rows
    assert found.launches_without_device_rows == simulation.truth.lost_rows


def test_a_clock_offset_is_found():
    trace = simulate(Workload(clock_offset_ns=-40_000, kernel_ns=2_000)).trace
    assert "rows-before-launch" in {finding.code for finding in trace.findings}


def test_the_same_seed_gives_the_same_file():
    workload = Workload(jitter=0.3)
    assert simulate(workload, seed=3).file == simulate(workload, seed=3).file
    assert simulate(workload, seed=3).file != simulate(workload, seed=4).file


def test_ranks_differ_where_one_is_slow():
    fast, slow = simulate_ranks(Workload(op_ns=20_000, kernel_ns=2_000), ranks=2, slow_rank=1)
    assert fast.trace.metadata["distributedInfo"]["rank"] == 0
    assert slow.trace.metadata["distributedInfo"]["rank"] == 1
    assert slow.truth.window_ns > 1.3 * fast.truth.window_ns


@pytest.mark.parametrize(
    ("workload", "regime"),
    [
        (Workload(op_ns=20_000, kernel_ns=2_000), "launch-bound"),
        (Workload(op_ns=2_000, kernel_ns=50_000), "compute-bound"),
        (Workload(op_ns=2_000, kernel_ns=50_000, queue_length=8), "compute-bound"),
        (Workload(op_ns=2_000, kernel_ns=20_000, loader_ns=8_000_000), "input-bound"),
        (Workload(op_ns=1_000, kernel_ns=20_000, copy_ns=8_000_000), "transfer-bound"),
        (Workload(op_ns=1_000, kernel_ns=20_000, collective_ns=8_000_000), "communication-bound"),
        (Workload(op_ns=1_000, kernel_ns=20_000, graph=True), "compute-bound"),
    ],
)
def test_the_diagnosis_agrees_with_the_truth(workload: Workload, regime: str):
    from referee.analysis.diagnose import diagnose

    simulation = simulate(replace(workload, jitter=0.1), seed=2)
    assert simulation.truth.regime == regime
    assert diagnose(parse_trace(simulation.file)).verdict.regime == regime


def test_unlinked_rows_stay_in_the_totals():
    trace = simulate(Workload()).trace
    assert (trace.links.launch_of[trace.rows.of(Kind.KERNEL)] != NONE).all()


@given(WORKLOADS, st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_the_truth_needs_no_trace(workload: Workload, seed: int):
    assert truth_of(workload, seed=seed) == simulate(workload, seed=seed).truth


def spans(workload: Workload) -> list[int]:
    """The durations of the kernels, as recorded."""
    rows = simulate(workload, seed=4).trace.rows
    kernels = rows.of(Kind.KERNEL)
    return (rows.end_ns[kernels] - rows.start_ns[kernels]).tolist()


def test_a_change_of_one_thing_changes_nothing_else():
    workload = Workload(jitter=0.3, sync_every=7, after_sync_ns=30_000, loader_ns=90_000)
    for other in (
        intervene(workload, host=0.5),
        intervene(workload, synchronises=False),
        replace(workload, loader_ns=0),
        replace(workload, first_step_ns=5_000_000),
    ):
        assert spans(other) == spans(workload)
    assert spans(workload) == pytest.approx([2 * ns for ns in spans(intervene(workload, device=0.5))], abs=2)


def test_the_host_in_half_the_time_halves_all_that_the_host_does():
    workload = Workload(
        kernel_ns=1,
        latency_ns=0,
        jitter=0.2,
        loader_ns=80_000,
        sync_every=5,
        after_sync_ns=9_000,
        first_step_ns=200_000,
    )
    whole, half = truth_of(workload), truth_of(intervene(workload, host=0.5))
    assert half.window_ns == pytest.approx(whole.window_ns / 2, rel=0.01)


def test_without_synchronising_the_host_still_does_what_follows():
    workload = Workload(op_ns=4_000, kernel_ns=1, sync_every=1, after_sync_ns=20_000, steps=1)
    waited, unsynced = truth_of(workload), truth_of(intervene(workload, synchronises=False))
    assert unsynced.window_ns == pytest.approx(99 * 28_000, rel=0.01)
    assert unsynced.window_ns < waited.window_ns
    assert truth_of(replace(workload, sync_every=0)).window_ns < unsynced.window_ns / 2


@pytest.mark.parametrize("seed", range(11))
def test_shares_and_what_is_busy_sum_to_the_window(seed: int):
    limit = limit_of(draw_workload(seed), seed=seed)
    hidden = {"transfer-bound", "communication-bound"}  # parts of what is busy
    idle = sum(frac for name, frac in limit.losses.items() if name not in hidden)
    assert idle + limit.busy_frac == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize(
    ("losses", "busy_frac", "regime"),
    [
        ({"launch-bound": 0.23, "sync-bound": 0.0}, 0.77, "compute-bound"),
        ({"launch-bound": 0.23, "sync-bound": 0.20}, 0.57, "mixed"),
        ({"launch-bound": 0.39, "sync-bound": 0.0}, 0.61, "mixed"),
        ({"launch-bound": 0.41, "sync-bound": 0.25}, 0.34, "launch-bound"),
        ({"launch-bound": 0.41, "sync-bound": 0.29}, 0.30, "mixed"),
        ({"launch-bound": 0.10, "sync-bound": 0.25}, 0.65, "sync-bound"),
    ],
)
def test_the_rule(losses: dict[str, float], busy_frac: float, regime: str):
    assert named_by_rule(losses, busy_frac=busy_frac) == regime
