"""What is the text of these compressed bytes, and where and how do they break? gzip, zstandard and raw deflate.

Compressed data that ends early or is damaged gives everything before the byte at which that shows: the stretch in which
unpacking failed is unpacked once more byte by byte.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast

import zstandard
from isal import isal_zlib

from referee.trace.blob import Blob

CHUNK = 1 << 16
"""Packed bytes taken at a time: deflate makes at most 66 MiB of them."""
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_DEFLATE_ERROR = cast("type[Exception]", isal_zlib.error)
_DEFLATED = 8
_HEADER_BYTES, _TRAILER_BYTES = 10, 8
_HEADER_CRC, _EXTRA, _NAME, _COMMENT, _RESERVED = 2, 4, 8, 16, 0xE0
_LONGEST_HEADER = 1 << 17
"""Extra fields are at most 64 KiB, names and comments a line."""
_WINDOW_LIMIT = 1 << 31

Reason = Literal["cut", "damaged", "checksum", "unchecked", "trailing"]


@dataclass(frozen=True, kw_only=True)
class Damage:
    """What is broken in packed data: in which layer, how, and at which byte of the file that holds it.

    ``cut``: it ends early; ``damaged``: it is no packed data from there on; ``checksum``: all of it was unpacked, and
    its checksum says that it is not what was packed; ``unchecked``: it ends before the checksum; ``trailing``: other
    bytes follow.
    """

    layer: str
    reason: Reason
    byte: int
    within: str = "the file"

    def said(self) -> str:
        """The damage as a sentence without its stop."""
        place = f"at byte {self.byte} of {self.within}"
        return {
            "cut": f"The {self.layer} ends in the middle, {place}",
            "damaged": f"The {self.layer} is damaged {place}",
            "checksum": f"The {self.layer} does not match its checksum {place}",
            "unchecked": f"The {self.layer} ends before its checksum, {place}",
            "trailing": f"Bytes that are no {self.layer} follow it {place}",
        }[self.reason]


class Sink(Protocol):
    """Where unpacked text goes. ``consumed``: of how many packed bytes it is the text, so far."""

    consumed: int | None

    def write(self, data: bytes) -> None:
        """Append."""
        ...


class _Stream(Protocol):
    """One member or frame on its way."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


@dataclass(frozen=True, kw_only=True)
class Ended:
    """Where a stream ended, how (``None``: as it should), and the checksum of its text."""

    byte: int
    reason: Reason | None
    crc: int = 0
    size: int = 0


def gunzip(packed: Blob, out: Sink) -> Damage | None:
    """Unpack all gzip members; answers what is broken, if anything is."""
    offset = 0
    while True:
        start = _behind_header(packed, offset)
        if isinstance(start, Damage):
            return start
        ended = inflate(packed, start, out)
        if ended.reason is not None:
            return Damage(layer="gzip data", reason=ended.reason, byte=ended.byte)
        trailer = packed.read(ended.byte, _TRAILER_BYTES)
        if len(trailer) < _TRAILER_BYTES:
            return Damage(layer="gzip data", reason="unchecked", byte=packed.size)
        told = int.from_bytes(trailer[:4], "little"), int.from_bytes(trailer[4:], "little")
        if told != (ended.crc, ended.size & 0xFFFFFFFF):
            return Damage(layer="gzip data", reason="checksum", byte=ended.byte)
        offset = ended.byte + _TRAILER_BYTES
        if packed.read(offset, len(GZIP)) != GZIP:
            return _behind_all(packed, offset, layer="gzip data")


def _behind_header(packed: Blob, offset: int) -> int | Damage:
    """Where the deflated data of the member at ``offset`` begins."""
    head = packed.read(offset, _LONGEST_HEADER)
    cut = Damage(layer="gzip header", reason="cut", byte=offset + len(head))
    if len(head) < _HEADER_BYTES:
        return cut
    flags = head[3]
    if head[2] != _DEFLATED or flags & _RESERVED:
        return Damage(layer="gzip header", reason="damaged", byte=offset + (2 if head[2] != _DEFLATED else 3))
    position = _HEADER_BYTES
    if flags & _EXTRA:
        position += 2 + int.from_bytes(head[position : position + 2], "little")
    for text in (_NAME, _COMMENT):
        if flags & text:
            end = head.find(b"\0", position)
            position = len(head) + 1 if end < 0 else end + 1
    position += 2 * bool(flags & _HEADER_CRC)
    return cut if position > len(head) else offset + position


def _behind_all(packed: Blob, offset: int, *, layer: str) -> Damage | None:
    """What stands behind the last member: zeros are padding, anything else is worth a word."""
    while rest := packed.read(offset, CHUNK):
        if rest.count(0) != len(rest):
            return Damage(layer=layer, reason="trailing", byte=offset + len(rest) - len(rest.lstrip(b"\0")))
        offset += len(rest)
    return None


def inflate(packed: Blob, start: int, out: Sink) -> Ended:
    """Unpack the raw deflate stream that begins at ``start``."""
    return _run(packed, start, out, new=lambda: isal_zlib.decompressobj(wbits=-15), error=_DEFLATE_ERROR)


def unzstd(packed: Blob, out: Sink) -> Damage | None:
    """Unpack all zstandard frames; answers what is broken, if anything is."""
    offset = 0
    while True:
        ended = _run(packed, offset, out, new=_new_frame, error=zstandard.ZstdError)
        if ended.reason is not None:
            return Damage(layer="zstandard data", reason=ended.reason, byte=ended.byte)
        offset = ended.byte
        if packed.read(offset, len(ZSTD)) != ZSTD:
            return _behind_all(packed, offset, layer="zstandard data")


def _new_frame() -> _Stream:
    frame: Any = zstandard.ZstdDecompressor(max_window_size=_WINDOW_LIMIT).decompressobj()
    return cast("_Stream", frame)


def _run(packed: Blob, start: int, out: Sink, *, new: Callable[[], _Stream], error: type[Exception]) -> Ended:
    """Unpack one stream to its end, or to where it breaks."""
    stream = new()
    offset, crc, size = start, 0, 0
    while not stream.eof:
        chunk = packed.read(offset, CHUNK)
        if not chunk:
            return Ended(byte=offset, reason="cut")
        out.consumed = offset + len(chunk)
        try:
            data = stream.decompress(chunk)
        except error as failure:
            at = _byte_by_byte(packed, start, offset, out, new=new, error=error)
            return Ended(byte=at, reason="checksum" if "checksum" in str(failure) else "damaged")
        out.write(data)
        crc, size = isal_zlib.crc32(data, crc), size + len(data)
        offset += len(chunk)
    return Ended(byte=offset - len(stream.unused_data), reason=None, crc=crc, size=size)


def _byte_by_byte(
    packed: Blob, start: int, failed: int, out: Sink, *, new: Callable[[], _Stream], error: type[Exception]
) -> int:
    """Unpack once more the chunk at ``failed``, writing what comes before the error; answers the error's byte."""
    stream = new()
    for offset in range(start, failed, CHUNK):
        # This has been written already.
        stream.decompress(packed.read(offset, min(CHUNK, failed - offset)))
    chunk = packed.read(failed, CHUNK)
    for at in range(len(chunk)):
        try:
            out.write(stream.decompress(chunk[at : at + 1]))
        except error:
            return failed + at
    return failed + len(chunk)
