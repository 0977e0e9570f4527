"""``referee lab``: which of the claims about measuring and about eager mode hold here?"""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from referee.cli.live import require_torch
from referee.cli.output import (
    add_output_arguments,
    check_output_arguments,
    deliver,
    note,
    show,
    write_html,
    write_report,
)
from referee.cli.progress import Progress
from referee.errors import OptionError

if TYPE_CHECKING:
    from referee.lab.claims import Claim
    from referee.lab.laboratory import Recorded
    from referee.records.finding import Finding


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
    _check(args)
    from referee.lab.claims import select

    ids, paths = _sorted_out(args)
    claims = select(ids)
    _check_paths(paths)
    if args.list:
        return _list(claims, args)
    require_torch()
    from referee.device.cpu import set_threads
    from referee.device.registry import open_device
    from referee.lab.laboratory import Laboratory
    from referee.lab.run import run_lab

    set_threads(args.threads)
    progress = Progress(enabled=not args.no_progress)
    with progress.stage("lab"):
        recorded, findings = _read(paths, progress)
        lab = Laboratory(device=open_device("cpu"), recorded=recorded)
        report = run_lab(
            claims,
            lab,
            findings=findings,
            command=_command(ids, paths, args.threads),
            progress=lambda words: progress.update(words=words),
        )
    deliver(report, args)
    if args.html:
        from referee.report.compose import compose

        write_html(compose(report), args.html)
    return 0


def _check(args: argparse.Namespace) -> None:
    """Refuse what could not be done later."""
    if args.html is not None and not args.html.lower().endswith((".html", ".htm")):
        raise OptionError(f"--html {args.html}: this is no name of a page.", hint="Name a file that ends in .html.")
    check_output_arguments(args)
    if args.threads < 1:
        raise OptionError(f"--threads {args.threads}: this is not a whole number above 0.")


def _sorted_out(args: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Claims and traces. A claim's name behind ``--trace`` is a claim, unless a file of that name is there."""
    from referee.lab.claims import BY_ID

    named = [word for word in args.trace if word.upper() in BY_ID and not os.path.exists(word)]
    return [*args.ids, *named], [word for word in args.trace if word not in named]


def _check_paths(paths: list[str]) -> None:
    """A file that is named and not there is the user's mistake, however many others are named."""
    from referee.errors import TraceError

    for path in paths:
        # Patterns, addresses and standard input are looked up when they are read.
        if path == "-" or "://" in path or any(sign in path for sign in "*?["):
            continue
        if not os.path.exists(path) and not os.path.exists(path.partition("!")[0]):
            raise TraceError(f"{path} does not exist.")


def _list(claims: Sequence[Claim], args: argparse.Namespace) -> int:
    """The claims, in every form that a result has."""
    from referee.lab.claims import METHODS
    from referee.records.schema import write_atomically
    from referee.report.lab import compose_claims

    document = compose_claims([(claim.id, claim.claimed, claim.measures) for claim in claims])
    listed = [
        {
            "id": c.id,
            "claimed": c.claimed,
            "measures": c.measures,
            "how": METHODS[c.id].how,
            "range_from": METHODS[c.id].range_from,
            "unit": c.unit,
            "low": low,
            "high": high,
        }
        for c in claims
        for low, high in [c.bounds]
    ]
    text = json.dumps({"claims": listed}, indent=2, ensure_ascii=False) + "\n"
    if args.json == "-":
        args.stdout.write(text)
    else:
        show(document)
        if args.json:
            write_atomically(text.encode(), args.json)
            note(f"JSON written to {args.json}")
    if args.report:
        write_report(document, args.report)
    if args.html:
        write_html(document, args.html)
    return 0


def _command(ids: list[str], paths: list[str], threads: int) -> str:
    words = ["referee", "lab", *ids, *(["--threads", str(threads)] if threads > 1 else [])]
    return shlex.join([*words, "--trace", *paths] if paths else words)


_DOUBTFUL = ("truncated", "damaged", "bad-checksum", "unread-keys", "repaired", "skipped-events")
"""What the reader found that makes the answers of a trace those of a part of it."""


def _read(paths: list[str], progress: Progress) -> tuple[tuple[Recorded, ...], tuple[Finding, ...]]:
    """The traces named, and what stood in the way. Raises what the first one raised if none could be read."""
    from referee.analysis.diagnose import diagnose
    from referee.cli.trace import on_databases
    from referee.errors import TraceError
    from referee.lab.laboratory import Recorded
    from referee.records.finding import Finding
    from referee.trace.reader import read_trace
    from referee.trace.source import find_traces

    found: list[Recorded] = []
    errors: list[TraceError] = []
    others: list[str] = []
    findings: list[Finding] = []
    for path in find_traces(paths, rank=None, passed_over=others):
        progress.update(words=f"reading {path}")
        name = Path(path).name
        try:
            trace = read_trace(path)
        except TraceError as error:
            errors.append(error)
            continue
        found.append(Recorded(name=name, trace=trace, report=diagnose(trace)))
        findings += [replace(f, message=_naming(name, f.message)) for f in trace.findings if f.code in _DOUBTFUL]
    if errors and not found:
        raise errors[0]
    findings += [Finding(code="unreadable", severity="warning", message=e.message, hint=e.hint) for e in errors]
    return tuple(found), (*findings, *on_databases(others))


def _naming(name: str, message: str) -> str:
    return message if name in message else f"{name}: {message}"
