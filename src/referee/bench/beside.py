"""Does work go on after the call has returned? What other threads of this process compute while this one only waits.

A step that hands work to a thread of its own, and does not wait for it, returns at once on any device; on the CPU
nothing else would show it. Read before the first timed call and after the last: threads that were busy before have
nothing to do with the step, or it has left them work already.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from referee.device.protocol import Device, Settling
from referee.records.finding import Finding
from referee.units import NS_PER_MS, format_frac, format_ns

_SLICE_NS = 5 * NS_PER_MS

_PATIENCE_NS = 300 * NS_PER_MS
"""Threads of a parallel region spin for up to 200 ms behind it, in case there is another one."""

_BUSY_FRAC = 0.2
"""Of one processor: a thread that computes beside four busy processes on two cores gets twice that."""


@runtime_checkable
class SeesThreads(Protocol):
    """A device whose host process can watch its own threads."""

    def busy_frac(self, length_ns: int) -> float:
        """How much of a processor other threads of this process use while this one waits for ``length_ns``."""


def busy_beside(device: Device) -> float:
    """How much of a processor this process's other threads use now, once what spins has come to rest; 0 for none."""
    if device.settling is not Settling.SYNCHRONOUS or not isinstance(device, SeesThreads):
        return 0.0
    shares = []
    for _ in range(_PATIENCE_NS // _SLICE_NS):
        shares.append(device.busy_frac(_SLICE_NS))
        if shares[-1] < _BUSY_FRAC:
            return 0.0
    return sum(shares) / len(shares)


def check_beside(before: float, after: float) -> tuple[Finding, ...]:
    """Has the step left work to other threads that was not done when it returned?"""
    if not after:
        return ()
    evidence = {"before_frac": before, "after_frac": after, "threshold_frac": _BUSY_FRAC, "watched_ns": _PATIENCE_NS}
    beside = f"used {format_frac(after)} of a processor for {format_ns(_PATIENCE_NS)} after the last call had returned"
    if before:
        return (
            Finding(
                code="unsettled",
                severity="warning",
                message=f"Other threads of this process {beside}, as they did before the first timed one: what they "
                "compute is not in the number.",
                evidence=evidence,
                hint="If it is the step's own work, wait for it in the step; else measure without it.",
            ),
        )
    return (
        Finding(
            code="unsettled",
            severity="fatal",
            message=f"Other threads of this process {beside}: the step leaves them work that was not done, and the "
            "clock did not wait for it.",
            evidence=evidence,
            hint="Wait in the step for what it hands to other threads: future.result(), queue.join().",
        ),
    )
