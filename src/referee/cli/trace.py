"""``referee trace``: what does this profiler trace say?"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from referee.cli.output import add_output_arguments, check_output_arguments, deliver, note, show
from referee.errors import OptionError, TraceError
from referee.units import NS_PER_MS, parse_duration_ns

if TYPE_CHECKING:
    from referee.records.finding import Finding
    from referee.records.trace_report import TraceReport, TraceSet
    from referee.trace.columns import Trace
    from referee.trace.table import Answer


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
    table = parser.add_argument_group("the rows themselves", "one trace; the columns are in docs/trace-columns.md")
    table.add_argument("--sql", metavar="QUERY", help="answer a query over the table `rows` (extra: tables)")
    table.add_argument(
        "--export", metavar="PATH", help="write the rows to .parquet, .arrow or .feather (extra: tables)"
    )
    table.add_argument("--redact", metavar="PATH", help="write a copy of the file that is safe to share")
    parser.add_argument(
        "--cache",
        metavar="DIR",
        default=os.environ.get("REFEREE_CACHE") or None,
        help="keep the columns of files that were read, by their content (default: $REFEREE_CACHE, else nowhere)",
    )
    parser.add_argument("--lean", action="store_true", help="read in little memory, a little slower")
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Read, narrow, diagnose, show."""
    check_output_arguments(args)
    range_ns = parse_range(args.range)
    if args.step_ms is not None and not args.step_ms > 0:
        raise OptionError("--step-ms must be above zero.")
    from referee.trace.memory import collector_paused, keep_large_blocks

    if not args.lean:
        keep_large_blocks()
    with collector_paused():
        # One trace is soon answered, and the process is over then.
        from referee.trace.source import find_traces

        others: list[str] = []
        paths = find_traces(args.paths, rank=args.rank, passed_over=others)
        if any(asked is not None for asked in (args.sql, args.export, args.redact)):
            return hand_out(paths, args, range_ns=range_ns)
        if len(paths) == 1:
            from dataclasses import replace

            trace = read_part(paths[0], args, range_ns=range_ns)
            trace = replace(trace, findings=(*trace.findings, *on_databases(others)))
            deliver(diagnose_as_asked(trace, args), args)
            return 0
    deliver(report_on_all(paths, args, range_ns=range_ns, more=on_databases(others)), args)
    return 0


def on_databases(paths: Sequence[str]) -> tuple[Finding, ...]:
    """A finding for each database of a directory that is no trace."""
    from referee.records.finding import Finding

    return tuple(
        Finding(
            code="unreadable",
            severity="info",
            message=f"{path} is an SQLite file, but no export of Nsight Systems: passed over.",
        )
        for path in paths
    )


def hand_out(paths: Sequence[str], args: argparse.Namespace, *, range_ns: tuple[int, int] | None) -> int:
    """The rows of one trace as the answer to a query, as a file, or as a copy without names of people and places."""
    if len(paths) != 1:
        raise OptionError("--sql, --export and --redact take one trace.", hint="Name one file.")
    for option in ("sql", "export", "redact"):
        if getattr(args, option) is not None and not getattr(args, option).strip():
            raise OptionError(f"--{option} is empty.", hint=f"See `referee trace --help` for what --{option} takes.")
    for path in (args.export, args.redact):
        if path and Path(path).exists() and not Path(path).is_file():
            raise OptionError(f"{path} is no regular file, so it is not replaced.")
    if args.export or args.sql:
        from referee.trace.table import export, query

        trace = read_part(paths[0], args, range_ns=range_ns)
        if args.export:
            export(trace, args.export)
            note(f"{len(trace.rows):,} rows written to {args.export}")
        if args.sql:
            show_answer(query(trace, args.sql), args)
    if args.redact:
        from referee.trace.redact import redact_trace

        changed = redact_trace(paths[0], args.redact, again=bool(args.export or args.sql))
        note(f"copy written to {args.redact}: {changed:,} texts changed")
        note("names of operators, kernels, annotations and functions stay in it")
    return 0


