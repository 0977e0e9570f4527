"""How does a cycle become a file? Exported once, marked, compressed, and put in place whole or not at all.

A trace appears under its name only after its provenance lies beside it and every byte is on disk. Until then it is a
``.….partial`` file, which no reader takes for a trace; a process that is killed leaves at most those.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from glob import escape
from pathlib import Path

import msgspec

from referee.capture.derived import fold_stacks, folded_text, memory_timelines, timelines_json
from referee.capture.integrity import check_integrity
from referee.capture.recorder import Recorded
from referee.capture.rows import TraceFile, decode
from referee.capture.torch_window import TorchWindow
from referee.errors import UserError
from referee.records.capture import CaptureFile
from referee.records.provenance import Provenance
from referee.records.provenance_file import provenance_path, save_provenance
from referee.records.schema import write_atomically

ENDING = ".pt.trace.json.gz"
_BESIDE = ("memory.json", "folded", "flops.json", "memory_snapshot.pickle")
_PARTIAL = ".partial"
_KINETO_UNFINISHED = ".tmp"
_COMPRESSION_LEVEL = 2
"""isal's levels run from 0 to 3; 3 took six times as long as 2 to save another 3 % (on a Kineto trace of 11 MB)."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the files of one capture go, and what they are called."""

    folder: Path
    name: str
    rank: int | None = None
    world_size: int = 1

    @property
    def stem(self) -> str:
        """The capture's name, with its rank where there are several."""
        return self.name if self.rank is None else f"{self.name}.rank{self.rank}"

    def trace(self, cycle: int) -> Path:
        """The file of one cycle."""
        return self.folder / f"{self.stem}.{cycle}{ENDING}"

    def beside(self, cycle: int, ending: str) -> Path:
        """A further file of one cycle."""
        return self.folder / f"{self.stem}.{cycle}.{ending}"

    def prepare(self) -> None:
        """Make the folder, see that it can be written, and clear what a killed capture of this name has left.

        Raises :class:`~referee.errors.UserError` if it cannot, or if a file there that is not Referee's has the name.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass
        except OSError as error:
            raise UserError(
                f"Nothing can be written to the folder {self.folder}: {error.strerror}.", hint="Name another folder."
            ) from error
        # Kineto writes a file of its own beside the one it is told, and leaves it where the disk is full.
        for partial in (f"*{_PARTIAL}", f"*{_PARTIAL}{_KINETO_UNFINISHED}", "capture.json.*"):
            for left in self.folder.glob(f".{escape(self.stem)}.{partial}"):
                left.unlink(missing_ok=True)
        for trace in self._earlier():
            if not provenance_path(trace).exists():
                raise UserError(
                    f"{trace} has the name of a trace of this capture, but no provenance beside it, so it may be "
                    "somebody else's and is not replaced.",
                    hint="Name another folder, or move the file.",
                )

    def clear(self) -> int:
        """Remove an earlier capture of this name, so that two runs do not mix; how many traces it had.

        The first rank of a job removes those of ranks that this job does not have, too.
        """
        earlier = self._earlier()
        for trace in earlier:
            stem, cycle = trace.name.removesuffix(ENDING).rsplit(".", 1)
            (trace.parent / f"{stem}.capture.json").unlink(missing_ok=True)
            beside = (trace.parent / f"{stem}.{cycle}.{ending}" for ending in _BESIDE)
            for path in (trace, provenance_path(trace), *beside):
                path.unlink(missing_ok=True)
        return len(earlier)

    def _earlier(self) -> list[Path]:
        named = re.compile(rf"{re.escape(self.name)}(?:\.rank(\d+))?\.\d+{re.escape(ENDING)}")
        found = ((path, named.fullmatch(path.name)) for path in sorted(self.folder.iterdir()))
        return [path for path, match in found if match and self._replaces(None if match[1] is None else int(match[1]))]

    def _replaces(self, rank: int | None) -> bool:
        """Whether a trace of ``rank`` makes way for this process's: its own, or one that nobody else would remove."""
        if self.rank is None or rank == self.rank:
            return True
        return self.rank == 0 and (rank is None or rank >= self.world_size)


