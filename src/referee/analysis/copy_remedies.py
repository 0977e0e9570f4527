"""What would help against copies? By where they go, from which memory, and how small they are."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from referee.analysis.kernels import is_local_copy
from referee.analysis.proposal import propose
from referee.analysis.study import Study
from referee.graph.calls import named
from referee.records.verdict import Remedy
from referee.trace.columns import NONE, Kind, RowNumbers
from referee.trace.intervals import measure, overlap_ns, union

_PAGEABLE = re.compile("pageable", re.IGNORECASE)
_TO_HOST = re.compile(r"DtoH|D2H|device[- _]?to[- _]?host|device -> (host|pageable|pinned)", re.IGNORECASE)

TINY_BYTES = 4096
"""A copy of at most a page takes as long as one of a single number: what it costs is the call."""
MANY_TINY = 8
"""So many tiny copies a step are a habit of the code, and no exception."""


def copy_remedies(study: Study, steps: int) -> Iterator[Remedy]:
    """Remedies for copies over links, and for those within a device."""
    timeline = study.timeline
    carried_ns = timeline.exposed_copy_ns - timeline.local_copy_ns
    copies = study.trace.rows.of(Kind.MEMCPY)
    carried = copies[~is_local_copy(study.trace, copies)]
    to_host = carried[named(study.trace, carried, _TO_HOST)]
    others = np.setdiff1d(carried, to_host)
    yield from _tiny(study, others, steps)
    if carried_ns:
        yield from _pinned(study, others, to_host, carried_ns=carried_ns, steps=steps)
        yield from _beside(study, others, to_host, carried_ns=carried_ns, steps=steps)
    if timeline.local_copy_ns:
        yield propose(
            "Leave out copies within the device",
            "copies within the device",
            f"look for .contiguous(), .clone(), torch.cat and changes of layout{_by_whom(study)}; keep one memory "
            "format, write into slices of one buffer (out=)",
            high_ns=timeline.local_copy_ns,
            steps=steps,
            basis="copies from one place of a device's memory to another that nothing runs beside",
        )


def _pinned(
    study: Study, to_device: RowNumbers, to_host: RowNumbers, *, carried_ns: int, steps: int
) -> Iterator[Remedy]:
    """Copies from or to memory that may be paged out."""
    if ns := _pageable_ns(study, to_device):
        yield propose(
            "Pin the host memory and copy without blocking",
            "pageable copies",
            "DataLoader(…, pin_memory=True) and tensor.to(device, non_blocking=True)",
            high_ns=min(ns, carried_ns),
            steps=steps,
            basis="exposed copies from pageable memory",
        )
    if ns := _pageable_ns(study, to_host):
        yield propose(
            "Copy results into pinned memory without blocking, and read them later",
            "pageable copies to the host",
            "buffer = torch.empty_like(result, device='cpu', pin_memory=True); buffer.copy_(result, "
            "non_blocking=True); read it a step later, behind an event",
            high_ns=min(ns, carried_ns),
            steps=steps,
            basis="exposed copies to pageable memory",
        )


def _beside(
    study: Study, to_device: RowNumbers, to_host: RowNumbers, *, carried_ns: int, steps: int
) -> Iterator[Remedy]:
    """Copies beside computation: of the next batch, or of results, whichever takes longer."""
    out = _busy_ns(study, to_host) > _busy_ns(study, to_device)
    yield propose(
        "Copy results on a stream of their own while the next ones are computed"
        if out
        else "Copy the next batch on a stream of its own while this one is computed",
        "exposed copies",
        "with torch.cuda.stream(copy_stream): pinned.copy_(result, non_blocking=True)"
        if out
        else "with torch.cuda.stream(copy_stream): batch = batch.to(device, non_blocking=True), from pinned memory",
        high_ns=carried_ns,
        steps=steps,
        basis="copies over a link that no computation hides",
    )


def _tiny(study: Study, to_device: RowNumbers, steps: int) -> Iterator[Remedy]:
    """Single numbers that are sent one by one: the call costs, not the bytes."""
    if study.details is None or not to_device.size:
        return
    launches = study.details.launches
    size_bytes = launches.size_bytes[np.isin(launches.rows, to_device)]
    tiny = np.intersect1d(launches.rows, to_device)[(size_bytes >= 0) & (size_bytes <= TINY_BYTES)]
    if tiny.size < MANY_TINY * steps:
        return
    rows, links = study.trace.rows, study.trace.links
    call = links.launch_of[tiny]
    call = call[call != NONE]
    around = np.where(links.operator_of[call] == NONE, call, links.operator_of[call])
    doing = union(
        np.concatenate((rows.start_ns[around], rows.start_ns[tiny])),
        np.concatenate((rows.end_ns[around], rows.end_ns[tiny])),
    )
    idle_ns = sum(int(overlap_ns(g.start_ns, g.end_ns, within=doing).sum()) for g in study.gaps)
    yield propose(
        "Make small values on the device, or send them as one tensor",
        "tiny copies to the device",
        "torch.full((), value, device=device) instead of torch.tensor(value).to(device); gather numbers in one tensor "
        "and copy that once",
        high_ns=idle_ns + _busy_ns(study, tiny),
        steps=steps,
        basis=f"{tiny.size / steps:,.0f} copies of at most {TINY_BYTES:,} bytes: their own time, and the idle time "
        "during their calls",
    )


def _by_whom(study: Study) -> str:
    """The operator that makes most of the copies within the device, in brackets."""
    rows, links = study.trace.rows, study.trace.links
    copies = rows.of(Kind.MEMCPY)
    copies = copies[is_local_copy(study.trace, copies)]
    launch = links.launch_of[copies]
    operator = np.where(launch == NONE, NONE, links.operator_of[np.maximum(launch, 0)])
    known = operator != NONE
    if not known.any():
        return ""
    names, code = np.unique(rows.name[operator[known]], return_inverse=True)
    took_ns = np.bincount(code, weights=(rows.end_ns[copies] - rows.start_ns[copies])[known])
    return f" (most of it in {study.trace.names[int(names[int(took_ns.argmax())])]})"


def _pageable_ns(study: Study, copies: RowNumbers) -> int:
    return _busy_ns(study, copies[named(study.trace, copies, _PAGEABLE)])


def _busy_ns(study: Study, rows: RowNumbers) -> int:
    """How long at least one of these rows ran."""
    return measure(union(study.trace.rows.start_ns[rows], study.trace.rows.end_ns[rows]))
