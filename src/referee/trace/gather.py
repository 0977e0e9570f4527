"""How do decoded pieces become one trace? Collects pieces, settles the base time, assembles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from referee.records.finding import Finding
from referee.records.provenance import Provenance
from referee.trace.assemble import EventTable, Labels, Surroundings, assemble
from referee.trace.columns import NONE, BoolColumn, CodeColumn, DeviceProperties, IntColumn, Trace
from referee.trace.decode import Half, Piece, Vocabulary, narrow, pair_halves
from referee.trace.lanes import Lanes, name_lanes
from referee.trace.noticed import Noticed
from referee.trace.numbers import Unusual

_LIMIT_NS = 1 << 62
"""Times further than this from the earliest one (146 years) are no times of this trace."""
_DAY_NS = 86_400 * 10**9
"""No recording lasts for a day."""


@dataclass(kw_only=True)
class Gathering:
    """What has been read so far of one source; pieces in the order of the file."""

    source: str
    words: Vocabulary = field(default_factory=Vocabulary)
    keys: dict[str, Any] = field(default_factory=dict)
    lean: bool = False
    """Ids, places and links take half the memory where they fit."""
    columns: GrowingColumns = field(init=False)
    halves: list[Half] = field(default_factory=list)
    lanes: Lanes = field(default_factory=Lanes)
    events: int = 0
    """How many events were read."""
    noticed: Noticed = field(default_factory=Noticed)

    def __post_init__(self) -> None:
        self.columns = GrowingColumns(lean=self.lean)

    def add(self, piece: Piece) -> None:
        """Take the next piece."""
        self.columns.append(piece, place=self.events)
        self.halves.extend(half._replace(place=half.place + self.events) for half in piece.halves)
        self.lanes.processes.update((as_text(process), name) for process, name in piece.processes)
        self.lanes.threads.update((as_pair(pair), name) for pair, name in piece.lanes)
        self.events += piece.events

    def finish(self, provenance: Provenance | None) -> Trace:
        """The trace. Raises :class:`~referee.errors.TraceError` if there is not one event."""
        if self.events == 0:
            raise self.noticed.nothing_read(self.source)
        findings = [*self.noticed.findings(self.events), *self._pair_halves()]
        base, table, labels, unusable = self._table()
        devices = device_properties(self.keys.pop("deviceProperties", None))
        surroundings = Surroundings(
            source=self.source,
            base_ns=base,
            events=self.events,
            devices=devices,
            metadata=self.keys,
            findings=(*findings, *unusable),
            provenance=provenance,
        )
        return assemble(table, labels=labels, surroundings=surroundings, lean=self.lean)

    def _pair_halves(self) -> tuple[Finding, ...]:
        """Begin and end events as rows; a finding on those that stay alone."""
        if not self.halves:
            return ()
        paired, alone = pair_halves(self.halves, words=self.words)
        # Their places are those of the file already.
        self.columns.append(paired, place=0)
        if not alone:
            return ()
        return (
            Finding(
                code="unpaired-events",
                severity="warning",
                message=f"{alone} begin or end events have no counterpart on their thread and were left out.",
                evidence={"events": alone},
            ),
        )

    def _table(self) -> tuple[int, EventTable, Labels, tuple[Finding, ...]]:
        columns = self.columns
        base, start, usable = rebase(columns.take("start_ns"), columns.unusual_start)
        usable[[at for at, exact in columns.unusual_duration.items() if exact is not None]] = False
        chosen: slice | BoolColumn = slice(None)
        findings: tuple[Finding, ...] = ()
        if not usable.all():
            findings = (_unusable(int((~usable).sum())),)
            chosen = usable
        name, names = recode(columns.take("name")[chosen], self.words.names, as_text)
        category, categories = recode(columns.take("category")[chosen], self.words.categories, as_text)
        thread, threads = recode(columns.take("thread")[chosen], self.words.threads, as_pair)
        device, stream = columns.take("device")[chosen], columns.take("stream")[chosen]
        categories = name_lanes(
            self.lanes,
            category=category,
            device=device,
            stream=stream,
            thread=thread,
            categories=categories,
            threads=threads,
        )
        rest = ("correlation", "external_id", "place")
        table = EventTable(
            start_ns=start[chosen],
            duration_ns=columns.take("duration_ns")[chosen],
            name=name,
            category=category,
            thread=thread,
            device=device,
            stream=stream,
            **{column: columns.take(column)[chosen] for column in rest},
        )
        return base, table, Labels(names=names, categories=categories, threads=threads), findings


def _unusable(lost: int) -> Finding:
    return Finding(
        code="unusable-times",
        severity="warning",
        message=f"{lost} events have a start or a duration that is no time, that is 0 although all others have one, or "
        "that lies 146 years away: left out.",
        evidence={"events": lost},
    )


class GrowingColumns:
    """The rows of all pieces, column by column, joined when they are taken.

    A ``lean`` one joins them as they come, in memory that grows at its end: of nothing there is ever a second copy.
    """

    _TYPES: ClassVar[dict[str, type[np.integer[Any]]]] = {
        "start_ns": np.int64,
        "duration_ns": np.int64,
        "name": np.int32,
        "category": np.int32,
        "thread": np.int32,
        "device": np.int32,
        "stream": np.int64,
        "correlation": np.int64,
        "external_id": np.int64,
        "place": np.int64,
    }

    _MAY_BE_NARROW: ClassVar[tuple[str, ...]] = ("stream", "correlation", "external_id", "place")
    _JOINED_ROWS: ClassVar[int] = 1 << 13
    """Rows that a lean one joins at a time."""

    def __init__(self, *, lean: bool) -> None:
        self._types = dict(self._TYPES) | dict.fromkeys(self._MAY_BE_NARROW if lean else (), np.int32)
        self._parts: dict[str, list[NDArray[Any]]] = {name: [] for name in self._TYPES}
        self._bytes: dict[str, bytearray] | None = {name: bytearray() for name in self._TYPES} if lean else None
        self.unusual_start: Unusual = {}
        self.unusual_duration: Unusual = {}
        self._rows = self._unjoined = 0

    def append(self, piece: Piece, *, place: int) -> None:
        """Add the rows of a piece whose first event is number ``place`` of the file."""
        for name, parts in self._parts.items():
            column = getattr(piece, name)
            parts.append(column.astype(np.int64) + place if name == "place" and place else column)
        self.unusual_start.update((self._rows + at, exact) for at, exact in piece.unusual_start.items())
        self.unusual_duration.update((self._rows + at, exact) for at, exact in piece.unusual_duration.items())
        self._rows += len(piece.name)
        self._unjoined += len(piece.name)
        if self._bytes is not None and self._unjoined >= self._JOINED_ROWS:
            for name, grown in self._bytes.items():
                self._join(name, grown)
            self._unjoined = 0

    def take(self, name: str) -> NDArray[Any]:
        """Hand out a column, for good."""
        if self._bytes is None:
            parts = self._parts.pop(name)
            return np.concatenate(parts, dtype=self._types[name]) if parts else np.empty(0, self._types[name])
        self._join(name, self._bytes[name])
        return np.frombuffer(self._bytes.pop(name), self._types[name])

    def _join(self, name: str, grown: bytearray) -> None:
        """Put the waiting parts of a column behind what is joined already."""
        if not self._parts[name]:
            return
        column = narrow(np.concatenate(self._parts[name]))
        self._parts[name].clear()
        if column.dtype == np.int64 and self._types[name] == np.int32:
            # This one does not fit: the column becomes a wide one from its beginning.
            grown[:] = np.frombuffer(bytes(grown), np.int32).astype(np.int64).data
            self._types[name] = np.int64
        grown += column.astype(self._types[name], copy=False).data


def as_text(value: Any) -> str:
    """A value as text; nothing reads as the empty text."""
    return "" if value is None else str(value)


def as_pair(value: tuple[Any, Any]) -> tuple[str, str]:
    """The pid and tid of a thread as text."""
    return as_text(value[0]), as_text(value[1])


def recode(codes: CodeColumn, values: Iterable[Any], label: Callable[[Any], Any]) -> tuple[CodeColumn, tuple[Any, ...]]:
    """Codes in order of first appearance, of values that differ as ``label`` writes them; and what they stand for.

    So that a trace has the same codes however its pieces were read.
    """
    known = list(values)
    first = np.full(len(known), NONE, np.int64)
    # Of several writes to one place numpy keeps the last: written from the end, the first appearance stays.
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    used = np.flatnonzero(first != NONE)
    used = used[np.argsort(first[used], kind="stable")]
    labels: dict[Any, int] = {}
    renamed = np.zeros(max(len(known), 1), np.int32)
    for code in used.tolist():
        renamed[code] = labels.setdefault(label(known[code]), len(labels))
    return np.take(renamed, codes, out=codes, mode="clip"), tuple(labels)


def rebase(start: IntColumn, unusual: Unusual) -> tuple[int, IntColumn, BoolColumn]:
    """The earliest start, all starts since it, and which of them can be used."""
    usable = np.ones(len(start), np.bool_)
    usable[list(unusual)] = False
    usable[_unwritten(start, usable)] = False
    exact = {at: value for at, value in unusual.items() if value is not None}
    lowest = [int(start[usable].min())] if usable.any() else []
    base = min([*lowest, *exact.values()], default=0)
    if abs(base) < _LIMIT_NS:
        # Starts are the caller's no longer: of a large trace there is no second copy.
        start -= base
        shifted = start
    else:
        # Further from zero than int64 can tell: the differences are formed with Python's integers.
        shifted = np.zeros(len(start), np.int64)
        exact |= {int(at): int(start[at]) for at in np.flatnonzero(usable)}
        usable[:] = False
    for at, value in exact.items():
        if value - base < _LIMIT_NS:
            shifted[at] = value - base
            usable[at] = True
    usable &= shifted < _LIMIT_NS
    return base, shifted, usable


def _unwritten(start: IntColumn, usable: BoolColumn) -> IntColumn:
    """Where a start is 0 and all others lie a day or more behind it: that is where a profiler had no time to write."""
    zero = np.flatnonzero(start == 0)
    zero = zero[usable[zero]]
    if not zero.size:
        return zero
    others = usable.copy()
    others[zero] = False
    apart = others.any() and int(start[others].min()) >= _DAY_NS
    return zero if apart else zero[:0]


def device_properties(stated: Any) -> tuple[DeviceProperties, ...]:
    """What ``deviceProperties`` says, as far as it has the form that Kineto writes."""
    entries: Sequence[Any] = stated if isinstance(stated, list) else ()
    return tuple(
        DeviceProperties(
            ordinal=entry["id"] if isinstance(entry.get("id"), int) else position,
            name=entry["name"] if isinstance(entry.get("name"), str) else None,
            sm_count=entry["numSms"] if isinstance(entry.get("numSms"), int) else None,
            raw=entry,
        )
        for position, entry in enumerate(entries)
        if isinstance(entry, dict)
    )