def write_cycle(
    window: TorchWindow,
    recorded: Recorded,
    *,
    place: Place,
    provenance: Provenance,
    before_placing: Callable[[], None] = lambda: None,
) -> CaptureFile:
    """Export the cycle that ``window`` saw, with its provenance beside it, and check what was written.

    ``before_placing`` is called when the trace is whole and on disk, so that what it replaces is not lost to a trace
    that cannot be written. Raises :class:`~referee.errors.UserError` if it cannot.
    """
    target = place.trace(recorded.number)
    try:
        with _partial_file(place) as partial:
            window.export(partial)
            text = _mark_incomplete(partial.read_bytes(), recorded.incomplete)
            size = _compress_into(partial, text)
            file = decode(text)
            before_placing()
            # Never the new provenance beside an old trace: the old one goes first.
            target.unlink(missing_ok=True)
            save_provenance(provenance, target)
            beside = _write_beside(window, file, place=place, cycle=recorded.number)
            os.replace(partial, target)
    except OSError as error:
        raise UserError(f"The trace {target} cannot be written: {error.strerror}.") from error
    return CaptureFile(
        path=os.fspath(target),
        iterations=recorded.iterations,
        size_bytes=size,
        integrity=None if file is None else check_integrity(file),
        memory_growth_bytes=window.memory_growth_bytes,
        beside=beside,
    )


@contextmanager
def _partial_file(place: Place) -> Iterator[Path]:
    """An empty file that no reader takes for a trace; what is still of it at the end is removed, Kineto's own too.

    The folder is made again where the loop has removed it.
    """
    place.folder.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=place.folder, prefix=f".{place.stem}.", suffix=_PARTIAL)
    os.close(handle)
    try:
        yield Path(name)
    finally:
        for left in (name, name + _KINETO_UNFINISHED):
            Path(left).unlink(missing_ok=True)


def _write_beside(window: TorchWindow, file: TraceFile | None, *, place: Place, cycle: int) -> tuple[str, ...]:
    """Write what the options ask for beyond the trace itself."""
    written: dict[str, bytes] = {}
    options = window.options
    # With shapes every operand is kept alive, so such a timeline would be wrong; see write_memory.
    if options.memory and not options.spoils_memory and file is not None:
        written["memory.json"] = timelines_json(memory_timelines(file))
    if window.options.stacks and file is not None:
        written["folded"] = folded_text(fold_stacks(file))
    if window.options.flops:
        written["flops.json"] = msgspec.json.encode({"schema": "referee.flops/1", "ops": window.flops()}) + b"\n"
    paths = {place.beside(cycle, ending): content for ending, content in written.items()}
    for path, content in paths.items():
        write_atomically(content, path)
    snapshot = place.beside(cycle, "memory_snapshot.pickle")
    if window.save_snapshot(snapshot):
        paths[snapshot] = b""
    return tuple(map(os.fspath, paths))


def write_memory(window: TorchWindow, *, place: Place, cycle: int) -> str | None:
    """Write the memory timeline of a window that recorded memory alone, beside the trace of ``cycle``; its path."""
    target = place.beside(cycle, "memory.json")
    try:
        with _partial_file(place) as partial:
            window.export(partial)
            file = decode(partial.read_bytes())
    except OSError as error:
        raise UserError(f"The memory timeline {target} cannot be written: {error.strerror}.") from error
    if file is None:
        return None
    write_atomically(timelines_json(memory_timelines(file)), target)
    return os.fspath(target)


def _mark_incomplete(text: bytes, iteration: int | None) -> bytes:
    """Rename the row of an iteration that did not end, so that nobody counts it as a step."""
    if iteration is None:
        return text
    return text.replace(b'"ProfilerStep#%d"' % iteration, b'"incomplete iteration %d"' % iteration)


def compress(text: bytes) -> bytes:
    """``text`` as gzip, as traces are stored."""
    from isal import igzip

    packed: bytes = igzip.compress(text, compresslevel=_COMPRESSION_LEVEL)
    return packed


def _compress_into(path: Path, text: bytes) -> int:
    with path.open("wb") as raw:
        raw.write(compress(text))
        raw.flush()
        os.fsync(raw.fileno())
        size = raw.tell()
    umask = os.umask(0)
    os.umask(umask)
    path.chmod(0o666 & ~umask)
    return size
