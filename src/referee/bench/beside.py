"""Does work go on after the call has returned? What other threads and processes compute while this one only waits.

A step that hands work to a thread or a process of its own, and does not wait for it, returns at once on any device; on
the CPU nothing else would show it. Read before the first timed call and after the last: what was busy before has
nothing to do with the step, or the step has left it work already.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from referee.device.protocol import Device, Settling
from referee.records.finding import Finding
from referee.units import NS_PER_MS, format_frac, format_ns

_SLICE_NS = 5 * NS_PER_MS

_PATIENCE_NS = 300 * NS_PER_MS
"""Threads of a parallel region spin for up to 200 ms behind it, in case there is another one."""

_BUSY_FRAC = 0.2
"""Of one processor: a thread that computes beside four busy processes on two cores gets twice that."""

_CHILD_SLICES = 4
"""A child that computes and has no processor just now is not at rest before so many slices."""


@runtime_checkable
class SeesThreads(Protocol):
    """A device whose host process can watch its own threads."""

    def busy_frac(self, length_ns: int) -> float:
        """How much of a processor other threads of this process use while this one waits for ``length_ns``."""


@runtime_checkable
class SeesChildren(Protocol):
    """A device whose host process knows how long its child processes have computed."""

    def children_ns(self) -> int:
        """Over all of them, in nanoseconds; 0 without any."""


@dataclass(frozen=True, kw_only=True)
class Beside:
    """How much of a processor the other threads of this process use, and its child processes; 0 for what rests."""

    threads: float = 0.0
    children: float = 0.0


def busy_beside(device: Device, *, children: float | None = None) -> Beside:
    """What this process's other threads and its child processes use now, once what spins has come to rest.

    ``children`` is what the child processes used before the step was called at all, where that is known.
    """
    if device.settling is not Settling.SYNCHRONOUS or not isinstance(device, SeesThreads):
        return Beside()
    threads, processes = list[float](), list[float]()
    slices = _CHILD_SLICES if read_children_ns(device) else 1
    for _ in range(_PATIENCE_NS // _SLICE_NS):
        start_ns, computed_ns = device.now_ns(), read_children_ns(device)
        threads.append(device.busy_frac(_SLICE_NS))
        elapsed_ns = max(1, device.now_ns() - start_ns)
        processes.append(max(0, read_children_ns(device) - computed_ns) / elapsed_ns)
        # Together: a thread that feeds a process computes first, and rests while that does.
        if len(threads) >= slices and sum((*threads[-slices:], *processes[-slices:])) < _BUSY_FRAC * slices:
            return Beside(children=children or 0.0)
    mine, theirs = sum(threads) / len(threads), sum(processes) / len(processes)
    least = min(_BUSY_FRAC, max(mine, theirs))
    mine, theirs = (share if share >= least else 0.0 for share in (mine, theirs))
    return Beside(threads=mine, children=theirs if children is None else children)


def children_beside(device: Device) -> float:
    """The same of the child processes alone."""
    return busy_beside(device).children if read_children_ns(device) else 0.0


def read_children_ns(device: Device) -> int:
    """How long child processes of this process have computed so far; 0 where there are none, or nothing tells."""
    return device.children_ns() if isinstance(device, SeesChildren) else 0


def busiest(found: Iterable[Beside]) -> Beside:
    """The most of either kind."""
    each = list(found)
    return Beside(threads=max(one.threads for one in each), children=max(one.children for one in each))


def check_beside(before: Beside, after: Beside, *, waits: bool = False) -> tuple[Finding, ...]:
    """Has the step left work to other threads or processes that was not done when it returned?

    ``waits``: the step itself waits for much of its time, so that what it leaves to child processes does not pile up.
    """
    return (
        *_check("Other threads", before.threads, after.threads, mend="threads: future.result(), queue.join()"),
        *_check(
            "Child processes",
            before.children,
            after.children,
            mend="processes: future.result(), pool.join()",
            waits=waits,
        ),
    )


def _check(who: str, before: float, after: float, *, mend: str, waits: bool = False) -> tuple[Finding, ...]:
    if not after:
        return ()
    evidence = {"before_frac": before, "after_frac": after, "threshold_frac": _BUSY_FRAC, "watched_ns": _PATIENCE_NS}
    beside = (
        f"{who} of this process used {format_frac(after)} of a processor for {format_ns(_PATIENCE_NS)} after the last "
        "call had returned"
    )
    if before:
        meaning = ", as they did before the first timed one: what they compute is not in the number."
        hint = "If it is the step's own work, wait for it in the step; else measure without it."
    elif waits:
        meaning = ", and the step waits for much of its time, for them as it seems: the number is of calls in a row, "
        meaning += "each of which finds work begun."
        hint = "A single call takes longer, and calls with other work between them take less."
    else:
        meaning = ": the step leaves them work that was not done, and the clock did not wait for it."
        hint = f"Wait in the step for what it hands to other {mend}."
    return (
        Finding(
            code="unsettled",
            severity="warning" if before or waits else "fatal",
            message=f"{beside}{meaning}",
            evidence=evidence,
            hint=hint,
        ),
    )
