"""The CPU: a call returns when its work is done, so there is nothing to wait for."""

from __future__ import annotations

import os
from collections.abc import Callable

from referee.device.host import HostClocked, load_torch
from referee.device.protocol import Repeat
from referee.device.repeats import see_repeat
from referee.errors import OptionError

_THREADS_PER_CORE = 16
"""Oversubscription by more than this shows nothing that less would not."""


class CpuDevice(HostClocked):
    """The CPU. Outputs that live elsewhere (a step may compute on another device) are awaited all the same."""

    def __init__(self) -> None:
        super().__init__("cpu")

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
