"""The CPU: a call returns when its work is done, so there is nothing to wait for."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable

from referee.device.host import HostClocked, load_torch
from referee.device.protocol import Repeat
from referee.device.repeats import see_repeat
from referee.errors import OptionError

_THREADS_PER_CORE = 16
"""Oversubscription by more than this shows nothing that less would not."""


_CHAIN = bytes(8_192)
"""What SHA-256 takes 4 µs for with instructions of its own, and 25 µs without them. Each of its rounds waits for the
one before, in registers: nothing but the core's clock tells how long that takes. Against a chain of multiplications
in C it stayed within 0.4 % (standard deviation) while the clock went up and down by 7 %."""

_CHAIN_RUNS = 3
"""The first one finds its instructions out of the inner caches: it is 3 to 20 % longer beside busy processes."""


class CpuDevice(HostClocked):
    """The CPU. Outputs that live elsewhere (a step may compute on another device) are awaited all the same."""

    def __init__(self) -> None:
        super().__init__("cpu")

    def chain_ns(self) -> int:
        """How long a fixed chain of dependent instructions takes this core now, in nanoseconds: the least of three."""
        now_ns = time.perf_counter_ns
        times = []
        for _ in range(_CHAIN_RUNS):
            start_ns = now_ns()
            hashlib.sha256(_CHAIN, usedforsecurity=False)
            times.append(now_ns() - start_ns)
        return max(1, min(times))

    def see_repeat(self, step: Callable[[], object], fresh: Callable[[], Callable[[], object]]) -> Repeat | None:
        """How much of a first call's work a repeated one does (:mod:`referee.device.repeats`)."""
        return see_repeat(step, fresh)


def set_threads(threads: int) -> None:
    """Let torch compute one operation with ``threads`` threads from now on, in this process.

    Raises :class:`~referee.errors.OptionError` for a number that no machine has cores for: starting that many threads
    would end the process.
    """
    most = _THREADS_PER_CORE * (os.cpu_count() or 1)
    if threads > most:
        raise OptionError(
            f"{threads:,} threads are far more than this machine's cores.", hint=f"Give at most {most:,}."
        )
    load_torch().set_num_threads(threads)


def threads_in_force() -> int:
    """With how many threads torch computes one operation now."""
    return int(load_torch().get_num_threads())
