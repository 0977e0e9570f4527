"""What becomes of a profiler whose thread ends? It is switched off in that thread, as its last act.

Once the thread is gone it is too late: torch (2.13) ends the process when a profiler with stacks is left on behind the
thread that switched it on, or is switched off then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

_OF_THREAD = threading.local()


class LastAct:
    """Has ``act`` done by this thread when it ends, after what it was told to do before; holds on to it until then.

    Nothing is done at the end of the main thread, with which the process ends.
    """

    def __init__(self, act: Callable[[], None]) -> None:
        self._act: Callable[[], None] | None = act
        if threading.current_thread() is not threading.main_thread():
            kept: list[_WithThread] = _OF_THREAD.__dict__.setdefault("kept", [])
            kept[:] = [other for other in kept if other.last_act.pending] + [_WithThread(self)]

    @property
    def pending(self) -> bool:
        """Whether it has been neither done nor called off."""
        return self._act is not None

    def call_off(self) -> bool:
        """Have nothing done; answers whether there was still something to call off."""
        return self._take() is not None

    def do(self) -> None:
        """Do it now, unless it was done or called off."""
        act = self._take()
        if act is not None:
            act()

    def _take(self) -> Callable[[], None] | None:
        act, self._act = self._act, None
        return act


class _WithThread:
    """Goes as the thread goes that keeps it."""

    def __init__(self, last_act: LastAct) -> None:
        self.last_act = last_act

    def __del__(self) -> None:
        self.last_act.do()
