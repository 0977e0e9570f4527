"""Under what circumstances was this trace file recorded? The provenance that lies beside it, by name.

A trace is a file of another program's format, so its provenance cannot be inside it: for ``NAME.pt.trace.json.gz`` it
is ``NAME.pt.trace.json.gz.provenance.json``, the JSON of :class:`~referee.records.provenance.Provenance` alone.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from referee.errors import ProvenanceError, SchemaError
from referee.records.provenance import Provenance

SUFFIX = ".provenance.json"
"""What is put behind the whole name of the trace file."""


def provenance_path(trace_path: str | os.PathLike[str]) -> Path:
    """Where the provenance of the trace at ``trace_path`` lies."""
    path = Path(trace_path)
    return path.with_name(path.name + SUFFIX)


def save_provenance(provenance: Provenance, trace_path: str | os.PathLike[str]) -> Path:
    """Write ``provenance`` beside the trace at ``trace_path``, atomically, and say where."""
    from referee.records.schema import write_atomically

    path = provenance_path(trace_path)
    write_atomically(msgspec.json.format(msgspec.json.encode(provenance), indent=1) + b"\n", path)
    return path


def load_provenance(trace_path: str | os.PathLike[str]) -> Provenance | None:
    """The provenance beside the trace at ``trace_path``; ``None`` where there is none.

    Raises :class:`~referee.errors.SchemaError` with one sentence if the file is there but is not a provenance.
    """
    path = provenance_path(trace_path)
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SchemaError(f"{path} cannot be read: {error.strerror}.") from error
    try:
        return msgspec.json.decode(text, type=Provenance)
    except (msgspec.MsgspecError, UnicodeDecodeError, ProvenanceError) as error:
        raise SchemaError(f"{path} is not a provenance: {error}.", hint="Delete it to read the trace alone.") from error
