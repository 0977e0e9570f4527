"""Which regime is each step in? The window's rules on the work that the step launched and the idle time before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from referee.analysis.host_work import of_pause, of_per_op
from referee.analysis.idle import CAUSES, Gaps
from referee.analysis.regime import decide_by_clocks
from referee.analysis.shares import Share, Shares, doubtful_ns
from referee.analysis.timeline import add_up, partition_rows
from referee.graph.work import Work
from referee.records.trace_report import StepReport, Timeline
from referee.records.verdict import Regime
from referee.trace.columns import NONE, IntColumn, Trace
from referee.trace.steps import step_of

_REGIMES: dict[str, Regime] = {
    "per_op": "launch-bound",
    "loader": "input-bound",
    "synchronised": "sync-bound",
    "one_off": "cold",
    "pause": "mixed",
}


_APART: dict[str, Callable[[Trace, Gaps], IntColumn]] = {
    "doubtful": doubtful_ns,
    "computed_per_op": of_per_op,
    "computed_pause": of_pause,
}
"""What is asked of an idle interval beside its causes."""


def with_regimes(
    trace: Trace,
    works: Sequence[Work],
    gaps: Sequence[Gaps],
    steps: Sequence[StepReport],
    *,
    decided: bool,
    allocator_recurs: bool,
) -> tuple[StepReport, ...]:
    """The steps with their regimes; none for a step that launched fewer than two device rows.

    ``decided`` is false where the trace as a whole lacks what a verdict needs: then no step has one either.
    """
    members_of = [
        _by_step(np.where(work.linked, step_of(trace.steps, work.launch_start_ns), NONE), len(steps)) for work in works
    ]
    cause_ns = _causes_by_step(trace, gaps, len(steps))
    named = []
    for number, step in enumerate(steps):
        chosen = [members[number] for members in members_of]
        if sum(members.size for members in chosen) < 2:
            named.append(step)
            continue
        timeline = add_up([partition_rows(trace, work, rows) for work, rows in zip(works, chosen, strict=True)])
        causes = {cause: int(by_step[number]) for cause, by_step in cause_ns.items()}
        shares = _shares(step, timeline, causes, allocator_recurs=allocator_recurs)
        named.append(replace(step, regime=decide_by_clocks(shares).regime if decided else "cannot-tell"))
    return tuple(named)


def _by_step(position: IntColumn, count: int) -> list[IntColumn]:
    """For each step: where it stands in ``position``, in order."""
    order = np.argsort(position, kind="stable")
    bounds = np.searchsorted(position[order], np.arange(count + 1))
    return [order[low:high] for low, high in pairwise(bounds)]


def _causes_by_step(trace: Trace, gaps: Sequence[Gaps], count: int) -> dict[str, IntColumn]:
    """For each cause, and for what clocks that disagree may have made up: its idle time behind each step."""
    sums = {cause: np.zeros(count, dtype=np.int64) for cause in (*CAUSES, "unseen", "elsewhere", *_APART)}
    for device_gaps in gaps:
        at = _step_of_gaps(trace, device_gaps)
        known = at != NONE
        for cause, by_step in sums.items():
            ns = _APART[cause](trace, device_gaps) if cause in _APART else device_gaps.cause(cause)
            np.add.at(by_step, at[known], ns[known])
    return sums


def _step_of_gaps(trace: Trace, gaps: Gaps) -> IntColumn:
    """The step that launched what ended each idle interval."""
    launched_ns = trace.rows.start_ns[np.maximum(gaps.launch, 0)]
    return np.where(gaps.launch != NONE, step_of(trace.steps, launched_ns), NONE)


def _shares(step: StepReport, timeline: Timeline, causes: dict[str, int], *, allocator_recurs: bool) -> Shares:
    window_ns = max(1, step.busy_ns + sum(causes[cause] for cause in CAUSES))
    computed_ns = {"per_op": causes["computed_per_op"], "pause": causes["computed_pause"]}
    named: list[tuple[str, int, Regime]] = [
        (cause.replace("_", "-"), causes[cause] - computed_ns.get(cause, 0), regime)
        for cause, regime in _REGIMES.items()
    ]
    named += [
        ("allocator", causes["allocator"], "mixed" if allocator_recurs else "cold"),
        ("exposed copies", timeline.exposed_copy_ns - timeline.local_copy_ns, "transfer-bound"),
        ("exposed communication", timeline.exposed_communication_ns, "communication-bound"),
        ("computation on the host", sum(computed_ns.values()), "mixed"),
        ("other devices", causes["elsewhere"], "mixed"),
        ("unseen", causes["unseen"], "cannot-tell"),
    ]
    losses = [Share(name=name, ns=ns, frac=ns / window_ns, regime=regime) for name, ns, regime in named]
    return Shares(
        losses=tuple(sorted(losses, key=lambda share: -share.ns)),
        busy_frac=step.busy_ns / window_ns,
        window_ns=window_ns,
        allocator_recurs=allocator_recurs,
        doubtful_ns=causes["doubtful"],
    )
