"""What is the text inside this file? gzip, zstandard, zip and tar in any nesting, and UTF-16, told by first bytes.

Unpacked text lies in a scratch file without a name, so that several processes can read it at any offset. Compressed
data that ends early or is damaged gives what came before.
"""

from __future__ import annotations

import codecs
import io
import os
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast

import zstandard
from isal import isal_zlib

from referee.errors import TraceError
from referee.trace.blob import Blob, FileBlob

_CHUNK = 1 << 16
"""Packed bytes taken at a time: deflate makes at most 66 MiB of them."""
_GZIP, _ZSTD, _ZIP, _TAR = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PK\x03\x04", b"ustar"
_TAR_MAGIC_AT = 257
_DAMAGED = cast("type[Exception]", isal_zlib.error)
_MOST_LAYERS = 5
"""A trace in a tar in a zip, each compressed, is as deep as anybody has nested one."""
SPILL_BYTES = 1 << 30
"""A scratch file is kept in memory up to this size, and goes to the directory for temporary files beyond it."""
BOMB_BYTES = 1 << 28
BOMB_RATIO = 400
"""Text of more than ``BOMB_BYTES`` that is more than this many times the compressed bytes it came from is no trace: the
recorded ones shrink 10 to 35 times, copies of one step laid end to end some 100 times, and blanks 1,030 times."""
TRACE_SUFFIXES = (".json", ".json.gz", ".json.zst")


@dataclass(frozen=True, kw_only=True)
class Text:
    """The text of a source; ``cut_short``: compressed data ended in the middle, or was damaged."""

    blob: Blob
    cut_short: bool = False
    encoding: str = "utf-8"
    """The encoding that the text was converted from."""
    inside: tuple[str, ...] = field(default=())
    """The members of archives on the way to the text."""


class _TooMuch(Exception):
    """More text than its packed bytes can mean."""


class Scratch:
    """A file without a name that grows in memory, then on disk."""

    def __init__(self) -> None:
        self._on_disk = not hasattr(os, "memfd_create")
        self.descriptor = self._temporary() if self._on_disk else os.memfd_create("referee-trace")
        self.size = 0
        self.consumed: int | None = None
        """Of how many packed bytes this is the text, so far; ``None`` where nothing was compressed."""

    @staticmethod
    def _temporary() -> int:
        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno())

    def write(self, data: bytes) -> None:
        """Append."""
        if self.consumed is not None and self.size + len(data) > max(BOMB_BYTES, BOMB_RATIO * self.consumed):
            raise _TooMuch
        if not self._on_disk and self.size + len(data) > SPILL_BYTES:
            self._spill()
        view = memoryview(data)
        while view:
            view = view[os.write(self.descriptor, view) :]
        self.size += len(data)

    def _spill(self) -> None:
        """Move what is there to disk."""
        other, kept = self._temporary(), FileBlob(self.descriptor)
        for offset in range(0, self.size, _CHUNK):
            os.write(other, kept.read(offset, _CHUNK))
        kept.close()
        self.descriptor, self._on_disk = other, True

    def close(self) -> None:
        """Give the space back."""
        os.close(self.descriptor)


