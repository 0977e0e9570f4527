"""Which process of which job is this, and how far is its clock from that of rank 0?

Under ``torchrun`` every rank captures by itself and writes its own file. Timestamps of different hosts can be laid side
by side only if the offset of their clocks is known; it is measured once, over the store that the launcher keeps anyway.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from referee.records.finding import Scalar

_PINGS = 8
"""The quickest of eight is taken: the first ones wait for the other side to be ready."""
_PATIENCE = timedelta(seconds=5)
"""How long the ranks wait for each other; then the offset is "not read", and nothing else is lost."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """The place of a process in its job."""

    rank: int
    world_size: int

    def keys(self) -> dict[str, Scalar]:
        """The place as provenance keys."""
        return {"rank": self.rank, "world_size": self.world_size}


@dataclass(frozen=True, kw_only=True)
class ClockOffset:
    """A host's wall clock minus rank 0's, and by how much that may be off (half of the quickest round trip)."""

    offset_ns: int
    error_ns: int

    def keys(self) -> dict[str, Scalar]:
        """The offset as provenance keys."""
        return {"clock_offset_ns": self.offset_ns, "clock_offset_error_ns": self.error_ns}


class Store(Protocol):
    """The part of ``torch.distributed.Store`` that is needed."""

    def set(self, key: str, value: str) -> Any:
        """Put ``value`` under ``key``."""

    def get(self, key: str) -> bytes:
        """The value under ``key``; waits until it is there, and raises after the store's patience."""

    def add(self, key: str, amount: int) -> int:
        """Add to the counter under ``key``; the new value."""


def find_job(environment: Mapping[str, str] | None = None) -> Job | None:
    """The job this process is part of, as ``torchrun`` states it; ``None`` for a process of its own."""
    stated = os.environ if environment is None else environment
    try:
        job = Job(rank=int(stated["RANK"]), world_size=int(stated["WORLD_SIZE"]))
    except (KeyError, ValueError):
        return None
    return job if job.world_size > 1 and 0 <= job.rank < job.world_size else None


def measure_offset(job: Job) -> ClockOffset | None:
    """How far is this host's clock from rank 0's? ``None`` where the ranks do not find each other.

    Every rank has to ask, about at the same time: rank 0 answers the others, one after the other.
    """
    store = _open_store()
    if store is None:
        return None
    try:
        # The n-th capture of one rank meets the n-th of the others.
        meeting = f"referee/clock/{store.add(f'referee/clock/meeting/{job.rank}', 1)}"
        if job.rank == 0:
            answer_pings(store, meeting, ranks=range(1, job.world_size))
            return ClockOffset(offset_ns=0, error_ns=0)
        return ask_offset(store, meeting, rank=job.rank)
    except RuntimeError:
        # torch.distributed raises its errors (timeout, connection) as RuntimeErrors: the others are not there.
        return None


def _open_store() -> Store | None:
    """A connection of our own to the job's store, which the launcher (or rank 0) keeps at MASTER_ADDR:MASTER_PORT."""
    from torch import distributed

    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT", "")
    if not distributed.is_available() or not address or not port.isdigit():
        return None
    try:
        store: Store = distributed.TCPStore(
            address, int(port), is_master=False, timeout=_PATIENCE, wait_for_workers=False
        )
    except RuntimeError:
        return None
    return store


def answer_pings(store: Store, meeting: str, *, ranks: range, now_ns: Callable[[], int] = time.time_ns) -> None:
    """Rank 0's part: tell each of ``ranks`` the time, as often as it asks."""
    for rank in ranks:
        for number in range(_PINGS):
            store.get(f"{meeting}/{rank}/{number}/asked")
            store.set(f"{meeting}/{rank}/{number}/answered", str(now_ns()))


def ask_offset(store: Store, meeting: str, *, rank: int, now_ns: Callable[[], int] = time.time_ns) -> ClockOffset:
    """The other ranks' part: ask for the time, and take the quickest answer as given halfway through its round trip."""
    best: ClockOffset | None = None
    for number in range(_PINGS):
        asked = now_ns()
        store.set(f"{meeting}/{rank}/{number}/asked", "")
        theirs = int(store.get(f"{meeting}/{rank}/{number}/answered"))
        answered = now_ns()
        error = (answered - asked + 1) // 2
        if best is None or error < best.error_ns:
            best = ClockOffset(offset_ns=(asked + answered) // 2 - theirs, error_ns=error)
    assert best is not None
    return best
