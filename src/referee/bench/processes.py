"""Which side is faster when each runs in processes of its own? For two files, two environments, two revisions.

Sides take turns, A B B A, one process each time, so that a machine that slows down meets both. Each process measures
its target as always and hands back the record; its floor is the one sample it contributes.
"""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from referee.bench.comparable import what_differs, why_forbidden
from referee.bench.compare import COMPARED, not_comparable
from referee.bench.plan import Progress, ProgressCallback, no_progress
from referee.errors import OptionError, RefereeError, StepError
from referee.records.compare import Comparison, Pair, Side
from referee.records.finding import Finding, fatal
from referee.records.measurement import Measurement
from referee.records.provenance import Difference, check_keys
from referee.records.schema import from_json
from referee.stats.summary import summarise
from referee.stats.unpaired import LEVEL, MIN_PROCESSES, aa_shift, decide_processes

PROCESSES = 5
"""Processes a side unless told otherwise: one more than the fewest that can give an answer."""


@dataclass(frozen=True, kw_only=True)
class ProcessSide:
    """One side: a command that measures and writes the measurement's JSON to standard output, and where to run it."""

    name: str
    command: Sequence[str]
    cwd: str | Path | None = None
    env: Mapping[str, str] | None = None


Runner = Callable[[ProcessSide], Measurement]


def run_side(side: ProcessSide) -> Measurement:
    """Run one process of ``side``; raises :class:`~referee.errors.StepError` with its own last words if it fails."""
    try:
        done = subprocess.run(
            list(side.command), cwd=side.cwd, env=None if side.env is None else dict(side.env), capture_output=True
        )
    except OSError as error:
        raise OptionError(f"{side.name} cannot be run: {error.strerror or error}.") from error
    if done.returncode != 0:
        words = done.stderr.decode(errors="replace").strip().splitlines()
        raise StepError(f"{side.name} ended with status {done.returncode}: {words[-1] if words else 'no message'}")
    record = from_json(done.stdout, source=f"the output of {side.name}")
    if not isinstance(record, Measurement):
        raise OptionError(f"{side.name} wrote a {record.schema}, not a measurement.")
    return record


def compare_processes(
    sides: Sequence[ProcessSide],
    *,
    processes: int = PROCESSES,
    name: str = "",
    ignoring: Collection[str] = COMPARED,
    run: Runner = run_side,
    progress: ProgressCallback = no_progress,
) -> Comparison:
    """Compare each further side with the first, ``processes`` processes each, taking turns.

    Refused, with a fatal finding, where provenances differ in keys that must match and are not in ``ignoring``: that
    is seen after the first round and ends the comparison. A process without a headline counts as none. An interrupt
    keeps the processes that were complete, and so does a process that fails, once each side has one.
    """
    if len(sides) < 2:
        raise OptionError("A comparison needs two sides.")
    if processes < MIN_PROCESSES:
        raise OptionError(f"At least {MIN_PROCESSES} processes a side are needed for an answer, not {processes}.")
    check_keys(ignoring)
    taken: list[list[Measurement]] = [[] for _ in sides]
    stop_reason, failed = "processes", tuple[Finding, ...]()
    differing: list[tuple[Difference, ...]] = [() for _ in sides[1:]]
    try:
        for turn in range(processes):
            order = range(len(sides)) if turn % 2 == 0 else reversed(range(len(sides)))
            for done, index in enumerate(order):
                progress(
                    Progress(
                        stage=f"process {turn + 1} of {processes}: {sides[index].name}",
                        frac=(turn * len(sides) + done) / (processes * len(sides)),
                    )
                )
                taken[index].append(run(sides[index]))
            if turn == 0:
                first = taken[0][0].provenance
                differing = [what_differs(first, other[0].provenance, ignoring=ignoring) for other in taken[1:]]
                if any(differing):
                    stop_reason = "not-comparable"
                    break
    except KeyboardInterrupt:
        if not all(taken):
            raise
        stop_reason = "interrupted"
    except RefereeError as error:
        if not all(taken):
            raise
        stop_reason, failed = "raised", (_process_failed(error, done=sum(map(len, taken))),)
    return _record(sides, taken, name=name, differing=differing, stop_reason=stop_reason, failed=failed)


def _process_failed(error: RefereeError, *, done: int) -> Finding:
    """What ended it, where a process failed after others had not."""
    return Finding(
        code="step-raised",
        severity="warning",
        message=f"{error.message.rstrip('.')}. The answer stands on the {done} processes before it.",
        evidence={"processes": done},
        hint=error.hint or "A side that fails now and then has to be mended first.",
    )


