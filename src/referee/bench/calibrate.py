"""What does measuring cost by itself, and how many calls make a block? Found out before the clock counts.

Our own costs are subtracted: reading the clock, going round the loop, and, where there is nothing to wait for, the
settle. On asynchronous and lazy devices the settle stays in: part of it runs while the device still works, so that
subtracting it would take away what was never added, and whoever waits for the result pays for it as well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import repeat

from referee.bench.loop import Block, issue, keeps_outputs, run_block
from referee.bench.plan import Step
from referee.device.protocol import Device, Settling

_READS = 101
_LOOP_CALLS = 2_000
_SETTLES = 9
_BLOCKS = 3

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
    """A settle of a block's outputs; 0 where waiting is part of the time."""

    @property
    def _block_ns(self) -> int:
        return (2 - self.hidden_reads) * self.read_ns + self.settle_ns

    def settled_per_call(self, block: Block) -> float:
        """The block's settled time per call, less our own cost."""
        return max(0.0, (block.settled_ns - self._block_ns) / block.calls - self.loop_ns)

    def issue_per_call(self, block: Block) -> float:
        """The block's time per call until the last call returned, less our own cost."""
        return max(0.0, (block.issue_ns - self.read_ns) / block.calls - self.loop_ns)

    def per_call_ns(self, calls: int) -> float:
        """What is subtracted from each call in a block of ``calls``."""
        return self._block_ns / calls + self.loop_ns


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


def with_settle_cost(overhead: Overhead, step: Step, *, device: Device, calls: int) -> Overhead:
    """``overhead`` with the cost of settling the outputs of ``calls`` calls on a device that has nothing to wait for.

    Measured on outputs that are settled already; the lower quartile of several, so that one preemption does not count
    as our cost.
    """
    if device.settling is not Settling.SYNCHRONOUS:
        return overhead
    outputs = issue(step, calls, keep=keeps_outputs(device))
    device.settle(outputs)
    now, costs = device.now_ns, []
    for _ in range(_SETTLES):
        start_ns = now()
        device.settle(outputs)
        costs.append(now() - start_ns - overhead.read_ns)
    settle_ns = max(0, sorted(costs)[_SETTLES // 4])
    return replace(overhead, settle_ns=settle_ns)


def choose_calls(step: Step, *, device: Device, target_ns: int, until_ns: int, start: int = 1) -> int:
    """How many calls make a block of about ``target_ns``, settling included?

    Starts after the warm-up, takes the least of three blocks at each size (a slow first call or a preemption would
    freeze the size at one), and moves up or down until a block lies within a factor 1.5 of the target or the number
    cannot move further. Ends at ``until_ns`` whatever it has found. On lazy devices the number is a power of two,
    because each other number is another graph to compile.
    """
    lazy, most = device.settling is Settling.LAZY, MAX_CALLS[device.settling]
    calls, tried = start, set[int]()
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
