"""What does measuring cost by itself, and how many calls make a block? Found out before the clock counts.

Reading the clock and going round the loop are our own costs and are subtracted. Where a settle has nothing to wait for
it is left out. On asynchronous and lazy devices it stays in: part of it runs while the device still works, so that
subtracting it would take away what was never added, and whoever waits for the result pays for it as well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import repeat

from referee.bench.loop import Block, cutting, issue, keeps_outputs, run_block
from referee.bench.plan import Step
from referee.device.protocol import Device, Settling

_READS = 101
_LOOP_CALLS = 2_000
_SETTLES = 9
_BLOCKS = 3

_COLD_NS = 2_000
"""How much longer than twice its repetition a settle may take for being cold: 1.5 µs after a block of 100 µs here."""

_LONG_BLOCK_NS = 10_000_000
_LONG_CALLS = 10
"""A call that takes as many block lengths as this needs no search for how many of them make a block."""

MAX_CALLS = {Settling.SYNCHRONOUS: 1_000_000, Settling.ASYNCHRONOUS: 1_000, Settling.LAZY: 64}
"""Most calls in a block. Asynchronous: about as many launches as a queue holds. Lazy: all outputs are kept, and one
graph holds them all."""


@dataclass(frozen=True, kw_only=True)
class Overhead:
    """Our own cost, in nanoseconds."""

    read_ns: int
    """One reading of the clock."""
    loop_ns: float
    """Once round the loop without the call."""
    hidden_reads: int = 0
    """How many of the two readings inside a block pass while the device works, and so cost nothing."""
    settle_ns: int = 0
    """A settle of a block's outputs on a synchronous device; 0 elsewhere, where waiting is part of the time."""
    awaits: bool = True
    """Whether a settle waits for anything. Where it does not, the work is done when the last call returns, and the
    settle is left out of the time rather than subtracted: its own cost varies by microseconds."""

    @property
    def _block_ns(self) -> int:
        return (2 - self.hidden_reads) * self.read_ns + self.settle_ns

    def settled_per_call(self, block: Block) -> float:
        """The block's settled time per call, less our own cost."""
        if not self.awaits:
            return self.issue_per_call(block)
        return max(0.0, (block.settled_ns - self._block_ns) / block.calls - self.loop_ns)

    def issue_per_call(self, block: Block) -> float:
        """The block's time per call until the last call returned, less our own cost."""
        return max(0.0, (block.issue_ns - self.read_ns) / block.calls - self.loop_ns)

    def per_call_ns(self, calls: int) -> float:
        """What is subtracted from each call in a block of ``calls``."""
        return (self._block_ns if self.awaits else self.read_ns) / calls + self.loop_ns


def measure_overhead(device: Device) -> Overhead:
    """The cost of reading the clock and of the loop itself, on this device's clock."""
    now = device.now_ns
    reads = sorted(_between(now(), now()) for _ in range(_READS))
    read_ns = reads[_READS // 4]
    loops = []
    for _ in range(_BLOCKS):
        start_ns = now()
        for _ in repeat(None, _LOOP_CALLS):
            pass
        loops.append(now() - start_ns - read_ns)
    # The reading between the last call and the settle passes while an asynchronous device is still at work.
    hidden = int(device.settling is Settling.ASYNCHRONOUS)
    return Overhead(read_ns=read_ns, loop_ns=max(0, min(loops)) / _LOOP_CALLS, hidden_reads=hidden)


def with_settling(overhead: Overhead, step: Step, *, device: Device, calls: int) -> Overhead:
    """``overhead`` with what settling the outputs of ``calls`` calls costs, and whether it waits, on this device.

    Asked on synchronous devices alone, whose outputs may live elsewhere all the same: settling right after the calls
    waits for something if it takes much longer than settling the same outputs once more. Lower quartiles, so that one
    preemption does not count. One call is enough where a block is so long that it cannot matter.
    """
    if device.settling is not Settling.SYNCHRONOUS:
        return overhead
    now, first, again = device.now_ns, list[int](), list[int]()
    while len(first) < _SETTLES:
        began_ns = now()
        outputs = issue(step, calls, keep=keeps_outputs(device), cut=cutting(device))
        start_ns = now()
        device.settle(outputs)
        done_ns = now()
        device.settle(outputs)
        again.append(now() - done_ns - overhead.read_ns)
        first.append(done_ns - start_ns - overhead.read_ns)
        if done_ns - began_ns > _LONG_BLOCK_NS:
            break
    in_place, repeated = (max(0, sorted(costs)[len(costs) // 4]) for costs in (first, again))
    return replace(overhead, settle_ns=repeated, awaits=in_place > 2 * repeated + _COLD_NS)


def choose_calls(step: Step, *, device: Device, target_ns: int, until_ns: int, one_ns: int) -> int:
    """How many calls make a block of about ``target_ns``, settling included?

    Starts after the warm-up, takes the least of three blocks at each size (a slow first call or a preemption would
    freeze the size at one), and moves up or down until a block lies within a factor 1.5 of the target or the number
    cannot move further. Ends at ``until_ns`` whatever it has found. On lazy devices the number is a power of two,
    because each other number is another graph to compile. ``one_ns`` is what single calls took at last.
    """
    if one_ns > _LONG_CALLS * target_ns:
        return 1
    lazy, most = device.settling is Settling.LAZY, MAX_CALLS[device.settling]
    calls, tried = 1, set[int]()
    while calls not in tried:
        tried.add(calls)
        if lazy:
            run_block(step, device=device, calls=calls)  # compiles the graph of this many calls
        block_ns = min(run_block(step, device=device, calls=calls).settled_ns for _ in range(_BLOCKS))
        wanted = target_ns / 1.5 <= block_ns <= target_ns * 1.5
        if wanted or device.now_ns() >= until_ns:
            break
        # At most tenfold at a time: a very short block is mostly our own cost and says little about the rate.
        factor = min(10.0, target_ns / max(1, block_ns))
        calls = min(most, max(1, round(calls * factor)))
        if lazy:
            calls = 1 << (calls.bit_length() - 1)
    return calls


def _between(first_ns: int, second_ns: int) -> int:
    return second_ns - first_ns
