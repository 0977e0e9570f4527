"""``referee compare``: is B faster than A? Interleaved in one process, or in several processes a side."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from referee.cli.live import (
    add_budget_argument,
    add_layout_argument,
    add_target_options,
    check_layout,
    load_spec,
    open_on,
    parse_budget_ns,
    parse_params,
    sets_threads,
    with_threads,
)
from referee.cli.output import add_output_arguments, check_output_arguments, deliver
from referee.cli.progress import Progress
from referee.device.layout import address_layout
from referee.errors import CannotTell, OptionError

if TYPE_CHECKING:
    from referee.bench.processes import ProcessSide
    from referee.bench.sides import Candidate
    from referee.device.protocol import Device
    from referee.records.compare import Comparison
    from referee.target import Target

_THREADS_KEY = "chip.threads"
_VARIED_KEYS = ("dtype", "shapes")
"""What may differ where a parameter of one target is what is compared: it may shape the inputs."""
_DEVICE_KEYS = ("accelerator", "method.settle")
"""What differs besides where devices are compared."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("targets", nargs="+", metavar="TARGET", help="A, B and further ones: FILE.py:NAME each")
    add_target_options(parser)
    parser.add_argument(
        "--vary",
        metavar="NAME=A,B,…",
        help="compare one target with itself at several values of a parameter, or of threads",
    )
    parser.add_argument(
        "--revisions", nargs=2, metavar=("A", "B"), help="compare one target at two git revisions (own processes)"
    )
    parser.add_argument(
        "--processes",
        type=int,
        metavar="N",
        help="run each side in N processes of its own, in turns (at least 4: fewer give no answer)",
    )
    parser.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="KEY",
        help="a provenance key, or a section of them, that may differ: switches.grad_mode, accelerator",
    )
    parser.add_argument("--fail-on", choices=("slower", "faster"), help="status 1 if any candidate is that against A")
    add_budget_argument(parser, default="1s", what="of the interleaved part (of each process with --processes)")
    add_layout_argument(parser)
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Load the sides, compare, show; the status says whether there is an answer."""
    check_output_arguments(args)
    budget_ns = parse_budget_ns(args)
    _check(args)
    if args.revisions or args.processes:
        comparison = compare_in_processes(args)
    else:
        check_layout(args)
        comparison = compare_here(args, budget_ns=budget_ns)
    deliver(comparison, args)
    answers = {pair.answer for pair in comparison.pairs}
    if args.fail_on in answers:
        return 1
    return CannotTell.exit_status if "cannot-tell" in answers else 0


def _check(args: argparse.Namespace) -> None:
    from referee.records.provenance import check_keys

    check_keys(args.ignore)
    one = bool(args.vary) or bool(args.revisions)
    if args.vary and args.revisions:
        raise OptionError("--vary and --revisions are two comparisons.", hint="Make one after the other.")
    if args.processes is not None and args.processes < 1:
        raise OptionError(f"--processes {args.processes} measures nothing.", hint="At least 4 a side give an answer.")
    if one and len(args.targets) != 1:
        raise OptionError("--vary and --revisions compare one target with itself.", hint="Name one target.")
    if not one and len(args.targets) < 2:
        raise OptionError("A comparison needs two targets.", hint="Or one with --vary NAME=A,B or --revisions A B.")


def compare_here(args: argparse.Namespace, *, budget_ns: int) -> Comparison:
    """All sides in this process, block by block in turns."""
    from dataclasses import replace

    from referee.bench.compare import COMPARE_PLAN, COMPARED, compare
    from referee.target import step_errors

    device, _ = open_on(args, [])
    sides, ignoring = _sides(args)
    candidates = [_candidate(name, load, device=device) for name, load in sides]
    progress = Progress(enabled=not args.no_progress)
    title = title_of([name for name, _ in sides])
    with step_errors(title), progress.stage(f"comparing {title}"):
        return compare(
            candidates,
            device=device,
            plan=replace(COMPARE_PLAN, budget_ns=budget_ns, min_ns=min(COMPARE_PLAN.min_ns, budget_ns)),
            name=title,
            ignoring=(*COMPARED, *ignoring, *args.ignore),
            progress=progress.bench,
        )


def _candidate(name: str, load: Callable[[], Target], *, device: Device) -> Candidate:
    """One side, loaded and met; the switches that it left are kept with it, and not left to the next one."""
    from referee.bench.sides import Candidate
    from referee.cli.live import fresh_steps, is_quick, meet
    from referee.device.state import kept_state

    with kept_state():
        target = load()
        own = _device_of(target, default=device)
        known = meet(target, device=own)
        fresh = fresh_steps(target)
        quick = is_quick(fresh, device=own)
    return Candidate(
        name=name,
        device=own,
        step=target.step,
        first=known.first,
        observation=known.seen,
        target=target,
        method=known.seen.method,
        switches=known.seen.switches,
        findings=known.seen.findings,
        state=known.state,
        fresh=fresh if quick else None,
    )


def _device_of(target: Target, *, default: Device) -> Device:
    """Where this side is awaited: on the device that it was told, where that is another one than the others'."""
    from referee.device.registry import open_device

    told = str(target.values.get("device", default.name))
    same = told == default.name or told == default.name.partition(":")[0]
    return default if same else open_device(told)


