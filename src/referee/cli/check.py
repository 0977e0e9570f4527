"""``referee check``: the main job. Bench, sweep, profile, diagnosis, remedies, and a report file."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from referee.cli.live import (
    add_budget_argument,
    add_target_arguments,
    measure_target,
    meet,
    open_live,
    parse_budget_ns,
    sweep_target,
)
from referee.cli.output import add_output_arguments, check_output_arguments, deliver, write_report
from referee.cli.profile import prepare_directory, read_back, record
from referee.cli.progress import Progress
from referee.cli.sweep import parse_values
from referee.errors import RefereeError

if TYPE_CHECKING:
    from referee.bench.plan import Plan
    from referee.device.protocol import Device
    from referee.records.capture import Capture
    from referee.records.check import Check
    from referee.records.finding import Finding
    from referee.records.measurement import Measurement, Sweep
    from referee.records.trace_report import TraceReport
    from referee.target import Target

_OWN_FILES = ("measurement.json", "sweep.json", "check.json", "report.html")

_POINTS = 6
"""Points of the null experiment: enough for two on each side of a knee, few enough for a minute."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_target_arguments(parser)
    parser.add_argument(
        "--values",
        metavar="A,B,…",
        help="batch sizes of the null experiment (default: powers of two around the target's batch size)",
    )
    add_budget_argument(parser, default="2s", what="of each measurement")
    parser.add_argument("--out", default="referee-out", metavar="DIR", help="where files go (default: referee-out)")
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Measure, sweep, record, diagnose, show, and write the report."""
    check_output_arguments(args)
    budget_ns = parse_budget_ns(args)
    values = parse_values(args.values) if args.values else None
    out_dir = prepare_directory(args.out)
    clear_earlier(out_dir)
    device, target = open_live(args)
    from referee.bench.plan import Plan

    result = check(
        target,
        device=device,
        plan=Plan(budget_ns=budget_ns),
        values=values,
        out_dir=out_dir,
        progress=Progress(enabled=not args.no_progress),
    )
    deliver(result, args)
    write_files(result, out_dir)
    return 0


def check(
    target: Target,
    *,
    device: Device,
    plan: Plan,
    values: Sequence[object] | None,
    out_dir: Path,
    progress: Progress,
) -> Check:
    """The whole main job on one target; whatever is complete is saved in ``out_dir`` as it comes."""
    from referee.analysis.live import judge_live
    from referee.capture.profiler import DEFAULT_PLAN
    from referee.records.check import Check
    from referee.records.schema import save

    known = meet(target, device=device)
    measurement = measure_target(target, device=device, plan=plan, progress=progress, known=known)
    save(measurement, out_dir / "measurement.json")
    missing: list[Finding] = []
    swept: Sweep | None = None
    if "batch_size" in target.declared and not _cut_short(measurement):
        with _part("sweep", missing):
            swept = sweep_target(
                target,
                parameter="batch_size",
                values=values or around(target.batch_size or 1),
                device=device,
                plan=replace(plan, clocks=("settled_amortised",)),
                progress=progress,
            )
            save(swept, out_dir / "sweep.json")
    capture: Capture | None = None
    report: TraceReport | None = None
    if not _cut_short(measurement) and not _cut_short(swept):
        with _part("profile", missing):
            capture = record(
                target, device=device, observation=known.seen, plan=DEFAULT_PLAN, out_dir=out_dir, progress=progress
            )
            report = read_back(capture.files[0].path) if capture.files else None
    judged = judge_live(measurement, sweep=swept, trace=report, seen=known.seen, at=target.batch_size)
    return Check(
        name=target.name,
        measurement=measurement,
        sweep=swept,
        capture=capture,
        trace=report,
        verdict=judged.verdict,
        remedies=judged.remedies,
        provenance=measurement.provenance,
        findings=(*missing, *judged.findings),
    )


@contextmanager
def _part(name: str, missing: list[Finding]) -> Iterator[None]:
    """A part of the job after the first: where it fails, the answer says so and stands on the parts before it."""
    from referee.records.finding import Finding

    try:
        yield
    except (RefereeError, KeyboardInterrupt) as error:
        why = error.message.rstrip(".") if isinstance(error, RefereeError) else "interrupted"
        hint = error.hint if isinstance(error, RefereeError) else ""
        missing.append(
            Finding(
                code="part-missing",
                severity="warning",
                message=f"The {name} is missing: {why}.",
                evidence={"part": name},
                hint=hint,
            )
        )


def _cut_short(record: Measurement | Sweep | None) -> bool:
    """Whether the user interrupted, or the step raised: then it is not called for another part."""
    if record is None:
        return False
    return any(finding.code in ("interrupted", "step-raised") for finding in record.findings)


def clear_earlier(out_dir: Path) -> None:
    """Take away what an earlier check left in ``out_dir``: its parts beside this one's would be read as one answer.

    The traces have names of their own and stay.
    """
    for name in _OWN_FILES:
        (out_dir / name).unlink(missing_ok=True)


def around(batch_size: int) -> tuple[int, ...]:
    """Six batch sizes, each twice the one before, with the target's own among the larger ones."""
    first = max(1, batch_size // 8)
    sizes = {first * 2**power for power in range(_POINTS)}
    return tuple(sorted(sizes | {batch_size}))


def write_files(result: Check, out_dir: Path) -> None:
    """The report as HTML and JSON beside the traces."""
    from referee.records.schema import save
    from referee.report.compose import compose

    save(result, out_dir / "check.json")
    write_report(compose(result), str(out_dir / "report.html"))
