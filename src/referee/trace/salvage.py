"""What can be had from a list of events that is not valid JSON? Event by event, up to where it ends or breaks.

The typed decoder refuses a piece as a whole; this slower walk takes it apart with the standard library's scanner, which
tells where each value ends and lets control characters, ``NaN`` and ``Infinity`` pass. An event that even this cannot
read is tried once more with the quotes inside its texts escaped, and else skipped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from referee.trace.blob import Blob
from referee.trace.columns import NONE
from referee.trace.decode import EventArgs, FileEvent
from referee.trace.document import EVENT_KEY, read_tail
from referee.trace.nested import shallow
from referee.trace.requote import requote

_SPACE = re.compile(r"[\s,\x00]*")
_STRAY = re.compile(rf"\]\s*+(?:,\s*+)?(?=\{{\s*{EVENT_KEY})")
"""A closing bracket behind which further events stand. Possessive: a file may end in a megabyte of blanks."""
_VALUE = re.compile(r'[\[{"\-0-9tfnNI]')
_BOUNDARY = re.compile(r"\}\s*,\s*(?=\{\s*\")")
_CLOSE = re.compile(r"\}\s*(?=\])")
_LONGEST_INT = 40
"""Digits of an integer that is still read as one: longer ones are no id, and slow to convert."""
_MARGIN = 1 << 22
"""Text read beyond what is asked for, so that an event that crosses the limit can be completed; no valid event that
reaches further is completed where the text around it is not valid JSON."""
_MOST_CLOSES = 8
"""How many brackets are tried as the end of the list behind an event that cannot be read."""


class _Number(str):
    """The text of a number that must not pass through a float."""

    __slots__ = ()


def _whole(text: str) -> int | _Number:
    return int(text) if len(text) <= _LONGEST_INT else _Number(text)


_SCANNER = json.JSONDecoder(parse_float=_Number, parse_int=_whole, parse_constant=_Number, strict=False)
_VALID = msgspec.json.Decoder(msgspec.Raw)


@dataclass(kw_only=True)
class Walk:
    """What a walk found. Offsets are bytes from the start of the text."""

    events: list[Any] = field(default_factory=list)
    """What the walk was told to make of each event."""
    skipped: list[int] = field(default_factory=list)
    """Where each event began that could not be read."""
    repaired: list[int] = field(default_factory=list)
    """Where each event began that is not valid JSON and was read all the same."""
    strangers: list[int] = field(default_factory=list)
    """Where each entry of the list began that is a value of its own, but no object: no event."""
    deep: list[int] = field(default_factory=list)
    """Where each event began of which values nested too deeply were left out."""
    end: int = 0
    """Where the last whole event ended, or the bracket that closes the list."""
    closed: bool = False
    """The list's closing bracket was reached."""
    exhausted: bool = False
    """The text ended before the list did."""


def walk(blob: Blob, *, start: int, stop: int, make: Callable[[dict[str, Any]], Any] | None = None) -> Walk:
    """Read events from ``start`` (just behind the opening bracket or an event) until one ends at or after ``stop``.

    ``make`` says what to make of each, :func:`as_event` if it is not given; numbers of its argument are ``int`` where
    they are whole, and else the text that stands in the file (see :func:`plain`).
    Never raises for what stands in the text: an event that cannot be read is skipped up to the next thing that looks
    like the beginning of one, and noted.
    """
    return _Walker(blob, start, make or as_event).run(stop)