def title_of(names: Sequence[str]) -> str:
    """``B against A``; ``B, C against A`` where there are more."""
    first, *others = names
    return f"{', '.join(others)} against {first}"


def _sides(args: argparse.Namespace) -> tuple[list[tuple[str, Callable[[], Target]]], Sequence[str]]:
    """The sides by name, each with what loads it, and what may differ because it is what is compared."""
    if not args.vary:
        names = list(args.targets)
        if len(set(names)) < len(names):
            names = [f"{name} #{number}" for number, name in enumerate(names, 1)]
        specs = zip(names, args.targets, strict=True)
        return [(name, partial(load_spec, args, spec)) for name, spec in specs], ()
    from referee.device.state import kept_state, restore

    name, values = parse_vary(args.vary)
    with kept_state():
        target = load_spec(args, args.targets[0])
    if target.loaded is not None:
        restore(target.loaded)
    if sets_threads(target, name):
        return [(f"threads={n}", partial(with_threads, target, n)) for n in values], (_THREADS_KEY,)
    return [(f"{name}={value}", partial(_rebuilt, target, name, value)) for value in values], _varied_keys(name)


def _rebuilt(target: Target, name: str, value: str) -> Target:
    """The target at another value; a device is opened first, because some must be started before a tensor is there."""
    from referee.device.registry import open_device

    if name == "device":
        open_device(value)
    return target.rebuild(**{name: value})


def _varied_keys(parameter: str) -> Sequence[str]:
    return (*_VARIED_KEYS, *_DEVICE_KEYS) if parameter == "device" else _VARIED_KEYS


def parse_vary(text: str) -> tuple[str, Sequence[str]]:
    """``dtype=float32,bfloat16`` as a name and at least two values."""
    name, equals, values = text.partition("=")
    parts = [part.strip() for part in values.split(",") if part.strip()]
    if not equals or not name.isidentifier() or len(parts) < 2:
        raise OptionError(
            f"--vary {text}: this is not NAME=A,B.", hint="Write for example --vary dtype=float32,bfloat16."
        )
    if len(set(parts)) < len(parts):
        raise OptionError(
            f"--vary {text}: the values must be distinct.", hint="To compare a target with itself name it twice."
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
            name=title_of([side.name for side in sides]),
            ignoring=(*COMPARED, *ignoring, *args.ignore),
            progress=progress.bench,
        )


@contextmanager
def _process_sides(args: argparse.Namespace) -> Iterator[tuple[list[ProcessSide], Sequence[str]]]:
    """The commands that measure each side, in the folders they run in."""
    from referee.bench.processes import ProcessSide
    from referee.bench.revisions import checkout, environment_in, target_in, top_of

    if args.revisions:
        first, second = args.revisions
        top = top_of()
        command = [*bench_command(args, target_in(args.targets[0], top=top)), "--instead-of", str(top)]
        with checkout(first) as folder_a, checkout(second) as folder_b:
            yield (
                [
                    ProcessSide(name=name, command=command, cwd=folder, env=environment_in(folder, top=top))
                    for name, folder in ((first, folder_a), (second, folder_b))
                ],
                (),
            )
        return
    if args.vary:
        name, values = parse_vary(args.vary)
        yield (
            [
                ProcessSide(name=f"{name}={value}", command=bench_command(args, args.targets[0], **{name: value}))
                for value in values
            ],
            (_THREADS_KEY,) if name == "threads" else _varied_keys(name),
        )
        return
    yield [ProcessSide(name=target, command=bench_command(args, target)) for target in args.targets], ()


def bench_command(args: argparse.Namespace, target: str, **overrides: str) -> list[str]:
    """The command line that measures ``target`` as this comparison was asked to."""
    values = {"batch_size": args.batch_size, "dtype": args.dtype, **parse_params(args), **overrides}
    command = [sys.executable, "-m", "referee", "bench", target, "--json", "-", "--no-progress", "--no-prove"]
    command += ["--device", str(values.pop("device", args.device)), "--budget", args.budget]
    layout = args.layout or address_layout()
    if layout is not None:  # unless told otherwise each process is placed anew, and the interval is over layouts too
        command += ["--layout", layout]
    threads = values.pop("threads", args.threads)
    if threads:
        command += ["--threads", str(threads)]
    for name, value in values.items():
        if value is None:
            continue
        if name in ("batch_size", "dtype"):
            command += [f"--{name.replace('_', '-')}", str(value)]
        else:
            command += ["--param", f"{name}={value}"]
    return command
