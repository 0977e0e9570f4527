"""Where is the trace, and what are its bytes? Paths, directories and compressed files.

Compression is told by a file's first bytes, not by its name. A compressed file that ends early gives what is there.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from isal import isal_zlib

from referee.errors import TraceError
from referee.trace.blob import Blob, FileBlob

TRACE_SUFFIXES = (".json", ".json.gz")
"""The endings by which traces are found in a directory; a file named by the user may be called anything."""
SIDE_SUFFIXES = (".provenance.json", ".capture.json", ".memory.json", ".flops.json")
"""What a capture writes beside its traces and is none."""
_GZIP = b"\x1f\x8b"
_CHUNK = 1 << 18
_DAMAGED = cast("type[Exception]", isal_zlib.error)
_RANK = re.compile(r"(?i)(?:rank|worker)[-_]?(\d+)")


@dataclass(frozen=True, kw_only=True)
class Text:
    """The text of a file once unpacked; ``cut_short``: the compressed data ended in the middle, or was damaged."""

    blob: Blob
    cut_short: bool = False


@contextmanager
def open_text(path: str | os.PathLike[str]) -> Iterator[Text]:
    """Open a file for reading and unpack it. Raises :class:`~referee.errors.TraceError` if it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError as error:
        raise TraceError(f"{path} does not exist.") from error
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror}.") from error
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise TraceError(f"{path} is a directory, not a trace file.")
        blob = FileBlob(descriptor)
        if blob.size == 0:
            raise TraceError(f"{path} is empty.", hint="Was the profiler stopped before the file was written?")
        if blob.read(0, 2) == _GZIP:
            with _scratch() as unpacked:
                cut_short = unpack_gzip(blob, unpacked)
                yield Text(blob=FileBlob(unpacked), cut_short=cut_short)
        else:
            yield Text(blob=blob)
    finally:
        os.close(descriptor)


@contextmanager
def _scratch() -> Iterator[int]:
    """A file without a name, in memory where the system has such files, that a helper process can read too."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("referee-trace")
        try:
            yield descriptor
        finally:
            os.close(descriptor)
    else:
        with tempfile.TemporaryFile() as file:
            yield file.fileno()


def unpack_gzip(packed: Blob, unpacked: int) -> bool:
    """Unpack all members into the file ``unpacked``; answers whether one ended early or was damaged.

    Of such a member what came before is there.
    """
    stream = isal_zlib.decompressobj(wbits=31)
    offset = 0
    waiting = b""
    while True:
        chunk = waiting or packed.read(offset, _CHUNK)
        if not waiting:
            offset += len(chunk)
        if not chunk:
            return not stream.eof
        try:
            _write(unpacked, stream.decompress(chunk))
        except _DAMAGED:
            return True
        waiting = stream.unused_data if stream.eof else b""
        if stream.eof:
            rest = waiting or packed.read(offset, 2)
            if not rest.startswith(_GZIP[: len(rest)]) or not rest:
                return False
            stream = isal_zlib.decompressobj(wbits=31)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def find_traces(paths: Sequence[str | os.PathLike[str]], *, rank: int | None = None) -> list[str]:
    """The trace files that ``paths`` name: files as they are, directories searched for ``.json`` and ``.json.gz``.

    ``rank`` keeps the files whose name says that rank. Raises :class:`~referee.errors.TraceError` where none is found.
    """
    found: list[str] = []
    for path in paths:
        found.extend(_in_directory(Path(path)) if os.path.isdir(path) else [os.fspath(path)])
    if rank is None:
        return found
    chosen = [path for path in found if rank_in_name(path) == rank]
    if not chosen:
        raise TraceError(
            f"No file named for rank {rank} among {len(found)} trace files.",
            hint="File names must hold rank or worker and its number, as rank3 or worker-3.",
        )
    return chosen


def _in_directory(folder: Path) -> list[str]:
    """The trace files in a directory, by name, those of subdirectories included."""
    files = (path for path in folder.rglob("*") if path.name.endswith(TRACE_SUFFIXES) and path.is_file())
    found = sorted(os.fspath(path) for path in files if not path.name.endswith(SIDE_SUFFIXES))
    if not found:
        raise TraceError(f"{folder} holds no trace: no file in it ends in {' or '.join(TRACE_SUFFIXES)}.")
    return found


def rank_in_name(path: str | os.PathLike[str]) -> int | None:
    """The rank that a file's name states, ``None`` if it states none."""
    match = _RANK.search(os.path.basename(path))
    return int(match.group(1)) if match else None
