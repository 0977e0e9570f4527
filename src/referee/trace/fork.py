"""How does a copy of this process take a part of the work? It is ready at once, and sees all that is in memory.

A new process would take some 0.2 s to start, and would have to be sent what it works on.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO

_PIPE_BYTES = 1 << 20
"""What any user may ask for on Linux; a pipe has 64 KiB by itself, less than the columns of one piece."""


@dataclass(frozen=True, kw_only=True)
class Helper:
    """A running helper process: where its answers come from, and how to end it and take its status."""

    answers: BinaryIO
    end: Callable[[], object]


def may_fork() -> bool:
    """Whether a copy of this process can be trusted to work: it has no other threads, of Python's or of torch's.

    Other systems' own libraries forbid copies.
    """
    return sys.platform == "linux" and threading.active_count() == 1 and "torch" not in sys.modules


def _wide_pipe() -> tuple[int, int]:
    """A pipe that takes a whole answer, where the system allows: its writer goes on before the reader has come."""
    receiving, sending = os.pipe()
    if sys.platform == "linux":
        import fcntl

        with suppress(OSError):
            fcntl.fcntl(sending, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return receiving, sending


def fork(work: Callable[[BinaryIO], None], *, unused: Sequence[int] = ()) -> Helper:
    """A copy of this process that does ``work``, writing its answers, and ends without what is done at a process's end.

    ``unused`` are open files that the copy must not hold open. What the work raises is lost with its status: who reads
    the answers finds them ended. Raises :class:`OSError` if the system has no process to spare.
    """
    receiving, sending = _wide_pipe()
    try:
        with warnings.catch_warnings():
            # Python warns of threads that numpy's linear algebra keeps waiting: the copy never calls it.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
    except OSError:
        os.close(receiving)
        os.close(sending)
        raise
    if child == 0:
        status = 1
        try:
            for descriptor in (receiving, *unused):
                os.close(descriptor)
            with os.fdopen(sending, "wb") as answers:
                work(answers)
            status = 0
        finally:
            os._exit(status)
    os.close(sending)

    def end() -> None:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(child, 0)

    return Helper(answers=os.fdopen(receiving, "rb"), end=end)
