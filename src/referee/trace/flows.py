"""Which call launched which device row, in a file of Ascend's profiler whose rows carry no ids? Its arrows say.

Chrome's format draws an arrow (a *flow*) from one row to another: an event of phase ``s`` inside the one and one of
phase ``f`` at the start of the other, with the same id. Ascend's older profilers tie rows in this way alone
(``HostToDevice``). Ids, where there are any, decide alone; and Kineto's arrows (``ac2g``) are not heeded: its files are
tied by correlation ids or not at all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from referee.records.finding import Finding
from referee.trace.audit import audit
from referee.trace.backward import FlowEvent
from referee.trace.columns import CALL_KINDS, DEVICE_KINDS, NONE, IntColumn, RowNumbers, Trace
from referee.trace.correlate import link
from referee.trace.kinds import ASCEND
from referee.trace.nesting import innermost
from referee.trace.numbers import exact_ns


def may_need_flows(trace: Trace) -> bool:
    """Whether the trace is of Ascend's profiler, has calls and device rows, and not one of these states an id."""
    if not any(category.lower() == ASCEND for category in trace.categories):
        return False
    device_rows = trace.rows.of(*DEVICE_KINDS)
    if not device_rows.size or (trace.rows.correlation[device_rows] > 0).any():
        return False
    return bool(trace.rows.of(*CALL_KINDS).size)


def link_by_flows(trace: Trace, flows: Iterable[FlowEvent]) -> Trace:
    """The trace with its device rows tied to the calls from which arrows lead to them, and a finding that says so."""
    begins, meets = _ends(trace, flows)
    device_rows, calls = trace.rows.of(*DEVICE_KINDS), trace.rows.of(*CALL_KINDS)
    ids = sorted(begins.keys() & meets.keys())
    call_of = dict(zip(ids, _rows_around(trace, calls, [begins[one] for one in ids]).tolist(), strict=True))
    starts = dict(zip(_thread_and_start(trace, device_rows), device_rows.tolist(), strict=True))
    correlation = trace.rows.correlation.copy()
    tied = 0
    for one in ids:
        for met in meets[one]:
            row = starts.get(met, NONE)
            if row != NONE and call_of[one] != NONE:
                # The call's own place is as good an id as any: every row that it launched gets the same one.
                correlation[row] = correlation[call_of[one]] = call_of[one] + 1
                tied += 1
    if not tied:
        return trace
    rows = replace(trace.rows, correlation=correlation)
    links = link(rows, names=trace.names)
    known = {finding.code for finding in trace.findings}
    again = (found for found in audit(rows, links, names=trace.names) if found.code not in known)
    more = (_finding(tied, device_rows.size), *again)
    return replace(trace, rows=rows, links=links, findings=(*trace.findings, *more))


_Place = tuple[int, int]
"""Code of the thread, and nanoseconds since the trace's base."""


def _ends(trace: Trace, flows: Iterable[FlowEvent]) -> tuple[dict[str, _Place], dict[str, list[_Place]]]:
    """By id: where arrows begin, of several the first, and where they end."""
    codes = {labels: code for code, labels in enumerate(trace.threads)}
    begins: dict[str, _Place] = {}
    meets: defaultdict[str, list[_Place]] = defaultdict(list)
    for flow in flows:
        thread, time = codes.get((str(flow.pid), str(flow.tid)), NONE), exact_ns(bytes(flow.ts))
        if thread == NONE or time is None:
            continue
        place = thread, time - trace.base_ns
        if flow.ph == "s":
            begins.setdefault(str(flow.id), place)
        else:
            meets[str(flow.id)].append(place)
    return begins, meets


def _rows_around(trace: Trace, calls: RowNumbers, places: list[_Place]) -> IntColumn:
    """The innermost call around each place, or one that ends there; :data:`NONE` where there is none."""
    rows = trace.rows
    thread = np.array([code for code, _ in places], np.int32)
    moment = np.array([time for _, time in places], np.int64)
    order = np.argsort(moment, kind="stable")
    found = np.full(len(places), NONE, np.int64)
    for earlier_ns in (0, 1):
        at = innermost(
            rows.thread[calls],
            rows.start_ns[calls],
            rows.end_ns[calls],
            at_thread=thread[order],
            at=moment[order] - earlier_ns,
        )
        around = np.where(at >= 0, calls[np.maximum(at, 0)], NONE)
        found[order] = np.where(found[order] == NONE, around, found[order])
    return found


def _thread_and_start(trace: Trace, members: RowNumbers) -> list[_Place]:
    return list(zip(trace.rows.thread[members].tolist(), trace.rows.start_ns[members].tolist(), strict=True))


def _finding(tied: int, rows: int) -> Finding:
    return Finding(
        code="linked-by-flows",
        severity="info",
        message=f"No device row carries a correlation id: the file's arrows tie {tied} of {rows} to their calls.",
        evidence={"tied": tied, "device_rows": rows},
    )
