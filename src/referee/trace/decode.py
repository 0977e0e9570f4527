"""What stands in this piece of an event list? A typed decode of the fields that become columns, and their columns.

Numbers of time are kept as text (``msgspec.Raw``) until :mod:`referee.trace.numbers` turns them into integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from referee.trace.columns import NONE, CodeColumn, IntColumn
from referee.trace.numbers import Unusual, exact_ns, parse_ns

_ABSENT = msgspec.Raw(b"")
_INT63 = (1 << 63) - 1


class EventArgs(msgspec.Struct, frozen=True, gc=False):
    """The arguments that become columns; torch 1.8 wrote ``external id`` in lower case on runtime and device rows."""

    correlation: Any = NONE
    external_id: Any = msgspec.field(default=NONE, name="External id")
    old_external_id: Any = msgspec.field(default=NONE, name="external id")
    device: Any = NONE
    stream: Any = NONE


class FileEvent(msgspec.Struct, gc=False):
    """One event of a file."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = _ABSENT
    dur: msgspec.Raw = _ABSENT
    args: EventArgs = EventArgs()


EVENTS = msgspec.json.Decoder(list[FileEvent])
"""Decodes a JSON list of events; raises ``msgspec.MsgspecError`` for text that is no list of objects of this form."""


class Codes(dict[Any, int]):
    """Values → small codes, in order of first appearance."""

    def __missing__(self, value: Any) -> int:
        code = len(self)
        self[value] = code
        return code


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """The codes of names, categories, processes and thread ids, as written."""

    names: Codes = field(default_factory=Codes)
    categories: Codes = field(default_factory=Codes)
    pids: Codes = field(default_factory=Codes)
    tids: Codes = field(default_factory=Codes)


@dataclass(frozen=True, kw_only=True, eq=False)
class Piece:
    """The columns of the complete events of one piece, in file order, with codes of a :class:`Vocabulary`.

    Times are nanoseconds since the file's own zero; ``unusual_start`` and ``unusual_duration`` hold what does not fit.
    """

    events: int
    start_ns: IntColumn
    duration_ns: IntColumn
    name: CodeColumn
    category: CodeColumn
    pid: CodeColumn
    tid: CodeColumn
    device: IntColumn
    stream: IntColumn
    correlation: IntColumn
    external_id: IntColumn
    place: IntColumn
    unusual_start: Unusual
    unusual_duration: Unusual
    halves: tuple[tuple[int, FileEvent], ...] = ()
    """Begin and end events (``ph`` of ``B`` and ``E``) with their place, to be paired once all pieces are there."""


def tabulate(events: Sequence[FileEvent], *, words: Vocabulary, first_place: int = 0) -> Piece:
    """The columns of some events, of which the first is event number ``first_place`` of the file."""
    whole = [event for event in events if event.ph == "X"]
    halves: tuple[tuple[int, FileEvent], ...] = ()
    if len(whole) == len(events):
        place = np.arange(first_place, first_place + len(events), dtype=np.int64)
    else:
        phases = [event.ph for event in events]
        place = np.array([index for index, phase in enumerate(phases, first_place) if phase == "X"], np.int64)
        if "B" in phases or "E" in phases:
            halves = tuple((index, e) for index, e in enumerate(events, first_place) if e.ph in ("B", "E"))
    return columns_of(whole, place=place, words=words, events=len(events), halves=halves)


def columns_of(
    whole: Sequence[FileEvent],
    *,
    place: IntColumn,
    words: Vocabulary,
    events: int,
    halves: tuple[tuple[int, FileEvent], ...] = (),
) -> Piece:
    """The columns of complete events."""
    start_ns, unusual_start = parse_ns([event.ts for event in whole])
    duration_ns, unusual_duration = parse_ns([event.dur for event in whole])
    args = [event.args for event in whole]
    external = as_ints([a.external_id for a in args])
    older = as_ints([a.old_external_id for a in args])
    return Piece(
        events=events,
        start_ns=start_ns,
        duration_ns=duration_ns,
        name=as_codes([event.name for event in whole], words.names),
        category=as_codes([event.cat for event in whole], words.categories),
        pid=as_codes([event.pid for event in whole], words.pids),
        tid=as_codes([event.tid for event in whole], words.tids),
        device=as_ints([a.device for a in args]),
        stream=as_ints([a.stream for a in args]),
        correlation=as_ints([a.correlation for a in args]),
        external_id=np.where(external == NONE, older, external),
        place=place,
        unusual_start=unusual_start,
        unusual_duration=unusual_duration,
        halves=halves,
    )


