"""What changed from trace A to trace B? Aligned by structure, every nanosecond accounted for, noise shown."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from referee.analysis.align import align
from referee.analysis.evidence import judge
from referee.analysis.idle import CAUSES
from referee.analysis.study import Study
from referee.analysis.uniform import uniform_findings
from referee.graph.calls import named
from referee.graph.owner import Enclosing
from referee.records.diff import Answer, DiffCause, DiffEntry, DiffSide, KernelChange, TraceDiff
from referee.records.finding import Finding
from referee.trace.columns import NONE, IntColumn, Kind, RowNumbers, Step, Trace
from referee.trace.intervals import measure, union
from referee.trace.steps import step_of
from referee.trace.totals import top_rows
from referee.units import format_count

SURE = (12.7, 4.3, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)
"""A change counts beyond this many standard errors of the difference of the two means: the 97.5 % points of Student's
t for 1, 2, … degrees of freedom, as few steps know their own spread badly."""
PRACTICAL_FRAC = 0.005
"""A change below half a per cent is called the same however little the steps scatter."""
ENOUGH_STEPS = 3
"""From this many whole steps on the first is left out."""
OUTSIDE = "(outside operators)"
_MODULE = re.compile(r"nn\.Module: ")


@dataclass(frozen=True, eq=False)
class _Units:
    """The top operators of one step in order, with what was launched inside each; the last unit is the outside."""

    key: tuple[tuple[str, str], ...]
    """(module, name) of each."""
    host_ns: IntColumn
    device_ns: IntColumn
    idle_ns: IntColumn


@dataclass(frozen=True, eq=False)
class _Side:
    study: Study
    steps: tuple[Step, ...]
    windows_ns: tuple[int, ...]
    causes: tuple[dict[str, int], ...]
    chosen: int
    """The step whose window is the median."""

    @property
    def worked(self) -> bool:
        """Whether the device did anything, so that there is a window."""
        return any(self.windows_ns)


def diff_traces(a: Trace, b: Trace) -> TraceDiff:
    """B against A, step by step: the mean window by cause, and one step of each aligned operator by operator.

    Cut-off steps are left out, and the first of three or more. Steps are aligned by their top operators in order,
    within their modules where both files record them; times of matched, added and removed operators sum to the steps'
    own.
    """
    left, right = _side(a), _side(b)
    change_ns = float(np.mean(right.windows_ns) - np.mean(left.windows_ns))
    noise_ns = _noise_ns(left.windows_ns, right.windows_ns)
    base_ns = float(np.mean(left.windows_ns))
    modules = _has_modules(a) and _has_modules(b)
    entries = _entries(_units(left, modules=modules), _units(right, modules=modules))
    return TraceDiff(
        a=_describe(left),
        b=_describe(right),
        answer=_answer(change_ns, noise_ns, base_ns) if left.worked and right.worked else "cannot-tell",
        change_ns=change_ns,
        ratio=float(np.mean(right.windows_ns)) / base_ns if left.worked and right.worked else None,
        noise_ns=noise_ns,
        causes=_causes(left, right),
        entries=entries,
        kernels=(kernels := _kernels(left, right)),
        findings=(*_findings(left, right, entries), *uniform_findings(entries, kernels)),
    )


def _side(trace: Trace) -> _Side:
    study = Study(trace)
    whole = tuple(step for step in trace.steps if not step.cut)
    # The idle time before the first device row of a file is not in it, so the first step looks shorter than it is.
    whole = whole[1:] if len(whole) >= ENOUGH_STEPS else whole
    if not whole:
        parts = {cause: sum(int(g.cause(cause).sum()) for g in study.gaps) for cause in CAUSES}
        everything = {"busy": study.totals.busy_ns, **parts}
        return _Side(study, (), (study.totals.window_ns,), (everything,), NONE)
    causes = [_step_causes(study, whole, number) for number in range(len(whole))]
    windows = tuple(sum(parts.values()) for parts in causes)
    chosen = int(np.argsort(windows, kind="stable")[(len(windows) - 1) // 2])
    return _Side(study, whole, windows, tuple(causes), chosen)


def _step_causes(study: Study, steps: Sequence[Step], number: int) -> dict[str, int]:
    """Busy time of what a step launched, and the idle time before it by cause; over devices."""
    parts = dict.fromkeys(("busy", *CAUSES), 0)
    rows = study.trace.rows
    for work, gaps in zip(study.works, study.gaps, strict=True):
        mine = work.linked & (step_of(steps, work.launch_start_ns) == number)
        parts["busy"] += measure(union(work.start_ns[mine], work.end_ns[mine]))
        launched_ns = rows.start_ns[np.maximum(gaps.launch, 0)]
        before = (gaps.launch != NONE) & (step_of(steps, launched_ns) == number)
        for cause in CAUSES:
            parts[cause] += int(gaps.cause(cause)[before].sum())
    return parts


def _describe(side: _Side) -> DiffSide:
    spread = float(np.std(side.windows_ns, ddof=1)) if len(side.windows_ns) > 1 else None
    totals = side.study.totals
    return DiffSide(
        source=side.study.trace.source,
        regime=judge(side.study).regime,
        steps=len(side.steps),
        step=side.steps[side.chosen].name if side.steps else None,
        mean_ns=float(np.mean(side.windows_ns)),
        spread_ns=spread,
        operators=totals.ops,
        device_rows=totals.device_rows,
        devices=_devices(side),
    )


def _devices(side: _Side) -> tuple[str, ...]:
    """The names of the devices that worked, as far as the file states them."""
    worked = {work.device for work in side.study.works}
    properties = side.study.trace.devices
    return tuple(sorted({p.name for p in properties if p.name is not None and p.ordinal in worked}))


def _noise_ns(a: Sequence[int], b: Sequence[int]) -> float | None:
    if len(a) < 2 or len(b) < 2:
        return None
    squares = [float(np.var(side, ddof=1)) / len(side) for side in (a, b)]
    if not sum(squares):
        return 0.0
    # Welch: the side that scatters more decides how many degrees of freedom there are.
    freedom = sum(squares) ** 2 / sum(s**2 / (len(side) - 1) for s, side in zip(squares, (a, b), strict=True))
    return SURE[min(int(freedom), len(SURE)) - 1] * sqrt(sum(squares))


def _answer(change_ns: float, noise_ns: float | None, base_ns: float) -> Answer:
    if noise_ns is None or not base_ns:
        return "cannot-tell"
    if abs(change_ns) > max(noise_ns, PRACTICAL_FRAC * base_ns):
        return "slower" if change_ns > 0 else "faster"
    return "same" if noise_ns <= 0.05 * base_ns else "cannot-tell"


def _causes(left: _Side, right: _Side) -> tuple[DiffCause, ...]:
    return tuple(
        DiffCause(
            name=name.replace("_", "-"),
            a_ns=float(np.mean([parts[name] for parts in left.causes])),
            b_ns=float(np.mean([parts[name] for parts in right.causes])),
        )
        for name in ("busy", *CAUSES)
    )


def _has_modules(trace: Trace) -> bool:
    return any(_MODULE.match(name) for name in trace.names)


def _units(side: _Side, *, modules: bool) -> _Units:
    """The top operators of the chosen step (of the whole trace without steps), threads in order of appearance."""
    trace = side.study.trace
    rows = trace.rows
    top = top_rows(rows, rows.of(Kind.OPERATOR))
    if side.steps:
        step = side.steps[side.chosen]
        top = top[(rows.start_ns[top] >= step.start_ns) & (rows.start_ns[top] < step.end_ns)]
    first = {int(code): int(rows.start_ns[top[rows.thread[top] == code]].min()) for code in np.unique(rows.thread[top])}
    thread_order = np.array([first[int(code)] for code in rows.thread[top]], dtype=np.int64)
    top = top[np.lexsort((rows.start_ns[top], thread_order))]
    paths = _modules(trace, top) if modules else [""] * top.size
    device_ns, idle_ns = np.zeros(top.size + 1, dtype=np.int64), np.zeros(top.size + 1, dtype=np.int64)
    for work, gaps in zip(side.study.works, side.study.gaps, strict=True):
        mine = _launched_in(side, work.launch)
        np.add.at(device_ns, _unit_of(trace, top, work.launch[mine]), (work.end_ns - work.start_ns)[mine])
        before = _launched_in(side, gaps.launch)
        np.add.at(idle_ns, _unit_of(trace, top, gaps.launch[before]), gaps.length_ns[before])
    names = [trace.name_of(int(row)) for row in top]
    host_ns = np.append(rows.end_ns[top] - rows.start_ns[top], 0)
    return _Units((*zip(paths, names, strict=True), ("", OUTSIDE)), host_ns, device_ns, idle_ns)


def _launched_in(side: _Side, launch: RowNumbers) -> IntColumn:
    """Positions of what the chosen step launched; without steps everything, linked or not."""
    if not side.steps:
        return np.arange(launch.size)
    start_ns = side.study.trace.rows.start_ns[np.maximum(launch, 0)]
    return np.flatnonzero((launch != NONE) & (step_of(side.steps, start_ns) == side.chosen))


def _unit_of(trace: Trace, top: RowNumbers, launch: RowNumbers) -> IntColumn:
    """The unit that made each launch; the last number for launches outside all of them."""
    rows = trace.rows
    unit = np.full(launch.size, top.size, dtype=np.int64)
    thread = rows.thread[np.maximum(launch, 0)]
    for code in np.unique(rows.thread[top]):
        own = np.flatnonzero(rows.thread[top] == code)
        mine = np.flatnonzero((launch != NONE) & (thread == code))
        position = Enclosing(rows.start_ns[top[own]], rows.end_ns[top[own]]).at(rows.start_ns[launch[mine]])
        unit[mine] = np.where(position == NONE, top.size, own[np.maximum(position, 0)])
    return unit


def _modules(trace: Trace, top: RowNumbers) -> list[str]:
    """The innermost module frame around each operator."""
    rows = trace.rows
    frames = rows.of(Kind.PYTHON)
    frames = frames[named(trace, frames, _MODULE)]
    found = np.full(top.size, NONE, dtype=np.int64)
    for code in np.unique(rows.thread[top]):
        own, mine = frames[rows.thread[frames] == code], np.flatnonzero(rows.thread[top] == code)
        if own.size:
            position = Enclosing(rows.start_ns[own], rows.end_ns[own]).at(rows.start_ns[top[mine]])
            found[mine] = np.where(position == NONE, NONE, own[np.maximum(position, 0)])
    return ["" if row == NONE else trace.name_of(row).removeprefix("nn.Module: ") for row in found.tolist()]


def _entries(a: _Units, b: _Units) -> tuple[DiffEntry, ...]:
    """Matched, added and removed operators, grouped by module and name; those that changed most first."""
    pairs = align(a.key, b.key)
    paired_a, paired_b = {i for i, _ in pairs}, {j for _, j in pairs}
    groups: dict[tuple[str, str, str], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for i, j in pairs:
        sides = groups[("matched", *a.key[i])]
        sides[0].append(i)
        sides[1].append(j)
    for i, key in enumerate(a.key):
        if i not in paired_a:
            groups[("removed", *key)][0].append(i)
    for j, key in enumerate(b.key):
        if j not in paired_b:
            groups[("added", *key)][1].append(j)
    entries = [
        DiffEntry(
            name=name,
            path=path,
            status=status,  # type: ignore[arg-type]
            count_a=len(in_a),
            count_b=len(in_b),
            device_a_ns=int(a.device_ns[in_a].sum()),
            device_b_ns=int(b.device_ns[in_b].sum()),
            idle_a_ns=int(a.idle_ns[in_a].sum()),
            idle_b_ns=int(b.idle_ns[in_b].sum()),
            host_a_ns=int(a.host_ns[in_a].sum()),
            host_b_ns=int(b.host_ns[in_b].sum()),
        )
        for (status, path, name), (in_a, in_b) in groups.items()
    ]
    return tuple(sorted(entries, key=lambda e: (-_change_ns(e), e.path, e.name)))


def _change_ns(entry: DiffEntry) -> int:
    return abs(entry.device_b_ns - entry.device_a_ns) + abs(entry.idle_b_ns - entry.idle_a_ns)


def _kernels(left: _Side, right: _Side) -> tuple[KernelChange, ...]:
    """Device rows of the chosen steps by name; those that changed most first."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for at, side in enumerate((left, right)):
        for work in side.study.works:
            mine = _launched_in(side, work.launch)
            duration_ns = (work.end_ns - work.start_ns)[mine]
            for row, ns in zip(work.rows[mine].tolist(), duration_ns.tolist(), strict=True):
                entry = sums[side.study.trace.name_of(row)]
                entry[at] += 1
                entry[2 + at] += ns
    found = [KernelChange(name=name, count_a=v[0], count_b=v[1], a_ns=v[2], b_ns=v[3]) for name, v in sums.items()]
    return tuple(sorted(found, key=lambda k: (-abs(k.b_ns - k.a_ns), k.name)))


