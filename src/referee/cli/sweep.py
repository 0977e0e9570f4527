"""``referee sweep``: how does the time grow with a parameter? The null experiment."""

from __future__ import annotations

import argparse

from referee.cli.live import add_budget_argument, add_target_arguments, open_live, parse_budget_ns, sweep_target
from referee.cli.output import add_output_arguments, check_output_arguments, deliver
from referee.cli.progress import Progress
from referee.errors import OptionError

DEFAULT_VALUES = (1, 2, 4, 8, 16, 32)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_target_arguments(parser)
    parser.add_argument("--parameter", default="batch_size", metavar="NAME", help="what is swept (default: batch_size)")
    parser.add_argument(
        "--values",
        default=",".join(map(str, DEFAULT_VALUES)),
        metavar="A,B,…",
        help="its values (default: %(default)s)",
    )
    add_budget_argument(parser, default="1s", what="at each value")
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Load, measure at each value, fit, show."""
    check_output_arguments(args)
    values = parse_values(args.values)
    budget_ns = parse_budget_ns(args)
    if args.stmt is not None:
        raise OptionError("A statement has no parameters to sweep.", hint="Name a target, FILE.py:NAME.")
    device, target = open_live(args)
    from referee.bench.plan import Plan

    result = sweep_target(
        target,
        parameter=args.parameter,
        values=values,
        device=device,
        plan=Plan(budget_ns=budget_ns),
        progress=Progress(enabled=not args.no_progress),
    )
    deliver(result, args)
    return 0


def parse_values(text: str) -> tuple[int, ...]:
    """``1,2,4`` as distinct whole numbers above zero."""
    try:
        values = tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise OptionError(f"--values {text}: not whole numbers.", hint="Write for example 1,2,4,8.") from error
    if min(values) < 1 or len(set(values)) < len(values):
        raise OptionError(f"--values {text}: the values must be distinct and above 0.")
    return values
