"""What can be had from a list of events that is not valid JSON? Event by event, up to where it ends or breaks.

The typed decoder refuses a piece as a whole; this slower walk takes it apart with the standard library's scanner, which
tells where each value ends and lets control characters, ``NaN`` and ``Infinity`` pass.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from referee.trace.columns import NONE
from referee.trace.decode import EventArgs, FileEvent

_SPACE = re.compile(r"[\s,]*")
_BOUNDARY = re.compile(r"\}\s*,\s*(?=\{\s*\")")
_LONGEST_INT = 40
"""Digits of an integer that is still read as one: longer ones are no id, and slow to convert."""


class _Number(str):
    """The text of a number that must not pass through a float."""

    __slots__ = ()


def _whole(text: str) -> int | _Number:
    return int(text) if len(text) <= _LONGEST_INT else _Number(text)


_SCANNER = json.JSONDecoder(parse_float=_Number, parse_int=_whole, parse_constant=_Number, strict=False)


@dataclass(kw_only=True)
class Walk:
    """What a walk found. Offsets are bytes from the start of the text that was given."""

    events: list[FileEvent] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    """For each event its number in the list, skipped ones counted."""
    seen: int = 0
    skipped: list[int] = field(default_factory=list)
    """Where each event began that could not be read."""
    repaired: list[int] = field(default_factory=list)
    end: int = 0
    """Where the last whole event ended, or the bracket that closes the list."""
    closed: bool = False
    """The list's closing bracket was reached."""
    exhausted: bool = False
    """The text ended before the list did."""


def walk(text: bytes, *, start: int, stop: int) -> Walk:
    """Read events from ``start`` (just behind the opening bracket or an event) until one ends at or after ``stop``.

    Never raises for what stands in the text: an event that cannot be read is skipped up to the next thing that looks
    like the beginning of one, and counted.
    """
    chunk = text[start:].decode("utf-8", "surrogateescape")
    result = Walk(end=start)
    position, limit = 0, len(text[start:stop].decode("utf-8", "surrogateescape"))
    done = 0
    while True:
        match = _SPACE.match(chunk, position)
        position = match.end() if match else position
        if position >= len(chunk):
            result.exhausted = True
            break
        if chunk[position] == "]":
            result.closed = True
            result.end = start + _bytes(chunk[: position + 1])
            break
        if position >= limit:
            break
        value, after = _scan(chunk, position)
        if after is None:
            boundary = _BOUNDARY.search(chunk, position + 1)
            if boundary is None:
                result.exhausted = True
                break
            result.skipped.append(start + _bytes(chunk[:position]))
            after = boundary.end()
        else:
            result.events.append(as_event(value))
            result.places.append(result.seen)
            done = after
        result.seen += 1
        position = after
    if not result.closed:
        result.end = start + _bytes(chunk[:done])
    return result


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogateescape"))


def _scan(chunk: str, position: int) -> tuple[Any, int | None]:
    """The object that begins at ``position`` and where it ends; ``None`` for the end if none can be read there."""
    if chunk[position] != "{":
        return None, None
    try:
        return _SCANNER.raw_decode(chunk, position)
    except (ValueError, RecursionError):
        return None, None


def as_event(value: dict[str, Any]) -> FileEvent:
    """A decoded object as an event."""
    args = value.get("args")
    return FileEvent(
        ph=value.get("ph"),
        cat=_clean(value.get("cat")),
        name=_clean(value.get("name")),
        pid=_clean(value.get("pid")),
        tid=_clean(value.get("tid")),
        ts=_number(value.get("ts")),
        dur=_number(value.get("dur")),
        args=_args(args) if isinstance(args, dict) else EventArgs(),
    )


def _args(args: dict[str, Any]) -> EventArgs:
    return EventArgs(
        correlation=args.get("correlation", NONE),
        external_id=args.get("External id", NONE),
        old_external_id=args.get("external id", NONE),
        device=args.get("device", NONE),
        stream=args.get("stream", NONE),
    )


def _number(value: Any) -> msgspec.Raw:
    """The text of a time; empty if the value is none."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return msgspec.Raw(b"")
    return msgspec.Raw(str(value).encode("utf-8", "replace").replace(b"\n", b" "))


def _clean(value: Any) -> Any:
    """A text without what is not UTF-8; other values as they are."""
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace") if isinstance(value, str) else value


def decode_loosely(text: bytes) -> Sequence[FileEvent] | None:
    """Events of a piece that is valid JSON but holds values of unexpected types; ``None`` if it is not valid JSON."""
    try:
        values = msgspec.json.decode(text, type=list[msgspec.Raw])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    result = walk(text, start=1, stop=len(text))
    return result.events if len(result.events) == len(values) else None
