"""How does a device's queue behave, exactly? In order, with a finite number of entries, on the virtual clock."""

from __future__ import annotations

from collections import deque

from referee.device.noise import VirtualClock
from referee.errors import OptionError


class Queue:
    """One in-order device queue with a finite number of entries."""

    def __init__(self, clock: VirtualClock, *, capacity: int) -> None:
        self.clock = clock
        self.capacity = capacity
        self.free_ns = 0
        self._ends: deque[int] = deque()

    def push(self, device_ns: int, *, not_before_ns: int = 0) -> int:
        """Queue ``device_ns`` of work; returns when it will end. Blocks the host while the queue is full."""
        self._retire()
        if len(self._ends) >= self.capacity:
            self.clock.wait_until(self._ends[0])
            self._retire()
        start_ns = max(self.clock.now_ns, self.free_ns, not_before_ns)
        self.free_ns = start_ns + device_ns
        self._ends.append(self.free_ns)
        return self.free_ns

    def mark(self) -> int:
        """When a mark put into the queue now is reached."""
        return max(self.clock.now_ns, self.free_ns)

    def drain(self) -> None:
        """Wait until the queue is empty."""
        self.clock.wait_until(self.free_ns)

    def _retire(self) -> None:
        while self._ends and self._ends[0] <= self.clock.now_ns:
            self._ends.popleft()


class QueueTimer:
    """A pair of marks in a fake queue: a :class:`~referee.device.protocol.DeviceTimer` on the virtual clock."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._start_ns: int | None = None
        self._stop_ns: int | None = None

    def start(self) -> None:
        """Put the first mark into the queue."""
        self._start_ns, self._stop_ns = self._queue.mark(), None

    def stop(self) -> None:
        """Put the second mark into the queue."""
        self._stop_ns = self._queue.mark()

    def elapsed_ns(self) -> float:
        """Wait for the second mark; the virtual time between the two."""
        if self._start_ns is None or self._stop_ns is None:
            raise OptionError("A device timer was read before both of its marks were set.")
        self._queue.clock.wait_until(self._stop_ns)
        return float(self._stop_ns - self._start_ns)