class _Walker:
    """Where a walk is: a window of decoded text, the position in it, and the byte of the file that this is."""

    def __init__(self, blob: Blob, start: int, make: Callable[[dict[str, Any]], Any]) -> None:
        self._blob = blob
        self._make = make
        self._at = start
        self._position = 0
        self._text = ""
        self._found = Walk(end=start)

    def run(self, stop: int) -> Walk:
        """Walk until an event ends at or after byte ``stop``, or the list ends."""
        self._load(stop - self._at + _MARGIN)
        while self._step(stop):
            pass
        return self._found

    def _load(self, size: int) -> None:
        # Bytes that are no UTF-8 become lone surrogates, one each, so that positions can be counted back into bytes.
        self._text = self._blob.read(self._at, size).decode("utf-8", "surrogateescape")
        self._position = 0

    def _advance(self, position: int) -> None:
        passed = self._text[self._position : position]
        self._at += len(passed) if passed.isascii() else len(passed.encode("utf-8", "surrogateescape"))
        self._position = position

    def _step(self, stop: int) -> bool:
        """Take the next event; whether there may be another one."""
        found = self._found
        space = _SPACE.match(self._text, self._position)
        self._advance(space.end() if space else self._position)
        if self._position >= len(self._text):
            if self._at >= self._blob.size:
                found.exhausted = True
                return False
            self._load(_MARGIN)
            return True
        if "\0" in (space.group() if space else ""):
            found.repaired.append(self._at)
        if self._text[self._position] == "]":
            stray = _STRAY.match(self._text, self._position)
            if stray:
                found.repaired.append(self._at)
                self._advance(stray.end())
                return True
            self._advance(self._position + 1)
            found.closed, found.end = True, self._at
            return False
        if self._at >= stop:
            return False
        return self._take_event()

    def _take_event(self) -> bool:
        """Read the event here, or skip it."""
        read = _scan(self._text, self._position)
        if read is None and len(self._text) - self._position < _MARGIN and self._window_ends_early():
            self._load(_MARGIN)
            read = _scan(self._text, self._position)
        if read is None:
            return self._take_damaged()
        began = self._at
        if not isinstance(read.value, dict):
            self._found.strangers.append(began)
            self._advance(read.end)
            self._found.end = self._at
            return True
        if read.deep:
            self._found.deep.append(began)
        elif not _is_valid(self._text[self._position : read.end]):
            self._found.repaired.append(began)
        self._keep(read.value, read.end)
        return True

    def _window_ends_early(self) -> bool:
        rest = self._text[self._position :]
        return self._at + len(rest.encode("utf-8", "surrogateescape")) < self._blob.size

    def _keep(self, value: dict[str, Any], after: int) -> None:
        self._advance(after)
        self._found.events.append(self._make(value))
        self._found.end = self._at

    def _take_damaged(self) -> bool:
        """Repair or skip the event here, up to the next boundary or the end of the list; whether there is one."""
        boundary = _BOUNDARY.search(self._text, self._position + 1)
        close = self._closing() if boundary is None else None
        if boundary is None and close is None:
            self._found.exhausted = True
            return False
        end = boundary.start() + 1 if boundary else (close or 0)
        read = _scan(requote(self._text[self._position : end]), 0)
        if read is None or not isinstance(read.value, dict):
            self._found.skipped.append(self._at)
            self._advance(end)
            self._found.end = self._at
        else:
            self._found.repaired.append(self._at)
            self._keep(read.value, end)
        return True

    def _closing(self) -> int | None:
        """Where the event here ends, if what follows is the end of the list and of the file; else the text is cut."""
        for match in list(_CLOSE.finditer(self._text, self._position))[-_MOST_CLOSES:]:
            behind = self._text[match.end() + 1 :].encode("utf-8", "surrogateescape")
            tail = read_tail(behind, bare=False)
            if (tail.end is not None and not tail.unread) or not behind.strip():
                return match.start() + 1
        return None


@dataclass(frozen=True, kw_only=True)
class _Read:
    """A value, where it ends, and whether something in it was nested too deeply and left out."""

    value: Any
    end: int
    deep: bool = False


def _scan(text: str, position: int) -> _Read | None:
    """The value that begins at ``position``; ``None`` if none can be read there."""
    if _VALUE.match(text, position) is None:
        return None
    try:
        value, end = _SCANNER.raw_decode(text, position)
        return _Read(value=value, end=end)
    except ValueError:
        return None
    except RecursionError:
        flat = shallow(text, position)
    try:
        return _Read(value=_SCANNER.decode(flat[0]), end=flat[1], deep=True) if flat else None
    except (ValueError, RecursionError):
        return None


def _is_valid(text: str) -> bool:
    try:
        _VALID.decode(text.encode("utf-8"))
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return False
    return True


def as_event(value: dict[str, Any]) -> FileEvent:
    """A decoded object as an event."""
    args = value.get("args")
    return FileEvent(
        ph=value.get("ph"),
        cat=_clean(value.get("cat")),
        name=_clean(value.get("name")),
        pid=_clean(value.get("pid")),
        tid=_clean(value.get("tid")),
        ts=number_text(value.get("ts")),
        dur=number_text(value.get("dur")),
        args=_args(args) if isinstance(args, dict) else EventArgs(),
    )


def _args(args: dict[str, Any]) -> EventArgs:
    return EventArgs(
        correlation=args.get("correlation", NONE),
        external_id=args.get("External id", NONE),
        old_external_id=args.get("external id", NONE),
        device=args.get("device", NONE),
        stream=args.get("stream", NONE),
        connection=args.get("connection_id", NONE),
        name=_clean(args.get("name")),
    )


def number_text(value: Any) -> msgspec.Raw:
    """The text of a time; empty if the value is none."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return msgspec.Raw(b"")
    return msgspec.Raw(str(value).encode("utf-8", "replace").replace(b"\n", b" "))


def _clean(value: Any) -> Any:
    """A text without what is not UTF-8; other values as they are."""
    return value.encode("utf-8", "surrogatepass").decode("utf-8", "replace") if isinstance(value, str) else value


def plain(value: Any, *, levels: int = 3) -> Any:
    """A value of a walk with its numbers as numbers, in lists too, as far as so many levels inside."""
    if isinstance(value, _Number):
        return float(value)
    if isinstance(value, list) and levels > 0:
        return [plain(entry, levels=levels - 1) for entry in value]
    return _clean(value)
