"""What does autocast do to this step, here and on another device? The audit as a record."""

from __future__ import annotations

from dataclasses import replace

from referee.precision.audit import Audit, group_casts
from referee.precision.budget import USED_UP, Clock
from referee.precision.elsewhere import (
    casts_elsewhere,
    derived_differences,
    differences,
    other_device,
    record_elsewhere,
)
from referee.precision.subject import Subject
from referee.records.precision import AutocastAudit


def audit_record(subject: Subject, recorded: Audit, *, clock: Clock) -> AutocastAudit:
    """The record of an audit, and, if the ``clock`` has time, what the other device would do; casts not timed yet."""
    record = _here(subject, recorded)
    there = other_device(subject.device_type)
    if there is None:
        return replace(record, not_compared=f"no other device is simulated from {subject.device_type}")
    if clock.is_up:
        return replace(record, not_compared=USED_UP)
    found = record_elsewhere(subject, there, record.dtype)
    rows, reason = differences(recorded.recording, found)
    losses = len(recorded.tape.losses)
    if losses > 1 and not reason:
        reason = f"the step is followed to the first of its {losses} losses there"
    derived, not_derived = derived_differences(recorded.recording, recorded.tape, found)
    return replace(
        record,
        elsewhere=(*rows, *derived),
        elsewhere_device=there,
        elsewhere_casts=group_casts(casts_elsewhere(found)),
        not_compared=reason,
        not_derived=not_derived,
    )


def _here(subject: Subject, recorded: Audit) -> AutocastAudit:
    groups = recorded.groups
    inside = any(call.autocast for call in recorded.recording.calls)
    site = "where the step enters it" if subject.own_sites else "put round forward and loss"
    return AutocastAudit(
        dtype=recorded.setting.autocast or "",
        site=site if inside else "nowhere",
        ops=recorded.ops,
        casts=recorded.casts,
        cast_groups=groups,
        casts_bytes=sum(group.bytes for group in groups if group.who != "explicit"),
        casts_ns=None,
        weight_casts_kept=recorded.kept,
    )
