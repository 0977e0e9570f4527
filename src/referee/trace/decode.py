"""What stands in this piece of an event list? A typed decode of the fields that become columns, and their columns.

The decoder knows the phases and the categories of profiler traces, so that it builds nothing for events that become no
row; a piece with other ones, or with values of unexpected types, is decoded again more loosely. Numbers of time are
kept as text (``msgspec.Raw``) until :mod:`referee.trace.numbers` turns them into integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any, Literal, NamedTuple, Union

import msgspec
import numpy as np

from referee.trace.columns import NONE, CodeColumn, IntColumn
from referee.trace.kinds import KIND_OF_CATEGORY
from referee.trace.numbers import Unusual, exact_ns, parse_ns

_ABSENT = msgspec.Raw(b"")
_INT63 = (1 << 63) - 1


class EventArgs(msgspec.Struct, frozen=True, gc=False):
    """The arguments that become columns, and the name that a metadata event gives to its process.

    torch 1.8 wrote ``external id`` in lower case on runtime and device rows; Ascend's profiler ties its rows by
    ``connection_id``.
    """

    correlation: Any = NONE
    external_id: Any = msgspec.field(default=NONE, name="External id")
    old_external_id: Any = msgspec.field(default=NONE, name="external id")
    device: Any = NONE
    stream: Any = NONE
    connection: Any = msgspec.field(default=NONE, name="connection_id")
    name: Any = None


class FileEvent(msgspec.Struct, gc=False):
    """One event of a file, of any phase."""

    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = _ABSENT
    dur: msgspec.Raw = _ABSENT
    args: EventArgs = EventArgs()
    ph: Any = None


_TIMED_PHASES = ("X", "B", "E")
_NAMING_PHASE = "M"
_OTHER_PHASES = "iIsftCbneNODPRcvVST()"
_FLOWS = ("ac2g", "async_cpu_to_gpu", "async", "fwdbwd")
_OLD_CATEGORIES = ("Operator", "Kernel", "Memcpy", "Memset", "Runtime", "Trace")
_KNOWN_CATEGORIES: Any = Literal.__getitem__((*KIND_OF_CATEGORY, *_OLD_CATEGORIES, *_FLOWS))
_FIELDS: list[tuple[str, Any, Any]] = [
    ("cat", _KNOWN_CATEGORIES | None, None),
    ("name", Any, None),
    ("pid", Any, None),
    ("tid", Any, None),
    ("ts", msgspec.Raw, _ABSENT),
    ("dur", msgspec.Raw, _ABSENT),
    ("args", EventArgs, EventArgs()),
]
_TIMED = {
    phase: msgspec.defstruct(f"Phase{phase}", _FIELDS, gc=False, tag_field="ph", tag=phase) for phase in _TIMED_PHASES
}
_NAMING = msgspec.defstruct(
    "PhaseM",
    [("name", Any, None), ("pid", Any, None), ("tid", Any, None), ("args", EventArgs, EventArgs())],
    gc=False,
    tag_field="ph",
    tag=_NAMING_PHASE,
)
_UNTIMED = tuple(
    msgspec.defstruct(f"Other{ord(phase)}", [], gc=False, tag_field="ph", tag=phase) for phase in _OTHER_PHASES
)
_TYPED = msgspec.json.Decoder(list[Union[(*_TIMED.values(), _NAMING, *_UNTIMED)]])  # type: ignore[misc]
_LOOSE = msgspec.json.Decoder(list[FileEvent])


class Codes(dict[Any, int]):
    """Values → small codes, in order of first appearance."""

    def __missing__(self, value: Any) -> int:
        code = len(self)
        self[value] = code
        return code


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """The codes of names, categories and threads (pairs of pid and tid), as written."""

    names: Codes = field(default_factory=Codes)
    categories: Codes = field(default_factory=Codes)
    threads: Codes = field(default_factory=Codes)
    ids_stated: list[int] = field(default_factory=list)
    """For each category: 0 if its events state no ids, 1 if the external id alone, 2 if any."""

    def stated(self) -> IntColumn:
        """``ids_stated`` for all categories known by now."""
        for category in list(self.categories)[len(self.ids_stated) :]:
            self.ids_stated.append(_IDS_STATED.get(str(category).lower(), 2))
        return np.array(self.ids_stated, np.int64)


_IDS_STATED = {"python_function": 0, "cpu_op": 1, "operator": 1}


class Half(NamedTuple):
    """A begin or end event (``ph`` of ``B`` or ``E``) with its place among the events of its piece."""

    place: int
    begins: bool
    event: FileEvent


@dataclass(frozen=True, kw_only=True, eq=False)
class Piece:
    """The columns of the complete events of one piece, in file order, with codes of a :class:`Vocabulary`.

    ``place`` counts the piece's own events, of which there are ``events``. Times are nanoseconds since the file's own
    zero; ``unusual_start`` and ``unusual_duration`` hold what does not fit.
    """

    events: int
    start_ns: IntColumn
    duration_ns: IntColumn
    name: CodeColumn
    category: CodeColumn
    thread: CodeColumn
    device: IntColumn | CodeColumn
    stream: IntColumn | CodeColumn
    correlation: IntColumn | CodeColumn
    external_id: IntColumn | CodeColumn
    place: IntColumn | CodeColumn
    unusual_start: Unusual
    unusual_duration: Unusual
    halves: tuple[Half, ...] = ()
    processes: tuple[tuple[Any, str], ...] = ()
    """Processes as written, with the names that metadata events give them."""
    lanes: tuple[tuple[tuple[Any, Any], str], ...] = ()
    """Threads as written, likewise."""


def decode(text: bytes | memoryview, *, words: Vocabulary) -> Piece | None:
    """The columns of a JSON list of events; ``None`` if the text is no valid list of objects.

    Values of other types than expected, where they do not make the text invalid, are taken as not stated.
    """
    try:
        return tabulate(_TYPED.decode(text), words=words)
    except msgspec.ValidationError:
        pass
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    try:
        return tabulate(_LOOSE.decode(text), words=words)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None


def tabulate(events: Sequence[Any], *, words: Vocabulary) -> Piece:
    """The columns of decoded events: all typed ones, or all of :class:`FileEvent`."""
    loose = bool(events) and isinstance(events[0], FileEvent)
    whole, begin, end = ("X", "B", "E") if loose else tuple(_TIMED.values())
    naming = _NAMING_PHASE if loose else _NAMING
    phases = [event.ph for event in events] if loose else list(map(type, events))
    if phases.count(whole) == len(phases):
        place = np.arange(len(events), dtype=np.int64)
        return columns_of(events, place=place, words=words, events=len(events))
    chosen = [phase == whole for phase in phases]
    halves: tuple[Half, ...] = ()
    if begin in phases or end in phases:
        both = ((at, phase == begin) for at, phase in enumerate(phases) if phase in (begin, end))
        halves = tuple(Half(at, begins, _kept(events[at])) for at, begins in both)
    place = np.flatnonzero(chosen)
    piece = columns_of(list(compress(events, chosen)), place=place, words=words, events=len(events), halves=halves)
    if naming not in phases:
        return piece
    named = [
        event
        for event, phase in zip(events, phases, strict=True)
        if phase == naming and isinstance(event.args.name, str)
    ]
    return replace(
        piece,
        processes=tuple((_key(event.pid), event.args.name) for event in named if event.name == "process_name"),
        lanes=tuple((_key((event.pid, event.tid)), event.args.name) for event in named if event.name == "thread_name"),
    )


def _kept(event: Any) -> FileEvent:
    """An event on its own: the text of its time no longer refers to the text it was decoded from."""
    return FileEvent(event.cat, event.name, event.pid, event.tid, event.ts.copy(), event.dur.copy(), event.args)


def columns_of(
    whole: Sequence[Any], *, place: IntColumn, words: Vocabulary, events: int, halves: tuple[Half, ...] = ()
) -> Piece:
    """The columns of complete events."""
    # One pass over the events and one over their fields: events lie scattered in memory, tuples of fields do not.
    columns = tuple(zip(*map(msgspec.structs.astuple, whole), strict=False)) or ((),) * 7
    cat, name, pid, tid, ts, dur, args = columns[:7]
    times, unusual = parse_ns((*ts, *dur))
    count = len(ts)
    category = as_codes(cat, words.categories)
    ids = _ids_of(args, stated=words.stated()[category])
    return Piece(
        events=events,
        start_ns=times[:count],
        duration_ns=times[count:],
        name=as_codes(name, words.names),
        category=category,
        thread=_threads_of(pid, tid, words.threads),
        device=narrow(ids["device"]),
        stream=narrow(ids["stream"]),
        correlation=narrow(ids["correlation"]),
        external_id=narrow(ids["external_id"]),
        place=narrow(place),
        unusual_start={at: exact for at, exact in unusual.items() if at < count},
        unusual_duration={at - count: exact for at, exact in unusual.items() if at >= count},
        halves=halves,
    )


def narrow(column: IntColumn) -> IntColumn | CodeColumn:
    """The same numbers in half the memory, where they fit."""
    fits = len(column) == 0 or (int(column.max()) < 1 << 31 and int(column.min()) >= -1 << 31)
    return column.astype(np.int32) if fits else column


def _ids_of(args: Sequence[EventArgs], *, stated: IntColumn) -> dict[str, IntColumn]:
    """The columns of ids; only those are looked at that events of a category state."""
    ids = {name: np.full(len(args), NONE, np.int64) for name in ("device", "stream", "correlation", "external_id")}
    only_external = stated == 1
    if only_external.any():
        chosen = compress(args, only_external.tolist())
        ids["external_id"][only_external] = as_ints([one.external_id for one in chosen])
    everything = stated == 2
    if everything.any():
        chosen = compress(args, everything.tolist())
        fields = zip(*map(msgspec.structs.astuple, chosen), strict=True)
        *columns, connection, _ = fields
        correlation, external, older, device, stream = (as_ints(values) for values in columns)
        if connection.count(NONE) < len(connection):
            correlation = np.where(correlation == NONE, as_ints(connection), correlation)
        ids["correlation"][everything] = correlation
        ids["external_id"][everything] = np.where(external == NONE, older, external)
        ids["device"][everything] = device
        ids["stream"][everything] = stream
    return ids


def _threads_of(pid: Sequence[Any], tid: Sequence[Any], threads: Codes) -> CodeColumn:
    """The code of each row's pair of process and thread, looked up once for every stretch of rows of one thread."""
    try:
        pids, tids = np.array(pid, np.int64), np.array(tid, np.int64)
    except (TypeError, ValueError, OverflowError):
        pids = tids = np.empty((0, 0), np.int64)
    if pids.ndim != 1 or tids.ndim != 1 or len(pids) == 0:
        return as_codes(list(zip(pid, tid, strict=True)), threads)
    changes = np.flatnonzero((pids[1:] != pids[:-1]) | (tids[1:] != tids[:-1])) + 1
    starts = np.concatenate(([0], changes))
    codes = [threads[pair] for pair in zip(pids[starts].tolist(), tids[starts].tolist(), strict=True)]
    return np.repeat(np.array(codes, np.int32), np.diff(np.append(starts, len(pids))))


