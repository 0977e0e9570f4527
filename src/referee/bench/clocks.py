"""What do the other clocks say? Settled per call, enqueue and device time, beside the amortised headline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from referee.bench.calibrate import Overhead, with_settling
from referee.bench.loop import MarkedBlock, cutting, run_block, run_marked_block
from referee.bench.plan import Plan, ProgressCallback, Step, no_progress
from referee.bench.sampling import Sampled, take_samples
from referee.bench.stopping import MaxBlocks, UntilTime
from referee.device.protocol import Device, Settling
from referee.records.measurement import Clocks
from referee.units import NS_PER_MS

MIN_HOLD_NS = NS_PER_MS // 5
MAX_HOLD_NS = 5 * NS_PER_MS
"""Bounds of how long the device's queue is held while calls are queued behind it: longer than the host needs for them,
and shorter than what would use up the budget."""

_MARKED_CALLS = 8
_MIN_MARKED = 3
_MOST_MARKED = 200
_HOST_BOUND_FRAC = 0.9

_BLOCKED_FRAC = 0.9
"""A call that takes as long as the queue was held for waited for it. Three times the host's own need was held, so a
call that does not wait takes a third of that."""


_NAIVE_CALLS = 20
_NAIVE_LOOPS = 5
_NAIVE_FRAC = 0.1
"""The naive loop, five times, takes at most this share of the budget if its work should run after all."""


@runtime_checkable
class HoldsQueue(Protocol):
    """A device that can occupy its own queue, so that work queued behind runs without gaps between launches."""

    def hold(self, length_ns: int) -> None:
        """Put work of about ``length_ns`` that computes nothing into the queue and return at once."""


@dataclass(frozen=True, kw_only=True)
class SideClocks:
    """All four clocks, the naive one, and what was seen about the enqueueing."""

    clocks: Clocks
    naive_ns: float | None
    enqueue_blocked: bool
    """Whether a call returned only after work queued before it: it synchronises inside, or the queue was full."""
    device_gapless: bool
    """Whether the device time was taken with the launch gaps hidden."""


def read_clocks(
    step: Step,
    *,
    device: Device,
    plan: Plan,
    main: Sampled,
    until_ns: int,
    progress: ProgressCallback = no_progress,
) -> SideClocks:
    """Take the clocks that ``plan`` asks for beside the blocks of ``main``, until about ``until_ns``.

    Each gets an equal share of the time left and at least three blocks. Where a block of ``main`` is one call, it is
    the per-call clock already.
    """
    synchronous = device.settling is Settling.SYNCHRONOUS
    marked = device.settling is Settling.ASYNCHRONOUS and "device" in plan.clocks and device.timer() is not None
    single: Sampled | None = None
    wants_single = "settled_per_call" in plan.clocks or ("enqueue" in plan.clocks and not synchronous)
    if wants_single:
        single = main
        if main.blocks[0].calls != 1:
            share_ns = (until_ns - device.now_ns()) // (2 if marked else 1)
            single = _single_calls(step, device=device, overhead=main.overhead, share_ns=share_ns, progress=progress)
    amortised_ns = _median(main.settled_ns, main)
    enqueue_ns = _median(single.issue_ns, single) if single is not None and not synchronous else None
    device_ns, blocked, gapless = None, False, False
    if marked:
        calls = min(_MARKED_CALLS, main.blocks[0].calls)
        issue_ns = float(np.median(main.issue_ns)) * calls
        device_ns, blocked, gapless = _device_time(
            step, device=device, calls=calls, issue_ns=issue_ns, until_ns=until_ns
        )
        if not gapless and _host_bound(enqueue_ns, amortised_ns):
            device_ns = None  # without a held queue the marks time the host's pace, not the device
    clocks = Clocks(
        enqueue_ns=enqueue_ns if "enqueue" in plan.clocks else None,
        settled_amortised_ns=amortised_ns,
        settled_per_call_ns=None
        if single is None or "settled_per_call" not in plan.clocks
        else _median(single.settled_ns, single),
        device_ns=device_ns,
    )
    naive_ns = _naive(main) if synchronous else _naive_loop(step, device=device, plan=plan, main=main)
    return SideClocks(clocks=clocks, naive_ns=naive_ns, enqueue_blocked=blocked, device_gapless=gapless)


def headline_alone(main: Sampled) -> SideClocks:
    """The clocks where an interrupt left no time for the others."""
    clocks = Clocks(
        enqueue_ns=None, settled_amortised_ns=_median(main.settled_ns, main), settled_per_call_ns=None, device_ns=None
    )
    return SideClocks(clocks=clocks, naive_ns=_naive(main), enqueue_blocked=False, device_gapless=False)


def _single_calls(
    step: Step, *, device: Device, overhead: Overhead, share_ns: int, progress: ProgressCallback
) -> Sampled:
    own = with_settling(overhead, step, device=device, calls=1)
    until_ns = device.now_ns() + max(0, share_ns)
    rules = (UntilTime(until_ns), MaxBlocks(100_000))
    return take_samples(
        step,
        device=device,
        calls=1,
        overhead=own,
        rules=rules,
        stage="per-call clock",
        until_ns=until_ns,
        progress=progress,
    )


def _device_time(
    step: Step, *, device: Device, calls: int, issue_ns: float, until_ns: int
) -> tuple[float | None, bool, bool]:
    """Device time per call from marks in the queue, whether a call waited for what was queued before, and whether
    the queue was held (so that no launch gap is in the time). The host needs about ``issue_ns`` to queue the calls."""
    timer = device.timer()
    if timer is None:
        return None, False, False
    hold = device.hold if isinstance(device, HoldsQueue) else None
    if issue_ns * 2 > MAX_HOLD_NS:
        issue_ns, calls = issue_ns / calls, 1
    hold_ns = min(MAX_HOLD_NS, max(MIN_HOLD_NS, int(issue_ns * 3)))
    if hold_ns < 2 * issue_ns:
        hold = None  # the queue would run dry before the host is through
    taken: list[MarkedBlock] = []
    while len(taken) < _MIN_MARKED or (device.now_ns() < until_ns and len(taken) < _MOST_MARKED):
        taken.append(run_marked_block(step, device=device, timer=timer, calls=calls, hold=hold, hold_ns=hold_ns))
    elapsed_ns = float(np.median([block.elapsed_ns / block.calls for block in taken]))
    host_ns = float(np.median([block.issue_ns for block in taken]))
    blocked = hold is not None and host_ns >= hold_ns * _BLOCKED_FRAC
    return elapsed_ns, blocked, hold is not None and not blocked


def _host_bound(enqueue_ns: float | None, amortised_ns: float | None) -> bool:
    if enqueue_ns is None or amortised_ns is None:
        return False
    return enqueue_ns >= _HOST_BOUND_FRAC * amortised_ns


def _naive(main: Sampled) -> float:
    """What a timer that does not wait would have claimed. It would not know of preemption either: where no block was
    clean, all of them speak."""
    clean = _median(main.issue_ns, main)
    return float(np.median(main.issue_ns)) if clean is None else clean


def _naive_loop(step: Step, *, device: Device, plan: Plan, main: Sampled) -> float:
    """What a loop of calls, timed without waiting for any of them, would have claimed per call.

    Where a block of ``main`` is a few calls, its first call after a settle speaks too loudly: loops are made as people
    make them, of more calls.
    """
    per_call_ns = float(np.median(main.settled_ns))
    calls = max(1, min(_NAIVE_CALLS, int(_NAIVE_FRAC * plan.budget_ns / max(1.0, per_call_ns * _NAIVE_LOOPS))))
    if calls <= main.blocks[0].calls and (cutting(device) is None or calls == 1):
        return _naive(main)
    loops = [run_block(step, device=device, calls=calls, cut=False) for _ in range(_NAIVE_LOOPS)]
    return float(np.median([main.overhead.issue_per_call(loop) for loop in loops]))


def _median(values: object, sampled: Sampled) -> float | None:
    usable = np.array(sampled.usable, dtype=bool)
    chosen = np.asarray(values, dtype=np.float64)[usable]
    return float(np.median(chosen)) if chosen.size else None
