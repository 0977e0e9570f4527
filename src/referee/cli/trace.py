"""``referee trace``: what does this profiler trace say?"""

from __future__ import annotations

import argparse
import re

from referee.cli.output import add_output_arguments, check_output_arguments, deliver
from referee.errors import OptionError
from referee.units import parse_duration_ns


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="trace files (.json, .json.gz, …) or a directory of them"
    )
    parser.add_argument("--step", metavar="K", help="only this step: its number or its name")
    parser.add_argument(
        "--range", metavar="FROM..TO", help="only this stretch, from the start of the trace: 10ms..25ms"
    )
    parser.add_argument("--device", type=int, metavar="N", help="only this device of a trace with several")
    parser.add_argument("--rank", type=int, metavar="N", help="only this rank's file of a directory")
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Read, narrow, diagnose, show."""
    check_output_arguments(args)
    range_ns = parse_range(args.range)
    from referee.analysis.diagnose import diagnose
    from referee.trace.reader import read_trace
    from referee.trace.select import select
    from referee.trace.source import find_traces

    paths = find_traces(args.paths, rank=args.rank)
    for path in paths:
        trace = read_trace(path)
        if args.step is not None or range_ns is not None or args.device is not None:
            trace = select(trace, step=args.step, range_ns=range_ns, device=args.device)
        deliver(diagnose(trace), args)
    return 0


def parse_range(text: str | None) -> tuple[int, int] | None:
    """``10ms..25ms`` as nanoseconds from the start of the trace; ``None`` for none."""
    if text is None:
        return None
    parts = re.split(r"\.\.|:", text)
    try:
        start, end = (parse_duration_ns(part) for part in parts)
    except ValueError as error:
        raise OptionError(f"--range {text}: {error}.", hint="Write for example --range 10ms..25ms.") from error
    if end <= start:
        raise OptionError(f"--range {text} is empty.", hint="The end must come after the start.")
    return start, end
