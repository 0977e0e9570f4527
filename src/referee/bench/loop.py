"""What is timed, and between which two readings? The only timing loop of Referee.

A block is ``calls`` calls back to back and one settle of this candidate's own outputs at the end. The clock is read
before the first call, after the last call has returned (what a timer that does not wait would stop at) and after the
settle, so one block gives the settled time and the naive one. Everything else (counting context switches, keeping
samples) lies outside these readings.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from typing import TypeAlias

from referee.bench.plan import Step
from referee.device.protocol import Device, DeviceTimer, HandsOver, Settling

Cut: TypeAlias = Callable[[object], None]
"""Starts the work behind an output, and does not wait for it."""


@dataclass(frozen=True, slots=True)
class Block:
    """One timed block: raw integer nanoseconds, nothing subtracted."""

    calls: int
    issue_ns: int
    """From the first reading until the last call had returned."""
    settled_ns: int
    """From the first reading until the outputs were settled."""
    switches: int
    """Involuntary context switches in between."""
    stolen_ns: int | None = None
    """Time in between that other processes had on the core; ``None`` where that was not asked or cannot be known."""
    exact: bool = False
    """Whether that time can be subtracted: one thread computes, and what it lost is what the block lost."""


def issue(step: Step, calls: int, *, keep: bool, cut: Cut | None = None) -> object:
    """Make the calls and hand back what must be settled for all of them.

    With ``keep`` every output is kept: a lazy backend drops recorded work whose result nobody holds, so that settling
    the last output alone would time one call instead of ``calls``. Otherwise only the last is kept, and the others
    die as they come: their work is queued or done already, and their memory is free for the next call.
    With ``cut`` each call's output but the last is handed over first, the last being settled anyway.
    """
    if cut is not None:
        for _ in repeat(None, calls - 1):
            cut(step())
        return step()
    if keep:
        return [step() for _ in repeat(None, calls)]
    for _ in repeat(None, calls - 1):
        step()
    return step()


def keeps_outputs(device: Device) -> bool:
    """Must every output of a block be held until it is settled?"""
    return device.settling is Settling.LAZY


def cutting(device: Device) -> Cut | None:
    """How a call's work is handed over before the next call is made, on a device that would merge equal calls."""
    return device.hand_over if isinstance(device, HandsOver) else None


ProcessorTimes: TypeAlias = Callable[[], "tuple[int | None, int] | None"]
"""Reads how long this thread has computed and how long it has waited for a processor, in nanoseconds; the first is
``None`` while several threads compute, and the second is then their sum."""


def run_block(
    step: Step,
    *,
    device: Device,
    calls: int,
    prepare: Callable[[], None] | None = None,
    times: ProcessorTimes | None = None,
    cut: bool = True,
) -> Block:
    """Time one block of ``calls`` calls; ``prepare`` runs before it, outside of the time (it settles what it does).

    With ``times`` the block also says how much of it other processes had. Without ``cut`` nothing is handed over
    between calls, whatever the device: what a loop does that only calls.
    """
    now, settle, keep = device.now_ns, device.settle, keeps_outputs(device)
    hand_over = cutting(device) if cut else None
    if prepare is not None:
        prepare()
    computed = times() if times is not None else None
    before = device.involuntary_switches()
    start_ns = now()
    if hand_over is not None:
        for _ in repeat(None, calls - 1):
            hand_over(step())
        outputs: object = step()
    elif keep:
        outputs = [step() for _ in repeat(None, calls)]
    else:
        for _ in repeat(None, calls - 1):
            step()
        outputs = step()
    issued_ns = now()
    settle(outputs)
    settled_ns = now()
    after = device.involuntary_switches()
    stolen_ns, exact = None, False
    if times is not None:
        stolen_ns, exact = _stolen_ns(computed, times(), elapsed_ns=settled_ns - start_ns)
    return Block(calls, issued_ns - start_ns, settled_ns - start_ns, after - before, stolen_ns, exact)


def _stolen_ns(
    before: tuple[int | None, int] | None, after: tuple[int | None, int] | None, *, elapsed_ns: int
) -> tuple[int | None, bool]:
    """The time others had, and whether it is exact: what was waited for a processor, and no more than what was not
    computed.

    Either alone would mislead: a step that sleeps does not compute either, and the account of waiting is kept only
    when the thread is switched. Of several threads what they waited in all is known, not what it cost the block.
    """
    if before is None or after is None:
        return None, False
    waited_ns = after[1] - before[1]
    if before[0] is None or after[0] is None:
        return min(elapsed_ns, max(0, waited_ns)), False
    return max(0, min(waited_ns, elapsed_ns - (after[0] - before[0]))), True


@dataclass(frozen=True, slots=True)
class MarkedBlock:
    """One block between two marks in the device's queue."""

    calls: int
    issue_ns: int
    """Host time until the last call had returned, the queue being held."""
    elapsed_ns: float
    """Device time between the marks."""


def run_marked_block(
    step: Step,
    *,
    device: Device,
    timer: DeviceTimer,
    calls: int,
    hold: Callable[[int], None] | None,
    hold_ns: int,
) -> MarkedBlock:
    """Time one block by marks in the device's queue, queued behind work that keeps the device busy.

    What keeps it busy is ``hold``, or one more call of the step where the device cannot be held.
    """
    device.settle()
    if hold is None:
        lead: object = step()
    else:
        hold(hold_ns)
        lead = None
    start_ns = device.now_ns()
    timer.start()
    outputs = issue(step, calls, keep=keeps_outputs(device), cut=cutting(device))
    timer.stop()
    issued_ns = device.now_ns()
    elapsed_ns = timer.elapsed_ns()
    device.settle((lead, outputs))
    return MarkedBlock(calls, issued_ns - start_ns, elapsed_ns)


@contextmanager
def quiet_collector() -> Iterator[None]:
    """Keep the cyclic garbage collector out of the timed window; what exists at the start is not looked at again."""
    was_enabled = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()
