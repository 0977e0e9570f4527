"""Who waits for whom? The collectives of the ranks of one job, matched, and which rank came to each of them last.

A collective ends about everywhere at once but begins where a rank arrives, so that the time between its arrival and the
last rank's is waiting. Arrivals are compared on one clock where the captures measured the offsets of their clocks;
otherwise by duration: the rank in which a collective is shortest is the one that came last.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from referee.analysis.kernels import is_collective
from referee.analysis.study import DETAILED_EVENTS
from referee.graph.calls import named
from referee.records.finding import Finding
from referee.records.trace_report import RankJob, RankShare
from referee.trace.columns import DEVICE_KINDS, NONE, IntColumn, Kind, RowNumbers, Trace
from referee.trace.details import details_of
from referee.trace.steps import step_of
from referee.units import format_frac

HOST_COLLECTIVES = re.compile(r"^(?:gloo|nccl|mpi|ucc|xccl|hccl):")
"""The annotations that torch's process groups put around a collective; where no device row is one, they are taken."""
_WAITS_FRAC = 0.10
"""Waiting for a tenth of the step is worth a finding; less comes and goes with the load of the hosts."""
_OFTEN_FRAC = 0.5
"""Who is waited for came last in more than half of the collectives, not just in most."""


@dataclass(frozen=True, kw_only=True)
class _Call:
    start_ns: int
    duration_ns: int
    cut: bool = False
    """It was under way when the profiler stopped: its start is exact, its duration too short."""


_Key = tuple[str, int, str, int]
"""Which collective: its process group (empty if not known), number of the step, name, how many of that name came before
in the step."""
_RANKS = re.compile(r"\[\s*\d+(?:\s*,\s*\d+)*\s*\]")


def rank_of(trace: Trace) -> int | None:
    """The rank that the file states, or the provenance beside it."""
    info = trace.metadata.get("distributedInfo")
    rank = info.get("rank") if isinstance(info, dict) else None
    return rank if isinstance(rank, int) else _stated(trace, "rank")


def judge_ranks(traces: Sequence[Trace]) -> RankJob | None:
    """The ranks of one job side by side; ``None`` unless each trace states a rank of its own and there are several."""
    by_rank = {rank: trace for trace in traces if (rank := rank_of(trace)) is not None}
    if len(by_rank) < 2 or len(by_rank) != len(traces):
        return None
    by_rank = dict(sorted(by_rank.items()))
    calls = {rank: dict(_calls(trace)) for rank, trace in by_rank.items()}
    error_ns = _clock_error_ns(by_rank.values())
    matched = _matched(calls)
    cut = {key for key, members in matched.items() if any(calls[rank][key].cut for rank in members)}
    shared = [key for key in matched if error_ns is not None or key not in cut]
    waited: Counter[int] = Counter()
    last: Counter[int] = Counter()
    for key in shared:
        waits, late = _waits({rank: calls[rank][key] for rank in matched[key]}, error_ns=error_ns)
        waited.update(waits)
        last.update([late] if late is not None else [])
    world = next((size for trace in by_rank.values() if (size := _world_size(trace)) is not None), None)
    shares = tuple(
        _share(
            rank,
            trace,
            calls=[calls[rank][key] for key in shared if rank in matched[key]],
            waited_ns=waited[rank],
            last=last[rank],
        )
        for rank, trace in by_rank.items()
    )
    late = last.most_common(1)[0][0] if last and last.most_common(1)[0][1] > _OFTEN_FRAC * len(shared) else None
    return RankJob(
        world_size=world,
        ranks=shares,
        missing=tuple(rank for rank in range(world or 0) if rank not in by_rank),
        collectives=len(shared),
        basis="clocks" if error_ns is not None else "durations",
        clock_error_ns=error_ns,
        waits_for=late,
        cut_collectives=len(cut),
        unmatched_collectives=len(set().union(*calls.values())) - len(matched),
    )


