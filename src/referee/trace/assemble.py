"""How does a list of events become a trace? Sorting, kinds, links and steps: the one path that every source takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from referee.records.finding import Finding
from referee.records.provenance import Provenance
from referee.trace.audit import audit
from referee.trace.columns import (
    NONE,
    ON_DEVICE_KINDS,
    ByteColumn,
    CodeColumn,
    DeviceProperties,
    IntColumn,
    Rows,
    Trace,
)
from referee.trace.correlate import link
from referee.trace.kinds import classify, unknown_categories
from referee.trace.periodicity import periodic_steps
from referee.trace.steps import find_steps, step_findings

MOST_DEVICES = 1024
"""Numbers of devices are below this; larger process numbers are those of host processes."""


@dataclass(kw_only=True, eq=False)
class EventTable:
    """Events with a duration in the order of the file; columns as in :class:`~referee.trace.columns.Rows`.

    A table is used up by making rows of it, column by column: of a large trace there is never a second copy.
    """

    start_ns: IntColumn
    duration_ns: IntColumn
    name: CodeColumn
    category: CodeColumn
    thread: CodeColumn
    device: CodeColumn
    stream: IntColumn
    correlation: IntColumn
    external_id: IntColumn
    place: IntColumn

    def take(self, column: str, order: IntColumn) -> Any:
        """Hand out a column in ``order`` and let go of it."""
        values = getattr(self, column)[order]
        setattr(self, column, _GONE)
        return values


_GONE = np.empty(0, np.int64)


@dataclass(frozen=True, kw_only=True)
class Labels:
    """What the codes of a table stand for."""

    names: tuple[str, ...]
    categories: tuple[str, ...]
    threads: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a source knows beside its events."""

    source: str
    base_ns: int = 0
    events: int = 0
    devices: tuple[DeviceProperties, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    provenance: Provenance | None = None


def assemble(table: EventTable, *, labels: Labels, surroundings: Surroundings, lean: bool = False) -> Trace:
    """The trace of a table of events, which is used up; ``lean``: its links take half the memory."""
    negative = _duration_findings(table)
    rows = sort_rows(table, labels=labels)
    links = link(rows, names=labels.names)
    if lean and len(rows) < 1 << 31:
        short: Any = np.int32
        links = replace(links, launch_of=links.launch_of.astype(short), operator_of=links.operator_of.astype(short))
    steps, steps_from = find_steps(rows, names=labels.names)
    if not steps and (steps := periodic_steps(rows, links, names=labels.names)):
        steps_from = "periodicity"
    findings = (
        *surroundings.findings,
        *negative,
        *_category_findings(rows, labels.categories),
        *step_findings(steps),
        *audit(rows, links, names=labels.names),
    )
    return Trace(
        source=surroundings.source,
        base_ns=surroundings.base_ns,
        events=surroundings.events,
        rows=rows,
        links=links,
        steps=steps,
        steps_from=steps_from,
        names=labels.names,
        categories=labels.categories,
        threads=labels.threads,
        devices=surroundings.devices,
        metadata=surroundings.metadata,
        findings=findings,
        provenance=surroundings.provenance,
    )


def sort_rows(table: EventTable, *, labels: Labels) -> Rows:
    """The rows in order of start, longer first, then by place; a negative duration counts as none."""
    np.maximum(table.duration_ns, 0, out=table.duration_ns)
    order = _order(table.start_ns, table.duration_ns)
    start, end = table.take("start_ns", order), table.take("duration_ns", order)
    end += start
    category, name, thread = table.take("category", order), table.take("name", order), table.take("thread", order)
    kind = classify(category, name, categories=labels.categories, names=labels.names)
    device, stream = _place_on_devices(
        kind,
        category,
        device=table.take("device", order),
        stream=table.take("stream", order),
        thread=thread,
        threads=labels.threads,
    )
    return Rows(
        start_ns=start,
        end_ns=end,
        name=name,
        category=category,
        kind=kind,
        thread=thread,
        device=device,
        stream=stream,
        correlation=table.take("correlation", order),
        external_id=table.take("external_id", order),
        place=table.take("place", order),
    )


def _order(start: IntColumn, duration: IntColumn) -> IntColumn:
    """By start, then longer first, then as they stood."""
    order = np.argsort(start, kind="stable")
    ordered = start[order]
    equal = ordered[1:] == ordered[:-1]
    if equal.any():
        tied = np.flatnonzero(np.append(equal, False) | np.append(False, equal))
        among = order[tied]
        order[tied] = among[np.lexsort((-duration[among], start[among]))]
    return order


def _place_on_devices(
    kind: ByteColumn,
    category: CodeColumn,
    *,
    device: CodeColumn,
    stream: IntColumn,
    thread: CodeColumn,
    threads: Sequence[tuple[str, str]],
) -> tuple[CodeColumn, IntColumn]:
    """Device and stream of the rows on devices, :data:`NONE` for all others.

    Where a device row does not state them, its process stands for the device and its thread for the stream, as in
    Kineto's files: process ``0``, thread ``7`` or ``stream 7``. Where no row tells a number, the processes of each
    category are counted.
    """
    pids = np.array([_number_at_end(pid) for pid, _ in threads] or [NONE], np.int64)
    tids = np.array([_number_at_end(tid) for _, tid in threads] or [NONE], np.int64)
    # A device is numbered small; what is larger is the number of a host process.
    pids[pids >= MOST_DEVICES] = NONE
    listed = np.zeros(256, np.bool_)
    listed[[int(one) for one in ON_DEVICE_KINDS]] = True
    on_device = np.flatnonzero(listed[kind])
    own_device, own_stream = device[on_device], stream[on_device]
    device.fill(NONE)
    stream.fill(NONE)
    own_thread = thread[on_device]
    told = np.where(own_device == NONE, pids[own_thread], own_device)
    if (told == NONE).all():
        told = _numbered(own_thread, category[on_device], threads)
    device[on_device] = told
    stream[on_device] = np.where(own_stream == NONE, tids[own_thread], own_stream)
    return device, stream


def _numbered(own_thread: CodeColumn, category: CodeColumn, threads: Sequence[tuple[str, str]]) -> IntColumn:
    """The devices of rows of which nothing tells the number: their processes, counted from 0.

    Ascend's profiler writes a process for the streams of a device and one for its collectives, both numbered upwards
    with the device: the processes of each category are counted apart, in order of their own numbers.
    """
    pairs = {(kind, threads[code][0]) for code, kind in set(zip(own_thread.tolist(), category.tolist(), strict=True))}
    counted: dict[tuple[int, str], int] = {}
    for kind in {kind for kind, _ in pairs}:
        pids = sorted((pid for own, pid in pairs if own == kind), key=lambda pid: (_number_at_end(pid), pid))
        counted |= {(kind, pid): number for number, pid in enumerate(pids)}
    number = [
        counted[kind, threads[code][0]] for code, kind in zip(own_thread.tolist(), category.tolist(), strict=True)
    ]
    return np.array(number, np.int64)


def _number_at_end(label: str) -> int:
    digits = label[len(label.rstrip("0123456789")) :]
    return int(digits) if 0 < len(digits) <= 18 else NONE


def _duration_findings(table: EventTable) -> tuple[Finding, ...]:
    negative = np.flatnonzero(table.duration_ns < 0)
    if len(negative) == 0:
        return ()
    return (
        Finding(
            code="negative-duration",
            severity="warning",
            message=f"{len(negative)} rows have negative durations: they are kept at their start with a duration of 0.",
            evidence={"rows": len(negative), "least_ns": int(table.duration_ns[negative].min())},
        ),
    )


def _category_findings(rows: Rows, categories: Sequence[str]) -> tuple[Finding, ...]:
    findings = []
    counts = np.bincount(rows.category, minlength=len(categories)) if len(rows) else np.zeros(len(categories), np.int64)
    unknown = set(unknown_categories(categories))
    for category, count in zip(categories, counts, strict=True):
        if category in unknown and count:
            named = f"of the category {category!r}, which is not known," if category else "without a category"
            findings.append(
                Finding(
                    code="unknown-category",
                    severity="info",
                    message=f"{count} rows {named} were kept but not interpreted.",
                    evidence={"category": category, "rows": int(count)},
                )
            )
    return tuple(findings)
