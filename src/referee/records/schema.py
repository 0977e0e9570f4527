"""Which kind of file is this, and which version? Saving and loading of records, atomically and by schema name.

The history of the format is :data:`HISTORY`. A reader for each old version stays; a file of a newer version is refused
with one sentence. What an old file does not state stays "not read".
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec

from referee.errors import SchemaError, UserError
from referee.records.anatomy import Anatomy, AnatomySurvey
from referee.records.capture import Capture
from referee.records.check import Check
from referee.records.compare import Comparison
from referee.records.diff import TraceDiff
from referee.records.environment import Environment
from referee.records.lab import LabReport
from referee.records.measurement import Measurement, Sweep
from referee.records.precision import PrecisionReport
from referee.records.profile import Profile
from referee.records.remedy import RemedyReport
from referee.records.shapes import ShapeSet
from referee.records.sweep_grid import SweepGrid
from referee.records.trace_report import TraceReport, TraceSet
from referee.records.verify import Verification
from referee.records.whatif import WhatIf

Record: TypeAlias = (
    Measurement
    | Sweep
    | SweepGrid
    | TraceReport
    | TraceSet
    | TraceDiff
    | Capture
    | Profile
    | Check
    | Environment
    | Comparison
    | Verification
    | ShapeSet
    | PrecisionReport
    | Anatomy
    | AnatomySurvey
    | RemedyReport
    | WhatIf
    | LabReport
)

KINDS: dict[str, tuple[int, type[Record]]] = {
    "referee.measurement": (1, Measurement),
    "referee.sweep": (1, Sweep),
    "referee.sweeps": (1, SweepGrid),
    "referee.trace": (1, TraceReport),
    "referee.capture": (1, Capture),
    "referee.profile": (1, Profile),
    "referee.check": (1, Check),
    "referee.diff": (1, TraceDiff),
    "referee.env": (1, Environment),
    "referee.compare": (1, Comparison),
    "referee.verify": (1, Verification),
    "referee.shapes": (1, ShapeSet),
    "referee.traces": (1, TraceSet),
    "referee.precision": (1, PrecisionReport),
    "referee.anatomy": (1, Anatomy),
    "referee.anatomy-survey": (1, AnatomySurvey),
    "referee.remedy": (1, RemedyReport),
    "referee.whatif": (1, WhatIf),
    "referee.lab": (1, LabReport),
}
"""Schema name → current version and record type."""

HISTORY = """
referee.measurement/1  first version
referee.sweep/1        first version
referee.sweeps/1       first version
referee.trace/1        first version
referee.capture/1      first version
referee.profile/1      first version
referee.check/1        first version
referee.diff/1         first version
referee.env/1          first version
referee.compare/1      first version
referee.verify/1       first version
referee.shapes/1       first version
referee.lab/1          first version
referee.traces/1       first version
referee.precision/1    first version
referee.anatomy/1      first version
referee.anatomy-survey/1  first version
referee.remedy/1       first version
referee.whatif/1       first version
"""


def to_json(record: Record) -> bytes:
    """The record as UTF-8 JSON, indented, ending in a newline."""
    return msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"


def from_json(text: bytes, *, source: str = "the text") -> Record:
    """The record in ``text``. Raises :class:`~referee.errors.SchemaError` with one sentence that names ``source``."""
    try:
        raw = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SchemaError(f"{source} is not JSON: {error}.") from error
    schema = raw.get("schema") if isinstance(raw, Mapping) else None
    if not isinstance(schema, str) or "/" not in schema:
        raise SchemaError(f"{source} is not a result of Referee: it has no schema.")
    kind, _, version = schema.partition("/")
    if kind not in KINDS or not version.isdigit():
        raise SchemaError(f"{source} has the schema {schema}, which this Referee does not know.")
    current, record_type = KINDS[kind]
    if int(version) > current:
        raise SchemaError(
            f"{source} has version {version} of {kind}; this Referee reads up to {current}.", hint="Update Referee."
        )
    try:
        return msgspec.convert(raw, type=record_type)
    except msgspec.ValidationError as error:
        raise SchemaError(f"{source} is a damaged {kind}: {error}.") from error


def load(path: str | os.PathLike[str]) -> Record:
    """The record in the file at ``path``."""
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise SchemaError(f"{os.fspath(path)} cannot be read: {error.strerror}.") from error
    return from_json(text, source=os.fspath(path))


def save(record: Record, path: str | os.PathLike[str]) -> None:
    """Write the record to ``path``, replacing it atomically."""
    write_atomically(to_json(record), path)


def write_atomically(content: bytes, path: str | os.PathLike[str]) -> None:
    """Write ``content`` to ``path`` so that a reader sees the old file or the new one, never a part.

    A link is followed. What is there and is no regular file (a device, a pipe) is written to, never replaced.
    """
    target = Path(path).resolve()
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(content)
            return
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.") from error
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, target)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise UserError(f"{path} cannot be written: {error.strerror}.") from error
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
