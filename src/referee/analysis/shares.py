"""What does each loss take of the window? The figures from which the regime is named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from referee.analysis.host_work import of_pause, of_per_op
from referee.analysis.idle import Gaps
from referee.records.trace_report import Idle, Timeline, Totals
from referee.records.verdict import Regime
from referee.trace.audit import ROUNDING_NS
from referee.trace.columns import DEVICE_KINDS, NONE, IntColumn, Trace

RECURS_SHARE = 0.5
"""Allocator time is cold unless at least this share of it falls after the first step."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """One loss: its name, its time, its share of the window, and the regime that it names if it is the largest."""

    name: str
    ns: int
    frac: float
    regime: Regime


@dataclass(frozen=True, kw_only=True)
class Shares:
    """The losses, largest first, and the busy share."""

    losses: tuple[Share, ...]
    busy_frac: float
    window_ns: int
    allocator_recurs: bool
    unlinked_ns: int = 0
    """Idle time before rows that have no launch in the file."""
    doubtful_ns: int = 0
    """Idle time whose ends lie no better than the clocks agree: rows beside it start before their launch."""
    late_ns: int = 0
    """Idle time before rows that were launched by then, on a device whose rows are all late by the same time."""

    def frac(self, name: str) -> float:
        """The share of one loss."""
        return next(share.frac for share in self.losses if share.name == name)

    def ns(self, name: str) -> int:
        """The time of one loss."""
        return next(share.ns for share in self.losses if share.name == name)


def share_out(trace: Trace, gaps: Sequence[Gaps], *, totals: Totals, idle: Idle, timeline: Timeline) -> Shares:
    """Every loss as a share of the window, whole devices added up.

    Allocator time counts with the one-off costs, unless at least half of it falls after the first step (without steps:
    after the first third of the window): then it is a loss of its own that recurs. What operators compute on the host
    is a loss of its own too: it is no overhead, and a captured graph does not hold it.
    """
    recurs = _allocator_recurs(trace, gaps)
    starved = idle.host_starved
    unlinked_ns = sum(int(g.unlinked_ns.sum()) for g in gaps)
    computed_ns = sum(int(of_per_op(trace, g).sum()) for g in gaps), sum(int(of_pause(trace, g).sum()) for g in gaps)
    named: tuple[tuple[str, int, Regime], ...] = (
        ("per-op", starved.per_op_ns - computed_ns[0], "launch-bound"),
        ("loader", starved.loader_ns, "input-bound"),
        ("synchronised", idle.synchronised_ns, "sync-bound"),
        ("exposed copies", timeline.exposed_copy_ns - timeline.local_copy_ns, "transfer-bound"),
        ("exposed communication", timeline.exposed_communication_ns, "communication-bound"),
        ("first-time costs", starved.one_off_ns + (0 if recurs else starved.allocator_ns), "cold"),
        ("recurring allocator", starved.allocator_ns if recurs else 0, "mixed"),
        ("pauses", starved.pause_ns - computed_ns[1], "mixed"),
        ("computation on the host", sum(computed_ns), "mixed"),
        ("other devices", sum(int(g.elsewhere_ns.sum()) for g in gaps), "mixed"),
        ("unseen and unlinked", idle.unseen_ns + unlinked_ns, "cannot-tell"),
    )
    window_ns = max(totals.window_ns, 1)
    losses = [Share(name=name, ns=ns, frac=ns / window_ns, regime=regime) for name, ns, regime in named]
    return Shares(
        losses=tuple(sorted(losses, key=lambda share: -share.ns)),
        busy_frac=totals.busy_ns / window_ns,
        window_ns=totals.window_ns,
        allocator_recurs=recurs,
        unlinked_ns=unlinked_ns,
        doubtful_ns=sum(int(doubtful_ns(trace, g).sum()) for g in gaps),
    )


def doubtful_ns(trace: Trace, gaps: Gaps) -> IntColumn:
    """How much of each idle interval the device rows that start before their launch may have made up, at most."""
    rows, launch_of = trace.rows, trace.links.launch_of
    members = rows.of(*DEVICE_KINDS)
    members = members[(rows.device[members] == gaps.device) & (launch_of[members] != NONE)]
    early_ns = rows.start_ns[launch_of[members]] - rows.start_ns[members]
    wrong = early_ns > ROUNDING_NS
    doubt_ns = np.zeros(gaps.start_ns.size, dtype=np.int64)
    if not wrong.any() or not gaps.start_ns.size:
        return doubt_ns
    for edge_ns, of_row_ns in ((gaps.end_ns, rows.start_ns), (gaps.start_ns, rows.end_ns)):
        moment_ns = of_row_ns[members[wrong]]
        at = np.minimum(np.searchsorted(edge_ns, moment_ns), edge_ns.size - 1)
        beside = edge_ns[at] == moment_ns
        np.maximum.at(doubt_ns, at[beside], early_ns[wrong][beside])
    return np.minimum(doubt_ns, gaps.length_ns)


def without_first_time(shares: Shares) -> Shares:
    """The shares of what remains of the window when the idle time behind first-time costs is taken out."""
    cold_ns = next(share.ns for share in shares.losses if share.name == "first-time costs")
    rest_ns = max(shares.window_ns - cold_ns, 1)
    losses = [
        replace(share, ns=0, frac=0.0) if share.name == "first-time costs" else replace(share, frac=share.ns / rest_ns)
        for share in shares.losses
    ]
    return replace(
        shares,
        losses=tuple(sorted(losses, key=lambda share: -share.ns)),
        busy_frac=shares.busy_frac * shares.window_ns / rest_ns,
        window_ns=rest_ns,
    )


def _allocator_recurs(trace: Trace, gaps: Sequence[Gaps]) -> bool:
    """At least half of the idle time behind the allocator began after the first step."""
    late_ns = total_ns = 0
    for device_gaps in gaps:
        starved_ns = device_gaps.allocator_ns
        if not starved_ns.any():
            continue
        begin_ns, end_ns = int(device_gaps.start_ns[0]), int(device_gaps.end_ns[-1])
        warm_ns = trace.steps[0].end_ns if trace.steps else begin_ns + (end_ns - begin_ns) // 3
        late_ns += int(starved_ns[device_gaps.start_ns >= warm_ns].sum())
        total_ns += int(starved_ns.sum())
    return total_ns > 0 and late_ns >= RECURS_SHARE * total_ns
