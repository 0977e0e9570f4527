"""``referee bench``: how long does one step take?"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from referee.cli.live import (
    add_budget_argument,
    add_layout_argument,
    add_target_arguments,
    check_layout,
    measure_target,
    meet,
    open_live,
    parse_budget_ns,
    require_torch,
)
from referee.cli.output import add_output_arguments, check_output_arguments, deliver, show
from referee.cli.progress import Progress
from referee.errors import OptionError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_target_arguments(parser)
    add_budget_argument(parser, default="1s", what="of the measurement, warm-up included")
    parser.add_argument(
        "--cache",
        choices=("warm", "flushed", "rotated"),
        default="warm",
        help="state of the caches before each call (default: warm)",
    )
    parser.add_argument("--memory", action="store_true", help="count peak and allocations, in a pass of their own")
    parser.add_argument(
        "--prove",
        action=argparse.BooleanOptionalAction,
        help="show that the work ran, on steps built anew (default: where that is quick, and on lazy devices)",
    )
    parser.add_argument("--selftest", action="store_true", help="time an empty callable and spins of known length")
    # For the processes of a comparison of revisions: code below this folder is not what they are to run.
    parser.add_argument("--instead-of", help=argparse.SUPPRESS)
    add_layout_argument(parser)
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Load, watch once, measure, show."""
    check_output_arguments(args)
    check_layout(args)
    budget_ns = parse_budget_ns(args)
    if args.selftest:
        return selftest(args)
    device, target = open_live(args)
    from referee.bench.plan import Plan
    from referee.callables import with_memory

    known = meet(target, device=device)
    if args.instead_of:
        from referee.bench.revisions import check_code

        seen = known.seen
        stray = check_code(target.source_file, top=Path(args.instead_of))
        known = replace(known, seen=replace(seen, findings=(*seen.findings, *stray)))
    measurement = measure_target(
        target,
        device=device,
        plan=Plan(budget_ns=budget_ns),
        progress=Progress(enabled=not args.no_progress),
        known=known,
        cache=args.cache,
        prove=args.prove,
    )
    if args.memory:
        measurement = with_memory(measurement, target.step, device=device)
    deliver(measurement, args)
    return 0


def selftest(args: argparse.Namespace) -> int:
    """Hold our own clock against callables whose length is known; status 1 where a row is outside its limit."""
    if args.target or args.stmt:
        raise OptionError("--selftest times callables of its own and takes no target.")
    if args.json or args.report:
        raise OptionError("--selftest writes no files; its status says whether it passed.")
    require_torch()
    from referee.bench.selftest import run_selftest
    from referee.device.registry import open_device
    from referee.report.selftest import compose_selftest

    progress = Progress(enabled=not args.no_progress)
    with progress.stage("timing callables of known length"):
        result = run_selftest(device=open_device(args.device), progress=progress.bench)
    rows = tuple((r.name, r.own_ns, r.measured_ns, r.error_ns, r.limit_ns, r.passed) for r in result.rows)
    show(compose_selftest(rows, overhead_ns=result.overhead_ns, shell_ns=result.shell_ns))
    return 0 if result.passed else 1