def as_codes(values: Sequence[Any], codes: Codes) -> CodeColumn:
    """The codes of some values; one that cannot be a key (a list, an object) is known by its text."""
    try:
        return np.fromiter(map(codes.__getitem__, values), np.int32, len(values))
    except TypeError:
        return np.array([codes[_key(value)] for value in values], np.int32)


def _key(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_key(part) for part in value)
    return str(value) if isinstance(value, (list, dict)) else value


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


def pair_halves(halves: Iterable[Half], *, words: Vocabulary) -> tuple[Piece, int]:
    """Complete events out of begin and end events, innermost first on each thread; and how many stay unpaired."""
    open_on: dict[tuple[str, str], list[Half]] = {}
    paired: list[tuple[int, FileEvent]] = []
    alone = 0
    for half in sorted(halves, key=_when):
        stack = open_on.setdefault((str(half.event.pid), str(half.event.tid)), [])
        if half.begins:
            stack.append(half)
            continue
        position = _opened_by(stack, half.event)
        if position is None:
            alone += 1
            continue
        begun = stack.pop(position)
        paired.append((begun.place, _joined(begun.event, half.event)))
    alone += sum(len(stack) for stack in open_on.values())
    paired.sort(key=lambda item: item[0])
    whole = [event for _, event in paired]
    places = np.array([place for place, _ in paired], np.int64)
    return columns_of(whole, place=places, words=words, events=0), alone


def _when(half: Half) -> tuple[int, int]:
    return exact_ns(bytes(half.event.ts)) or 0, half.place


def _opened_by(stack: Sequence[Half], end: FileEvent) -> int | None:
    """The position of the begin event that ``end`` closes: the last of its name, or simply the last if it has none."""
    for position in range(len(stack) - 1, -1, -1):
        if end.name is None or stack[position].event.name == end.name:
            return position
    return None


def _joined(begin: FileEvent, end: FileEvent) -> FileEvent:
    """A complete event from ``begin`` to ``end``; its duration is written as exact microseconds."""
    start, stop = exact_ns(bytes(begin.ts)), exact_ns(bytes(end.ts))
    ns = 0 if start is None or stop is None else max(stop - start, 0)
    duration = msgspec.Raw(f"{ns // 1000}.{ns % 1000:03d}".encode())
    return msgspec.structs.replace(begin, ph="X", dur=duration)
