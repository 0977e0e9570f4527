"""``referee lab``: which of the claims about measuring and about eager mode hold here?"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from referee.cli.live import require_torch
from referee.cli.output import add_output_arguments, check_output_arguments, deliver, show, write_html
from referee.cli.progress import Progress
from referee.errors import OptionError

if TYPE_CHECKING:
    from referee.lab.laboratory import Recorded


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("ids", nargs="*", metavar="ID", help="claims to test, as M1 or E19 (default: all)")
    parser.add_argument("--list", action="store_true", help="list the claims and test none")
    parser.add_argument(
        "--trace",
        action="extend",
        nargs="+",
        default=[],
        metavar="PATH",
        help="recorded traces (files or directories; after the IDs) that answer for devices which are not here",
    )
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="intra-op threads (default: 1)")
    parser.add_argument("--html", metavar="PATH", help="write the page with every claim to PATH, as HTML")
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Choose the claims, read the traces, run the experiments, show."""
    check_output_arguments(args)
    if args.threads < 1:
        raise OptionError(f"--threads {args.threads}: this is not a whole number above 0.")
    if args.list:
        from referee.lab.claims import BY_ID
        from referee.report.lab import compose_claims

        show(compose_claims([(claim.id, claim.claimed, claim.measures) for claim in BY_ID.values()]))
        return 0
    require_torch()
    from referee.device.cpu import set_threads
    from referee.device.registry import open_device
    from referee.lab.laboratory import Laboratory
    from referee.lab.run import run_lab, select

    claims = select(args.ids)
    set_threads(args.threads)
    progress = Progress(enabled=not args.no_progress)
    with progress.stage("lab"):
        recorded = _read(args.trace, progress)
        lab = Laboratory(device=open_device("cpu"), recorded=recorded)
        report = run_lab(claims, lab, progress=lambda words: progress.update(words=words))
    deliver(report, args)
    if args.html:
        from referee.report.compose import compose

        write_html(compose(report), args.html)
    return 0


def _read(paths: list[str], progress: Progress) -> tuple[Recorded, ...]:
    """The traces named; those that cannot be read end the command, unless they were found in a directory."""
    if not paths:
        return ()
    from pathlib import Path

    from referee.analysis.diagnose import diagnose
    from referee.errors import TraceError
    from referee.lab.laboratory import Recorded
    from referee.trace.reader import read_trace
    from referee.trace.source import find_traces

    found: list[Recorded] = []
    files = find_traces(paths, rank=None)
    for path in files:
        progress.update(words=f"reading {path}")
        try:
            trace = read_trace(path)
        except TraceError:
            if len(files) == 1:
                raise
            continue
        found.append(Recorded(name=Path(path).name, trace=trace, report=diagnose(trace)))
    return tuple(found)
