"""``referee bench``: how long does one step take?"""

from __future__ import annotations

import argparse

from referee.cli.live import (
    add_budget_argument,
    add_target_arguments,
    measure_target,
    meet,
    open_live,
    parse_budget_ns,
)
from referee.cli.output import add_output_arguments, check_output_arguments, deliver
from referee.cli.progress import Progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_target_arguments(parser)
    add_budget_argument(parser, default="1s", what="of the measurement, warm-up included")
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Load, watch once, measure, show."""
    check_output_arguments(args)
    budget_ns = parse_budget_ns(args)
    device, target = open_live(args)
    from referee.bench.plan import Plan

    measurement = measure_target(
        target,
        device=device,
        plan=Plan(budget_ns=budget_ns),
        progress=Progress(enabled=not args.no_progress),
        known=meet(target, device=device),
    )
    deliver(measurement, args)
    return 0
