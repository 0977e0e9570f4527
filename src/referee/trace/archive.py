"""Which files lie in this archive, and where? zip and tar, whole or cut: what is there is listed and can be read.

A zip archive has its directory at its end: where that is gone, the members are found by their own headers.
"""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from isal import isal_zlib

from referee.trace.blob import Blob
from referee.trace.inflate import CHUNK, Damage, Sink, inflate

ZIP = b"PK\x03\x04"
_DESCRIPTOR = b"PK\x07\x08"
_LOCAL_BYTES = 30
_ENCRYPTED, _SIZE_FOLLOWS = 1, 8
_STORED, _DEFLATED = 0, 8
_IN_EXTRA = 0xFFFFFFFF
_ZIP64 = 1
_SHOWN = 100
TAR, TAR_AT = b"ustar", 257


class Unreadable(Exception):
    """The archive or the member cannot be read; the text says why, as the end of a sentence."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """One file of an archive: where its packed bytes begin and how many there are (``None``: as many as it takes)."""

    name: str
    start: int
    size: int | None
    packing: int = _STORED
    crc: int | None = None
    encrypted: bool = False

    def __str__(self) -> str:
        """The name as it can be shown: in one line, and not endless."""
        text = "".join(char if char.isprintable() else "?" for char in self.name)
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The files of an archive in its order, and what is broken about the archive itself."""

    members: tuple[Member, ...]
    damage: Damage | None = None

    def named(self, name: str) -> Member:
        """The last member of this name, which is the one that replaces the others."""
        return [member for member in self.members if member.name == name][-1]


def list_zip(blob: Blob) -> Listing:
    """The files of a zip archive. Raises :class:`Unreadable` if none can be told."""
    try:
        with zipfile.ZipFile(as_file(blob)) as archive:
            infos = [info for info in archive.infolist() if not info.is_dir()]
        return Listing(members=tuple(_located(blob, info) for info in infos))
    except (zipfile.BadZipFile, OSError, EOFError, ValueError, NotImplementedError):
        members = tuple(_by_headers(blob))
    if not members:
        raise Unreadable("it is damaged: no member of it can be found")
    return Listing(members=members, damage=Damage(layer="zip archive", reason="cut", byte=blob.size))


def _located(blob: Blob, info: zipfile.ZipInfo) -> Member:
    head = blob.read(info.header_offset, _LOCAL_BYTES)
    if not head.startswith(ZIP):
        raise zipfile.BadZipFile("a member is not where the directory says")
    return Member(
        name=info.filename,
        start=info.header_offset + _LOCAL_BYTES + _short(head, 26) + _short(head, 28),
        size=info.compress_size,
        packing=info.compress_type,
        crc=info.CRC,
        encrypted=bool(info.flag_bits & _ENCRYPTED),
    )


def _by_headers(blob: Blob) -> Iterator[Member]:
    """The members as their own headers tell, up to where there is no further one."""
    offset = 0
    while (head := blob.read(offset, _LOCAL_BYTES)).startswith(ZIP) and len(head) == _LOCAL_BYTES:
        flags, packing = _short(head, 6), _short(head, 8)
        crc, packed, unpacked = (int.from_bytes(head[at : at + 4], "little") for at in (14, 18, 22))
        names, extras = _short(head, 26), _short(head, 28)
        rest = blob.read(offset + _LOCAL_BYTES, names + extras)
        if len(rest) < names + extras:
            return
        if packed == _IN_EXTRA or unpacked == _IN_EXTRA:
            packed = _size_in_extra(rest[names:])
        start = offset + _LOCAL_BYTES + names + extras
        follows = bool(flags & _SIZE_FOLLOWS) and packed == 0
        name = rest[:names].decode("utf-8" if flags & 0x800 else "cp437", "replace")
        if not name.endswith("/"):
            yield Member(
                name=name,
                start=start,
                size=None if follows else packed,
                packing=packing,
                crc=None if follows else crc,
                encrypted=bool(flags & _ENCRYPTED),
            )
        if not follows:
            offset = start + packed
            continue
        following = _find(blob, ZIP, start)
        if following is None:
            return
        offset = following


