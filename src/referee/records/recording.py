"""What did the capture that wrote this trace know of it? Kept in ``NAME.capture.json`` beside the traces it wrote."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from referee.errors import SchemaError
from referee.records import schema
from referee.records.capture import Capture, Recording
from referee.records.finding import Finding

_NAMED = re.compile(r"(.+)\.\d+\.pt\.trace\.json\.gz")


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a capture's record tells of one trace; nothing of either where there is no such record."""

    recording: Recording | None = None
    findings: tuple[Finding, ...] = ()


def load_recording(trace_path: str | os.PathLike[str]) -> Told:
    """How the trace at ``trace_path`` was recorded, with the findings of its capture that concern it.

    A record is believed only if it names a trace of this file's name and size. One that cannot be read is a finding.
    """
    path = Path(trace_path)
    named = _NAMED.fullmatch(path.name)
    if named is None:
        return Told()
    try:
        size = path.stat().st_size
        capture = schema.load(path.with_name(f"{named[1]}.capture.json"))
    except OSError:
        return Told()
    except SchemaError as error:
        return Told() if isinstance(error.__cause__, FileNotFoundError) else Told(findings=(_unreadable(error),))
    return tell_of(capture, name=path.name, size_bytes=size) if isinstance(capture, Capture) else Told()


def tell_of(capture: Capture, *, name: str, size_bytes: int) -> Told:
    """What ``capture`` says of its trace called ``name``; nothing if it wrote no such trace of this size."""
    file = next((one for one in capture.files if Path(one.path).name == name), None)
    if file is None or file.size_bytes != size_bytes:
        return Told()
    others = [one.path for one in capture.files if one is not file]
    recording = Recording(
        name=capture.name,
        plan=capture.plan,
        options=capture.options,
        iterations=file.iterations,
        iterations_run=capture.iterations_run,
        iterations_recorded=sum(len(one.iterations) for one in capture.files),
        traces=len(capture.files),
        step_ns=capture.step_ns,
        unprofiled_step_ns=capture.unprofiled_step_ns,
        cost=capture.cost,
    )
    own = tuple(found for found in capture.findings if not any(other in found.message for other in others))
    return Told(recording=recording, findings=own)


def _unreadable(error: SchemaError) -> Finding:
    return Finding(
        code="unreadable",
        severity="info",
        message=error.message,
        hint="It should tell how the trace was recorded; the trace is read without it.",
    )
