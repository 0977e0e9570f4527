"""``referee trace``: what does this profiler trace say?"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from referee.cli.output import add_output_arguments, check_output_arguments, deliver
from referee.errors import OptionError, TraceError
from referee.units import NS_PER_MS, parse_duration_ns

if TYPE_CHECKING:
    from referee.records.trace_report import TraceReport, TraceSet
    from referee.trace.columns import Trace


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
    parser.add_argument(
        "--step-ms", type=float, metavar="MS", help="time of one step without the profiler: corrects for its overhead"
    )
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Read, narrow, diagnose, show."""
    check_output_arguments(args)
    range_ns = parse_range(args.range)
    if args.step_ms is not None and not args.step_ms > 0:
        raise OptionError("--step-ms must be above zero.")
    from referee.trace.source import find_traces

    paths = find_traces(args.paths, rank=args.rank)
    if len(paths) == 1:
        trace = read_part(paths[0], args, range_ns=range_ns)
        deliver(diagnose_as_asked(trace, args), args)
    else:
        deliver(report_on_all(paths, args, range_ns=range_ns), args)
    return 0


def read_part(path: str, args: argparse.Namespace, *, range_ns: tuple[int, int] | None) -> Trace:
    """One file, or the part of it that was asked for."""
    from referee.trace.reader import read_trace

    trace = read_trace(path)
    if args.step is not None or range_ns is not None or args.device is not None:
        from referee.trace.select import select

        trace = select(trace, step=args.step, range_ns=range_ns, device=args.device)
    return trace


def diagnose_as_asked(trace: Trace, args: argparse.Namespace) -> TraceReport:
    """The report, with the unprofiled time of a step where it was given."""
    from referee.analysis.diagnose import diagnose

    unprofiled_ns = None if args.step_ms is None else args.step_ms * NS_PER_MS
    return diagnose(trace, unprofiled_step_ns=unprofiled_ns)


def report_on_all(paths: Sequence[str], args: argparse.Namespace, *, range_ns: tuple[int, int] | None) -> TraceSet:
    """The reports on several files and what they say together; an unreadable one is a finding, unless all are."""
    from dataclasses import replace

    from referee.analysis.trace_set import judge_set
    from referee.records.finding import Finding

    traces: list[Trace] = []
    errors: list[TraceError] = []
    for path in paths:
        try:
            traces.append(read_part(path, args, range_ns=range_ns))
        except TraceError as error:
            errors.append(error)
    if not traces:
        raise errors[0]
    together = judge_set(traces, [diagnose_as_asked(trace, args) for trace in traces])
    unreadable = tuple(
        Finding(code="unreadable", severity="warning", message=error.message, hint=error.hint) for error in errors
    )
    return replace(together, findings=(*together.findings, *unreadable))


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