def _matched(calls: Mapping[int, Mapping[_Key, _Call]]) -> dict[_Key, tuple[int, ...]]:
    """The collectives that are there in every rank that took part in them, of several such ranks, with these ranks.

    Where no process group is known, all ranks take part. A group that does not list its ranks is that of the ranks
    that have any collective in it.
    """
    has: defaultdict[str, set[int]] = defaultdict(set)
    for rank, found in calls.items():
        for group, *_ in found:
            has[group].add(rank)
    members = {group: _members(group, seen=seen, here=set(calls)) for group, seen in has.items()}
    asked = {key: members[key[0]] for key in sorted(set().union(*calls.values()))}
    return {
        key: tuple(sorted(ranks))
        for key, ranks in asked.items()
        if len(ranks) > 1 and all(key in calls[rank] for rank in ranks)
    }


def _members(group: str, *, seen: set[int], here: set[int]) -> set[int]:
    if not group:
        return here
    return {int(rank) for rank in re.findall(r"\d+", group)} & here if _RANKS.fullmatch(group) else seen


def rank_findings(job: RankJob) -> tuple[Finding, ...]:
    """What is to be said of the job: ranks that wait for another, and ranks that are not here."""
    return (*_waiting(job), *_missing(job))


def _waiting(job: RankJob) -> Iterator[Finding]:
    most = max(job.ranks, key=lambda share: share.waited_frac or 0.0)
    if job.waits_for is None or most.rank == job.waits_for or (most.waited_frac or 0.0) < _WAITS_FRAC:
        return
    late = next(share for share in job.ranks if share.rank == job.waits_for)
    yield Finding(
        code="ranks-wait",
        severity="warning",
        message=f"Rank {most.rank} spends {format_frac(most.waited_frac or 0.0)} of its steps waiting for other ranks, "
        f"mostly for rank {late.rank}, which comes last to {late.last} of {job.collectives} collectives.",
        evidence={
            "rank": most.rank,
            "waited_ns": most.waited_ns,
            "waits_for": late.rank,
            "last": late.last,
            "collectives": job.collectives,
            "basis": job.basis,
        },
        hint=f"What rank {late.rank} does before its collectives sets the pace: compare its steps, its data and its "
        "host with the others'.",
    )


def _missing(job: RankJob) -> Iterator[Finding]:
    if job.missing:
        yield Finding(
            code="ranks-missing",
            severity="warning",
            message=f"The job has {job.world_size} ranks, of which {len(job.ranks)} are here.",
            evidence={"world_size": job.world_size, "here": len(job.ranks), "first_missing": job.missing[0]},
            hint="A rank that is not here may be the one that the others wait for: collect all traces of the job.",
        )


def _calls(trace: Trace) -> Iterator[tuple[_Key, _Call]]:
    """The collectives of a trace: kernels, or where there are none, annotations on the host."""
    rows = trace.rows
    kernels = rows.of(Kind.KERNEL)
    found = kernels[is_collective(trace, kernels)]
    end_ns = None
    if not found.size:
        host = rows.of(Kind.ANNOTATION)
        found = host[named(trace, host, HOST_COLLECTIVES)]
        # The end of one that was under way when the profiler stopped is there, behind the last step.
        end_ns = trace.steps[-1].end_ns if trace.steps else None
    begins = np.array([step.start_ns for step in trace.steps], np.int64)
    groups = details_of(trace).groups if found.size and trace.events <= DETAILED_EVENTS else {}
    seen: defaultdict[tuple[str, int, str], int] = defaultdict(int)
    origin_ns = _origin_ns(trace)
    steps = np.searchsorted(begins, _issued_ns(trace, found), side="right")
    for row, step in zip(found.tolist(), steps.tolist(), strict=True):
        start_ns, stop_ns = int(rows.start_ns[row]), int(rows.end_ns[row])
        cut = end_ns is not None and stop_ns > end_ns
        place = (groups.get(row, ""), step, trace.name_of(row))
        yield (*place, seen[place]), _Call(start_ns=origin_ns + start_ns, duration_ns=stop_ns - start_ns, cut=cut)
        seen[place] += 1


