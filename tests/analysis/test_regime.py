"""The rules that name the regime, at their thresholds."""

from __future__ import annotations

import pytest

from referee.analysis.regime import decide, decide_by_shares, what_is_missing
from referee.analysis.shares import Share, Shares
from referee.analysis.study import Study
from referee.trace.builder import TraceBuilder

US = 1_000
MS = 1_000_000

REGIMES = {
    "per-op": "launch-bound",
    "loader": "input-bound",
    "synchronised": "sync-bound",
    "exposed copies": "transfer-bound",
    "exposed communication": "communication-bound",
    "first-time costs": "cold",
    "recurring allocator": "mixed",
    "pauses": "mixed",
    "unseen and unlinked": "cannot-tell",
}


def shares(busy: float = 0.5, **fracs: float) -> Shares:
    """Shares by name (underscores for blanks), others zero."""
    named = {
        name.replace("_", " ").replace("per op", "per-op").replace("first time", "first-time"): frac
        for name, frac in fracs.items()
    }
    losses = [
        Share(name=name, ns=round(named.get(name, 0.0) * 1e9), frac=named.get(name, 0.0), regime=regime)  # type: ignore[arg-type]
        for name, regime in REGIMES.items()
    ]
    return Shares(
        losses=tuple(sorted(losses, key=lambda s: -s.ns)), busy_frac=busy, window_ns=10**9, allocator_recurs=False
    )


@pytest.mark.parametrize(
    ("given", "regime"),
    [
        (shares(0.60), "compute-bound"),
        (shares(0.59), "mixed"),
        (shares(0.60, per_op=0.23), "compute-bound"),
        (shares(0.60, per_op=0.24), "mixed"),
        (shares(0.60, per_op=0.39), "mixed"),
        (shares(0.60, per_op=0.40), "launch-bound"),
        (shares(0.70, loader=0.24), "input-bound"),
        (shares(0.70, synchronised=0.24), "sync-bound"),
        (shares(0.95, exposed_copies=0.30), "transfer-bound"),
        (shares(0.95, exposed_communication=0.30), "communication-bound"),
        (shares(0.50, first_time_costs=0.30), "cold"),
        (shares(0.50, pauses=0.30), "mixed"),
        (shares(0.50, recurring_allocator=0.30), "mixed"),
        (shares(0.50, unseen_and_unlinked=0.30), "cannot-tell"),
        (shares(0.80, unseen_and_unlinked=0.10, per_op=0.05), "compute-bound"),
        (shares(0.30, loader=0.40, per_op=0.28), "mixed"),
        (shares(0.30, loader=0.40, per_op=0.27), "input-bound"),
        (shares(0.30, loader=0.30, per_op=0.23), "input-bound"),
        (shares(0.20, per_op=0.50, synchronised=0.30), "launch-bound"),
    ],
)
def test_thresholds(given: Shares, regime: str) -> None:
    decision = decide_by_shares(given)
    assert decision.regime == regime
    assert (decision.because is not None) == (regime in ("mixed", "cannot-tell"))


def allocating(start_of_malloc: int, *, steps: int) -> TraceBuilder:
    """Four steps of 10 ms, with one driver allocation of 8 ms starting where it is asked."""
    builder = TraceBuilder()
    for number in range(4):
        begin = number * 10 * MS
        if number < steps:
            builder.step(number, begin, 10 * MS)
        builder.launch("cudaLaunchKernel", begin + 9_990 * US, 5 * US, correlation=number + 1)
        builder.kernel("k", begin + 9_996 * US, 3 * US, correlation=number + 1)
    builder.kernel("first", 0, 3 * US)
    return builder.launch("cudaMalloc", start_of_malloc, 8 * MS)


def test_an_allocation_in_the_first_step_is_cold_and_a_later_one_recurs() -> None:
    early = Study(allocating(1 * MS, steps=4).build()).shares
    late = Study(allocating(21 * MS, steps=4).build()).shares
    assert early.frac("first-time costs") == pytest.approx(0.2, abs=0.01)
    assert early.frac("recurring allocator") == 0
    assert late.frac("recurring allocator") == pytest.approx(0.2, abs=0.01)
    # Without steps the first third of the window counts as the beginning.
    assert not Study(allocating(1 * MS, steps=0).build()).shares.allocator_recurs
    assert Study(allocating(21 * MS, steps=0).build()).shares.allocator_recurs


def test_rows_without_correlation_ids_may_be_anybodys_so_no_launch_is_lost() -> None:
    builder = TraceBuilder()
    for number in range(4):
        builder.launch("hipExtModuleLaunchKernel", number * 10 * US, 5 * US)
        builder.kernel("k", number * 10 * US + 6 * US, 9 * US)
    verdict = Study(builder.build())
    assert verdict.totals.launches_without_device_rows == 4
    assert what_is_missing(verdict.trace, verdict.totals) is None


def test_half_of_the_launches_without_rows_is_lost_activity() -> None:
    builder = TraceBuilder()
    for number in range(1, 5):
        builder.launch("cudaLaunchKernel", number * 10 * US, 5 * US, correlation=number)
    for number in (1, 2):
        builder.kernel("k", number * 10 * US + 6 * US, 3 * US, correlation=number)
    study = Study(builder.build())
    decision = decide(study.trace, study.totals, study.shares)
    assert (decision.regime, decision.because) == ("cannot-tell", "lost-device-rows")


def test_idle_time_before_rows_without_a_launch_decides_nothing() -> None:
    builder = TraceBuilder()
    for number in range(10):
        builder.kernel("k", number * 100 * US, 20 * US)
    study = Study(builder.build())
    decision = decide(study.trace, study.totals, study.shares)
    assert (decision.regime, decision.because) == ("cannot-tell", "unlinked-rows")
