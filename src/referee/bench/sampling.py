"""Which blocks are worth believing? Takes blocks until a rule says stop, and picks those nothing preempted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from referee.bench.calibrate import Overhead
from referee.bench.core_clock import ClockReader, ClockReading
from referee.bench.loop import Block, run_block
from referee.bench.plan import MIN_BLOCKS, Progress, ProgressCallback, Step, no_progress
from referee.bench.stopping import Sampling, StoppingRule, first_reason
from referee.device.protocol import Device
from referee.stats.summary import FloatArray
from referee.units import NS_PER_MS

MIN_CLEAN = 3
"""With fewer clean blocks than this the clean ones alone are not a sample."""

RECOVERY_NS = 1_250_000
"""How long a preemption is felt behind it, while the caches fill again. Beside four busy processes the first call of
Linear(512, 512), 0.32 ms that read 1 MB, took 1.19 times a quiet one, the second 1.05, the fourth 1.01 and the fifth
1.00; a tiny add took 1.01 times its time in the first 0.2 ms, and 1.00 after 1.5 ms."""

MIN_RECOVERED = 20
"""With fewer blocks than this behind the recovery, those within it count as well."""

SLICE_NS = 4 * NS_PER_MS
"""About what one involuntary switch costs when another process wants the core: a slice of Linux's scheduler."""

STOLEN_FRAC = 0.25
"""Where no block is clean and the switches could have taken this share of the time or more, there is no estimate.
A step of a second is never without a switch, and ten of them are 4 % of it at most; a call of 8 ms that is
preempted every time (threads waiting for one that has lost its core) reads many times its true cost."""

KNOWN_STOLEN_FRAC = 0.75
"""Where the kernel says how much of each block others had, that is subtracted, up to this share. What they did to the
caches stays in the number, and a finding says so."""

_REPORT_NS = 50 * NS_PER_MS


@runtime_checkable
class SeesProcessor(Protocol):
    """A device whose host thread knows how long it has computed, and how long it has waited for a processor."""

    def processor_times(self) -> tuple[int | None, int] | None:
        """Both in nanoseconds; ``None`` where they cannot be known just now."""


@runtime_checkable
class SeesProcess(Protocol):
    """A device whose host process knows how long it was occupied: computing, or waiting for a processor."""

    def occupied_ns(self) -> int | None:
        """Over all its threads, in nanoseconds; ``None`` where that cannot be known."""


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """The blocks of one clock, and which rule ended it."""

    blocks: tuple[Block, ...]
    stop_reason: str
    overhead: Overhead
    raised: Exception | SystemExit | None = None
    """What the step raised, where that ended it."""
    clock: tuple[ClockReading, ...] = ()
    """What the core's clock was between the blocks."""

    @property
    def corrected(self) -> bool:
        """Whether the times are less what other processes had: where no block is clean and that is known."""
        return not enough_clean(self.blocks) and all(block.exact for block in self.blocks)

    @property
    def settled_ns(self) -> FloatArray:
        """Settled time per call of each block, less our own cost (and less what others had, where corrected)."""
        times = np.array([self.overhead.settled_per_call(block) for block in self.blocks], dtype=np.float64)
        if self.corrected:
            times -= np.array([(block.stolen_ns or 0) / block.calls for block in self.blocks])
        return np.maximum(times, 0.0)

    @property
    def issue_ns(self) -> FloatArray:
        """Time per call of each block until the last call returned, less our own cost."""
        return np.array([self.overhead.issue_per_call(block) for block in self.blocks], dtype=np.float64)

    @property
    def clean(self) -> tuple[bool, ...]:
        """Whether nothing preempted the block, nor one just before it (see :func:`clean_blocks`)."""
        return clean_blocks(self.blocks)

    @property
    def usable(self) -> tuple[bool, ...]:
        """Which blocks the estimates stand on: the clean ones, all where switches cannot matter, or none."""
        return usable_blocks(self.blocks)


class Recovery:
    """Follows the blocks in their order and tells which of them lie behind the recovery from a preemption.

    A block as long as the recovery itself always does: what it feels is a small part of it.
    """

    def __init__(self) -> None:
        self._since_ns = RECOVERY_NS

    def recovered(self, block: Block) -> bool:
        """Whether ``block``, which is the next one, was neither preempted nor timed while the caches filled again."""
        if block.switches:
            self._since_ns = 0
            return False
        recovered = max(self._since_ns, block.settled_ns) >= RECOVERY_NS
        self._since_ns += block.settled_ns
        return recovered


