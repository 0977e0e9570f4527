"""What does this file hold? ``read_trace``: a profiler's trace file as a :class:`~referee.trace.columns.Trace`.

Kineto's and Chrome's JSON, plain or gzip: an object with ``traceEvents`` or a bare list, complete events or begin/end
pairs, times in decimal microseconds (as numbers or text), old and new names of categories. Times become integer
nanoseconds from the text of each number.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec

from referee.records.provenance_file import load_provenance
from referee.trace.columns import Trace
from referee.trace.decode import EVENTS, FileEvent
from referee.trace.document import Opening, find_edge, find_opening, split_tail
from referee.trace.gather import Gathering
from referee.trace.salvage import walk
from referee.trace.source import read_text

PIECE_BYTES = 1 << 24
"""How much text is decoded at a time: bounds the memory that Python objects take at once."""


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """Read the trace file at ``path``.

    A file that ends in the middle gives what is there and the finding ``truncated``; a file without a single whole
    event, or that is no trace at all, raises :class:`~referee.errors.TraceError` with one sentence.
    """
    source = os.fspath(path)
    text = read_text(source)
    gathering = gather(text.data, source=source, cut_short=text.cut_short)
    return gathering.finish(load_provenance(source))


def parse_trace(data: bytes, *, source: str = "<memory>") -> Trace:
    """Read a trace from the bytes of a JSON file; see :func:`read_trace`."""
    return gather(data, source=source).finish(None)


def gather(data: bytes, *, source: str, cut_short: bool = False) -> Gathering:
    """Collect the events of a JSON file's bytes; ``cut_short``: they are known to be only the beginning of it."""
    gathering = Gathering(source=source)
    opening = find_opening(data, source=source)
    gathering.keys.update(opening.keys)
    position = _gather_pieces(data, opening, gathering)
    if cut_short and not gathering.truncated:
        gathering.truncated_at(len(data), after=position)
    return gathering


def _gather_pieces(data: bytes, opening: Opening, gathering: Gathering) -> int:
    """Decode the list piece by piece; answers where it ended."""
    position = opening.start
    while (edge := find_edge(data, position + PIECE_BYTES)) is not None:
        events = _decode(b"[" + data[position:edge].lstrip(b", \n\r\t") + b"]")
        if events is None:
            position, ended = _walk(data, position, edge, opening, gathering)
            if ended:
                return position
        else:
            gathering.add_events(events)
            position = edge
    last = split_tail(data, position, bare=opening.bare)
    events = _decode(last[0]) if last else None
    if last is None or events is None:
        return _walk(data, position, len(data), opening, gathering)[0]
    gathering.keys.update(last[1])
    gathering.add_events(events)
    return len(data)


def _decode(text: bytes) -> list[FileEvent] | None:
    """The events of a closed list; ``None`` if it is none, or holds values of unexpected types."""
    try:
        return EVENTS.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None


def _walk(data: bytes, start: int, stop: int, opening: Opening, gathering: Gathering) -> tuple[int, bool]:
    """Take a stretch event by event; answers where that ended, and whether it was the end of the list."""
    found = walk(data, start=start, stop=stop)
    gathering.add_events(found.events)
    gathering.skipped.extend(found.skipped)
    gathering.repaired.extend(found.repaired)
    if found.exhausted:
        gathering.truncated_at(len(data), after=found.end)
    if found.closed and not opening.bare:
        tail = _tail_keys(data, found.end)
        if tail is None:
            gathering.truncated_at(len(data), after=found.end)
        else:
            gathering.keys.update(tail)
    return found.end, found.closed or found.exhausted


def _tail_keys(data: bytes, end: int) -> dict[str, Any] | None:
    """The keys behind the closing bracket at ``end``."""
    tail = split_tail(b"]" + data[end:], 0, bare=False)
    return None if tail is None else tail[1]
