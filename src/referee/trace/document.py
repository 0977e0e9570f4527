"""Where in the text are the events, and what stands around them?

A trace is an object with the list ``traceEvents`` among its keys, or a bare list. The list is cut into pieces at places
that look like the boundary of two events. Whether a cut is one is proved by decoding: text that starts at a true
boundary and is a valid list once closed ends at a true boundary, since a bracket added inside a string or inside a
nested value can never complete a list.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import msgspec

from referee.errors import TraceError
from referee.trace.blob import Blob

_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_EDGE = re.compile(rb'\}\s*,\s*(?=\{\s*"(?:ph|name|cat|pid|tid|ts|dur|args|id|bp|s)")')
_SPACE = re.compile(rb"\s*")
_BOM = b"\xef\xbb\xbf"
_WINDOW = 1 << 16
HEAD_LIMIT = 1 << 26
"""How far into an object the event list is looked for at most: nobody's metadata is 64 MiB long."""

_KEYS = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, kw_only=True)
class Opening:
    """Where the list begins (just behind its bracket), and the keys before it; ``bare``: there is no object around."""

    start: int
    bare: bool
    keys: dict[str, Any]


def find_opening(blob: Blob, *, source: str) -> Opening:
    """Find the list of events. Raises :class:`~referee.errors.TraceError` with one sentence if there is none."""
    window = _WINDOW
    while True:
        head = blob.read(0, window)
        found = _opening_in(head, source=source)
        if found is not None:
            return found
        if window >= min(blob.size, HEAD_LIMIT):
            break
        window *= 8
    raise TraceError(
        f"{source} holds no list of events: no key traceEvents at its top level.",
        hint="Give a file written by torch.profiler (export_chrome_trace) or Kineto.",
    )


def _opening_in(head: bytes, *, source: str) -> Opening | None:
    begin = len(_BOM) if head.startswith(_BOM) else 0
    position = _skip_space(head, begin)
    mark = head[position : position + 1]
    if mark == b"[":
        return Opening(start=position + 1, bare=True, keys={})
    if mark != b"{":
        raise TraceError(
            f"{source} is not a trace: it does not begin with {{ or [.",
            hint="Give a file written by torch.profiler (export_chrome_trace) or Kineto.",
            offset=position,
        )
    for match in _KEY.finditer(head, position):
        keys = _keys_of(head[position : match.start()] + b'"traceEvents": []}')
        if keys is not None:
            return Opening(start=match.end(), bare=False, keys=keys)
    return None


def _skip_space(text: bytes, position: int) -> int:
    match = _SPACE.match(text, position)
    return position if match is None else match.end()


def find_edge(blob: Blob, near: int) -> int | None:
    """The first place at or after ``near`` that looks like the end of one event and the beginning of the next.

    Answers the offset just behind the first event's closing brace; ``None`` if there is none up to the end.
    """
    window = _WINDOW
    while near < blob.size:
        text = blob.read(near, window)
        match = _EDGE.search(text)
        if match is not None:
            return near + match.start() + 1
        if near + len(text) >= blob.size:
            return None
        window *= 4
    return None


def split_tail(body: bytes, *, bare: bool) -> tuple[bytes, dict[str, Any]] | None:
    """Text that starts at a boundary and goes to the end: the list in it, and the keys behind; ``None`` if damaged."""
    body = body.lstrip(b", \t\r\n")
    if bare:
        return b"[" + body, {}
    keys = _keys_of(b'{"traceEvents": [' + body, keep_events=True)
    if keys is None:
        return None
    events = bytes(keys.pop("traceEvents"))
    return events, keys


def _keys_of(text: bytes, *, keep_events: bool = False) -> dict[str, Any] | None:
    """The keys of an object and their values but for the events; ``None`` if the text is no object."""
    try:
        raw = _KEYS.decode(text)
        events = raw.pop("traceEvents", msgspec.Raw(b"[]"))
        keys: dict[str, Any] = {key: msgspec.json.decode(value) for key, value in raw.items()}
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    return keys | {"traceEvents": events} if keep_events else keys
