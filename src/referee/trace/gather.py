"""How do decoded pieces become one trace? Collects pieces and what was noticed, settles the base time, assembles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from referee.errors import TraceError
from referee.records.finding import Finding, Scalar, Severity
from referee.records.provenance import Provenance
from referee.trace.assemble import EventTable, Labels, Surroundings, assemble
from referee.trace.columns import NONE, BoolColumn, CodeColumn, DeviceProperties, IntColumn, Trace
from referee.trace.decode import FileEvent, Piece, Vocabulary, pair_halves, tabulate
from referee.trace.numbers import Unusual

_LIMIT_NS = 1 << 62
"""Times further than this from the earliest one (146 years) are no times of this trace."""


@dataclass(kw_only=True)
class Gathering:
    """What has been read so far of one source."""

    source: str
    words: Vocabulary = field(default_factory=Vocabulary)
    keys: dict[str, Any] = field(default_factory=dict)
    pieces: list[Piece] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    events: int = 0
    truncated: bool = False
    skipped: list[int] = field(default_factory=list)
    """Byte offsets of events that could not be read."""
    repaired: list[int] = field(default_factory=list)
    """Byte offsets of text that was read although it is not valid JSON."""

    def add_events(self, events: Sequence[FileEvent]) -> None:
        """Take the next events of the file."""
        self.pieces.append(tabulate(events, words=self.words, first_place=self.events))
        self.events += len(events)

    def note(self, code: str, severity: Severity, message: str, *, hint: str = "", **evidence: Scalar) -> None:
        """Add a finding."""
        self.findings.append(Finding(code=code, severity=severity, message=message, evidence=evidence, hint=hint))

    def truncated_at(self, byte: int, *, after: int) -> None:
        """Say that the text ends at ``byte``, the last whole event having ended at ``after``."""
        self.truncated = True
        self.note(
            "truncated",
            "warning",
            f"The file ends in the middle, at byte {byte}: the {self.events} events before byte {after} were read.",
            hint="Was the disk full, or the process killed while it wrote? Totals are those of the part that is there.",
            byte=byte,
            last_event_end=after,
            events=self.events,
        )

    def finish(self, provenance: Provenance | None) -> Trace:
        """The trace. Raises :class:`~referee.errors.TraceError` if there is not one event."""
        if self.events == 0:
            raise TraceError(
                f"{self.source} ends before its first whole event."
                if self.truncated
                else f"{self.source} holds no events.",
                hint="Was the profiler's schedule active while it recorded?",
            )
        self._pair_halves()
        self._note_repairs()
        base, table = self._table()
        devices = device_properties(self.keys.pop("deviceProperties", None))
        surroundings = Surroundings(
            source=self.source,
            base_ns=base,
            events=self.events,
            devices=devices,
            metadata=self.keys,
            findings=tuple(self.findings),
            provenance=provenance,
        )
        return assemble(table, labels=self._labels(), surroundings=surroundings)

    def _pair_halves(self) -> None:
        halves = [half for piece in self.pieces for half in piece.halves]
        if not halves:
            return
        paired, alone = pair_halves(halves, words=self.words)
        self.pieces.append(paired)
        if alone:
            self.note(
                "unpaired-events",
                "warning",
                f"{alone} begin or end events have no counterpart on their thread and were left out.",
                events=alone,
            )

    def _note_repairs(self) -> None:
        for code, offsets, said in (
            (
                "repaired",
                self.repaired,
                "The text is not valid JSON in {n} places, the first at byte {at}: read anyway.",
            ),
            ("skipped-events", self.skipped, "{n} events could not be read, the first at byte {at}: left out."),
        ):
            if offsets:
                message = said.format(n=len(offsets), at=offsets[0])
                self.note(code, "warning", message, places=len(offsets), byte=offsets[0])

    def _table(self) -> tuple[int, EventTable]:
        start, unusual_start = self._times(lambda piece: (piece.start_ns, piece.unusual_start))
        duration, unusual_duration = self._times(lambda piece: (piece.duration_ns, piece.unusual_duration))
        base, start, usable = rebase(start, unusual_start)
        missing = [at for at, exact in unusual_duration.items() if exact is not None]
        usable[missing] = False
        if not usable.all():
            lost = int((~usable).sum())
            self.note(
                "unusable-times",
                "warning",
                f"{lost} events have a start or a duration that is no time, or lies 146 years away: left out.",
                events=lost,
            )
        table = EventTable(
            start_ns=start[usable],
            duration_ns=duration[usable],
            name=self._column(lambda piece: piece.name)[usable],
            category=self._column(lambda piece: piece.category)[usable],
            thread=self._threads()[usable],
            device=self._column(lambda piece: piece.device).astype(np.int32)[usable],
            stream=self._column(lambda piece: piece.stream)[usable],
            correlation=self._column(lambda piece: piece.correlation)[usable],
            external_id=self._column(lambda piece: piece.external_id)[usable],
            place=self._column(lambda piece: piece.place)[usable],
        )
        return base, table

    def _column(self, take: Callable[[Piece], NDArray[Any]]) -> NDArray[Any]:
        return np.concatenate([take(piece) for piece in self.pieces])

    def _times(self, take: Callable[[Piece], tuple[IntColumn, Unusual]]) -> tuple[IntColumn, Unusual]:
        """One column of times over all pieces, and its unusual values by position in it."""
        unusual: Unusual = {}
        offset = 0
        for piece in self.pieces:
            column, own = take(piece)
            unusual.update((offset + at, exact) for at, exact in own.items())
            offset += len(column)
        return self._column(lambda piece: take(piece)[0]), unusual

    def _threads(self) -> CodeColumn:
        """The code of each row's pair of process and thread."""
        pid, tid = self._column(lambda piece: piece.pid), self._column(lambda piece: piece.tid)
        width = max(len(self.words.tids), 1)
        pair = pid.astype(np.int64) * width + tid
        # The first appearance of each pair: of several writes to one place numpy keeps the last.
        first = np.full(max(len(self.words.pids), 1) * width, NONE, np.int64)
        first[pair[::-1]] = np.arange(len(pair))[::-1]
        pairs = np.flatnonzero(first != NONE)
        pairs = pairs[np.argsort(first[pairs], kind="stable")]
        pids, tids = as_texts(self.words.pids), as_texts(self.words.tids)
        labels: dict[tuple[str, str], int] = {}
        code = np.zeros(len(first), np.int32)
        for one in pairs.tolist():
            code[one] = labels.setdefault((pids[one // width], tids[one % width]), len(labels))
        self._thread_labels = tuple(labels)
        return np.asarray(code[pair], np.int32)

    def _labels(self) -> Labels:
        return Labels(
            names=as_texts(self.words.names),
            categories=as_texts(self.words.categories),
            threads=self._thread_labels,
        )


def as_texts(codes: Mapping[Any, int]) -> tuple[str, ...]:
    """Values in order of their codes, as text; nothing reads as the empty text."""
    return tuple("" if value is None else str(value) for value in codes)


def rebase(start: IntColumn, unusual: Unusual) -> tuple[int, IntColumn, BoolColumn]:
    """The earliest start, all starts since it, and which of them can be used."""
    usable = np.ones(len(start), np.bool_)
    usable[list(unusual)] = False
    exact = {at: value for at, value in unusual.items() if value is not None}
    lowest = [int(start[usable].min())] if usable.any() else []
    base = min([*lowest, *exact.values()], default=0)
    # Both are within 2^62 of zero, or the difference is formed with Python's integers.
    if abs(base) < _LIMIT_NS:
        shifted = start - base
    else:
        shifted = np.zeros(len(start), np.int64)
        far = np.flatnonzero(usable)
        exact |= {int(at): int(start[at]) for at in far}
        usable[far] = False
    for at, value in exact.items():
        if value - base < _LIMIT_NS:
            shifted[at] = value - base
            usable[at] = True
    usable &= shifted < _LIMIT_NS
    return base, shifted, usable


def device_properties(stated: Any) -> tuple[DeviceProperties, ...]:
    """What ``deviceProperties`` says, as far as it has the form that Kineto writes."""
    if not isinstance(stated, list):
        return ()
    return tuple(
        DeviceProperties(
            ordinal=entry["id"] if isinstance(entry.get("id"), int) else position,
            name=entry["name"] if isinstance(entry.get("name"), str) else None,
            sm_count=entry["numSms"] if isinstance(entry.get("numSms"), int) else None,
            raw=entry,
        )
        for position, entry in enumerate(stated)
        if isinstance(entry, dict)
    )
