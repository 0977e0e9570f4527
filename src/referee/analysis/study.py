"""What do the analyses share? One trace, and everything about it that more than one of them needs, found once."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from referee.analysis.behind_waits import behind_waits
from referee.analysis.critical import critical_path
from referee.analysis.idle import Gaps, find_gaps, sum_idle
from referee.analysis.kernels import top_kernels
from referee.analysis.late_rows import late_ns
from referee.analysis.law import apply_law
from referee.analysis.lead import charge_latency, charge_waits, most_owed_ns
from referee.analysis.losses import price_losses
from referee.analysis.occupancy import with_shapes
from referee.analysis.owners import sync_sites
from referee.analysis.partition import partition_steps
from referee.analysis.queue import queue_delay
from referee.analysis.regime import decide_by_shares, is_settled, rows_are_late, what_is_missing
from referee.analysis.roofline import Roofline, roofline
from referee.analysis.shares import Shares, share_out
from referee.analysis.step_regimes import with_regimes
from referee.analysis.steps import step_reports
from referee.analysis.stray import stray_rows
from referee.analysis.timeline import partition_busy
from referee.analysis.traffic import price_traffic
from referee.analysis.utilisation import utilisation
from referee.graph.work import Work, work_by_device
from referee.records.critical_path import CriticalPath
from referee.records.tables import SyncSite
from referee.records.trace_report import (
    Idle,
    Law,
    Losses,
    QueueDelay,
    StepPartition,
    StepReport,
    Timeline,
    TopKernel,
    Totals,
    Utilisation,
)
from referee.trace.columns import RowNumbers, Trace
from referee.trace.details import Details
from referee.trace.select import leave_out
from referee.trace.totals import totals

DETAILED_EVENTS = 200_000
"""Files of up to this many events are read once more for the arguments of their rows, and their moments are put in
order for the critical path: under a second each."""


class Study:
    """A trace under study. Nothing is computed before it is asked for, and nothing twice."""

    def __init__(
        self, trace: Trace, *, details: Details | None = None, unprofiled_step_ns: float | None = None
    ) -> None:
        self.trace = trace
        self.unprofiled_step_ns = unprofiled_step_ns
        """The time of one step without the profiler, where somebody measured it."""
        self.details = details
        """The arguments of the rows; ``None`` where they were not read."""

    @cached_property
    def works(self) -> tuple[Work, ...]:
        """The device rows of each device."""
        return work_by_device(self.trace)

    @cached_property
    def stray(self) -> RowNumbers:
        """Rows that cannot be believed and set the window."""
        return stray_rows(self.trace, self.works)

    @cached_property
    def judged(self) -> Study:
        """What the verdict is on: this trace, or one without its stray rows."""
        return Study(leave_out(self.trace, self.stray)) if self.stray.size else self

    @cached_property
    def gaps(self) -> tuple[Gaps, ...]:
        """Every idle interval of each device, with its causes."""
        return find_gaps(self.trace, self.works)

    @cached_property
    def charged(self) -> tuple[Gaps, ...]:
        """The same intervals as the regime sees them: with late launches' own latency, and with all that waits cost,
        as far as that could name another one."""
        late = charge_latency(self.works, self.gaps)
        owed_ns = most_owed_ns(self.trace, self.works, late)
        settled = not owed_ns or is_settled(self._share_out(late), owed_ns)
        return late if settled else charge_waits(self.trace, self.works, late)

    @cached_property
    def behind_waits(self) -> dict[str, int]:
        """How much of the idle time that is given to waits another cause would take off alone, by that cause, in ns.

        What waits are charged with beyond the gap right behind them was another cause's there: that is both as well.
        """
        found = behind_waits(self.trace, self.gaps)
        more = {
            name: sum(int((g.cause(name) - c.cause(name)).sum()) for g, c in zip(self.gaps, self.charged, strict=True))
            for name in found
        }
        return {name: ns + max(0, more[name]) for name, ns in found.items()}

    @cached_property
    def sync_sites(self) -> tuple[SyncSite, ...]:
        """The places that wait for a device."""
        return sync_sites(self.trace, self.works, self.gaps)

    @cached_property
    def totals(self) -> Totals:
        """Counts and sums."""
        return totals(self.trace)

    @cached_property
    def idle(self) -> Idle:
        """The causes of idle time."""
        return sum_idle(self.gaps)

    @cached_property
    def timeline(self) -> Timeline:
        """What busy time consists of."""
        return partition_busy(self.trace, self.works)

    @cached_property
    def shares(self) -> Shares:
        """What each loss takes of the window: by the causes of idle time, unless all that the waits and late launches
        cost names another regime."""
        by_causes, charged = self._share_out(self.gaps), self._share_out(self.charged)
        same = decide_by_shares(by_causes).regime == decide_by_shares(charged).regime
        return by_causes if same else charged

    def _share_out(self, gaps: tuple[Gaps, ...]) -> Shares:
        shares = share_out(self.trace, gaps, totals=self.totals, idle=sum_idle(gaps), timeline=self.timeline)
        return replace(shares, late_ns=late_ns(self.works, self.gaps))

    @cached_property
    def queue(self) -> QueueDelay:
        """How long work waited in the queue."""
        return queue_delay(self.works)

    @cached_property
    def law(self) -> Law:
        """The law against the window."""
        return apply_law(self.trace, self.works, totals=self.totals, idle=self.idle)

    @cached_property
    def steps(self) -> tuple[StepReport, ...]:
        """The steps."""
        return with_regimes(
            self.trace,
            self.works,
            self.charged,
            step_reports(self.trace, self.works),
            decided=what_is_missing(self.trace, self.totals) is None and not rows_are_late(self.shares),
            allocator_recurs=self.shares.allocator_recurs,
        )

    @cached_property
    def partition(self) -> tuple[StepPartition, ...]:
        """What was going on in each step."""
        return partition_steps(self.trace, self.works)

    @cached_property
    def utilisation(self) -> Utilisation:
        """How busy the device was, in three ways."""
        return utilisation(self.trace, self.works, details=self.details, roofs=self.roofs)

    @cached_property
    def roofs(self) -> Roofline | None:
        """Rates against the device's peaks."""
        return None if self.details is None else roofline(self.trace, self.named_kernels, self.details)

    @cached_property
    def named_kernels(self) -> tuple[TopKernel, ...]:
        """The device rows by name."""
        return top_kernels(self.trace)

    @cached_property
    def top_kernels(self) -> tuple[TopKernel, ...]:
        """The device rows by name, with launch shapes and roofs where they are known."""
        if self.details is None or self.roofs is None:
            return self.named_kernels
        roofed = tuple(self.roofs.kernels.get(kernel.name, kernel) for kernel in self.named_kernels)
        return with_shapes(self.trace, roofed, self.details)

    @cached_property
    def critical_path(self) -> CriticalPath | None:
        """The longest chain of work."""
        return critical_path(self.trace) if self.trace.events <= DETAILED_EVENTS else None

    @cached_property
    def losses(self) -> Losses:
        """The three losses of eager mode."""
        return price_losses(
            self.trace,
            self.gaps,
            idle=self.idle,
            traffic=price_traffic(self.trace, self.works, self.details),
            unprofiled_step_ns=self.unprofiled_step_ns,
        )
