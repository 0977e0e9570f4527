"""How long would it take if something were different? Predictions by replay, and the replay's own error."""

from __future__ import annotations

from dataclasses import dataclass

from referee.records.finding import Finding
from referee.records.provenance import Provenance


@dataclass(frozen=True, kw_only=True)
class Response:
    """The replay's time over the recorded one when all times, the device's, or the host's are halved.

    Halving everything must give 0.5: a replay that does not answer to change copies the record and predicts nothing.
    ``device_gone``: what is left if device rows take no time at all, which is the host's own path.
    """

    all_half: float
    device_half: float
    host_half: float
    device_gone: float | None = None


@dataclass(frozen=True, kw_only=True)
class EditResult:
    """One edit, or several together: the predicted time as a range, with the assumptions of both ends."""

    name: str
    step_ns: float
    low_ns: float
    high_ns: float
    basis: str
    gain_low_frac: float
    gain_high_frac: float


@dataclass(frozen=True, kw_only=True)
class WhatIf:
    """Predictions for one trace (schema ``referee.whatif/1``). Times are of the window: the first
    start to the last end of a device row, or of the host rows where there is none.

    ``replayed_ns`` is the replay without an edit, ``replay_error_frac`` its difference from ``recorded_ns``;
    ``busy_frac`` is the share of the device's window that it works. ``together`` is all edits at once.
    """

    source: str
    recorded_ns: int
    replayed_ns: int
    replay_error_frac: float
    busy_frac: float | None
    response: Response
    edits: tuple[EditResult, ...]
    together: EditResult | None = None
    provenance: Provenance | None = None
    findings: tuple[Finding, ...] = ()
    schema: str = "referee.whatif/1"