def clean_blocks(blocks: Sequence[Block]) -> tuple[bool, ...]:
    """Which blocks were not preempted and lie behind the recovery; where those are too few, all that were not."""
    free = tuple(block.switches == 0 for block in blocks)
    recovery = Recovery()
    recovered = tuple(recovery.recovered(block) for block in blocks)
    return recovered if sum(recovered) >= min(MIN_RECOVERED, sum(free)) else free


def usable_blocks(blocks: Sequence[Block]) -> tuple[bool, ...]:
    """Which blocks can be believed? None at all where preemption could have made up a large part of each."""
    if enough_clean(blocks):
        return clean_blocks(blocks)
    exact = all(block.exact for block in blocks)
    limit = KNOWN_STOLEN_FRAC if exact else STOLEN_FRAC
    return (stolen_frac(blocks) < limit,) * len(blocks)


def enough_clean(blocks: Sequence[Block]) -> bool:
    """Do the blocks that nothing preempted make a sample by themselves?"""
    return sum(block.switches == 0 for block in blocks) >= min(MIN_CLEAN, len(blocks))


def stolen_frac(blocks: Sequence[Block]) -> float:
    """What share of a block did other processes have? Where that is not known: at most, from the count of switches.

    The median block's share. Of several threads it is what they waited in all, which is at least what it cost.
    """
    if not blocks:
        return 0.0
    if all(block.stolen_ns is not None for block in blocks):
        return float(np.median([(block.stolen_ns or 0) / block.settled_ns for block in blocks]))
    switches = float(np.median([block.switches for block in blocks]))
    length_ns = float(np.median([block.settled_ns for block in blocks]))
    return min(1.0, switches * SLICE_NS / length_ns) if length_ns else 0.0


def take_samples(
    step: Step,
    *,
    device: Device,
    calls: int,
    overhead: Overhead,
    rules: Sequence[StoppingRule],
    stage: str = "measuring",
    until_ns: int | None = None,
    prepare: Callable[[], None] | None = None,
    long: bool = False,
    clock: ClockReader | None = None,
    progress: ProgressCallback = no_progress,
) -> Sampled:
    """Time blocks of ``calls`` calls until a rule ends it. An interrupt ends it too, and keeps what there is.

    So does what the step raises, if three blocks exist by then; before that it passes through.

    ``until_ns`` is only for the progress: when the budget would end. ``prepare`` runs before each block, untimed.
    ``long`` blocks are also asked how much of them other processes had. ``clock`` is read between blocks.
    Raises ``KeyboardInterrupt`` again when it arrives before the first block was complete.
    """
    blocks: list[Block] = []
    # Short blocks have clean ones among them, and asking takes microseconds.
    times = device.processor_times if long and isinstance(device, SeesProcessor) else None
    start_ns = device.now_ns()
    seen, recovery = Sampling(start_ns=start_ns, now_ns=start_ns), Recovery()
    reported_ns = start_ns
    reason: str | None = None
    raised: Exception | SystemExit | None = None
    try:
        while reason is None:
            if clock is not None:
                clock.between_blocks(done=len(blocks), now_ns=seen.now_ns)
            block = run_block(step, device=device, calls=calls, prepare=prepare, times=times)
            blocks.append(block)
            seen.blocks += 1
            seen.last_block_ns = block.settled_ns
            if recovery.recovered(block):
                seen.clean_ns.append(overhead.settled_per_call(block))
            seen.now_ns = device.now_ns()
            reason = first_reason(rules, seen)
            if seen.now_ns - reported_ns >= _REPORT_NS:
                reported_ns = seen.now_ns
                progress(_progress(stage, seen, until_ns=until_ns))
    except KeyboardInterrupt:
        if not blocks:
            raise
        reason = "interrupted"
    except (Exception, SystemExit) as error:  # the user's code: anything can come out
        if len(blocks) < MIN_BLOCKS:
            raise
        reason, raised = "raised", error
    readings = () if clock is None else clock.readings
    return Sampled(blocks=tuple(blocks), stop_reason=reason, overhead=overhead, raised=raised, clock=readings)


def _progress(stage: str, seen: Sampling, *, until_ns: int | None) -> Progress:
    frac = 0.0
    if until_ns is not None and until_ns > seen.start_ns:
        frac = min(1.0, (seen.now_ns - seen.start_ns) / (until_ns - seen.start_ns))
    recent = seen.clean_ns[-101:]
    median_ns = float(np.median(recent)) if recent else None
    return Progress(stage=stage, frac=frac, blocks=seen.blocks, median_ns=median_ns)
