"""Where does the answer go? Text or JSON to standard output or files, progress and notes to standard error."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from referee.errors import OptionError

if TYPE_CHECKING:
    from referee.records.document import Document
    from referee.records.schema import Record

_MIN_WIDTH, _MAX_WIDTH = 60, 140

_SUFFIXES = {".html": "html", ".htm": "html", ".md": "markdown", ".txt": "text"}


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """``--json PATH`` and ``--report PATH``, the same for every command."""
    parser.add_argument(
        "--json",
        action=_Once,
        metavar="PATH",
        help="write the result as JSON to PATH; `-` for standard output, which then holds JSON alone",
    )
    parser.add_argument("--report", action=_Once, metavar="PATH", help="write the report to PATH: .html, .md or .txt")
    parser.add_argument("--no-progress", action="store_true", help="show no progress on standard error")


class _Once(argparse.Action):
    """An option that names one file: given twice, one of the two files would silently not be written."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        if getattr(namespace, self.dest) is not None:
            parser.error(f"{option_string} is given twice: it names one file")
        setattr(namespace, self.dest, values)


def check_output_arguments(args: argparse.Namespace) -> None:
    """Refuse, before anything is measured, what could not be written afterwards."""
    if args.report and Path(args.report).suffix.lower() not in _SUFFIXES:
        raise OptionError(f"--report {args.report}: the suffix says the format.", hint="Use .html, .md or .txt.")
    for option in ("json", "report", "html"):
        path = getattr(args, option, None)
        if path and path != "-":
            parent = Path(path).resolve().parent
            if not parent.is_dir():
                raise OptionError(f"--{option} {path}: there is no directory {parent}.", hint="Create it first.")
            if Path(path).is_dir() or not os.access(parent, os.W_OK):
                raise OptionError(f"--{option} {path} cannot be written.", hint="Name a file in a writable directory.")
            # The step may change the working directory.
            setattr(args, option, os.path.abspath(path))
    if args.json and args.json == args.report:
        raise OptionError("--json and --report name one file.", hint="Each writes a file of its own.")


def deliver(record: Record, args: argparse.Namespace) -> None:
    """Show the record on standard output (as JSON where ``--json -`` asks for it) and write the files asked for.

    A first Ctrl-C meanwhile is too late to cost what was measured; a second one ends it.
    """
    from referee.bench.interrupts import hold_interrupts

    with hold_interrupts():
        _deliver(record, args)


def _deliver(record: Record, args: argparse.Namespace) -> None:
    from referee.records.schema import to_json, write_atomically
    from referee.report.compose import compose

    if args.json == "-":
        args.stdout.write(to_json(record).decode())
    else:
        document = compose(record)
        show(document)
        if args.json:
            write_atomically(to_json(record), args.json)
            note(f"JSON written to {args.json}")
    if args.report:
        write_report(compose(record), args.report)


def deliver_files(record: Record, args: argparse.Namespace) -> None:
    """Write the files asked for and show nothing: of what could not be finished."""
    from referee.records.schema import to_json, write_atomically

    if args.json == "-":
        args.stdout.write(to_json(record).decode())
    elif args.json:
        write_atomically(to_json(record), args.json)
        note(f"JSON of what was seen until then written to {args.json}")
    if args.report:
        from referee.report.compose import compose

        write_report(compose(record), args.report)


def show(document: Document) -> None:
    """Print a document to standard output, at the terminal's width, with colour only on a terminal."""
    from referee.report.text import render_text

    width = max(_MIN_WIDTH, min(_MAX_WIDTH, shutil.get_terminal_size((100, 24)).columns))
    stream = _standard_output()
    # The user's code may have put an object of its own there that can only write.
    on_terminal = getattr(stream, "isatty", lambda: False)
    color = on_terminal() and "NO_COLOR" not in os.environ
    stream.write(render_text(document, width=width, color=color))
    getattr(stream, "flush", lambda: None)()


def _standard_output() -> TextIO:
    """Standard output, opened again where the user's code has closed it."""
    if getattr(sys.stdout, "closed", False):
        with suppress(OSError):
            sys.stdout = open(1, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115 - stays open
    return sys.stdout


def write_report(document: Document, path: str) -> None:
    """Write a document to ``path`` in the format that its suffix names."""
    from referee.records.schema import write_atomically

    kind = _SUFFIXES[Path(path).suffix.lower()]
    if kind == "html":
        from referee.report.html import render_html

        text = render_html(document)
    elif kind == "markdown":
        from referee.report.markdown import render_markdown

        text = render_markdown(document)
    else:
        from referee.report.text import render_text

        text = render_text(document, width=100, color=False)
    write_atomically(text.encode(), path)
    note(f"report written to {path}")


def write_html(document: Document, path: str) -> None:
    """Write a document as HTML to ``path``, whatever its suffix."""
    from referee.records.schema import write_atomically
    from referee.report.html import render_html

    write_atomically(render_html(document).encode(), path)
    note(f"report written to {path}")


def note(message: str) -> None:
    """One line to standard error."""
    sys.stderr.write(f"referee: {message}\n")
    sys.stderr.flush()
