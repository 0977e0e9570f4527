"""What was recorded? A capture: the schedule as planned, the iterations as recorded, the files, and their integrity."""

from __future__ import annotations

from dataclasses import dataclass, fields

from referee.records.finding import Finding
from referee.records.provenance import Provenance


@dataclass(frozen=True, kw_only=True)
class SchedulePlan:
    """The schedule: skip, then cycles of wait, warm-up and active iterations, ``repeat`` times (0: without end).

    With ``skip_first_wait`` the first cycle does not wait. Where ``steps`` names iterations, each of them begins
    ``active`` recorded ones, and ``skip``, ``wait`` and ``repeat`` mean nothing.
    """

    skip: int
    wait: int
    warmup: int
    active: int
    repeat: int
    skip_first_wait: bool = False
    steps: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CaptureOptions:
    """What else was recorded of each operator; all of it is off unless asked for, because all of it costs."""

    shapes: bool = False
    stacks: bool = False
    memory: bool = False
    flops: bool = False
    modules: bool = False

    def words(self) -> str:
        """The options that are on, as they are written: ``shapes, stacks``; ``none`` where all are off."""
        return ", ".join(field.name for field in fields(self) if getattr(self, field.name)) or "none"

    @property
    def spoils_memory(self) -> bool:
        """Whether memory is asked for beside shapes (which FLOPs need too): they keep alive what would be freed."""
        return self.memory and (self.shapes or self.flops)


@dataclass(frozen=True, kw_only=True)
class ProfilerCost:
    """What recording costs here: per operator row, with these options, calibrated on a chain of tiny operators.

    ``chain`` is the number of adds in the chain, ``rounds`` how often it was timed each way, alternating; low and high
    are the quartiles of an operator row's cost over the rounds.
    """

    per_row_ns: float
    low_ns: float
    high_ns: float
    chain: int
    rounds: int
    options: CaptureOptions
    per_backward_ns: float = 0.0
    """What each node of a backward pass costs beyond its operator rows: its name is made anew for each record."""
    per_frame_ns: float = 0.0
    """What each Python function costs, where stacks are recorded."""
    per_annotation_ns: float = 0.0
    """What each module's range costs, where modules are recorded."""
    per_step_ns: float = 0.0
    """What marking an iteration costs that iteration, whose code and data it has swept out of the inner caches."""


@dataclass(frozen=True, kw_only=True)
class Integrity:
    """Does the file hold what it should? Counted from the file as it was written, not from the profiler's memory.

    ``steps_found`` are the complete iterations marked in the file. ``launches_unmatched`` are calls of a launch family
    without a device row, ``device_rows_unlinked`` device rows whose correlation id no call in the file has. ``lost``
    are the rows that the profiler itself reports as dropped (``None`` where it reports nothing).
    """

    events: int
    ops: int
    steps_found: tuple[int, ...]
    device_rows: int
    launches: int
    launches_unmatched: int
    device_rows_unlinked: int
    lost: int | None
    host_rows: int = 0
    """Operators, Python functions and annotations."""
    backward_ops: int = 0
    """Operator rows that the autograd engine put there, one per node: 0 where no backward pass was recorded."""
    repeated_ops: int = 0
    """Operator rows inside a row of the same name: many of them where a dispatch mode counts every operator twice."""
    repeated_by_mode: bool = True
    """Whether a dispatch mode's own frame stands between them; else a transform such as vmap may have done it."""
    frames: int = 0
    """Rows of Python functions."""
    annotations: int = 0
    """Rows of annotations, without those that mark iterations."""


@dataclass(frozen=True, kw_only=True)
class CaptureFile:
    """One exported cycle: where it lies, which iterations it holds, how large it is."""

    path: str
    iterations: tuple[int, ...]
    size_bytes: int
    integrity: Integrity | None = None
    memory_growth_bytes: int | None = None
    """By how much the process's resident memory grew while the cycle was recorded."""
    beside: tuple[str, ...] = ()
    """What else was written of this cycle: memory timeline, folded stacks, FLOPs, allocator snapshot."""


@dataclass(frozen=True, kw_only=True)
class CaptureEstimate:
    """What a plan would leave behind, from a probe of a few steps: counts, sizes on disk and in memory.

    ``file_bytes`` are compressed, ``raw_bytes`` what a viewer has to take in; both over all files. ``memory_bytes`` is
    what the process would grow by, at its worst cycle, before the file of that cycle is written.
    """

    files: int
    recorded: int
    events: int
    raw_bytes: int
    file_bytes: int
    memory_bytes: int
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Capture:
    """One capture (schema ``referee.capture/1``); ``step_ns`` are the host wall times of the recorded iterations."""

    name: str
    plan: SchedulePlan
    iterations_run: int
    files: tuple[CaptureFile, ...]
    step_ns: tuple[int, ...]
    unprofiled_step_ns: float | None
    provenance: Provenance
    findings: tuple[Finding, ...] = ()
    options: CaptureOptions = CaptureOptions()
    cost: ProfilerCost | None = None
    unprofiled_ns: tuple[float, ...] = ()
    """The steps timed without the profiler, of which ``unprofiled_step_ns`` is the median."""
    schema: str = "referee.capture/1"


@dataclass(frozen=True, kw_only=True)
class Recording:
    """How one trace was recorded, as its capture knew it; of a capture with several traces, this one's part.

    ``iterations`` are those in this trace; ``iterations_recorded`` and ``step_ns`` are of all ``traces``.
    """

    name: str
    plan: SchedulePlan
    options: CaptureOptions
    iterations: tuple[int, ...]
    iterations_run: int
    iterations_recorded: int
    traces: int
    step_ns: tuple[int, ...] = ()
    unprofiled_step_ns: float | None = None
    cost: ProfilerCost | None = None