def _short(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 2], "little")


def _size_in_extra(extra: bytes) -> int:
    """The packed size that a member of 4 GiB or more states in its extra fields; 0 if it states none."""
    at = 0
    while at + 4 <= len(extra):
        kind, size = _short(extra, at), _short(extra, at + 2)
        if kind == _ZIP64 and size >= 16:
            return int.from_bytes(extra[at + 12 : at + 20], "little")
        at += 4 + size
    return 0


def _find(blob: Blob, mark: bytes, offset: int) -> int | None:
    while chunk := blob.read(offset, CHUNK + len(mark)):
        at = chunk.find(mark)
        if at >= 0:
            return offset + at
        offset += CHUNK
    return None


def list_tar(blob: Blob) -> Listing:
    """The files of a tar archive. Raises :class:`Unreadable` if none can be told."""
    members: list[Member] = []
    damage = None
    try:
        with tarfile.open(fileobj=as_file(blob), mode="r:") as archive:
            for info in archive:
                if info.isfile():
                    members.append(Member(name=info.name, start=info.offset_data, size=info.size))
    except (tarfile.TarError, OSError, EOFError, ValueError):
        damage = Damage(layer="tar archive", reason="cut", byte=blob.size)
        if not members:
            raise Unreadable("it is damaged: no member of it can be found") from None
    return Listing(members=tuple(members), damage=damage)


def copy_member(blob: Blob, member: Member, out: Sink) -> Damage | None:
    """Unpack one member; answers what is broken about it. Raises :class:`Unreadable` if its packing is not known."""
    if member.encrypted:
        raise Unreadable(f"{member} is encrypted")
    layer = f"member {member}"
    if member.packing == _DEFLATED:
        stop = blob.size if member.size is None else min(member.start + member.size, blob.size)
        ended = inflate(_Part(blob, stop), member.start, out)
        if ended.reason is not None:
            return Damage(layer=layer, reason=ended.reason, byte=ended.byte)
        wrong = member.crc is not None and ended.crc != member.crc
        return Damage(layer=layer, reason="checksum", byte=ended.byte) if wrong else None
    if member.packing != _STORED:
        raise Unreadable(f"{member} is packed with method {member.packing}, of which only 0 and 8 are read")
    return _copy_stored(blob, member, out, layer=layer)


def _copy_stored(blob: Blob, member: Member, out: Sink, *, layer: str) -> Damage | None:
    size = member.size
    if size is None:
        end = _find(blob, _DESCRIPTOR, member.start)
        size = (blob.size if end is None else end) - member.start
    left, offset, crc = size, member.start, 0
    while left > 0:
        chunk = blob.read(offset, min(left, CHUNK))
        if not chunk:
            return Damage(layer=layer, reason="cut", byte=blob.size)
        out.consumed = offset + len(chunk)
        out.write(chunk)
        crc = isal_zlib.crc32(chunk, crc)
        offset, left = offset + len(chunk), left - len(chunk)
    wrong = member.crc is not None and crc != member.crc
    return Damage(layer=layer, reason="checksum", byte=offset) if wrong else None


class _Part:
    """A blob up to a byte, offsets unchanged."""

    descriptor: int | None = None

    def __init__(self, blob: Blob, stop: int) -> None:
        self._blob = blob
        self.size = stop

    def read(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``offset``."""
        return self._blob.read(offset, max(min(size, self.size - offset), 0))

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Fill ``buffer`` from ``offset``; answers how many bytes there were."""
        return self._blob.read_into(buffer[: max(self.size - offset, 0)], offset)


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


def as_file(blob: Blob) -> BinaryIO:
    """A blob as a buffered binary file."""
    return io.BufferedReader(BlobFile(blob))
