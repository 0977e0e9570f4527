"""What if it kills the process? Work done in a forked child that reports piece by piece.

The child inherits everything that is loaded, so that it starts in milliseconds; what it does to the process (a crash, a
kernel replaced for good) stays with it. Not where an accelerator has been used: such processes cannot be forked.
"""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import struct
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass

from referee.device.host import load_torch

Report = Callable[[bytes], None]

_HEADER = struct.Struct("<I")


@dataclass
class Child:
    """A running or ended child; how it ended is known once its reports have been read to the end."""

    pid: int
    signal: int = 0
    """The signal that ended it, 0 where it ended by itself."""
    too_long: bool = False


def run_child(work: Callable[[Report], None], *, limit_s: float) -> tuple[Child, Generator[bytes, None, None]]:
    """Start ``work`` in a child; the iterator gives what it reports and ends with the child.

    A child that says nothing for ``limit_s`` is ended.
    """
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:  # pragma: no cover - the child's lines are not seen by the parent
        try:
            os.close(read_end)
            _silence()
            # A child has none of its parent's threads, and waiting for them would be for ever.
            load_torch().set_num_threads(1)
            work(lambda body: _write_all(write_end, _HEADER.pack(len(body)) + body))
        finally:
            os._exit(0)
    os.close(write_end)
    child = Child(pid=pid)
    return child, _reports(child, read_end, limit_s)


def _write_all(end: int, data: bytes) -> None:
    while data:
        data = data[os.write(end, data) :]


def _silence() -> None:
    """What dies says so on standard error; the reason is in how it ended."""
    faulthandler.disable()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def _reports(child: Child, read_end: int, limit_s: float) -> Generator[bytes, None, None]:
    buffer = b""
    try:
        while True:
            deadline = time.monotonic() + limit_s
            while len(buffer) < _HEADER.size or len(buffer) < _HEADER.size + _HEADER.unpack_from(buffer)[0]:
                ready, _, _ = select.select([read_end], [], [], max(0.0, deadline - time.monotonic()))
                if not ready:
                    child.too_long = True
                    return
                piece = os.read(read_end, 1 << 16)
                if not piece:
                    return
                buffer += piece
            (length,) = _HEADER.unpack_from(buffer)
            yield buffer[_HEADER.size : _HEADER.size + length]
            buffer = buffer[_HEADER.size + length :]
    finally:
        os.close(read_end)
        with suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)  # it has nothing left to do, or did it for too long
        _, status = os.waitpid(child.pid, 0)
        killed = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        child.signal = 0 if killed == signal.SIGKILL else killed
