"""Where in the text are the events, and what stands around them?

A trace is an object with the list ``traceEvents`` among its keys, or a bare list. The list is cut into pieces at places
that look like the boundary of two events. Whether a cut is one is proved by decoding: text that starts at a true
boundary and is a valid list once closed ends at a true boundary, since a bracket added inside a string or inside a
nested value can never complete a list.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import msgspec

from referee.errors import TraceError
from referee.trace.blob import Blob
from referee.trace.nested import end_of_object, end_of_values, shallow, value_of_key

_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
EVENT_KEY = '"(?:ph|name|cat|pid|tid|ts|dur|args|id|bp|s)"'
"""What an event begins with, behind its brace."""
_EDGE = re.compile(rf"\}}\s*,\s*(?=\{{\s*{EVENT_KEY})".encode())
_SPACE = re.compile(rb"\s*")
_BOM = b"\xef\xbb\xbf"
_WINDOW = 1 << 16
_EVENT_WINDOW = 1 << 12
"""Where an edge between two events is looked for first: most events are a few hundred bytes long."""
HEAD_LIMIT = 1 << 26
"""How far into an object the event list is looked for at most: nobody's metadata is 64 MiB long."""

_SEARCH_LIMIT = 1 << 23
"""How far into an object that is not valid JSON its list is looked for."""
_HINT = "Give a file written by torch.profiler (export_chrome_trace) or Kineto."

_NSYS = ("it is a report of Nsight Systems", "Export it with: nsys export --type sqlite REPORT.nsys-rep")
_OTHER_FILES = {
    ".nsys-rep": _NSYS,
    ".qdrep": _NSYS,
    ".xplane.pb": ("it is XLA's own format", "Give the .trace.json.gz that lies beside it."),
    ".pftrace": ("it is Perfetto's own format", "Convert it with: traceconv json TRACE OUT.json"),
    ".perfetto-trace": ("it is Perfetto's own format", "Convert it with: traceconv json TRACE OUT.json"),
    ".pickle": ("it is a pickle, as of a memory snapshot", _HINT),
    ".pkl": ("it is a pickle, as of a memory snapshot", _HINT),
}
"""Files that people have beside a trace, by how their names end."""
_MARKUP = re.compile(rb"(?i)<(?:!doctype|html|\?xml|head|body)")

_KEYS = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, kw_only=True)
class Opening:
    """Where the list begins (just behind its bracket), and the keys before it; ``bare``: there is no object around."""

    start: int
    bare: bool
    keys: dict[str, Any]
    unread: bool = False
    """The keys before the list are not valid JSON, and were read in part or not at all."""


@dataclass(frozen=True, kw_only=True)
class Tail:
    """What stands behind the bracket that closes the list."""

    keys: dict[str, Any]
    end: int | None
    """How many bytes of it belong to the document; ``None``: the text ends before the document does."""
    read: int = 0
    """Where it ends early: how many bytes of it were read, up to the end of the last whole value."""
    unread: bool = False
    """The keys behind the list are not valid JSON, and were read in part or not at all."""


def find_opening(blob: Blob, *, source: str) -> Opening:
    """Find the list of events. Raises :class:`~referee.errors.TraceError` with one sentence if there is none."""
    window = _WINDOW
    while True:
        head = blob.read(0, window)
        found = _opening_in(head, source=source)
        if found is not None:
            return found
        if window >= min(blob.size, HEAD_LIMIT):
            return _search_opening(blob, source=source)
        window *= 8


def _opening_in(head: bytes, *, source: str) -> Opening | None:
    begin = len(_BOM) if head.startswith(_BOM) else 0
    position = _skip_space(head, begin)
    mark = head[position : position + 1]
    if mark == b"[":
        return Opening(start=position + 1, bare=True, keys={})
    if mark != b"{":
        what, hint = _what_it_is(head[begin:], source=source)
        raise TraceError(f"{source} is not a trace: {what}.", hint=hint, offset=position)
    for match in _KEY.finditer(head, position):
        keys = _keys_of(head[position : match.start()] + b'"traceEvents": []}')
        if keys is not None:
            return Opening(start=match.end(), bare=False, keys=keys)
    return None


