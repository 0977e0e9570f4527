"""How long have this process's child processes computed? Read from the kernel's accounts, without their help."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

from referee.units import NS_PER_S

_COMPILER = b"compile_worker"
"""Processes that torch's compiler starts for itself: what they do is no part of a step."""


def children_ns() -> int:
    """How long descendants of this process have computed so far, living or waited for, over all their threads.

    In nanoseconds; 0 where there are none, or the kernel (other than Linux) lists none. May fall when a child dies that
    nobody waits for. torch's own compile workers are left out.
    """
    living = sum(_computed_ns(pid) for pid in _descendants(os.getpid()))
    waited = resource.getrusage(resource.RUSAGE_CHILDREN)
    return living + int((waited.ru_utime + waited.ru_stime) * NS_PER_S)


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, _read(task).split()):
            if _COMPILER not in _read(Path(f"/proc/{child}/cmdline")):
                found += (child, *_descendants(child))
    return found


def _read(account: Path) -> bytes:
    try:
        return account.read_bytes()
    except OSError:  # the process has just ended, or the kernel keeps no such account
        return b""


def _computed_ns(pid: int) -> int:
    """By the process's own clock of processor time (``clock_getcpuclockid(3)``): its number is made from the id."""
    try:
        return time.clock_gettime_ns((~pid << 3) | 2)
    except OSError:  # it has just ended
        return 0
