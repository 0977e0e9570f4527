"""What does this file hold? ``read_trace``: a profiler's trace file as a :class:`~referee.trace.columns.Trace`.

Kineto's and Chrome's JSON, plain or gzip: an object with ``traceEvents`` or a bare list, complete events or begin/end
pairs, times in decimal microseconds (as numbers or text), old and new names of categories. Times become integer
nanoseconds from the text of each number. Reports of Nsight Systems that were exported as SQLite are read as well.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace

from referee.errors import TraceError
from referee.records.provenance import Provenance
from referee.records.provenance_file import load_provenance
from referee.trace.blob import Blob, MemoryBlob
from referee.trace.columns import Trace
from referee.trace.crew import read_ahead
from referee.trace.decode import Piece, decode, tabulate
from referee.trace.document import Opening, Tail, find_opening, read_tail, split_tail
from referee.trace.gather import Gathering
from referee.trace.memory import collector_paused, return_large_blocks
from referee.trace.noticed import Noticed
from referee.trace.pieces import PieceReader, plan_cuts
from referee.trace.salvage import walk
from referee.trace.source import open_packed
from referee.trace.steps import believe_record
from referee.trace.unpack import SQLITE, Text


def read_trace(
    path: str | os.PathLike[str],
    *,
    lean: bool = False,
    cache: str | os.PathLike[str] | None = None,
    meanwhile: Callable[[], object] | None = None,
) -> Trace:
    """Read the trace file at ``path``; ``lean`` takes less memory, and one process alone.

    A lean trace has 32-bit ids and row numbers where they fit, and the process that reads one keeps no freed memory:
    a full diagnosis of a file of a million events stays under 150 MB. ``cache`` is a directory for the columns of
    files that were read, by their bytes: the same bytes are not decoded twice (see :mod:`referee.trace.cache`).
    ``meanwhile`` is called here while another process is already decoding; where there is none, it is not called.

    A file that ends in the middle gives what is there and the finding ``truncated``; a file without a single whole
    event, or that is no trace at all, raises :class:`~referee.errors.TraceError` with one sentence.
    """
    source = os.fspath(path)
    if lean:
        return_large_blocks()
    with open_packed(source) as packed:
        provenance, entry = load_provenance(source), None
        if cache is not None:
            from referee.trace.cache import Entry

            entry = Entry.of(packed, folder=cache, lean=lean)
            if (kept := entry.load(source=source, provenance=provenance)) is not None:
                return _told(kept)
        found = _read(packed.unpack(), source=source, lean=lean, provenance=provenance, meanwhile=meanwhile)
        if entry is not None and not entry.unchanged(packed.blob):
            entry = None
    trace = _linked(found.finish(provenance)) if isinstance(found, Gathering) else found
    return _told(trace if entry is None else entry.keep(trace))


def _linked(trace: Trace) -> Trace:
    """The trace, tied by its arrows where its device rows carry no ids."""
    from referee.trace.flows import link_by_flows, may_need_flows

    if not may_need_flows(trace):
        return trace
    from referee.trace.details import flows_of

    return link_by_flows(trace, flows_of(trace))


def _told(trace: Trace) -> Trace:
    """The trace with what its capture knew of it, if the record of one lies beside it."""
    from referee.records.recording import load_recording  # brings all records with it, which decoding does not need

    told = load_recording(trace.source)
    if told.recording is not None:
        trace = believe_record(trace, told.recording.iterations)
    return replace(trace, recording=told.recording, findings=(*trace.findings, *told.findings))


def _read(
    text: Text, *, source: str, lean: bool, provenance: Provenance | None, meanwhile: Callable[[], object] | None
) -> Gathering | Trace:
    """The events of a text, of which a trace is made once the text is closed; or the trace of a database."""
    if text.blob.read(0, len(SQLITE)) == SQLITE:
        from referee.trace.nsys import read_nsys

        trace = read_nsys(text.blob, source=source, provenance=provenance)
        return replace(trace, findings=(*Noticed.of(text).findings(trace.events), *trace.findings))
    return gather(text, source=source, lean=lean, meanwhile=meanwhile)


def parse_trace(data: bytes, *, source: str = "<memory>") -> Trace:
    """Read a trace from the bytes of a JSON file; see :func:`read_trace`."""
    return gather(Text(blob=MemoryBlob(data)), source=source).finish(None)


def gather(text: Text, *, source: str, lean: bool = False, meanwhile: Callable[[], object] | None = None) -> Gathering:
    """Collect the events of a JSON text; ``meanwhile`` as in :func:`read_trace`."""
    blob = text.blob
    gathering = Gathering(source=source, lean=lean, noticed=Noticed.of(text))
    try:
        opening = find_opening(blob, source=source)
    except TraceError as error:
        if text.damage is None or error.offset != blob.size:
            raise
        raise gathering.noticed.nothing_read(source) from error
    gathering.keys.update(opening.keys)
    gathering.noticed.unread_keys |= opening.unread
    with collector_paused():
        cuts = plan_cuts(blob, opening.start)
        ahead = {} if lean else read_ahead(blob, cuts, words=gathering.words, meanwhile=meanwhile)
        _Splicer(blob, opening, gathering).run(cuts, ahead)
    return gathering


class _Splicer:
    """Joins the pieces that were read between cuts, proving each cut by the pieces before it.

    A piece counts if it starts where the list or a piece that counts ended. Where one was refused, events are taken one
    by one until one ends at or behind the next cut; pieces count again from the first cut that is met exactly.
    """

    def __init__(self, blob: Blob, opening: Opening, gathering: Gathering) -> None:
        self._blob = blob
        self._opening = opening
        self._gathering = gathering
        self._reader = PieceReader(blob, gathering.words)

    def run(self, cuts: Sequence[int], ahead: dict[int, Piece | None]) -> None:
        """Take all pieces and the rest behind the last cut.

        ``ahead`` holds what was read already of the stretches from one cut to the next, by their numbers.
        """
        position, index = cuts[0], 0
        while index < len(cuts) - 1:
            if position == cuts[index] and index in ahead:
                piece = ahead.pop(index)
            else:
                piece = self._reader.read(position, cuts[index + 1])
            if piece is not None:
                self._gathering.add(piece)
                index += 1
                position = cuts[index]
                continue
            position, ended = self._walk(position, cuts[index + 1])
            if ended:
                return
            index = min(max(bisect_left(cuts, position + 1) - 1, index), len(cuts) - 1)
        self._rest(position)

    def _rest(self, position: int) -> None:
        """The last events and what stands behind the list."""
        body = self._blob.read(position, self._blob.size - position)
        last = split_tail(body, bare=self._opening.bare)
        piece = decode(last[0], words=self._gathering.words) if last else None
        if last is None or piece is None:
            self._walk(position, self._blob.size)
            return
        self._gathering.keys.update(last[1])
        self._gathering.add(piece)

    def _walk(self, start: int, stop: int) -> tuple[int, bool]:
        """Take a stretch event by event; answers where that ended, and whether it was the end of the list."""
        gathering, blob = self._gathering, self._blob
        found = walk(blob, start=start, stop=stop)
        gathering.add(tabulate(found.events, words=gathering.words))
        gathering.noticed.add(found)
        if found.exhausted:
            gathering.noticed.ends_early(blob, after=found.end)
        elif found.closed:
            rest = blob.read(found.end, blob.size - found.end)
            self._take_tail(rest, read_tail(rest, bare=self._opening.bare), at=found.end)
        return found.end, found.closed or found.exhausted

    def _take_tail(self, rest: bytes, tail: Tail, *, at: int) -> None:
        """Take the keys behind the list, which ended at byte ``at``, and notice what stands behind the document."""
        noticed = self._gathering.noticed
        self._gathering.keys.update(tail.keys)
        noticed.unread_keys |= tail.unread
        if tail.end is None:
            noticed.ends_early(self._blob, after=at + tail.read, keys=tuple(tail.keys))
        else:
            noticed.trails(rest[tail.end :], at=at + tail.end)