def _issued_ns(trace: Trace, found: RowNumbers) -> IntColumn:
    """When the host issued each row: hosts run ahead by more or less, so that only this tells the same step everywhere.

    Where its launch is not in the file, when it ran.
    """
    rows, launch = trace.rows, trace.links.launch_of[found]
    return np.where(launch == NONE, rows.start_ns[found], rows.start_ns[np.maximum(launch, 0)])


def _waits(calls: Mapping[int, _Call], *, error_ns: int | None) -> tuple[dict[int, int], int | None]:
    """How long each rank waited in one collective, and who came last; ``None`` where the clocks cannot tell."""
    if error_ns is None:
        shortest = min(call.duration_ns for call in calls.values())
        waits = {rank: call.duration_ns - shortest for rank, call in calls.items()}
        return waits, min(calls, key=lambda rank: calls[rank].duration_ns)
    *_, before, last = sorted(calls, key=lambda rank: calls[rank].start_ns)
    arrived = calls[last].start_ns
    waits = {rank: min(call.duration_ns, arrived - call.start_ns) for rank, call in calls.items()}
    return waits, last if arrived - calls[before].start_ns > error_ns else None


def _share(rank: int, trace: Trace, *, calls: Sequence[_Call], waited_ns: int, last: int) -> RankShare:
    steps = [step.end_ns - step.start_ns for step in trace.steps if not step.cut]
    device_ns = _device_ns(trace)
    host = trace.metadata.get("host_name")
    return RankShare(
        rank=rank,
        source=trace.source,
        host=host if isinstance(host, str) else None,
        step_ns=round(median(steps) if sum(steps) >= device_ns else device_ns / len(steps)) if steps else None,
        collective_ns=sum(call.duration_ns for call in calls),
        waited_ns=waited_ns,
        waited_frac=waited_ns / max(sum(steps), device_ns) if sum(steps) else None,
        last=last,
        clock_offset_ns=_stated(trace, "clock_offset_ns"),
        clock_error_ns=_stated(trace, "clock_offset_error_ns"),
    )


def _device_ns(trace: Trace) -> int:
    """From first to last of what the whole steps launched: longer than they are where the host runs ahead."""
    device_rows = trace.rows.of(*DEVICE_KINDS)
    launch = trace.links.launch_of[device_rows]
    device_rows, launch = device_rows[launch != NONE], launch[launch != NONE]
    whole = [step for step in trace.steps if not step.cut]
    theirs = device_rows[step_of(whole, trace.rows.start_ns[launch]) != NONE]
    return int(trace.rows.end_ns[theirs].max() - trace.rows.start_ns[theirs].min()) if theirs.size else 0


def _clock_error_ns(traces: Iterable[Trace]) -> int | None:
    """By how much arrivals on two ranks may be misjudged; ``None`` where a rank's clock offset is not known."""
    errors = [_stated(trace, "clock_offset_error_ns") for trace in traces]
    known = [error for error in errors if error is not None]
    return sum(sorted(known)[-2:]) if len(known) == len(errors) else None


def _origin_ns(trace: Trace) -> int:
    """What is added to a row's start to have it on the clock of rank 0."""
    base = trace.metadata.get("baseTimeNanoseconds")
    return trace.base_ns + (base if isinstance(base, int) else 0) - (_stated(trace, "clock_offset_ns") or 0)


def _world_size(trace: Trace) -> int | None:
    info = trace.metadata.get("distributedInfo")
    size = info.get("world_size") if isinstance(info, dict) else None
    return size if isinstance(size, int) else _stated(trace, "world_size")


def _stated(trace: Trace, key: str) -> int | None:
    """A whole number that the capture wrote into the provenance beside the trace."""
    value = None if trace.provenance is None else trace.provenance.method.get(key)
    return value if isinstance(value, int) else None