def as_codes(values: Sequence[Any], codes: Codes) -> CodeColumn:
    """The codes of some values; one that cannot be a key (a list, an object) is known by its text."""
    try:
        return np.array([codes[value] for value in values], np.int32)
    except TypeError:
        return np.array([codes[value if _hashable(value) else str(value)] for value in values], np.int32)


def _hashable(value: Any) -> bool:
    return not isinstance(value, (list, dict))


def as_ints(values: Sequence[Any]) -> IntColumn:
    """Whole numbers as they are, the digits at the end of a text (``stream 7``), :data:`NONE` for everything else.

    An id of 2^63 or more keeps its lower 63 bits: it only has to be equal to itself.
    """
    try:
        column = np.array(values, np.int64)
    except (TypeError, ValueError, OverflowError):
        column = np.empty((0, 0), np.int64)
    return column if column.ndim == 1 else np.array([as_int(value) for value in values], np.int64)


def as_int(value: Any) -> int:
    """One whole number; see :func:`as_ints`."""
    if isinstance(value, str):
        digits = value[len(value.rstrip("0123456789")) :]
        value = int(digits) if 0 < len(digits) <= 20 else NONE
    if isinstance(value, float):
        value = int(value) if value.is_integer() else NONE
    if not isinstance(value, int):
        return NONE
    return value & _INT63 if value > _INT63 else max(value, NONE)


def pair_halves(halves: Iterable[tuple[int, FileEvent]], *, words: Vocabulary) -> tuple[Piece, int]:
    """Complete events out of begin and end events, innermost first on each thread; and how many stay unpaired."""
    open_on: dict[tuple[Any, Any], list[tuple[int, FileEvent]]] = {}
    paired: list[tuple[int, FileEvent]] = []
    alone = 0
    for place, event in sorted(halves, key=_when):
        stack = open_on.setdefault((str(event.pid), str(event.tid)), [])
        if event.ph == "B":
            stack.append((place, event))
            continue
        position = _opened_by(stack, event)
        if position is None:
            alone += 1
            continue
        begun_at, begun = stack.pop(position)
        paired.append((begun_at, _joined(begun, event)))
    alone += sum(len(stack) for stack in open_on.values())
    paired.sort(key=lambda item: item[0])
    whole = [event for _, event in paired]
    places = np.array([place for place, _ in paired], np.int64)
    return columns_of(whole, place=places, words=words, events=0), alone


def _when(half: tuple[int, FileEvent]) -> tuple[int, int]:
    return exact_ns(bytes(half[1].ts)) or 0, half[0]


def _opened_by(stack: Sequence[tuple[int, FileEvent]], end: FileEvent) -> int | None:
    """The position of the begin event that ``end`` closes: the last of its name, or simply the last if it has none."""
    for position in range(len(stack) - 1, -1, -1):
        if end.name is None or stack[position][1].name == end.name:
            return position
    return None


def _joined(begin: FileEvent, end: FileEvent) -> FileEvent:
    """A complete event from ``begin`` to ``end``; its duration is written as exact microseconds."""
    start, stop = exact_ns(bytes(begin.ts)), exact_ns(bytes(end.ts))
    ns = 0 if start is None or stop is None else max(stop - start, 0)
    duration = msgspec.Raw(f"{ns // 1000}.{ns % 1000:03d}".encode())
    return msgspec.structs.replace(begin, ph="X", dur=duration)