_BROKEN = ("truncated", "damaged")
"""Findings of the files themselves that a comparison must tell again: what is missing looks removed."""


def _findings(left: _Side, right: _Side, entries: Sequence[DiffEntry]) -> tuple[Finding, ...]:
    found = []
    for side in (left, right):
        source = side.study.trace.source
        found += [
            replace(finding, message=f"{source}: {finding.message}")
            for finding in side.study.trace.findings
            if finding.code in _BROKEN
        ]
        if not side.worked:
            found.append(
                Finding(
                    code="no-device-rows",
                    severity="warning",
                    message=f"{source} holds no device work{' in its steps' if side.steps else ''}: there is no window "
                    "to compare.",
                    evidence={"device_rows": side.study.totals.device_rows},
                    hint="Record both sides with the device's activity, over whole steps.",
                )
            )
        elif len(side.windows_ns) < 2:
            found.append(
                Finding(
                    code="no-noise",
                    severity="warning",
                    message=f"{source} has fewer than two whole steps: how they scatter is not known.",
                    evidence={"steps": len(side.steps)},
                    hint="Record at least three steps on either side.",
                )
            )
    differing = _differing(left, right)
    if differing:
        found.append(
            Finding(
                code="not-comparable",
                severity="warning",
                message="The traces differ in more than the program: "
                + "; ".join(f"{what} {a} in A, {b} in B" for what, (a, b) in differing.items())
                + ".",
                evidence={
                    f"{what}_{side}": v for what, pair in differing.items() for side, v in zip("ab", pair, strict=True)
                },
                hint="The change is that of all of these together: record both sides alike to compare programs.",
            )
        )
    added = sum(e.count_b for e in entries if e.status == "added")
    removed = sum(e.count_a for e in entries if e.status == "removed")
    if added or removed:
        found.append(
            Finding(
                code="different-operators",
                severity="info",
                message=f"{format_count(added)} operators are only in B and {format_count(removed)} only in A.",
                evidence={"added": added, "removed": removed},
            )
        )
    return tuple(found)


def _differing(left: _Side, right: _Side) -> dict[str, tuple[str, str]]:
    """What both files state, other than the program, and state differently."""
    stated = [_stated(side) for side in (left, right)]
    return {
        what: (a, b)
        for what in ("device", "ranks")
        if (a := stated[0].get(what)) and (b := stated[1].get(what)) and a != b
    }


def _stated(side: _Side) -> dict[str, str]:
    distributed = side.study.trace.metadata.get("distributedInfo")
    ranks = distributed.get("world_size") if isinstance(distributed, dict) else None
    return {"device": " and ".join(_devices(side)), "ranks": "" if ranks is None else str(ranks)}
