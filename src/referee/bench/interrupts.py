"""Does Ctrl-C cost what has been measured already? Not while it is being judged and written down."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass
class Held:
    """Whether an interrupt came meanwhile."""

    interrupted: bool = False


@contextmanager
def hold_interrupts() -> Iterator[Held]:
    """Let a first Ctrl-C wait for the end of what is inside, which then knows of it; a second one is raised at once.

    For what is short and comes after the measuring. Nothing is held outside of the main thread, or where somebody else
    handles the interrupt.
    """
    held = Held()
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield held
        return

    def note(number: int, frame: FrameType | None) -> None:
        if held.interrupted:
            signal.default_int_handler(number, frame)
        held.interrupted = True

    signal.signal(signal.SIGINT, note)
    try:
        yield held
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
