"""Why was it compiled again? A refused measurement, with what differs from call to call named in its finding."""

from __future__ import annotations

from dataclasses import replace

from referee.bench.plan import Step
from referee.device.protocol import Change, Device, TellsChanges
from referee.records.finding import Finding
from referee.records.measurement import Measurement


def name_change(found: Measurement, *, step: Step, device: Device) -> Measurement:
    """``found``, and where it was refused for recompilation, what changes, as a few further calls of ``step`` show."""
    if not isinstance(device, TellsChanges) or all(finding.code != "recompiled" for finding in found.findings):
        return found
    try:
        change = device.what_changes(step)
    except (Exception, KeyboardInterrupt):  # noqa: BLE001 - the user's code, which may have no more inputs to give
        return found  # these calls are ours: the refusal stands without its cause
    if change is None:
        return found
    findings = tuple(_with(finding, change) if finding.code == "recompiled" else finding for finding in found.findings)
    return replace(found, findings=findings)


def _with(finding: Finding, change: Change) -> Finding:
    return replace(
        finding, message=f"{finding.message} {change.words}", evidence={**finding.evidence, **change.evidence}
    )