def _what_it_is(head: bytes, *, source: str) -> tuple[str, str]:
    """What text is that begins neither an object nor a list, and what to do: mostly it stands in for the trace."""
    for suffix, (what, hint) in _OTHER_FILES.items():
        if source.lower().endswith(suffix):
            return what, hint
    if head and not head.strip(b"\0"):
        return "it holds nothing but zero bytes", _HINT
    text = head.lstrip()
    if text.startswith(b"version https://git-lfs"):
        return "it is the pointer that Git LFS keeps in its place", "Fetch the file itself with git lfs pull."
    if text.startswith(b"/annex/objects/"):
        return "it is the pointer that git-annex keeps in its place", "Fetch the file itself with git annex get."
    if _MARKUP.match(text):
        return "it is a web page or another markup text", "Download the file itself: a server answered with a page."
    return "it does not begin with { or [", _HINT


def _search_opening(blob: Blob, *, source: str) -> Opening:
    """Find the list behind keys that are no valid JSON, or under an escaped key, or say why there is none."""
    head = blob.read(0, _SEARCH_LIMIT)
    begin = len(_BOM) if head.startswith(_BOM) else 0
    position = _skip_space(head, begin)
    # One character for each byte, so that places in one are places in the other.
    text = head[position:].decode("latin-1")
    at, complete = value_of_key(text, "traceEvents")
    if at >= 0 and text[at : at + 1] == "[":
        before = head[position : position + at] + b"[]}"
        keys = _keys_of(before)
        loose = _loose_keys(before) if keys is None else keys
        return Opening(start=position + at + 1, bare=False, keys=loose, unread=keys is None)
    if at >= 0 and len(text) > at:
        raise TraceError(
            f"{source} holds no list of events: its traceEvents, at byte {position + at}, is {_kind_of(text[at:])}.",
            hint=_HINT,
            offset=position + at,
        )
    if not complete and len(head) == blob.size:
        raise TraceError(
            f"{source} ends in the middle, at byte {blob.size}, before its list of events.",
            hint="Was the disk full, or the process killed while it wrote?",
            offset=blob.size,
        )
    raise TraceError(f"{source} holds no list of events: no key traceEvents at its top level.", hint=_HINT)


def _kind_of(text: str) -> str:
    """What the value at the beginning of ``text`` is, in words."""
    kinds = {"{": "an object", '"': "a text", "n": "null", "t": "true", "f": "false"}
    return kinds.get(text[:1], "a number" if text[:1] in "-0123456789" else "no value")


def _skip_space(text: bytes, position: int) -> int:
    match = _SPACE.match(text, position)
    return position if match is None else match.end()


def find_edge(blob: Blob, near: int) -> int | None:
    """The first place at or after ``near`` that looks like the end of one event and the beginning of the next.

    Answers the offset just behind the first event's closing brace; ``None`` if there is none up to the end.
    """
    window = _EVENT_WINDOW
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


def read_tail(text: bytes, *, bare: bool) -> Tail:
    """What ``text``, which follows the list's closing bracket, says; the document may end before it does."""
    if bare:
        return Tail(keys={}, end=0)
    keys = _keys_of(b'{"traceEvents": []' + text)
    if keys is not None:
        return Tail(keys=keys, end=len(text))
    end = end_of_object(text.decode("latin-1"))
    if end is None:
        read = end_of_values(text.decode("latin-1"))
        whole = b'{"traceEvents": []' + text[:read] + b"}"
        keys = _keys_of(whole)
        return Tail(keys=_loose_keys(whole) if keys is None else keys, end=None, read=read)
    own = b'{"traceEvents": []' + text[:end]
    keys = _keys_of(own)
    if keys is not None:
        return Tail(keys=keys, end=end)
    return Tail(keys=_loose_keys(own), end=end, unread=True)


def _loose_keys(text: bytes) -> dict[str, Any]:
    """The keys of an object with control characters in its texts, or values nested too deeply; else none."""
    flat = shallow(text.decode("utf-8", "replace"))
    try:
        keys = json.loads(flat[0], strict=False) if flat else {}
    except ValueError:
        return {}
    keys.pop("traceEvents", None)
    return dict(keys)