def _record(
    sides: Sequence[ProcessSide],
    taken: Sequence[Sequence[Measurement]],
    *,
    name: str,
    differing: Sequence[tuple[Difference, ...]],
    stop_reason: str,
    failed: tuple[Finding, ...],
) -> Comparison:
    findings = [
        not_comparable(sides[0].name, side.name, different)
        for side, different in zip(sides[1:], differing, strict=True)
        if different
    ]
    findings += [*failed, *_of_processes(sides, taken)]
    floors = [[m.floor_ns for m in measurements if m.floor_ns is not None] for measurements in taken]
    pairs = tuple(
        _pair(sides[0].name, side.name, floors[0], other, different=different, forbidden=fatal(tuple(findings)))
        for side, other, different in zip(sides[1:], floors[1:], differing, strict=True)
    )
    shift = aa_shift(floors[0])
    aa_ratio = None if shift is None else math.exp(shift)
    return Comparison(
        name=name or f"{sides[1].name} / {sides[0].name}",
        ratio=pairs[0].ratio,
        ci_low=pairs[0].ci_low,
        ci_high=pairs[0].ci_high,
        ci_level=LEVEL,
        aa_ratio=aa_ratio,
        aa_ratio_low=min(floors[0]) / max(floors[0]) if floors[0] else None,
        aa_ratio_high=max(floors[0]) / min(floors[0]) if floors[0] else None,
        answer=pairs[0].answer,
        why=pairs[0].why,
        sides=tuple(_side(side.name, measurements) for side, measurements in zip(sides, taken, strict=True)),
        pairs=pairs,
        stop_reason=stop_reason,
        processes=min(len(measurements) for measurements in taken),
        provenance=taken[0][0].provenance,
        findings=tuple(findings),
    )


def _pair(
    first: str,
    name: str,
    a_ns: Sequence[float],
    b_ns: Sequence[float],
    *,
    different: tuple[Difference, ...],
    forbidden: tuple[Finding, ...],
) -> Pair:
    decision = decide_processes(a_ns, b_ns)
    ratio = None if forbidden else decision.ratio
    return Pair(
        name=name,
        ratio=None if ratio is None else ratio.point,
        ci_low=None if ratio is None else ratio.low,
        ci_high=None if ratio is None else ratio.high,
        answer="cannot-tell" if forbidden else decision.answer,
        why=why_forbidden(first, name, forbidden) if forbidden else decision.why,
        quads=max(len(a_ns), len(b_ns)),
        clean_quads=decision.quads,
        n_eff=0.0 if ratio is None else ratio.n_eff,
        floor_frac=decision.floor_frac,
        ratios=tuple(b / a for a, b in zip(a_ns, b_ns, strict=False)),
        differences=different,
    )


def _side(name: str, measurements: Sequence[Measurement]) -> Side:
    floors = [m.floor_ns for m in measurements if m.floor_ns is not None]
    medians = [m.median_ns for m in measurements if m.median_ns is not None]
    calls = measurements[0].provenance.value("method.calls_per_block")
    return Side(
        name=name,
        median_ns=summarise(medians).median if medians else None,
        floor_ns=summarise(floors).median if floors else None,
        blocks=sum(m.blocks for m in measurements),
        clean_blocks=sum(sum(m.clean) for m in measurements),
        calls_per_block=calls if isinstance(calls, int) else 1,
        warmup=measurements[0].warmup,
        provenance=measurements[0].provenance,
    )


def _of_processes(sides: Sequence[ProcessSide], taken: Sequence[Sequence[Measurement]]) -> list[Finding]:
    """What the processes themselves found: each code once a side, with how many of them had it."""
    found: list[Finding] = []
    for side, measurements in zip(sides, taken, strict=True):
        by_code: dict[str, list[Finding]] = {}
        for measurement in measurements:
            for finding in measurement.findings:
                by_code.setdefault(finding.code, []).append(finding)
        for code, same in by_code.items():
            everywhere = len(same) == len(measurements)
            found.append(
                Finding(
                    code=code,
                    severity=same[0].severity if everywhere or same[0].severity != "fatal" else "warning",
                    message=f"{side.name}, {len(same)} of {len(measurements)} processes: {same[0].message}",
                    evidence={"side": side.name, **same[0].evidence, "processes": len(same), "of": len(measurements)},
                    hint=same[0].hint,
                )
            )
    return found
