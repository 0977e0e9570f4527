"""What does the trace say? The report on one trace (schema ``referee.trace/1``): totals, idle causes, steps, verdict.

All times are integer nanoseconds unless noted. Meanings: *busy* is the union of device rows over streams, *sum* their
total, *window* the first device start to the last device end, *idle* window minus busy; totals add over devices.
"""

from __future__ import annotations

from dataclasses import dataclass

from referee.records.capture import Recording
from referee.records.critical_path import CriticalPath
from referee.records.finding import Finding
from referee.records.measurement import Fit
from referee.records.provenance import Provenance
from referee.records.tables import GapRow, Graphable, LaunchStats, MemoryTimeline, OperatorRow, SyncSite
from referee.records.verdict import Regime, Remedy, Verdict


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Counts of rows and sums of time over the whole file, or over what was selected of it."""

    events: int
    ops: int
    ops_top: int
    ops_aten_top: int
    runtime_calls: int
    launches: int
    launches_without_device_rows: int
    kernels: int
    device_rows: int
    device_rows_without_launch: int
    graph_launches: int
    streams: int
    busy_ns: int
    sum_ns: int
    window_ns: int
    idle_ns: int
    median_kernel_ns: float | None
    self_cpu_ns: int | None
    self_device_ns: int | None


@dataclass(frozen=True, kw_only=True)
class DeviceTotals:
    """One device: its name where the file gives one, its rows, and its own window."""

    device: int
    name: str | None
    kernels: int
    device_rows: int
    streams: int
    busy_ns: int
    sum_ns: int
    window_ns: int
    idle_ns: int


@dataclass(frozen=True, kw_only=True)
class HostStarved:
    """The host-starved part of idle, split exactly: per-op work, loader, allocator, one-off work, pauses."""

    per_op_ns: int
    loader_ns: int
    allocator_ns: int
    one_off_ns: int
    pause_ns: int


@dataclass(frozen=True, kw_only=True)
class Idle:
    """The causes of idle time; the four sum to it exactly, and ``host_starved`` sums to ``host_starved_ns``."""

    host_starved_ns: int
    synchronised_ns: int
    dependency_ns: int
    other_ns: int
    host_starved: HostStarved
    unseen_ns: int = 0
    """Part of dependency or other: gaps over 50 µs although the next row was already queued, and nothing in the file
    (such as another device's row) shows what it waited for."""


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """What ran when something ran: computation, and the copies and collectives that no computation hid."""

    exposed_copy_ns: int
    exposed_communication_ns: int
    computation_ns: int
    local_copy_ns: int = 0
    """Part of ``exposed_copy_ns``: copies from one place of a device's memory to another, which cross no link."""


@dataclass(frozen=True, kw_only=True)
class Utilisation:
    """Three figures that disagree on purpose: any kernel resident, SM-weighted, useful over peak; ``None``: unknown."""

    any_kernel_frac: float | None
    sm_weighted_frac: float | None
    useful_frac: float | None
    any_kernel_peak_frac: float | None = None
    """The largest share over samples of 1/6 s, as ``nvidia-smi`` takes them; ``None`` for shorter windows."""
    occupancy_frac: float | None = None
    """Estimated achieved occupancy of the kernels, weighted by their time."""
    useful_basis: str = ""
    """What ``useful_frac`` is held against, or why it is not known."""


@dataclass(frozen=True, kw_only=True)
class StepReport:
    """One step: host wall time, and the device work it launched (``busy_in_step_ns``: clipped to its wall)."""

    name: str
    wall_ns: int
    kernels: int
    busy_ns: int
    busy_in_step_ns: int
    lead_idle_ns: int
    tail_idle_ns: int
    ops: int
    regime: Regime | None = None
    """By the same rules as the whole window's, over the work that the step launched and the idle time before it."""


@dataclass(frozen=True, kw_only=True)
class StepPartition:
    """A step in which every moment counts once, by priority in the order of the fields; they sum to ``length_ns``."""

    name: str
    length_ns: int
    kernel_ns: int
    memcpy_ns: int
    memset_ns: int
    communication_ns: int
    runtime_ns: int
    loader_ns: int
    cpu_ns: int
    other_ns: int


@dataclass(frozen=True, kw_only=True)
class Loss:
    """What one of the three losses of eager mode costs: low and high bounds, and what they stand on."""

    recoverable_ns: int | None
    low_ns: int | None
    high_ns: int | None
    basis: str


@dataclass(frozen=True, kw_only=True)
class Losses:
    """The three losses of eager mode."""

    per_op_overhead: Loss
    memory_traffic: Loss
    allocator: Loss


@dataclass(frozen=True, kw_only=True)
class QueueDelay:
    """How long first rows of launches waited: signed row start minus submission, and the bare launch latency."""

    median_ns: float | None
    p95_ns: float | None
    latency_ns: float
    rows: int
    latency_assumed: bool = False
    """Too few rows show the bare latency: it is the usual one, and the causes of idle time are off by what it is."""


@dataclass(frozen=True, kw_only=True)
class TopKernel:
    """Rows of one device-side name: how often, how long in all, and at the median."""

    name: str
    count: int
    sum_ns: int
    median_ns: float
    roof: str | None = None
    """``compute`` or ``memory``: which side of the device's ridge; ``None`` where the work is not known."""
    limit: str | None = None
    """``compute``, ``memory``, or ``latency`` (under 15 % of both roofs, or less than one block a multiprocessor)."""
    flop_per_byte: float | None = None
    flop_per_s: float | None = None
    bytes_per_s: float | None = None
    of_roof_frac: float | None = None
    """The achieved rate over the roof's."""
    occupancy_frac: float | None = None
    """Estimated achieved occupancy, weighted by time."""
    blocks_per_sm: float | None = None
    """Blocks in the grid over multiprocessors, at the median launch."""
    tail_frac: float | None = None
    """Share of block slots over all waves that stay empty because the last wave is not full; at the median launch."""


@dataclass(frozen=True, kw_only=True)
class Law:
    """t_step ≈ max(N_ops × t_cpu, Σ t_gpu): both sides, what the law predicts, what was seen, and the rest.

    ``host_ns`` is the launch span minus waits, ``device_ns`` the busiest device's busy time (rows that run side by side
    count once); ``residual`` names what the law leaves unexplained.
    """

    n_ops: int
    t_cpu_ns: float | None
    host_ns: int | None
    device_ns: int
    predicted_ns: int | None
    measured_ns: int
    residual_ns: int | None
    residual: str


@dataclass(frozen=True, kw_only=True)
class TraceReport:
    """Everything that Referee says about one trace."""

    source: str
    totals: Totals
    devices: tuple[DeviceTotals, ...]
    idle: Idle
    timeline: Timeline
    utilisation: Utilisation
    queue: QueueDelay
    law: Law
    steps: tuple[StepReport, ...]
    steps_from: str
    """Where the steps were taken from: profiler steps, annotations, none."""
    top_kernels: tuple[TopKernel, ...]
    verdict: Verdict
    losses: Losses
    remedies: tuple[Remedy, ...]
    findings: tuple[Finding, ...]
    provenance: Provenance | None = None
    """The provenance stored beside the trace by Referee's own capture; ``None`` for somebody else's file."""
    recording: Recording | None = None
    """How the trace was recorded, from the record beside it; ``None`` for somebody else's file."""
    partition: tuple[StepPartition, ...] = ()
    """Each step by priority: kernel, copy, fill, communication, runtime, loader, operators, other."""
    critical_path: CriticalPath | None = None
    """The longest chain of work; ``None`` where nothing can be ordered, and for very large files."""
    warm: Verdict | None = None
    """The verdict without the first-time costs, where those are at least 5 % of the window."""
    operators: tuple[OperatorRow, ...] = ()
    launch_stats: LaunchStats | None = None
    memory: MemoryTimeline | None = None
    """``None`` where the profile holds no memory events, and for very large files."""
    gaps: tuple[GapRow, ...] = ()
    """The longest idle intervals, each with its largest cause and who had the host."""
    sync_sites: tuple[SyncSite, ...] = ()
    """The places that wait for a device."""
    graphable: Graphable | None = None
    """What could be recorded once and replayed, and what stands in the way."""
    schema: str = "referee.trace/1"


@dataclass(frozen=True, kw_only=True)
class NullPoint:
    """One trace of the null experiment: its batch size, its regime, and both sides of the law there."""

    value: float
    source: str
    regime: str
    window_ns: int
    busy_ns: int
    host_ns: int | None
    ops_top: int
    synchronises: int
    """Calls of the ``*Synchronize`` family."""


@dataclass(frozen=True, kw_only=True)
class NullExperiment:
    """The same model at several batch sizes, from traces recorded elsewhere.

    ``fit`` is of the windows, as in a live sweep. ``knee_estimate`` is where the device's busy time equals the host's,
    between two points or, where ``knee_reached`` is false, extrapolated past the last one.
    """

    parameter: str
    points: tuple[NullPoint, ...]
    fit: Fit
    knee_estimate: float | None
    knee_reached: bool
    so: str


@dataclass(frozen=True, kw_only=True)
class RankShare:
    """One rank of a job. Collectives are those found in every rank of their group; ``last``: to how many it came last.

    ``waited_ns`` is the time in them until the last rank came, ``waited_frac`` its share of all whole steps: of their
    walls, or of what they launched from its first start to its last end, where the host runs ahead and that is longer.
    ``step_ns`` is the median wall, or there the mean of the latter. The clock's offset is from rank 0's, with its
    error, as the captures measured it.
    """

    rank: int
    source: str
    host: str | None
    step_ns: int | None
    collective_ns: int
    waited_ns: int
    waited_frac: float | None
    last: int
    clock_offset_ns: int | None
    clock_error_ns: int | None


@dataclass(frozen=True, kw_only=True)
class RankJob:
    """The ranks of one job together; ``waits_for`` is the rank that comes last to most collectives, if one does.

    ``basis`` is ``clocks`` where arrivals are compared on one clock, ``durations`` where the offsets are not known.
    ``collectives`` are those compared. ``cut_collectives`` are those that the profiler's stop cut off in some rank: by
    ``clocks`` they are among the compared ones, since an arrival is exact whatever became of the end, by ``durations``
    they are left out. ``unmatched_collectives`` are not in all traces of their group.
    """

    world_size: int | None
    ranks: tuple[RankShare, ...]
    missing: tuple[int, ...]
    collectives: int
    basis: str
    clock_error_ns: int | None
    waits_for: int | None
    cut_collectives: int = 0
    unmatched_collectives: int = 0


@dataclass(frozen=True, kw_only=True)
class TraceSet:
    """Several reports side by side (schema ``referee.traces/1``): one rank does not speak for a job."""

    reports: tuple[TraceReport, ...]
    findings: tuple[Finding, ...] = ()
    null_experiment: NullExperiment | None = None
    job: RankJob | None = None
    schema: str = "referee.traces/1"
