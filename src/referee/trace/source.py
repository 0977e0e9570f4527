"""Where is the trace, and what are its bytes? Paths, directories and compressed files.

Compression is told by a file's first bytes, not by its name. A compressed file that ends early gives what is there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from isal import isal_zlib

from referee.errors import TraceError

TRACE_SUFFIXES = (".json", ".json.gz")
"""The endings by which traces are found in a directory; a file named by the user may be called anything."""
SIDE_SUFFIXES = (".provenance.json", ".capture.json", ".memory.json", ".flops.json")
"""What a capture writes beside its traces and is none."""
_GZIP = b"\x1f\x8b"
_CHUNK = 1 << 22
_DAMAGED = cast("type[Exception]", isal_zlib.error)
_RANK = re.compile(r"(?i)(?:rank|worker)[-_]?(\d+)")


@dataclass(frozen=True, kw_only=True)
class Text:
    """The bytes of a file once unpacked; ``cut_short``: the compressed data ended in the middle, or was damaged."""

    data: bytes
    cut_short: bool = False


def read_text(path: str | os.PathLike[str]) -> Text:
    """The unpacked bytes of a file. Raises :class:`~referee.errors.TraceError` if it cannot be read."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError as error:
        raise TraceError(f"{path} does not exist.") from error
    except IsADirectoryError as error:
        raise TraceError(f"{path} is a directory, not a trace file.") from error
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror}.") from error
    if not data:
        raise TraceError(f"{path} is empty.", hint="Was the profiler stopped before the file was written?")
    return unpack_gzip(data) if data.startswith(_GZIP) else Text(data=data)


def unpack_gzip(data: bytes) -> Text:
    """Unpack all members; of a member that ends early or is damaged, what came before."""
    parts: list[bytes] = []
    rest = data
    while rest.startswith(_GZIP):
        stream = isal_zlib.decompressobj(wbits=31)
        try:
            parts.append(stream.decompress(rest))
        except _DAMAGED:
            parts.extend(_as_far_as_possible(rest))
            return Text(data=b"".join(parts), cut_short=True)
        if not stream.eof:
            return Text(data=b"".join(parts), cut_short=True)
        rest = stream.unused_data
    return Text(data=b"".join(parts))


def _as_far_as_possible(data: bytes) -> Iterable[bytes]:
    """Unpack in small steps up to the damage."""
    stream = isal_zlib.decompressobj(wbits=31)
    for offset in range(0, len(data), _CHUNK >> 6):
        try:
            yield stream.decompress(data[offset : offset + (_CHUNK >> 6)])
        except _DAMAGED:
            return


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
