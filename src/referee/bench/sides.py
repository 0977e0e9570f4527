"""What is compared? One side: how it is made ready, which of its blocks count, and what is taken off them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from referee.bench.calibrate import Overhead, choose_calls, with_settling
from referee.bench.guards import check_warmup
from referee.bench.loop import Block, run_block
from referee.bench.measure import Seen
from referee.bench.plan import Plan, ProgressCallback, Step
from referee.bench.sampling import KNOWN_STOLEN_FRAC, SLICE_NS, STOLEN_FRAC, SeesProcessor
from referee.bench.settling import settle_words
from referee.bench.variation import varies
from referee.bench.warmup import FirstCall, warm_up
from referee.device.protocol import Device, Settling
from referee.device.provenance import MachineMark, Source, collect
from referee.device.state import State
from referee.records.finding import Finding, Scalar, fatal
from referee.records.measurement import Warmup
from referee.records.provenance import Provenance
from referee.stats.paired import QuadBlock


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One side: a step, its name, its first call where that was made before, and what was observed of it."""

    name: str
    step: Step
    first: FirstCall | None = None
    observation: Seen | None = None
    target: Source | None = None
    method: Mapping[str, Scalar] = field(default_factory=dict)
    switches: Mapping[str, Scalar] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    state: State | None = None
    """The switches in force as its factory left them; ``None``: those of the session."""
    device: Device | None = None
    """Where it computes and is awaited; ``None``: on the device of the comparison."""
    fresh: Callable[[], Step] | None = None
    """Returns the step on inputs not used before, where that is quick: with it the work is proved to run."""


@dataclass
class Ready:
    """A candidate that is warm: how many calls make its block, our own cost, and its blocks so far."""

    candidate: Candidate
    device: Device
    """Where its blocks are awaited."""
    calls: int
    call_ns: int
    """Settled time of single calls at the end of the warm-up."""
    primed: bool
    """Whether a block that follows another side's is preceded by an untimed call (:func:`_primes`)."""
    overhead: Overhead
    warmup: Warmup
    provenance: Provenance
    varies: bool
    """Whether single calls differ by themselves (:func:`~referee.bench.variation.varies`): a block is then one call."""
    subtracts: bool
    """Whether what other processes had of a block is asked for and taken off."""
    blocks: list[Block] = field(default_factory=list)
    usable_ns: list[float] = field(default_factory=list)
    """Times per call of those blocks that count."""
    corrected: int = 0
    """Blocks that others had a part of, which was taken off."""
    faults: tuple[Finding, ...] = ()
    """What forbids any answer on this side alone."""
    switched: tuple[str, ...] = ()
    """The switches that differ between the sides: each side's own are put in force before its blocks."""

    @property
    def long(self) -> bool:
        """Whether a block is one call, and that longer than a scheduler's slice."""
        return self.calls == 1 and self.call_ns > SLICE_NS

    def take_over(self, last: Ready | None) -> None:
        """Make this side the one whose blocks follow, after ``last``: its switches, and its data in the caches."""
        if last is self:
            return
        if self.switched and self.candidate.state is not None:
            self.candidate.state.put(self.switched)
        if last is None or self.switched or last.candidate.step is not self.candidate.step:
            self.prime()

    def prime(self) -> None:
        """Bring back into the caches what the other side pushed out."""
        if self.primed:
            self.device.settle(self.candidate.step())

    def block(self, *, side: Literal["a", "b"]) -> QuadBlock:
        """One more block of this candidate as a part of a quad.

        Beside busy processes no call of many milliseconds is left in peace. What others had of it is then subtracted,
        where the kernel knows: with two and four busy processes 34 calls against 33 of a Linear(512, 512), 12 ms, read
        +3.0 % so, within the noise. Shorter blocks lose more by it than they gain: clean ones are there to choose from.
        """
        device = self.device
        times = device.processor_times if self.subtracts and isinstance(device, SeesProcessor) else None
        block = run_block(self.candidate.step, device=device, calls=self.calls, times=times)
        self.blocks.append(block)
        ns, clean = self.overhead.settled_per_call(block), undisturbed(block)
        if not clean and _known(block):
            ns, clean = ns - (block.stolen_ns or 0), True
            self.corrected += 1
        if clean:
            self.usable_ns.append(ns)
        return QuadBlock(side=side, ns=ns, clean=clean)


def _known(block: Block) -> bool:
    """Can what others had of this block be subtracted?"""
    return block.exact and (block.stolen_ns or 0) < KNOWN_STOLEN_FRAC * block.settled_ns


def undisturbed(block: Block) -> bool:
    """Could preemption have taken no more than a small part of this block? For short blocks: was there none?"""
    return block.switches * SLICE_NS <= STOLEN_FRAC * block.settled_ns


def prepare(
    candidate: Candidate,
    *,
    device: Device,
    plan: Plan,
    overhead: Overhead,
    before: MachineMark,
    progress: ProgressCallback,
) -> Ready:
    """Warm the candidate up, size its block, and read its provenance while its own switches are in force."""
    target_ns = plan.block_target_ns or device.block_target_ns
    warmed = warm_up(candidate.step, device=device, plan=plan, progress=progress, first=candidate.first)
    until_ns = device.now_ns() + plan.budget_ns // 10
    varying, calls = varies(warmed.series_ns, device=device), 1
    if not varying:
        calls = choose_calls(
            candidate.step, device=device, target_ns=target_ns, until_ns=until_ns, one_ns=warmed.one_ns
        )
    own = with_settling(overhead, candidate.step, device=device, calls=calls)
    seen = candidate.observation
    method: dict[str, Scalar] = {
        "clock": "settled_amortised",
        "settle": settle_words(device, seen),
        "warmup": f"{'steady' if warmed.record.steady else 'limit reached'} after {warmed.record.calls} calls",
        "calls_per_block": calls,
        "block_target_ns": target_ns,
        "budget_ns": plan.budget_ns,
        "cache_state": "warm",
        "gc": "disabled in the timed window",
        "overhead_ns": own.per_call_ns(calls),
        "statistic": "median of paired ratios",
        **candidate.method,
    }
    provenance = collect(
        device,
        dtype="not read" if seen is None else seen.dtype,
        shapes=() if seen is None else tuple(seen.shapes),
        method=method,
        target=candidate.target,
        before=before,
        switches=candidate.switches,
        devices=getattr(seen, "devices", ()),
        threads=getattr(seen, "threads", None),
    )
    long = calls == 1 and warmed.one_ns > SLICE_NS
    return Ready(
        candidate=candidate,
        device=device,
        calls=calls,
        call_ns=warmed.one_ns,
        varies=varying,
        primed=_primes(warmed.one_ns, device=device),
        subtracts=plan.subtract_stolen and long and device.settling is Settling.SYNCHRONOUS,
        overhead=own,
        warmup=warmed.record,
        provenance=provenance,
        faults=fatal(check_warmup(warmed)),
    )


def _primes(call_ns: int, *, device: Device) -> bool:
    """Is one untimed call worth its time?

    Separately built twins of Linear(512, 512), a call a block, scatter half as much when each block is warm, and need
    not be balanced over both orders. Longer calls refill the caches in a small part of their time; on lazy devices a
    block is the running of a graph, and one more costs more than it would mend.
    """
    return call_ns <= SLICE_NS and device.settling is not Settling.LAZY
