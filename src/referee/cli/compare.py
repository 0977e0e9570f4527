"""``referee compare``: is B faster than A? Interleaved in one process, or in several processes a side."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from referee.cli.live import add_budget_argument, add_target_options, open_on, parse_budget_ns, parse_params
from referee.cli.output import add_output_arguments, check_output_arguments, deliver
from referee.cli.progress import Progress
from referee.errors import CannotTell, OptionError

if TYPE_CHECKING:
    from referee.bench.processes import ProcessSide
    from referee.device.protocol import Device
    from referee.records.compare import Comparison
    from referee.target import Target

_VARIED_KEYS = ("dtype", "shapes")
"""What may differ where a parameter of one target is what is compared: it may shape the inputs."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("targets", nargs="+", metavar="TARGET", help="A, B and further ones: FILE.py:NAME each")
    add_target_options(parser)
    parser.add_argument(
        "--vary", metavar="NAME=A,B,…", help="compare one target with itself at several values of a parameter"
    )
    parser.add_argument(
        "--revisions", nargs=2, metavar=("A", "B"), help="compare one target at two git revisions (own processes)"
    )
    parser.add_argument("--processes", type=int, metavar="N", help="run each side in N processes of its own, in turns")
    parser.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="KEY",
        help="a provenance key that may differ: switches.compile",
    )
    parser.add_argument("--fail-on", choices=("slower", "faster"), help="status 1 if any candidate is that against A")
    add_budget_argument(parser, default="1s", what="of the interleaved part (of each process with --processes)")
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Load the sides, compare, show; the status says whether there is an answer."""
    check_output_arguments(args)
    budget_ns = parse_budget_ns(args)
    _check(args)
    if args.revisions or args.processes:
        comparison = compare_in_processes(args)
    else:
        comparison = compare_here(args, budget_ns=budget_ns)
    deliver(comparison, args)
    answers = {pair.answer for pair in comparison.pairs}
    if args.fail_on in answers:
        return 1
    return CannotTell.exit_status if "cannot-tell" in answers else 0


def _check(args: argparse.Namespace) -> None:
    one = bool(args.vary) or bool(args.revisions)
    if args.vary and args.revisions:
        raise OptionError("--vary and --revisions are two comparisons.", hint="Make one after the other.")
    if one and len(args.targets) != 1:
        raise OptionError("--vary and --revisions compare one target with itself.", hint="Name one target.")
    if not one and len(args.targets) < 2:
        raise OptionError("A comparison needs two targets.", hint="Or one with --vary NAME=A,B or --revisions A B.")


def compare_here(args: argparse.Namespace, *, budget_ns: int) -> Comparison:
    """All sides in this process, block by block in turns."""
    from dataclasses import replace

    from referee.bench.compare import COMPARE_PLAN, COMPARED, Candidate, compare
    from referee.cli.live import meet
    from referee.target import step_errors

    device, targets, ignoring = _sides(args)
    candidates = []
    for name, target in targets:
        known = meet(target, device=device)
        candidates.append(
            Candidate(
                name=name,
                step=target.step,
                first=known.first,
                observation=known.seen,
                target=target,
                method=known.seen.method,
                switches=known.seen.switches,
                findings=known.seen.findings,
            )
        )
    progress = Progress(enabled=not args.no_progress)
    title = " against ".join(name for name, _ in reversed(targets))
    with step_errors(title), progress.stage(f"comparing {title}"):
        return compare(
            candidates,
            device=device,
            plan=replace(COMPARE_PLAN, budget_ns=budget_ns, min_ns=min(COMPARE_PLAN.min_ns, budget_ns)),
            name=title,
            ignoring=(*COMPARED, *ignoring, *args.ignore),
            progress=progress.bench,
        )


def _sides(args: argparse.Namespace) -> tuple[Device, list[tuple[str, Target]], Sequence[str]]:
    """The device, the sides by name, and what may differ because it is what is compared."""
    device, targets = open_on(args, args.targets)
    if not args.vary:
        names = [target.name for target in targets]
        if len(set(names)) < len(names):
            names = [f"{name} #{number}" for number, name in enumerate(names, 1)]
        return device, list(zip(names, targets, strict=True)), ()
    name, values = parse_vary(args.vary)
    target: Target = targets[0]
    varied = [(f"{name}={value}", target.rebuild(**{name: value})) for value in values]
    return device, varied, _VARIED_KEYS


def parse_vary(text: str) -> tuple[str, Sequence[str]]:
    """``dtype=float32,bfloat16`` as a name and at least two values."""
    name, equals, values = text.partition("=")
    parts = [part.strip() for part in values.split(",") if part.strip()]
    if not equals or not name.isidentifier() or len(parts) < 2:
        raise OptionError(
            f"--vary {text}: this is not NAME=A,B.", hint="Write for example --vary dtype=float32,bfloat16."
        )
    return name, parts


def compare_in_processes(args: argparse.Namespace) -> Comparison:
    """Each side in several processes of its own, taking turns: memory layout differs from process to process."""
    from referee.bench.compare import COMPARED
    from referee.bench.processes import PROCESSES, compare_processes

    progress = Progress(enabled=not args.no_progress)
    with _process_sides(args) as (sides, ignoring), progress.stage("comparing in processes of their own"):
        return compare_processes(
            sides,
            processes=args.processes or PROCESSES,
            name=" against ".join(side.name for side in reversed(sides)),
            ignoring=(*COMPARED, *ignoring, *args.ignore),
            progress=progress.bench,
        )


@contextmanager
def _process_sides(args: argparse.Namespace) -> Iterator[tuple[list[ProcessSide], Sequence[str]]]:
    """The commands that measure each side, in the folders they run in."""
    from referee.bench.processes import ProcessSide
    from referee.bench.revisions import checkout

    if args.revisions:
        first, second = args.revisions
        with checkout(first) as folder_a, checkout(second) as folder_b:
            command = bench_command(args, args.targets[0])
            yield [ProcessSide(name=first, command=command, cwd=folder_a),
                   ProcessSide(name=second, command=command, cwd=folder_b)], ()  # fmt: skip
        return
    if args.vary:
        name, values = parse_vary(args.vary)
        yield (
            [
                ProcessSide(name=f"{name}={value}", command=bench_command(args, args.targets[0], **{name: value}))
                for value in values
            ],
            _VARIED_KEYS,
        )
        return
    yield [ProcessSide(name=target, command=bench_command(args, target)) for target in args.targets], ()


def bench_command(args: argparse.Namespace, target: str, **overrides: str) -> list[str]:
    """The command line that measures ``target`` as this comparison was asked to."""
    values = {"batch_size": args.batch_size, "dtype": args.dtype, **parse_params(args), **overrides}
    command = [sys.executable, "-m", "referee", "bench", target, "--json", "-", "--no-progress", "--no-prove"]
    command += ["--device", args.device, "--budget", args.budget]
    if args.threads:
        command += ["--threads", str(args.threads)]
    for name, value in values.items():
        if value is None:
            continue
        if name in ("batch_size", "dtype"):
            command += [f"--{name.replace('_', '-')}", str(value)]
        else:
            command += ["--param", f"{name}={value}"]
    return command