def show_answer(answer: Answer, args: argparse.Namespace) -> None:
    """The rows of an answer as a table, or as JSON objects."""
    if args.json:
        keys = distinct(answer.columns)
        objects = [dict(zip(keys, map(as_json, row), strict=True)) for row in answer.rows]
        text = json.dumps(objects, default=str, indent=1, allow_nan=False) + "\n"
        if args.json == "-":
            args.stdout.write(text)
        else:
            from referee.records.schema import write_atomically

            write_atomically(text.encode(), args.json)
        return
    from referee.records.document import Column, Document, Table

    numeric = [all(isinstance(row[at], int | float) for row in answer.rows) for at in range(len(answer.columns))]
    columns = tuple(
        Column(title=title, align="right" if number else "left", fit="shorten")
        for title, number in zip(answer.columns, numeric, strict=True)
    )
    rows = tuple(tuple("" if cell is None else str(cell) for cell in row) for row in answer.rows)
    title = f"{len(rows):,} row{'' if len(rows) == 1 else 's'}"
    show(Document(title=title, blocks=(Table(columns=columns, rows=rows),)))


def distinct(columns: Sequence[str]) -> list[str]:
    """The columns' names; one that an earlier column has gets a number, so that no value is lost among JSON keys."""
    found: dict[str, None] = {}
    for column in columns:
        name, number = column, 1
        while name in found:
            name, number = f"{column}_{number}", number + 1
        found[name] = None
    return list(found)


def as_json(cell: object) -> object:
    """A cell of an answer as JSON can say it: what is no finite number is ``null``, inside lists and structs too."""
    if isinstance(cell, float):
        return cell if math.isfinite(cell) else None
    if isinstance(cell, dict):
        return {str(key): as_json(value) for key, value in cell.items()}
    return [as_json(value) for value in cell] if isinstance(cell, list | tuple) else cell


def read_part(path: str, args: argparse.Namespace, *, range_ns: tuple[int, int] | None) -> Trace:
    """One file, or the part of it that was asked for."""
    from referee.trace.reader import read_trace

    lean, cache = getattr(args, "lean", False), getattr(args, "cache", None)
    trace = read_trace(path, lean=lean, cache=cache, meanwhile=load_the_rest)
    if args.step is not None or range_ns is not None or args.device is not None:
        from referee.trace.select import select

        trace = select(trace, step=args.step, range_ns=range_ns, device=args.device)
    return trace


def load_the_rest() -> None:
    """Import what is needed once the trace is read."""
    importlib.import_module("referee.analysis.diagnose")
    importlib.import_module("referee.report.compose")
    importlib.import_module("referee.report.text")


def diagnose_as_asked(trace: Trace, args: argparse.Namespace) -> TraceReport:
    """The report, with the unprofiled time of a step where it was given."""
    from referee.analysis.diagnose import diagnose

    unprofiled_ns = None if args.step_ms is None else args.step_ms * NS_PER_MS
    return diagnose(trace, unprofiled_step_ns=unprofiled_ns, alone=getattr(args, "lean", False))


def report_on_all(
    paths: Sequence[str],
    args: argparse.Namespace,
    *,
    range_ns: tuple[int, int] | None,
    more: tuple[Finding, ...] = (),
) -> TraceSet:
    """The reports on several files and what they say together; an unreadable one is a finding, unless all are.

    ``more`` are findings on what was not read.
    """
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
    return replace(together, findings=(*together.findings, *of_captures(traces), *unreadable, *more))


def of_captures(traces: Sequence[Trace]) -> tuple[Finding, ...]:
    """What the captures that wrote the traces found, each once: a table of traces has room for the codes alone."""
    from referee.records.recording import load_recording

    found: list[Finding] = []
    for trace in traces:
        if trace.recording is not None:
            found += [finding for finding in load_recording(trace.source).findings if finding not in found]
    return tuple(found)


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
