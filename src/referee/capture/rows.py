"""Which row of a freshly written trace lies in which? The few fields of the profiler's JSON that a capture looks at.

Not a trace reader (that is ``referee.trace``, which a capture does not need): it reads what this process's profiler has
just written, in one known format.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

CorrelationId = int | str | None


class Args(msgspec.Struct):
    """What is read of an event's ``args``."""

    correlation: CorrelationId = None
    bytes_: int | None = msgspec.field(name="Bytes", default=None)
    total_bytes: int | None = msgspec.field(name="Total Allocated", default=None)
    device_type: int | None = msgspec.field(name="Device Type", default=None)
    device_id: int | None = msgspec.field(name="Device Id", default=None)


class Event(msgspec.Struct):
    """One entry of the event list."""

    ph: str = ""
    cat: str | None = None
    name: str | int | float | None = None
    ts: float | None = None
    dur: float = 0.0
    pid: int | str | None = None
    tid: int | str | None = None
    args: Args | msgspec.UnsetType = msgspec.UNSET

    @property
    def start_ns(self) -> int:
        """Start in nanoseconds."""
        return round((self.ts or 0.0) * 1000)

    @property
    def end_ns(self) -> int:
        """End in nanoseconds, rounded as start and duration are, so that nested rows stay nested."""
        return self.start_ns + round(self.dur * 1000)

    @property
    def details(self) -> Args:
        """The arguments; empty where there are none."""
        return self.args if isinstance(self.args, Args) else Args()


class TraceFile(msgspec.Struct):
    """The file as the profiler writes it."""

    events: list[Event] = msgspec.field(name="traceEvents", default_factory=list)
    dropped: int | None = msgspec.field(name="droppedEvents", default=None)


def decode(text: bytes) -> TraceFile | None:
    """The file in ``text``; ``None`` where it cannot be decoded (Kineto may write what JSON forbids)."""
    try:
        return msgspec.json.decode(text, type=TraceFile)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Nested:
    """A row with the rows around it: ``path`` runs from the outermost row to this one; ``self_ns`` is its own time."""

    event: Event
    path: tuple[Event, ...]
    self_ns: int

    @property
    def parent(self) -> Event | None:
        """The row directly around this one on its thread."""
        return self.path[-2] if len(self.path) > 1 else None


def nest(events: Iterable[Event], *, categories: frozenset[str]) -> Iterator[Nested]:
    """The rows of ``categories``, each with those around it on its thread, inner rows before outer ones.

    Self times are conserved: per thread they add up to the time covered by the outermost rows. A row that reaches
    beyond the one it begins in (the profiler cuts rows short at the edges) is cut at that one's end.
    """
    by_thread: dict[tuple[object, object], list[Event]] = {}
    for event in events:
        if event.ph == "X" and event.cat in categories and event.ts is not None:
            by_thread.setdefault((event.pid, event.tid), []).append(event)
    for rows in by_thread.values():
        rows.sort(key=lambda row: (row.start_ns, -row.end_ns))
        yield from _nest_thread(rows)


def _nest_thread(rows: list[Event]) -> Iterator[Nested]:
    stack: list[Event] = []
    ends: list[int] = []
    inner_ns: list[int] = []
    for row in [*rows, None]:
        start = row.start_ns if row is not None else None
        while stack and (start is None or ends[-1] <= start):
            own = ends[-1] - stack[-1].start_ns
            yield Nested(event=stack[-1], path=tuple(stack), self_ns=own - inner_ns.pop())
            stack.pop()
            ends.pop()
            if inner_ns:
                inner_ns[-1] += own
        if row is not None:
            stack.append(row)
            ends.append(min(row.end_ns, ends[-1]) if ends else row.end_ns)
            inner_ns.append(0)
