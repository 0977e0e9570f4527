"""Where is the trace? A file, a member of an archive, standard input, a remote store, a directory or a pattern.

``-`` is standard input; ``archive.tar.gz!member.json`` a member; ``s3://…`` and the like go through fsspec.
"""

from __future__ import annotations

import glob
import os
import re
import stat
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from referee.errors import OptionError, PackageMissing, TraceError
from referee.trace.blob import Blob, FileBlob
from referee.trace.unpack import DATABASE_SUFFIX, TRACE_SUFFIXES, Scratch, Text, Unpacker

SIDE_SUFFIXES = (".provenance.json", ".capture.json", ".memory.json", ".flops.json")
"""What Referee writes beside a trace: none of them is one."""
STDIN = "-"
_CHUNK = 1 << 20
_RANK = re.compile(r"(?i)(?:rank|worker)[-_]?(\d+)")
_STATED_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d+)')
_HEAD_BYTES = 1 << 16
"""Kineto writes what it knows of the job before the events, behind a few hundred bytes for each device."""
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")
_PATTERN = re.compile(r"[*?\[]")
_KEPT: dict[str, Scratch] = {}
"""What came from standard input and from pipes, by source: it cannot be had from there a second time."""


@dataclass(frozen=True, kw_only=True)
class Packed:
    """An open source as it was found: its bytes, the archive's member that is meant, and how to get at the text."""

    blob: Blob
    member: str | None
    unpack: Callable[[], Text]


@contextmanager
def open_text(path: str | os.PathLike[str], *, again: bool = False) -> Iterator[Text]:
    """Open a source for reading and unpack it; see :func:`open_packed`."""
    with open_packed(path, again=again) as packed:
        yield packed.unpack()


@contextmanager
def open_packed(path: str | os.PathLike[str], *, again: bool = False) -> Iterator[Packed]:
    """Open a source for reading; ``again``: of standard input or a pipe, what came from it the last time.

    Raises :class:`~referee.errors.TraceError` if it cannot be read, :class:`~referee.errors.PackageMissing` if it
    takes a package that is not installed.
    """
    source = os.fspath(path)
    with ExitStack() as stack:
        kept = _KEPT.get(source) if again else None
        blob, member = (_shared(kept, stack), None) if kept is not None else _open(source, stack)
        if blob.size == 0:
            raise TraceError(f"{source} is empty.", hint="Was the profiler stopped before the file was written?")
        unpacker = Unpacker(source=source if member is None else source.partition("!")[0], stack=stack)
        yield Packed(blob=blob, member=member, unpack=lambda: unpacker.unpack(blob, member=member))


def _open(source: str, stack: ExitStack) -> tuple[Blob, str | None]:
    """The packed bytes, and the member that is named behind an exclamation mark."""
    if source == STDIN:
        return _kept(source, sys.stdin.buffer, stack), None
    if _URL.match(source):
        url, _, member = source.partition("!")
        return _remote(url, stack), member or None
    if "!" in source and not os.path.exists(source):
        archive, _, member = source.partition("!")
        return _local(archive, stack), member
    return _local(source, stack), None


def _local(path: str, stack: ExitStack) -> Blob:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError as error:
        raise TraceError(f"{path} does not exist.") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise TraceError(f"{path} cannot be read: {reason}.") from error
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISDIR(mode):
        os.close(descriptor)
        raise TraceError(f"{path} is a directory, not a trace file.", hint="Name one file in it: one rank's trace.")
    if not stat.S_ISREG(mode):
        # A pipe or a device cannot be read at any offset.
        with os.fdopen(descriptor, "rb") as file:
            return _kept(path, file, stack)
    blob = FileBlob(descriptor)
    stack.callback(blob.close)
    return blob


def _remote(url: str, stack: ExitStack) -> Blob:
    try:
        import fsspec
    except ImportError as error:
        raise PackageMissing.named("fsspec", need=f"Reading {url}", extra="remote") from error
    try:
        with fsspec.open(url, "rb") as file:
            return _copied(file, stack)
    except ImportError as error:
        raise _driver_missing(url, error) from error
    # A store's driver raises what it likes: whatever it is, the reader of the message wants the address and the reason.
    except Exception as error:
        raise TraceError(f"{url} cannot be read: {_reason(error)}.") from error


def _driver_missing(url: str, error: ImportError) -> PackageMissing:
    """The error for a store's driver; fsspec names no module, but its text says what the store takes."""
    if error.name is not None:
        return PackageMissing.named(error.name, need=f"Reading {url}", extra="remote")
    return PackageMissing(f"Reading {url} needs a package that is not installed: {_reason(error).rstrip('.')}.")


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "it does not exist"  # some drivers say the path alone
    return str(error).splitlines()[0] if str(error) else repr(error)


