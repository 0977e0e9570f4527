"""Who had the host at this moment? Gaps and waits with the operator, Python frame and annotation that owned them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from referee.analysis.idle import CAUSES, Gaps
from referee.graph.owner import covering
from referee.graph.waits import find_waits
from referee.graph.work import Work
from referee.records.tables import GapRow, Owner, SyncSite
from referee.trace.columns import NONE, CodeColumn, IntColumn, Kind, RowNumbers, Trace

MOST_GAPS = 50
MOST_SITES = 20


def owners_at(trace: Trace, thread: CodeColumn, moment_ns: IntColumn) -> list[Owner]:
    """The owner of each moment on its thread."""
    found = [_innermost(trace, kind, thread, moment_ns) for kind in (Kind.OPERATOR, Kind.PYTHON, Kind.ANNOTATION)]

    def name(row: int) -> str | None:
        return None if row == NONE else trace.name_of(row)

    return [
        Owner(operator=name(operator), python=name(python), annotation=name(annotation))
        for operator, python, annotation in zip(*(rows.tolist() for rows in found), strict=True)
    ]


def _innermost(trace: Trace, kind: Kind, thread: CodeColumn, moment_ns: IntColumn) -> RowNumbers:
    rows = trace.rows
    result = np.full(moment_ns.size, NONE, dtype=np.int64)
    for code in np.unique(thread):
        mine = np.flatnonzero(thread == code)
        result[mine] = covering(rows, np.flatnonzero((rows.kind == kind) & (rows.thread == code)), moment_ns[mine])
    return result


def longest_gaps(trace: Trace, gaps: Sequence[Gaps], *, most: int = MOST_GAPS) -> tuple[GapRow, ...]:
    """The longest idle intervals over all devices. The owner is taken on the thread that launched what ended the gap,
    in the middle of the part that belongs to the host; where a wait is the cause, it is the wait's own; unlinked rows
    have none."""
    rows = trace.rows
    entries = [(g, int(i)) for g in gaps for i in np.argsort(-g.length_ns, kind="stable")[:most]]
    entries = sorted(entries, key=lambda e: (-int(e[0].length_ns[e[1]]), e[0].device, e[1]))[:most]
    main = {id(g): g.main_cause for g in gaps}
    causes = [int(main[id(g)][i]) for g, i in entries]
    waited = [g.wait[i] != NONE and CAUSES[c] == "synchronised" for (g, i), c in zip(entries, causes, strict=True)]
    call = np.array(
        [g.wait[i] if w else g.launch[i] for (g, i), w in zip(entries, waited, strict=True)], dtype=np.int64
    )
    middle = np.array([(g.start_ns[i] + g.host_end_ns[i]) // 2 for g, i in entries], dtype=np.int64)
    moment = np.where(np.array(waited, dtype=bool), rows.start_ns[np.maximum(call, 0)], middle) if entries else middle
    linked = np.flatnonzero(call != NONE)
    owners = dict(zip(linked.tolist(), owners_at(trace, rows.thread[call[linked]], moment[linked]), strict=True))
    nobody = Owner(operator=None, python=None, annotation=None)
    return tuple(
        GapRow(
            device=g.device,
            start_ns=int(g.start_ns[i]),
            length_ns=int(g.length_ns[i]),
            cause=CAUSES[cause].replace("_", "-"),
            cause_ns=int(g.cause(CAUSES[cause])[i]),
            ended_by=trace.name_of(int(g.row[i])),
            owner=owners.get(number, nobody),
        )
        for number, ((g, i), cause) in enumerate(zip(entries, causes, strict=True))
    )


def pause_owners(trace: Trace, gaps: Sequence[Gaps]) -> list[tuple[str, int]]:
    """What had the host while it stood still, the longest first, with the idle time in ns; nothing recorded counts for
    nobody. The owner is the innermost Python frame, else operator, else annotation."""
    idle_of: dict[str, int] = defaultdict(int)
    for g in gaps:
        paused = np.flatnonzero((g.pause_ns > 0) & (g.launch != NONE))
        thread = trace.rows.thread[g.launch[paused]]
        owners = owners_at(trace, thread, (g.start_ns[paused] + g.host_end_ns[paused]) // 2)
        for owner, ns in zip(owners, g.pause_ns[paused].tolist(), strict=True):
            name = owner.python or owner.operator or owner.annotation
            if name is not None:
                idle_of[name] += ns
    return sorted(idle_of.items(), key=lambda item: (-item[1], item[0]))


def sync_sites(trace: Trace, works: Sequence[Work], gaps: Sequence[Gaps]) -> tuple[SyncSite, ...]:
    """The places that wait for a device, by call and owner; most idle time behind them first, then longest waits."""
    rows = trace.rows
    waits = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *(find_waits(trace, work).rows for work in works)]))
    if not waits.size:
        return ()
    idle_of: dict[int, int] = defaultdict(int)
    for g in gaps:
        for wait, ns in zip(g.wait[g.wait != NONE].tolist(), g.synchronised_ns[g.wait != NONE].tolist(), strict=True):
            idle_of[wait] += ns
    owners = owners_at(trace, rows.thread[waits], rows.start_ns[waits])
    sites: dict[tuple[str, Owner], list[int]] = defaultdict(list)
    for wait, owner in zip(waits.tolist(), owners, strict=True):
        sites[trace.name_of(wait), owner].append(wait)
    found = [
        SyncSite(
            call=call,
            owner=owner,
            count=len(members),
            wait_ns=int((rows.end_ns[members] - rows.start_ns[members]).sum()),
            idle_ns=sum(idle_of[wait] for wait in members),
        )
        for (call, owner), members in sites.items()
    ]
    return tuple(sorted(found, key=lambda s: (-s.idle_ns, -s.wait_ns, s.call))[:MOST_SITES])
