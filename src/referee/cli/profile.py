"""``referee profile``: what ran, on one timeline? Records a few steps on a schedule and diagnoses them."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from referee.cli.live import add_target_arguments, meet, open_live
from referee.cli.output import add_output_arguments, check_output_arguments, deliver, note
from referee.cli.progress import Progress
from referee.errors import OptionError

if TYPE_CHECKING:
    from referee.capture.schedule import Plan
    from referee.device.observe import Observation
    from referee.device.protocol import Device
    from referee.records.capture import Capture, CaptureOptions
    from referee.records.trace_report import TraceReport
    from referee.target import Target


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_target_arguments(parser)
    schedule = parser.add_argument_group("schedule", "iterations: skip, then cycles of wait, warm-up and active ones")
    for name, default in (("skip", 0), ("wait", 1), ("warmup", 2), ("active", 3), ("repeat", 1)):
        schedule.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"default: {default}")
    schedule.add_argument("--iterations", type=int, metavar="N", help="how often the step runs (default: as planned)")
    schedule.add_argument("--plan", action="store_true", help="show which iterations would be recorded; run nothing")
    parser.add_argument("--out", default="referee-out", metavar="DIR", help="where traces go (default: referee-out)")
    parser.add_argument("--shapes", action="store_true", help="record input shapes (keeps tensors alive)")
    parser.add_argument("--stacks", action="store_true", help="record Python stacks")
    parser.add_argument("--memory", action="store_true", help="record allocations")
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Plan, record, read back, diagnose, show."""
    check_output_arguments(args)
    from referee.capture.schedule import Plan

    plan = Plan.of(skip=args.skip, wait=args.wait, warmup=args.warmup, active=args.active, repeat=args.repeat)
    if args.plan:
        return show_plan(plan, args.iterations)
    plan.length(args.iterations)  # refuses a plan that records nothing, before the target is loaded
    out_dir = prepare_directory(args.out)
    device, target = open_live(args)
    from referee.records.capture import CaptureOptions
    from referee.records.profile import Profile

    options = CaptureOptions(shapes=args.shapes, stacks=args.stacks, memory=args.memory)
    capture = record(
        target,
        device=device,
        observation=meet(target, device=device).seen,
        plan=plan,
        iterations=args.iterations,
        options=options,
        out_dir=out_dir,
        progress=Progress(enabled=not args.no_progress),
    )
    reports = tuple(read_back(file.path) for file in capture.files)
    deliver(Profile(name=target.name, capture=capture, reports=reports, provenance=capture.provenance), args)
    for file in capture.files:
        note(f"trace written to {file.path}")
    return 0


def show_plan(plan: Plan, iterations: int | None) -> int:
    """Say which iterations a run would record, and refuse a plan that records nothing."""
    length = plan.length(iterations)
    for number, cycle in enumerate(plan.dry_run(length).recorded, 1):
        last = f" to {cycle[-1]}" if len(cycle) > 1 else ""
        sys.stdout.write(f"file {number}: iteration {cycle[0]}{last} of {length} (the first is iteration 0)\n")
    return 0


def prepare_directory(path: str) -> Path:
    """The directory, created if need be; one sentence where that is not possible."""
    directory = Path(path)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"--out {path}: the directory cannot be made: {error.strerror}.") from error
    return directory


def record(
    target: Target,
    *,
    device: Device,
    observation: Observation,
    plan: Plan,
    iterations: int | None = None,
    options: CaptureOptions | None = None,
    out_dir: Path,
    progress: Progress,
) -> Capture:
    """Record the target along ``plan`` into ``out_dir``."""
    from referee.capture.profiler import capture
    from referee.records.capture import CaptureOptions
    from referee.target import step_errors

    with step_errors(target.name), progress.stage(f"recording {target.name}"):
        return capture(
            target.step,
            device=device,
            dtype=observation.dtype,
            shapes=observation.shapes,
            out_dir=out_dir,
            name=file_name(target.name),
            plan=plan,
            iterations=iterations,
            options=options or CaptureOptions(),
            target=target,
            on_iteration=progress.iteration,
        )


def read_back(path: str) -> TraceReport:
    """The report on a trace file just written."""
    from referee.analysis.diagnose import diagnose
    from referee.trace.reader import read_trace

    return diagnose(read_trace(path))


def file_name(target_name: str) -> str:
    """A file's name made of a target's: ``examples/transformer.py:train_step`` becomes ``transformer-train_step``."""
    path, _, name = target_name.rpartition(":")
    stem = re.sub(r"\W+", "-", f"{Path(path).stem}-{name}" if path else name).strip("-")
    return stem[:60] or "step"
