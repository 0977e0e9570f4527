"""``referee verify``: does a saved number hold here? Runs it again: reproduced, not reproduced, not comparable."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from referee.cli.live import add_layout_argument, check_layout, measure_target, meet, parse_duration, require_torch
from referee.cli.output import add_output_arguments, check_output_arguments, deliver
from referee.cli.progress import Progress
from referee.errors import CannotTell, TargetError

if TYPE_CHECKING:
    from referee.records.measurement import Measurement
    from referee.target import Target


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "result", metavar="RESULT.json", help="what `referee bench --json RESULT.json` wrote, or sweep, or check"
    )
    parser.add_argument("--at", metavar="VALUE", help="which point of a sweep")
    parser.add_argument("--target", metavar="TARGET", help="where the target is now, if it has moved")
    parser.add_argument(
        "--tolerance", type=float, metavar="PERCENT", help="how far the ratio may lie from 1 (default: 5)"
    )
    parser.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="KEY",
        help="a provenance key, or a section, that may differ: chip.model",
    )
    parser.add_argument("--budget", metavar="TIME", help="wall-clock budget here (default: that of the saved one)")
    add_layout_argument(parser)
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Read, load the same target, measure by the same plan, hold the two against each other."""
    check_output_arguments(args)
    check_layout(args)
    from referee.bench.verify import TOLERANCE_FRAC, check_tolerance, saved_measurement, verify
    from referee.records.provenance import check_keys
    from referee.records.schema import load

    check_keys(args.ignore)
    tolerance_frac = TOLERANCE_FRAC if args.tolerance is None else args.tolerance / 100
    check_tolerance(tolerance_frac)
    saved = saved_measurement(load(args.result), path=args.result, at=args.at)
    result = verify(saved, measure_again(saved, args), tolerance_frac=tolerance_frac, ignoring=args.ignore)
    deliver(result, args)
    return {"reproduced": 0, "not-reproduced": 1}.get(result.answer, CannotTell.exit_status)


def measure_again(saved: Measurement, args: argparse.Namespace) -> Measurement:
    """The same target, measured by the saved plan with as many threads, on the same device, in the same cache state."""
    require_torch()
    from referee.bench.verify import cache_of, device_of, plan_of, threads_of, with_budget
    from referee.device.cpu import set_threads
    from referee.device.registry import open_device

    plan = plan_of(saved)
    if args.budget is not None:
        plan = with_budget(plan, parse_duration(args.budget, option="--budget"))
    device = open_device(device_of(saved))
    threads = threads_of(saved)
    if threads is not None:
        set_threads(threads)
    target = load_again(saved, moved_to=args.target)
    return measure_target(
        target,
        device=device,
        plan=plan,
        progress=Progress(enabled=not args.no_progress),
        known=meet(target, device=device),
        cache=cache_of(saved),
    )


def load_again(saved: Measurement, *, moved_to: str | None) -> Target:
    """The target that was measured, or the statement, with the values of its parameters then."""
    from referee.bench.verify import parameters_of, setup_of, target_of
    from referee.target import load_statement, load_target

    spec, setup = moved_to or target_of(saved), setup_of(saved)
    if setup is not None and moved_to is None:
        return load_statement(spec, setup)
    file = spec.rpartition(":")[0]
    if file.endswith(".py") and not Path(file).exists():
        raise TargetError(
            f"{file}, which was measured, does not exist here.",
            hint="Run this in the folder in which it was measured, or say where it is now: --target FILE.py:NAME.",
        )
    return load_target(spec, restored=parameters_of(saved))
