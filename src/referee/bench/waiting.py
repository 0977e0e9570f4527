"""Does a step wait instead of computing? The time that its process neither computed nor wanted a processor.

Meanwhile child processes may have computed for it, which is told beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

from referee.bench.beside import read_children_ns
from referee.bench.sampling import SeesProcess
from referee.device.protocol import Device, Settling

WAITING_FRAC = 0.24
"""From this share on, waiting is a loss that can name the regime, as in a trace."""


@dataclass(frozen=True, slots=True)
class Occupied:
    """The time at a reading, and how long this process had computed or waited for a processor until then.

    ``children_ns`` is how long its child processes had computed.
    """

    now_ns: int
    occupied_ns: int
    children_ns: int = 0


@dataclass(frozen=True, slots=True)
class Waited:
    """The share of a time in which the process slept, and what its child processes used of a processor meanwhile."""

    frac: float
    children_frac: float = 0.0

    @property
    def much(self) -> bool:
        """Whether it is a loss."""
        return self.frac >= WAITING_FRAC


def much_waiting(waited: Waited | None) -> bool:
    """Is the time for a large part nobody's work? Then neither the processor's clock nor its load scales it."""
    return waited is not None and waited.much


def read_occupied(device: Device) -> Occupied | None:
    """A reading now; ``None`` where calls are not done when they return, or no such account is kept."""
    if not isinstance(device, SeesProcess) or device.settling is not Settling.SYNCHRONOUS:
        return None
    occupied_ns = device.occupied_ns()
    return None if occupied_ns is None else Occupied(device.now_ns(), occupied_ns, read_children_ns(device))


def waited_between(before: Occupied | None, after: Occupied | None) -> Waited | None:
    """What was waited between two readings; ``None`` without both."""
    if before is None or after is None or after.now_ns <= before.now_ns:
        return None
    elapsed_ns = after.now_ns - before.now_ns
    return Waited(
        frac=min(1.0, max(0.0, 1.0 - (after.occupied_ns - before.occupied_ns) / elapsed_ns)),
        children_frac=max(0.0, (after.children_ns - before.children_ns) / elapsed_ns),
    )