class Unpacker:
    """Unwraps one source layer by layer; scratch files live as long as this object's stack."""

    def __init__(self, *, source: str, stack: ExitStack) -> None:
        self._source = source
        self._stack = stack

    def unpack(self, blob: Blob, *, member: str | None = None) -> Text:
        """The text in ``blob``, of the archive's ``member`` if one is named.

        Raises :class:`~referee.errors.TraceError` if an archive holds no trace, several of which none is named, or a
        member that cannot be read.
        """
        cut_short = False
        inside: list[str] = []
        for _ in range(_MOST_LAYERS):
            head = blob.read(0, _TAR_MAGIC_AT + len(_TAR))
            if head.startswith(_GZIP):
                blob, cut = self._fill(blob, gunzip)
            elif head.startswith(_ZSTD):
                blob, cut = self._fill(blob, unzstd)
            elif head.startswith(_ZIP):
                blob, cut = self._zip_member(blob, member, inside), False
            elif head[_TAR_MAGIC_AT:] == _TAR:
                blob, cut = self._tar_member(blob, member, inside), False
            else:
                break
            cut_short |= cut
        encoding = utf_16_of(blob.read(0, 4))
        if encoding is not None:
            blob = self._fill(blob, lambda packed, out: convert(packed, out, encoding))[0]
        return Text(blob=blob, cut_short=cut_short, encoding=encoding or "utf-8", inside=tuple(inside))

    def _fill(self, packed: Blob, convert: Callable[[Blob, Scratch], bool]) -> tuple[Blob, bool]:
        scratch = Scratch()
        self._stack.callback(scratch.close)
        try:
            cut = convert(packed, scratch)
        except _TooMuch as error:
            raise TraceError(
                f"{self._source} unpacks to over {BOMB_RATIO} times its size: that is no trace.",
                hint="If it is one, unpack it first and give the unpacked file.",
            ) from error
        return FileBlob(scratch.descriptor), cut

    def _zip_member(self, blob: Blob, member: str | None, inside: list[str]) -> Blob:
        try:
            with zipfile.ZipFile(as_file(blob)) as archive:
                names = [info.filename for info in archive.infolist() if not info.is_dir()]
                name = self._choose(names, member, inside)
                with archive.open(name) as file:
                    return self._copy(file, packed=blob)
        except TraceError:
            raise
        except (zipfile.BadZipFile, zlib.error, RuntimeError, OSError, EOFError, ValueError) as error:
            raise TraceError(f"{self._source} is a damaged or unreadable zip archive: {error}.") from error

    def _tar_member(self, blob: Blob, member: str | None, inside: list[str]) -> Blob:
        try:
            with tarfile.open(fileobj=as_file(blob), mode="r:") as archive:
                files = {info.name: info for info in archive if info.isfile()}
                name = self._choose(list(files), member, inside)
                file = archive.extractfile(files[name])
                if file is None:
                    raise TraceError(f"{self._source}!{name} is no file.")
                return self._copy(file, packed=blob)
        except TraceError:
            raise
        except (tarfile.TarError, OSError, EOFError, ValueError) as error:
            raise TraceError(f"{self._source} is a damaged tar archive: {error}.") from error

    def _choose(self, names: list[str], member: str | None, inside: list[str]) -> str:
        """The member that is meant: the one named, else the only one that is called like a trace."""
        likely = [name for name in names if name.endswith(TRACE_SUFFIXES)] or names
        wanted = [name for name in names if name == member] if member and not inside else likely
        if len(wanted) == 1:
            inside.append(wanted[0])
            return wanted[0]
        shown = ", ".join(sorted(likely)[:6]) + (" …" if len(likely) > 6 else "")
        if not likely:
            raise TraceError(f"{self._source} is an archive without a file in it.")
        if member and not inside:
            raise TraceError(f"{self._source} has no member {member!r}.", hint=f"It holds: {shown}.")
        raise TraceError(
            f"{self._source} holds {len(likely)} files, and none is named.",
            hint=f"Write {self._source}!MEMBER, with one of: {shown}.",
        )

    def _copy(self, file: Any, *, packed: Blob) -> Blob:
        def copy(_: Blob, out: Scratch) -> bool:
            out.consumed = packed.size
            while chunk := file.read(_CHUNK):
                out.write(chunk)
            return False

        return self._fill(packed, copy)[0]


class BlobFile(io.RawIOBase):
    """A blob as a binary file that can be read and searched, for the archive readers."""

    def __init__(self, blob: Blob) -> None:
        self._blob = blob
        self._at = 0

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read from where it stands."""
        count = self._blob.read_into(memoryview(buffer).cast("B"), self._at)
        self._at += count
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._blob.size}[whence]
        self._at = max(base + offset, 0)
        return self._at

    def tell(self) -> int:
        """Where it stands."""
        return self._at


def as_file(blob: Blob) -> BinaryIO:
    """A blob as a buffered binary file."""
    return io.BufferedReader(BlobFile(blob))


def gunzip(packed: Blob, out: Scratch) -> bool:
    """Unpack all gzip members; answers whether one ended early or was damaged."""
    stream = isal_zlib.decompressobj(wbits=31)
    offset = 0
    waiting = b""
    while True:
        chunk = waiting or packed.read(offset, _CHUNK)
        if not waiting:
            offset += len(chunk)
        if not chunk:
            return not stream.eof
        out.consumed = offset
        try:
            out.write(stream.decompress(chunk))
        except _DAMAGED:
            return True
        waiting = stream.unused_data if stream.eof else b""
        if stream.eof:
            waiting += packed.read(offset, _CHUNK)
            offset += _CHUNK
            if not waiting.startswith(_GZIP):
                # Padding or other bytes behind the last member are no part of it.
                return False
            stream = isal_zlib.decompressobj(wbits=31)


def unzstd(packed: Blob, out: Scratch) -> bool:
    """Unpack all zstandard frames; answers whether one was damaged (one that ends early cannot be told here)."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 31)
    try:
        with as_file(packed) as file, decompressor.stream_reader(file, read_across_frames=True) as stream:
            while chunk := stream.read(_CHUNK):
                out.consumed = file.tell()
                out.write(chunk)
    except zstandard.ZstdError:
        return True
    return False


def convert(packed: Blob, out: Scratch, encoding: str) -> bool:
    """Convert text to UTF-8; what is no text becomes the replacement character."""
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    for chunk in chunks(packed):
        out.write(decoder.decode(chunk).encode("utf-8", "replace"))
    out.write(decoder.decode(b"", final=True).encode("utf-8", "replace"))
    return False


def chunks(blob: Blob) -> Iterator[bytes]:
    """A blob from its beginning to its end."""
    offset = 0
    while chunk := blob.read(offset, _CHUNK):
        offset += len(chunk)
        yield chunk


def utf_16_of(head: bytes) -> str | None:
    """The kind of UTF-16 that a text begins with: by its byte-order mark, or by a bracket and a zero."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if head[:2] in (b"{\x00", b"[\x00"):
        return "utf-16-le"
    if head[:2] in (b"\x00{", b"\x00["):
        return "utf-16-be"
    return None
