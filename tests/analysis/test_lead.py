"""What waits cost beyond the gap behind them: charged to them for the regime, and causes still sum to each gap."""

from __future__ import annotations

import pytest

from referee.analysis.evidence import judge
from referee.analysis.idle import CAUSES, Gaps, sum_idle
from referee.analysis.lead import charge_latency, charge_waits, most_owed_ns
from referee.analysis.regime import decide_by_shares, is_settled
from referee.analysis.shares import share_out
from referee.analysis.study import Study
from referee.testing import Workload, draw_workload, limit_of, simulate
from referee.testing.workloads import KINDS
from referee.trace.builder import TraceBuilder

US = 1_000


def charged(study: Study) -> tuple[Gaps, ...]:
    """All that late launches and waits cost, whether or not it could name another regime."""
    return charge_waits(study.trace, study.works, charge_latency(study.works, study.gaps))


COLLECTIVE = Workload(op_ns=20_000, kernel_ns=2_000, sync_every=10, after_sync_ns=10_000, collective_ns=3_000_000)
"""The first wait in a step is for a collective: 3 ms in which the host would have run 100 operators ahead."""


def launched(builder: TraceBuilder, at: int, row: tuple[int, int]) -> TraceBuilder:
    """One kernel and its launch of 5 µs; times in microseconds."""
    number = len(builder.build().rows) + 1
    builder.launch("cudaLaunchKernel", at * US, 5 * US, correlation=number)
    return builder.kernel("k", row[0] * US, row[1] * US, correlation=number)


def test_later_gaps_are_owed_to_the_wait_until_the_lead_is_used_up() -> None:
    """Busy 10-110; the host waits 20-110 (90 µs), then needs 50 µs for each launch: gaps of 55, 45 and 45 µs.

    Without the wait the first would be gone and the second 10 long: with a lead of 35 µs after the first gap, the
    second shrinks by as much, and the third stays.
    """
    builder = launched(TraceBuilder(), 0, (10, 100)).sync(20 * US, 90 * US)
    for number in range(3):
        launched(builder, 155 + 50 * number, (165 + 50 * number, 5))
    study = Study(builder.build())
    rule, owed = study.gaps[0], charged(study)[0]
    assert rule.synchronised_ns.tolist() == [55 * US, 0, 0]
    assert owed.synchronised_ns.tolist() == [55 * US, 35 * US, 0]
    assert owed.per_op_ns.tolist() == [0, 10 * US, 45 * US]
    assert study.idle.synchronised_ns == 55 * US


def test_waits_without_a_lead_to_lose_cost_their_calls_alone() -> None:
    """The host is late with every launch and finds the device idle: of each wait its call of 1 µs is lost."""
    workload = Workload(op_ns=40_000, kernel_ns=3_000, sync_every=1)
    study = Study(simulate(workload).trace)
    assert study.idle.synchronised_ns == 0
    lost_ns = charged(study)[0].synchronised_ns.sum()
    assert lost_ns == pytest.approx(limit_of(workload).losses["sync-bound"] * study.totals.window_ns, abs=1)
    assert lost_ns == 299 * US


@pytest.mark.parametrize("seed", [174, 2760, 20198, 20436])
def test_losses_near_a_threshold_are_those_of_the_reruns(seed: int) -> None:
    """Copies and collectives for which the host waits, next to a rival that decides: by how the reruns name it."""
    workload = draw_workload(seed)
    study, limit = Study(simulate(workload, seed=seed).trace), limit_of(workload, seed=seed)
    assert judge(study).regime == limit.regime
    (g,) = charged(study)
    for regime, cause in {"launch-bound": "per_op", "input-bound": "loader", "sync-bound": "synchronised"}.items():
        assert g.cause(cause).sum() / study.totals.window_ns == pytest.approx(limit.losses[regime], abs=0.0005)


def test_waits_in_collectives_name_the_regime_that_the_rerun_without_them_names() -> None:
    study, limit = Study(simulate(COLLECTIVE).trace), limit_of(COLLECTIVE)
    assert study.shares.frac("synchronised") == pytest.approx(limit.losses["sync-bound"], abs=0.01)
    assert study.shares.frac("per-op") == pytest.approx(limit.losses["launch-bound"], abs=0.01)
    verdict = judge(study)
    assert verdict.regime == limit.regime
    assert any("lead that waits took" in step.so for step in verdict.evidence)


@pytest.mark.parametrize("seed", range(0, 6 * len(KINDS), 5))
def test_causes_sum_to_each_gap_after_charging(seed: int) -> None:
    study = Study(simulate(draw_workload(seed), seed=seed).trace)
    for gaps in charged(study):
        parts = [gaps.cause(name) for name in CAUSES]
        assert min(int(part.min(initial=0)) for part in parts) >= 0
        assert (sum(parts) == gaps.length_ns).all()


def test_a_late_launch_costs_its_own_latency_and_not_the_median_of_all() -> None:
    """Launches onto an idle stream whose rows start 1, 3 or 9 µs after them: the median is 3, the rest is theirs."""
    builder = TraceBuilder()
    for number, lag in enumerate((3, 1, 9, 3, 9)):
        launched(builder, 100 * number, (100 * number + 5 + lag, 2))
    study = Study(builder.build())
    assert study.works[0].latency_ns == 6 * US
    assert study.idle.other_ns == 2 * 3 * US
    assert charged(study)[0].other_ns.sum() == 0
    assert charged(study)[0].per_op_ns.sum() == study.totals.idle_ns


def test_what_takes_longer_than_a_launch_is_not_the_launchs() -> None:
    builder = launched(launched(TraceBuilder(), 0, (8, 2)), 100, (108, 2))
    study = Study(launched(builder, 200, (260, 2)).build())
    assert study.idle.other_ns > 0
    assert charged(study)[0].other_ns.sum() == study.idle.other_ns


@pytest.mark.parametrize("seed", range(2, 8 * len(KINDS), 3))
def test_what_counts_as_settled_is_named_the_same_after_the_replay(seed: int) -> None:
    study = Study(simulate(draw_workload(seed), seed=seed).trace)
    late = charge_latency(study.works, study.gaps)
    moved = charge_waits(study.trace, study.works, late)
    before, after = (
        share_out(study.trace, g, totals=study.totals, idle=sum_idle(g), timeline=study.timeline) for g in (late, moved)
    )
    owed_ns = sum_idle(moved).synchronised_ns - study.idle.synchronised_ns
    assert owed_ns <= most_owed_ns(study.trace, study.works, late)
    if is_settled(before, owed_ns):
        assert decide_by_shares(before).regime == decide_by_shares(after).regime
