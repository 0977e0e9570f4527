"""What is the text inside this file? gzip, zstandard, zip, tar in any nesting, UTF-16 and UTF-32, by their first bytes.

Unpacked text lies in a scratch file without a name, so that several processes can read it at any offset. Packed data
that ends early or is damaged gives what came before, and says where it broke.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from referee.errors import TraceError
from referee.trace.archive import TAR, TAR_AT, ZIP, Listing, Member, Unreadable, copy_member, list_tar, list_zip
from referee.trace.blob import Blob, FileBlob
from referee.trace.inflate import CHUNK, GZIP, ZSTD, Damage, gunzip, unzstd

_MOST_LAYERS = 5
"""A trace in a tar in a zip, each compressed, is as deep as anybody has nested one."""
SQLITE = b"SQLite format 3\0"
"""What exports of Nsight Systems begin with: no text, and handed on as they are."""
_EMPTY_ZIP = b"PK\x05\x06"
SPILL_BYTES = 1 << 30
"""A scratch file is kept in memory up to this size, and goes to the directory for temporary files beyond it."""
BOMB_BYTES = 1 << 28
BOMB_RATIO = 400
"""Text of more than ``BOMB_BYTES`` that is more than this many times the compressed bytes it came from is no trace: the
recorded ones shrink 10 to 35 times, copies of one step laid end to end some 100 times, and blanks 1,030 times."""
DATABASE_SUFFIX = ".sqlite"
TRACE_SUFFIXES = (".json", ".json.gz", ".json.zst", DATABASE_SUFFIX)


@dataclass(frozen=True, kw_only=True)
class Text:
    """The text of a source, and what is broken about the packed data that it came from: the outermost layer's."""

    blob: Blob
    damage: Damage | None = None
    encoding: str = "utf-8"
    """The encoding that the text was converted from."""
    inside: tuple[str, ...] = field(default=())
    """The members of archives on the way to the text."""
    packed: bool = False
    """The text's bytes are not the file's."""


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
        import tempfile

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
        for offset in range(0, self.size, CHUNK):
            os.write(other, kept.read(offset, CHUNK))
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
        member that cannot be read, and if packed data breaks before it gave anything.
        """
        damages: list[Damage] = []
        inside: list[str] = []
        packed = False
        for layer in range(_MOST_LAYERS):
            unpacked = self._layer(blob, member, inside, damages, within="the file" if layer == 0 else "what it held")
            if unpacked is None:
                break
            blob, packed = unpacked, True
            if blob.size == 0:
                self._refuse_empty(damages)
        encoding = wide_encoding_of(blob.read(0, 4))
        if encoding is not None:
            blob = self._fill(blob, lambda text, out: convert(text, out, encoding))[0]
        return Text(
            blob=blob,
            damage=damages[0] if damages else None,
            encoding=encoding or "utf-8",
            inside=tuple(inside),
            packed=packed or encoding is not None,
        )

    def _layer(
        self, blob: Blob, member: str | None, inside: list[str], damages: list[Damage], *, within: str
    ) -> Blob | None:
        """What is packed in ``blob``; ``None`` if that is no packed data."""
        head = blob.read(0, TAR_AT + len(TAR))
        found: list[Damage | None] = []
        if head.startswith(GZIP):
            blob, damage = self._fill(blob, gunzip)
            found.append(damage)
        elif head.startswith(ZSTD):
            blob, damage = self._fill(blob, unzstd)
            found.append(damage)
        elif head.startswith((ZIP, _EMPTY_ZIP)):
            blob = self._member(blob, list_zip, member, inside, found)
        elif head[TAR_AT:] == TAR:
            blob = self._member(blob, list_tar, member, inside, found)
        else:
            return None
        damages.extend(replace(damage, within=within) for damage in found if damage is not None)
        return blob

    def _refuse_empty(self, damages: list[Damage]) -> None:
        if damages and damages[0].reason != "trailing":
            raise TraceError(
                f"{self._source} cannot be unpacked: {_uncapitalised(damages[0].said())}, before it gave any text.",
                hint="Copy the file once more from where it was written.",
                offset=damages[0].byte,
            )
        raise TraceError(f"{self._source} unpacks to nothing.", hint="Was the profiler stopped before it was written?")

    def _fill(self, packed: Blob, convert: Callable[[Blob, Scratch], Damage | None]) -> tuple[Blob, Damage | None]:
        scratch = Scratch()
        self._stack.callback(scratch.close)
        try:
            damage = convert(packed, scratch)
        except _TooMuch as error:
            raise TraceError(
                f"{self._source} unpacks to over {BOMB_RATIO} times its size: that is no trace.",
                hint="If it is one, unpack it first and give the unpacked file.",
            ) from error
        return FileBlob(scratch.descriptor), damage

    def _member(
        self,
        blob: Blob,
        list_members: Callable[[Blob], Listing],
        member: str | None,
        inside: list[str],
        found: list[Damage | None],
    ) -> Blob:
        """The text of the member that is meant; what is broken about it or the archive is added to ``found``."""
        try:
            listing = list_members(blob)
            chosen = self._choose(listing, member, inside)
            text, damage = self._fill(blob, lambda packed, out: copy_member(packed, chosen, out))
        except Unreadable as error:
            kind = "zip" if list_members is list_zip else "tar"
            raise TraceError(
                f"{self._source} is a {kind} archive that cannot be read: {error}.",
                hint="Unpack it with its own tool and give the trace file.",
            ) from error
        found.append(damage or listing.damage)
        return text

    def _choose(self, listing: Listing, member: str | None, inside: list[str]) -> Member:
        """The member that is meant: the one named, else the only one that is called like a trace."""
        names = {one.name: str(one) for one in listing.members}
        likely = [name for name in names if name.endswith(TRACE_SUFFIXES)] or list(names)
        wanted = [name for name in names if name == member] if member and not inside else likely
        if len(wanted) == 1:
            inside.append(wanted[0])
            return listing.named(wanted[0])
        shown = ", ".join(names[name] for name in sorted(likely)[:6]) + (" …" if len(likely) > 6 else "")
        if not likely:
            raise TraceError(f"{self._source} is an archive without a file in it.")
        if member and not inside:
            cut = " as far as it can be read" if listing.damage else ""
            raise TraceError(f"{self._source} has no member {member!r}{cut}.", hint=f"It holds: {shown}.")
        raise TraceError(
            f"{self._source} holds {len(likely)} files, and none is named.",
            hint=f"Write {self._source}!MEMBER, with one of: {shown}.",
        )


def _uncapitalised(text: str) -> str:
    return text[:1].lower() + text[1:]


def convert(packed: Blob, out: Scratch, encoding: str) -> None:
    """Convert text to UTF-8; what is no text becomes the replacement character."""
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    for chunk in chunks(packed):
        out.write(decoder.decode(chunk).encode("utf-8", "replace"))
    out.write(decoder.decode(b"", final=True).encode("utf-8", "replace"))


def chunks(blob: Blob) -> Iterator[bytes]:
    """A blob from its beginning to its end."""
    offset = 0
    while chunk := blob.read(offset, CHUNK):
        offset += len(chunk)
        yield chunk


_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Byte-order marks; that of UTF-32 begins with that of UTF-16."""
_ZEROS = (("utf-32-le", b"x\0\0\0"), ("utf-32-be", b"\0\0\0x"), ("utf-16-le", b"x\0"), ("utf-16-be", b"\0x"))
"""Where the zeros are in a text's first letter."""
_FIRST_LETTERS = (b"{", b"[", b" ", b"\t", b"\r", b"\n")


def wide_encoding_of(head: bytes) -> str | None:
    """The kind of UTF-16 or UTF-32 that a text begins with: by its byte-order mark, or by the zeros beside a letter.

    ``None``: neither, which is UTF-8 if it is a trace.
    """
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return encoding
    for encoding, pattern in _ZEROS:
        letter = head[: len(pattern)].strip(b"\0")
        if letter in _FIRST_LETTERS and head.startswith(pattern.replace(b"x", letter)):
            return encoding
    return None
