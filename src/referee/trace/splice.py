"""Which values are in a list of events that is damaged somewhere? Those that the reader counts, in the same order.

The reader of columns goes the same way (:mod:`referee.trace.reader`): whole pieces where they are valid, and event by
event where they are not. Events therefore have the same places here and there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from referee.trace.blob import Blob
from referee.trace.document import Opening, split_tail
from referee.trace.pieces import plan_cuts
from referee.trace.salvage import walk

T = TypeVar("T")


def splice(
    blob: Blob, opening: Opening, *, decode: Callable[[bytes], list[T] | None], make: Callable[[dict[str, Any]], T]
) -> Iterator[T]:
    """The events behind ``opening``, whatever stands between them.

    ``decode`` takes a JSON list and answers ``None`` where it is not one of valid events; ``make`` takes one event that
    was read out of damaged text (its numbers as :func:`referee.trace.salvage.walk` hands them out).
    """
    cuts = plan_cuts(blob, opening.start)
    position, index = cuts[0], 0
    while index < len(cuts) - 1:
        events = decode(_as_list(blob.read(position, cuts[index + 1] - position)))
        if events is not None:
            yield from events
            index += 1
            position = cuts[index]
            continue
        found = walk(blob, start=position, stop=cuts[index + 1], make=make)
        yield from found.events
        if found.closed or found.exhausted:
            return
        position = found.end
        index = min(max(bisect_left(cuts, position + 1) - 1, index), len(cuts) - 1)
    last = split_tail(blob.read(position, blob.size - position), bare=opening.bare)
    events = decode(last[0]) if last else None
    yield from walk(blob, start=position, stop=blob.size, make=make).events if events is None else events


def _as_list(text: bytes) -> bytes:
    return b"[" + text.lstrip(b" \t\r\n").removeprefix(b",") + b"]"