def _copied(file: Any, stack: ExitStack) -> Blob:
    """What cannot be read at any offset, in a scratch file."""
    scratch = Scratch()
    stack.callback(scratch.close)
    _fill(scratch, file)
    return FileBlob(scratch.descriptor)


def _kept(source: str, file: Any, stack: ExitStack) -> Blob:
    """What can be read once only, in a scratch file that stays until ``source`` is read anew."""
    scratch = Scratch()
    try:
        _fill(scratch, file)
    except BaseException:
        scratch.close()
        raise
    before = _KEPT.pop(source, None)
    if before is not None:
        before.close()
    _KEPT[source] = scratch
    return _shared(scratch, stack)


def _shared(scratch: Scratch, stack: ExitStack) -> Blob:
    blob = FileBlob(os.dup(scratch.descriptor))
    stack.callback(blob.close)
    return blob


def _fill(scratch: Scratch, file: Any) -> None:
    while chunk := file.read(_CHUNK):
        scratch.write(chunk)


def find_traces(
    paths: Sequence[str | os.PathLike[str]], *, rank: int | None = None, passed_over: list[str] | None = None
) -> list[str]:
    """The traces that ``paths`` name: directories are searched, patterns expanded, everything else is taken as it is.

    ``rank`` keeps the files whose name, or else whose head, says that rank; ``passed_over`` collects the databases in
    directories that are no exports of Nsight Systems.

    Raises :class:`~referee.errors.TraceError` where no trace is found.
    """
    others: list[str] = [] if passed_over is None else passed_over
    found: list[str] = []
    for path in [os.fspath(path) for path in paths]:
        if os.path.isdir(path):
            found.extend(_in_directory(Path(path), others))
        elif _PATTERN.search(path) and not os.path.exists(path) and not _URL.match(path):
            found.extend(_matching(path))
        else:
            found.append(path)
    if rank is None:
        return found
    chosen = [path for path in found if _rank_of(path) == rank]
    if not chosen:
        raise TraceError(
            f"No file named for rank {rank} among {len(found)} trace files.",
            hint="File names must hold rank or worker and its number, as rank3 or worker-3, or the files state a rank "
            "in their distributedInfo.",
        )
    return chosen


def only_trace(path: str | os.PathLike[str], *, rank: int | None = None) -> str:
    """The one trace that ``path`` names, as :func:`find_traces` reads it.

    Raises :class:`~referee.errors.OptionError` where it names several.
    """
    found = find_traces([path], rank=rank)
    if len(found) != 1:
        hint = "Name one file, or choose with --rank N." if rank is None else "Name one file."
        raise OptionError(f"{os.fspath(path)} holds {len(found)} traces.", hint=hint)
    return found[0]


def _in_directory(folder: Path, others: list[str]) -> list[str]:
    """The trace files in a directory, by name, those of subdirectories included; other databases go to ``others``."""
    files = (path for path in folder.rglob("*") if path.name.endswith(TRACE_SUFFIXES) and path.is_file())
    named = sorted(os.fspath(path) for path in files if not path.name.endswith(SIDE_SUFFIXES))
    strangers = [path for path in named if path.endswith(DATABASE_SUFFIX) and not _is_export(path)]
    others += strangers
    found = [path for path in named if path not in strangers]
    if not found:
        raise TraceError(f"{folder} holds no trace: no file in it ends in {', '.join(TRACE_SUFFIXES)}.")
    return found


def _is_export(path: str) -> bool:
    from referee.trace.nsys import is_export

    try:
        with ExitStack() as stack:
            return is_export(_local(path, stack))
    except TraceError:
        return True  # reading it will say why it cannot be read


def _matching(pattern: str) -> list[str]:
    found = sorted(
        path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path) and not path.endswith(SIDE_SUFFIXES)
    )
    if not found:
        raise TraceError(f"No file matches {pattern}.")
    return found


def rank_in_name(path: str | os.PathLike[str]) -> int | None:
    """The rank that a file's name states, ``None`` if it states none."""
    match = _RANK.search(os.path.basename(path))
    return int(match.group(1)) if match else None


def _rank_of(path: str) -> int | None:
    """The rank that a file's name states, else the one that Kineto wrote at its beginning."""
    named = rank_in_name(path)
    if named is not None or not os.path.isfile(path):
        return named
    stated = _STATED_RANK.search(_head(path))
    return int(stated.group(1)) if stated else None


def _head(path: str) -> bytes:
    """The beginning of a file's text, plain or gzip; nothing where it cannot be read."""
    import gzip

    try:
        with open(path, "rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else open(path, "rb") as text:
            return text.read(_HEAD_BYTES)
    except (OSError, EOFError, zlib.error):
        return b""
