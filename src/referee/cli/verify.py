"""``referee verify``: does a saved number hold here? Runs it again: reproduced, not reproduced, not comparable."""

from __future__ import annotations

import argparse

from referee.cli.live import add_layout_argument, check_layout, measure_target, meet, require_torch
from referee.cli.output import add_output_arguments, check_output_arguments, deliver
from referee.cli.progress import Progress
from referee.errors import CannotTell, OptionError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("result", metavar="RESULT.json", help="what `referee bench --json RESULT.json` wrote")
    parser.add_argument(
        "--tolerance", type=float, metavar="PERCENT", help="how far the ratio may lie from 1 (default: 5)"
    )
    parser.add_argument(
        "--ignore", action="append", default=[], metavar="KEY", help="a provenance key that may differ: chip.model"
    )
    add_layout_argument(parser)
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Read, load the same target, measure by the same plan, hold the two against each other."""
    check_output_arguments(args)
    check_layout(args)
    from referee.bench.verify import TOLERANCE_FRAC, device_of, parameters_of, plan_of, target_of, verify
    from referee.records.measurement import Measurement
    from referee.records.provenance import check_keys
    from referee.records.schema import load

    check_keys(args.ignore)
    saved = load(args.result)
    if not isinstance(saved, Measurement):
        raise OptionError(f"{args.result} is a {saved.schema}; only a measurement can be verified.")
    tolerance_frac = TOLERANCE_FRAC if args.tolerance is None else args.tolerance / 100
    if not 0 < tolerance_frac < 1:
        raise OptionError("--tolerance must lie between 0 and 100 percent.")
    require_torch()
    from referee.device.cpu import set_threads
    from referee.device.registry import open_device
    from referee.target import load_target

    parameters = parameters_of(saved)
    device = open_device(device_of(saved))
    threads = saved.provenance.value("chip.threads")
    if isinstance(threads, int) and threads > 0:
        set_threads(threads)
    target = load_target(target_of(saved), params=parameters)
    again = measure_target(
        target,
        device=device,
        plan=plan_of(saved),
        progress=Progress(enabled=not args.no_progress),
        known=meet(target, device=device),
    )
    result = verify(saved, again, tolerance_frac=tolerance_frac, ignoring=args.ignore)
    deliver(result, args)
    return {"reproduced": 0, "not-reproduced": 1}.get(result.answer, CannotTell.exit_status)
