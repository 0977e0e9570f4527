"""``referee profile``: what ran, on one timeline? Records a few steps on a schedule and diagnoses them."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from referee.cli.live import add_target_arguments, meet, open_live, require_torch
from referee.cli.output import add_output_arguments, check_output_arguments, deliver, note
from referee.cli.progress import Progress
from referee.errors import CannotTell, OptionError, UserError
from referee.units import format_bytes, format_ns

if TYPE_CHECKING:
    from referee.capture.schedule import Plan
    from referee.device.observe import Observation
    from referee.device.protocol import Device
    from referee.records.capture import Capture, CaptureOptions, ProfilerCost
    from referee.records.trace_report import TraceReport
    from referee.target import Target


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_target_arguments(parser)
    schedule = parser.add_argument_group("schedule", "iterations: skip, then cycles of wait, warm-up and active ones")
    for name, default in (("skip", 0), ("wait", 1), ("warmup", 2), ("active", 3), ("repeat", 1)):
        schedule.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"default: {default}")
    schedule.add_argument("--skip-first-wait", action="store_true", help="let the first cycle begin without waiting")
    schedule.add_argument("--steps", metavar="A,B,…", help="record from these iterations on, instead of in cycles")
    schedule.add_argument("--iterations", type=int, metavar="N", help="how often the step runs, or where a "
                          "script is stopped (default: as planned)")  # fmt: skip
    schedule.add_argument(
        "--plan",
        action="store_true",
        help="show which iterations would be recorded and how large that gets; no capture",
    )
    record = parser.add_argument_group("what else is recorded", "all off by default, because all of it costs")
    for name, words in (
        ("shapes", "input shapes (keeps tensors alive)"),
        ("stacks", "Python stacks, also folded for flame graphs"),
        ("memory", "allocations, also as a timeline"),
        ("flops", "FLOPs of matrix products and convolutions (records shapes)"),
        ("modules", "ranges of nn.Module calls by path"),
    ):
        record.add_argument(f"--{name}", action="store_true", help=words)
    record.add_argument("--costs", action="store_true", help="calibrate here what each of these costs; no capture")
    record.add_argument(
        "--no-calibrate", action="store_true", help="leave out the profiler's cost per operator (saves a second)"
    )
    script = parser.add_argument_group("scripts", "referee profile train.py -- --epochs 1")
    script.add_argument("--boundary", default="auto", metavar="WHAT", help="what ends an iteration: "
                        "optimizer[:CLASS], module[:CLASS] or function:NAME (default: found)")  # fmt: skip
    script.add_argument("--run-to-end", action="store_true", help="go on after the plan is complete")
    parser.add_argument("--out", default="referee-out", metavar="DIR", help="where traces go; "
                        "an earlier capture of the same target there is replaced (default: referee-out)")  # fmt: skip
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Plan, record, read back, diagnose, show."""
    check_output_arguments(args)
    plan = parse_plan(args)
    options = parse_options(args)
    if args.costs:
        return show_costs()
    script = args.target is not None and args.target.endswith(".py")
    refuse_foreign_options(args, script=script)
    if args.plan:
        return show_plan(plan, args, options=options, script=script)
    plan.length(args.iterations)  # refuses a plan that records nothing, before anything is loaded
    out_dir = prepare_directory(args.out)
    if script:
        return answer(record_script(args, plan=plan, options=options, out_dir=out_dir), args, name=args.target)
    device, target = open_live(args)
    capture = record(
        target,
        device=device,
        observation=meet(target, device=device).seen,
        plan=plan,
        iterations=args.iterations,
        options=options,
        out_dir=out_dir,
        calibrate=not args.no_calibrate,
        progress=Progress(enabled=not args.no_progress),
    )
    return answer(capture, args, name=target.name)


def refuse_foreign_options(args: argparse.Namespace, *, script: bool) -> None:
    """Refuse what says nothing to a script, or to a target: an option that is passed over in silence misleads."""
    if not script:
        if args.after:
            hint = "A target takes --param NAME=VALUE."
            raise OptionError("Arguments after -- belong to a script, FILE.py.", hint=hint)
        if args.boundary != "auto" or args.run_to_end:
            option = "--boundary" if args.boundary != "auto" else "--run-to-end"
            raise OptionError(f"{option} belongs to a script, FILE.py.", hint="A target's step is one iteration.")
        return
    values = (args.stmt, args.setup, args.dtype, args.batch_size, args.param, args.threads)
    options = ("--stmt", "--setup", "--dtype", "--batch-size", "--param", "--threads")
    given = [option for option, value in zip(options, values, strict=True) if value]
    if given:
        raise OptionError(
            f"{given[0]} belongs to a target, FILE.py:NAME; a script sets that for itself.",
            hint="What stands after -- is handed to the script.",
        )
    if args.iterations is not None and args.run_to_end:
        raise OptionError("--iterations and --run-to-end contradict each other.", hint="Give one of them.")


def answer(capture: Capture, args: argparse.Namespace, *, name: str) -> int:
    """Read back what was recorded, diagnose it, show it; the exit status, which a script that failed makes a 2."""
    require_recorded(capture)
    from referee.records.profile import Profile

    reports = tuple(read_back(file.path) for file in capture.files)
    deliver(Profile(name=name, capture=capture, reports=reports, provenance=capture.provenance), args)
    for file in capture.files:
        note(f"trace written to {file.path}")
    told = [finding for finding in capture.findings if finding.code in ("script-stopped", "script-exited")]
    for finding in told:
        note(f"{finding.message} {finding.hint}")
    return UserError.exit_status if any(finding.code == "script-exited" for finding in told) else 0


