"""Was this very file read before? Columns kept on disk, found again by the bytes of the file they were read from.

An entry answers for the same bytes, the same member of an archive, the same options and the same source code of the
reader alone: all of these make its name, and stand inside it as well. Its own bytes carry a digest. What is cut,
damaged, renamed, or of another version is read from the trace again and replaced, so it cannot change an answer.

An entry holds the digest, a JSON header behind its length, and one array in numpy's ``.npy`` form for each column;
nothing in it can be executed. Entries are never removed by Referee: delete the directory at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

import referee
from referee.errors import UserError
from referee.records.finding import Finding
from referee.records.provenance import Provenance
from referee.trace.blob import Blob
from referee.trace.columns import DeviceProperties, Links, Rows, Step, Trace
from referee.trace.source import Packed

_CHUNK = 1 << 20
_DIGEST_BYTES = 32
_LENGTH_BYTES = 8


class _Spoilt(Exception):
    """An entry that does not hold what its name promises."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The place of one source's columns in a directory, whether or not they are there."""

    path: Path
    key: str
    _state: tuple[int, int]

    @classmethod
    def of(cls, packed: Packed, *, folder: str | os.PathLike[str], lean: bool) -> Entry:
        """The entry for an open source. Raises :class:`~referee.errors.UserError` if there can be no such directory."""
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"{os.fspath(folder)} cannot be a directory of kept traces: {error.strerror}.",
                hint="Name a directory that can be written, or leave the cache out.",
            ) from error
        state = _state_of(packed.blob)
        key = hashlib.sha256(f"{reader_version()} {packed.member!r} {lean} ".encode())
        _digest(packed.blob, key)
        name = key.hexdigest()
        return cls(path=Path(folder) / f"{name}.columns", key=name, _state=state)

    def unchanged(self, blob: Blob) -> bool:
        """Whether the source is still what it was when its bytes were looked at; another process may be writing it."""
        return _state_of(blob) == self._state

    def load(self, *, source: str, provenance: Provenance | None) -> Trace | None:
        """The trace of ``source`` out of the entry; ``None`` if there is none, or none that can be trusted."""
        try:
            with open(self.path, "rb") as file:
                if file.read(_DIGEST_BYTES) != _digest_of(file):
                    return None
                file.seek(_DIGEST_BYTES)
                return _unpacked(file, key=self.key, source=source, provenance=provenance)
        except (OSError, _Spoilt):
            return None

    def keep(self, trace: Trace) -> Trace:
        """Write the entry. Answers the trace, with a finding if it could not be written."""
        try:
            header = json.dumps(_header(trace, key=self.key)).encode()
        except (TypeError, ValueError, RecursionError):
            return _with_finding(trace, "what stands beside its events cannot be written as JSON")
        try:
            self._write(trace, header)
        except OSError as error:
            return _with_finding(trace, f"{self.path.parent} cannot be written: {error.strerror}")
        return trace

    def _write(self, trace: Trace, header: bytes) -> None:
        """Write under another name first: a reader finds a whole entry or none."""
        handle, temporary = tempfile.mkstemp(dir=self.path.parent, prefix=".entry.")
        try:
            with os.fdopen(handle, "w+b") as file:
                file.write(bytes(_DIGEST_BYTES))
                file.write(len(header).to_bytes(_LENGTH_BYTES, "little") + header)
                for part in (trace.rows, trace.links):
                    for field in fields(part):
                        np.lib.format.write_array(file, getattr(part, field.name), allow_pickle=False)
                file.seek(_DIGEST_BYTES)
                digest = _digest_of(file)
                file.seek(0)
                file.write(digest)
            os.replace(temporary, self.path)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            raise


def reader_version() -> str:
    """What decides how a file is read: Referee's version, and the source code of the reader and of its findings.

    So that no number must be remembered when the reader changes.
    """
    digest = hashlib.sha256(referee.__version__.encode())
    here = Path(__file__).parent
    for path in sorted([*here.glob("*.py"), here.parent / "records" / "finding.py"]):
        with suppress(OSError):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def _state_of(blob: Blob) -> tuple[int, int]:
    if blob.descriptor is None:
        return blob.size, 0
    status = os.fstat(blob.descriptor)
    return status.st_size, status.st_mtime_ns


def _digest(blob: Blob, digest: Any) -> None:
    offset, view = 0, memoryview(bytearray(_CHUNK))
    while count := blob.read_into(view, offset):
        digest.update(view[:count])
        offset += count


def _digest_of(file: BinaryIO) -> bytes:
    """The digest of what follows in a file."""
    digest, view = hashlib.sha256(), memoryview(bytearray(_CHUNK))
    while count := file.readinto(view):  # type: ignore[attr-defined]
        digest.update(view[:count])
    return digest.digest()


def _header(trace: Trace, *, key: str) -> dict[str, Any]:
    """All of a trace that is no array, without its name and provenance: those belong to the file, not to its bytes."""
    return {
        "key": key,
        "base_ns": trace.base_ns,
        "events": trace.events,
        "steps": [asdict(step) for step in trace.steps],
        "steps_from": trace.steps_from,
        "names": trace.names,
        "categories": trace.categories,
        "threads": trace.threads,
        "devices": [asdict(device) for device in trace.devices],
        "metadata": dict(trace.metadata),
        "findings": [asdict(finding) for finding in trace.findings],
    }


def _unpacked(file: BinaryIO, *, key: str, source: str, provenance: Provenance | None) -> Trace:
    """The trace in an entry whose digest is right."""
    header = json.loads(file.read(int.from_bytes(file.read(_LENGTH_BYTES), "little")))
    if header["key"] != key:
        raise _Spoilt
    rows = Rows(**{field.name: np.lib.format.read_array(file, allow_pickle=False) for field in fields(Rows)})
    links = Links(**{field.name: np.lib.format.read_array(file, allow_pickle=False) for field in fields(Links)})
    return Trace(
        source=source,
        base_ns=header["base_ns"],
        events=header["events"],
        rows=rows,
        links=links,
        steps=tuple(Step(**step) for step in header["steps"]),
        steps_from=header["steps_from"],
        names=tuple(header["names"]),
        categories=tuple(header["categories"]),
        threads=tuple((pid, tid) for pid, tid in header["threads"]),
        devices=tuple(DeviceProperties(**device) for device in header["devices"]),
        metadata=header["metadata"],
        findings=tuple(Finding(**finding) for finding in header["findings"]),
        provenance=provenance,
    )


def _with_finding(trace: Trace, reason: str) -> Trace:
    finding = Finding(code="not-cached", severity="info", message=f"The trace was read but not kept: {reason}.")
    return replace(trace, findings=(*trace.findings, finding))
