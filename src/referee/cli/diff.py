"""``referee diff``: what changed between two traces, by structure and by cause?"""

from __future__ import annotations

import argparse

from referee.cli.output import add_output_arguments, check_output_arguments, deliver


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("a", metavar="A", help="a trace: what B is held against")
    parser.add_argument("b", metavar="B", help="the other trace")
    parser.add_argument("--rank", type=int, metavar="N", help="only this rank's file of directories")
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Read both, align, attribute, show."""
    check_output_arguments(args)
    from referee.analysis.diff import diff_traces
    from referee.trace.reader import read_trace
    from referee.trace.source import only_trace

    sides = [read_trace(only_trace(path, rank=args.rank)) for path in (args.a, args.b)]
    deliver(diff_traces(*sides), args)
    return 0