def parse_plan(args: argparse.Namespace) -> Plan:
    """The schedule that the options describe."""
    from referee.capture.schedule import Plan

    if args.steps is None:
        return Plan.of(
            skip=args.skip,
            wait=args.wait,
            warmup=args.warmup,
            active=args.active,
            repeat=args.repeat,
            skip_first_wait=args.skip_first_wait,
        )
    try:
        steps = tuple(int(part) for part in args.steps.split(","))
    except ValueError as error:
        message = f"--steps {args.steps}: these are not whole numbers."
        raise OptionError(message, hint="Write for example --steps 100,5100.") from error
    return Plan.at(steps, warmup=args.warmup, active=args.active)


def parse_options(args: argparse.Namespace) -> CaptureOptions:
    """What else is to be recorded."""
    from referee.records.capture import CaptureOptions

    return CaptureOptions(
        shapes=args.shapes, stacks=args.stacks, memory=args.memory, flops=args.flops, modules=args.modules
    )


def show_plan(plan: Plan, args: argparse.Namespace, *, options: CaptureOptions, script: bool) -> int:
    """Say which iterations a run would record and, with a target, how large that gets; refuse what records nothing."""
    if script:
        check_script(args)
    length = plan.length(args.iterations)
    for number, cycle in enumerate(plan.dry_run(length).recorded, 1):
        last = f" to {cycle[-1]}" if len(cycle) > 1 else ""
        sys.stdout.write(f"file {number}: iteration {cycle[0]}{last} of {length} (the first is iteration 0)\n")
    if options.spoils_memory:
        sys.stdout.write(memory_apart(plan, script=script))
    if script:
        sys.stdout.write("its size and memory are not known: a script is not run for a plan\n")
    if script or (args.target is None and args.stmt is None):
        return 0
    device, target = open_live(args)
    from referee.capture.estimate import estimate_capture, free_memory_bytes, probe_size
    from referee.target import step_errors

    with step_errors(target.name):
        model = probe_size(target.step, device=device, options=options)
    size = estimate_capture(plan, iterations=args.iterations, model=model, available_bytes=free_memory_bytes())
    sys.stdout.write(
        f"about {size.events:,} events: {format_bytes(size.file_bytes)} on disk, {format_bytes(size.raw_bytes)} "
        f"as JSON, {format_bytes(size.memory_bytes)} of memory until it is written\n"
    )
    for finding in size.findings:
        sys.stdout.write(f"{finding.severity}: {finding.message} {finding.hint}\n")
    return 0


def check_script(args: argparse.Namespace) -> None:
    """Refuse, before anything runs, a script that is not there, is not Python, or has no such step."""
    from referee.capture.boundary import Boundary
    from referee.capture.script import compile_script

    compile_script(Path(args.target), Boundary.parse(args.boundary))


def memory_apart(plan: Plan, *, script: bool) -> str:
    """What becomes of memory beside shapes, in a line."""
    if script:
        return "no memory timeline: shapes keep tensors alive; record --memory in a run of its own\n"
    return f"then {1 + plan.record.active} iterations more, for memory without shapes (they keep tensors alive)\n"


def show_costs() -> int:
    """What recording costs here per operator, for each option."""
    require_torch()
    from referee.capture.cost import option_costs

    for options, cost in option_costs():
        words = cost.message if isinstance(cost, CannotTell) else cost_words(cost)
        sys.stdout.write(f"{options.words():>10}  {words}\n")
    return 0


def cost_words(cost: ProfilerCost) -> str:
    """What each kind of row costs, in a line."""
    interval = f"{format_ns(cost.low_ns)} to {format_ns(cost.high_ns)}"
    more = [f"{format_ns(cost.per_backward_ns)} more per node of a backward pass"]
    more += [f"{format_ns(cost.per_frame_ns)} per Python function"] if cost.options.stacks else []
    more += [f"{format_ns(cost.per_annotation_ns)} per module"] if cost.options.modules else []
    per_row = f"{format_ns(cost.per_row_ns)} per operator row ({interval})"
    return ", ".join((per_row, *more))


def require_recorded(capture: Capture) -> None:
    """Refuse to answer from nothing: one sentence that says why no iteration was recorded, and the mend."""
    if capture.files:
        return
    why = next(finding for finding in capture.findings if finding.severity != "info")
    raise UserError(why.message, hint=why.hint)


def record_script(args: argparse.Namespace, *, plan: Plan, options: CaptureOptions, out_dir: Path) -> Capture:
    """Run somebody's script and record its iterations."""
    require_torch()
    from referee.capture.attach import attach

    return attach(
        args.target,
        args.after,
        out_dir=out_dir,
        name=file_name(args.target),
        plan=plan,
        device="auto" if args.device == "cpu" else args.device,
        boundary=args.boundary,
        options=options,
        run_to_end=args.run_to_end,
        iterations=args.iterations,
        calibrate=not args.no_calibrate,
        finish=lambda capture: _last_answer(capture, args),
    )


def _last_answer(capture: Capture, args: argparse.Namespace) -> int:
    """The answer where the process ends right after it."""
    status = answer(capture, args, name=args.target)
    args.stdout.flush()
    return status


def prepare_directory(path: str) -> Path:
    """The directory, created if need be; one sentence where that is not possible."""
    directory = Path(path).absolute()
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
    calibrate: bool = True,
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
            switches=observation.switches,
            calibrate=calibrate,
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
    # The end of a long path tells more than its beginning.
    return stem[-60:].strip("-") or "step"
