"""``referee whatif``: how long would this trace take with a change? Ranges, beside the replay's own error."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from referee.cli.output import add_output_arguments, check_output_arguments, deliver
from referee.cli.trace import parse_range, read_part
from referee.errors import OptionError

if TYPE_CHECKING:
    from referee.records.whatif import WhatIf
    from referee.whatif.edits import Edit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "path", nargs="?", metavar="TRACE", help="a profiler trace, or a directory of one or with --rank"
    )
    parser.add_argument("--graph", action="store_true", help="replay the work as captured graphs")
    parser.add_argument("--device-speed", type=float, metavar="X", help="a device X times as fast")
    parser.add_argument("--host-speed", type=float, metavar="X", help="a host X times as fast")
    parser.add_argument("--fewer-launches", type=float, metavar="SHARE", help="this share of the launches gone")
    parser.add_argument("--no-sync", action="store_true", help="without the calls that wait for the device")
    parser.add_argument("--fuse", action="store_true", help="pointwise kernels fused")
    parser.add_argument("--amp", action="store_true", help="matrix kernels in a low precision")
    parser.add_argument("--overlap-copies", action="store_true", help="copies hidden behind computation")
    parser.add_argument("--hide-communication", action="store_true", help="collectives hidden behind computation")
    parser.add_argument("--batch", type=float, metavar="N", help="device time at another batch size; needs --at")
    parser.add_argument(
        "--at", action="append", default=[], metavar="N=TRACE", help="the trace of batch size N (at least two)"
    )
    parser.add_argument("--all", action="store_true", help="every edit, the largest gain first")
    parser.add_argument(
        "--rank", nargs="?", const="", metavar="N", help="only this rank's file of a directory; without N: --all"
    )
    parser.add_argument("--step", metavar="K", help="only this step: its number or its name")
    parser.add_argument("--range", metavar="FROM..TO", help="only this stretch: 10ms..25ms")
    parser.add_argument("--device", type=int, metavar="N", help="only this device of a trace with several")
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Read, replay, edit, show."""
    check_output_arguments(args)
    _settle_rank(args)
    edits = list(_edits(args))
    if not edits and not args.all and args.batch is None:
        raise OptionError("Nothing was changed.", hint="Name an edit, such as --graph, or ask for all with --all.")
    from referee.trace.source import only_trace
    from referee.whatif.replay import ask, catalogue, ranked

    path = only_trace(args.path, rank=args.rank)
    trace = read_part(path, args, range_ns=parse_range(args.range))
    answer = ranked(ask(trace, catalogue())) if args.all else ask(trace, edits)
    deliver(answer if args.batch is None else _with_batch(answer, args), args)
    return 0


def _settle_rank(args: argparse.Namespace) -> None:
    """``--rank N`` as everywhere else; without a number, as it once was here, it asks for every edit.

    Then what follows it may be the trace.
    """
    if args.rank is not None and not args.rank.isdecimal():
        if args.rank and args.path is not None:
            raise OptionError(f"--rank {args.rank}: this is no rank.", hint="Write for example --rank 3.")
        args.path, args.rank, args.all = args.path or args.rank, None, True
    if not args.path:
        raise OptionError("No trace was named.", hint="Write for example: referee whatif trace.json.gz --graph.")
    args.rank = None if args.rank is None else int(args.rank)


def _edits(args: argparse.Namespace) -> Iterator[Edit]:
    from referee.whatif import edits as make

    for value, maker in (
        (args.device_speed, make.device_speed),
        (args.host_speed, make.host_speed),
        (args.fewer_launches, make.fewer_launches),
    ):
        if value is not None:
            yield maker(value)
    for asked, plain in (
        (args.graph, make.graph_replay),
        (args.no_sync, make.no_sync),
        (args.fuse, make.fuse),
        (args.amp, make.low_precision),
        (args.overlap_copies, make.overlap_copies),
        (args.hide_communication, make.hide_communication),
    ):
        if asked:
            yield plain()


def _with_batch(answer: WhatIf, args: argparse.Namespace) -> WhatIf:
    """The answer with the device's time at another batch size."""
    from dataclasses import replace

    from referee.graph.work import work_by_device
    from referee.trace.reader import read_trace
    from referee.whatif.batch import busy_at

    busy_ns: dict[float, float] = {}
    for text in args.at:
        size, equals, path = text.partition("=")
        try:
            batch = float(size)
        except ValueError:
            batch = 0.0
        if not equals or batch <= 0:
            raise OptionError(f"--at {text}: this is not N=TRACE.", hint="Write for example --at 8=b8.json.gz.")
        busy_ns[batch] = float(sum(work.busy_ns for work in work_by_device(read_trace(path))))
    return replace(answer, edits=(*answer.edits, busy_at(args.batch, busy_ns)))
