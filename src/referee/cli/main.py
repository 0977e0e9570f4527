"""Which command was asked for, and how did it end? The entry point; exit statuses are mapped here and nowhere else.

0 answered · 1 a gate, lint or verification failed · 2 the user's mistake · 3 the environment lacks something named ·
4 cannot tell · 130 interrupted. Anything else is a bug of ours.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import NoReturn, Protocol

from referee import __version__
from referee.cli.layout import fix_layout
from referee.errors import OptionError, RefereeError

INTERRUPTED = 130
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""What writing the answer may end in without it being a bug."""

COMMANDS: dict[str, str] = {
    "check": "the main job: bench, sweep, profile, diagnosis, remedies, report",
    "bench": "how long does one step take?",
    "compare": "is B faster than A? faster, slower, same, or cannot tell",
    "sweep": "how does the time grow with a parameter? (the null experiment)",
    "profile": "record what ran, on a schedule that cannot come out empty",
    "trace": "read anybody's profiler trace: where did the time go, which regime is it?",
    "diff": "what changed between two traces, by structure and by cause?",
    "verify": "does a saved number hold here?",
    "whatif": "how long would this trace take with a change? ranges, by replay",
    "remedy": "which fixes pay here? applied, checked against eager, measured",
    "precision": "which dtype for this step, a scaler or not, and what does it gain here?",
    "anatomy": "what is one operator's call made of?",
    "lab": "which claims about measuring and eager mode hold here?",
    "env": "what is this machine, and what can be measured on it?",
}
"""Command → one line of help. Each has a module of its name in this package."""


class Command(Protocol):
    """What a command's module offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's options."""

    def run(self, args: argparse.Namespace) -> int:
        """Carry the command out; returns the exit status."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are one sentence with the mend, like every other user error."""

    command = ""
    """The command that is run, where it is known."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the whole usage."""
        hint = f"See `{' '.join((self.prog, self.command)).strip()} --help`."
        if self.command == "profile" and message.startswith("unrecognized"):
            hint = f"What is meant for a script stands after --, as in `referee profile FILE.py -- ARGS`. {hint}"
        raise OptionError(f"{message}.", hint=hint)


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """The parser; only ``command``'s module is imported, so that ``--help`` stays fast."""
    parser = Parser(
        prog="referee",
        description="An honest referee for PyTorch performance.",
        epilog="`referee COMMAND --help` lists a command's options.",
    )
    parser.command = command or ""
    parser.add_argument("--version", action="version", version=f"referee {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for name, line in COMMANDS.items():
        sub = subparsers.add_parser(name, help=line, description=line[0].upper() + line[1:])
        if name == command:
            _module(name).add_arguments(sub)
    return parser


def _module(name: str) -> Command:
    module: Command = importlib.import_module(f"referee.cli.{name}")
    return module


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        # Where the locale is not UTF-8, a bar shown as a question mark is better than no answer.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    words, after = split_at_dashes(words)
    command = next((word for word in words if word in COMMANDS), None)
    try:
        args = build_parser(command).parse_args(words)
        args.after = after
        if after and command != "profile":
            raise OptionError(
                f"Nothing can follow -- here: {' '.join(after)}.", hint="Only a profiled script has arguments."
            )
        if args.command is None:
            build_parser().print_help()
            return 0
        with answer_apart(args):
            return _module(args.command).run(args)
    except RefereeError as error:
        _say(str(error))
        return error.exit_status
    except KeyboardInterrupt as interrupt:
        # The notes name what was saved until then.
        _say(" ".join((f"interrupted {interrupt}".rstrip() + ".", *getattr(interrupt, "__notes__", ()))))
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone (`referee … | head`): nothing is left to say to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.errno not in _FULL:
            raise
        _say(f"the answer cannot be written: {error.strerror}.")
        return 2


def _open_streams() -> None:
    """Where the caller has closed standard output or error (`>&-`, some daemons), what is written there is nobody's."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - open as long as the process lives


@contextmanager
def answer_apart(args: argparse.Namespace) -> Iterator[None]:
    """Where JSON goes to standard output, what the user's own code prints goes to standard error instead."""
    args.stdout = sys.stdout
    if getattr(args, "json", None) != "-":
        yield
        return
    with _descriptor_apart(args), redirect_stdout(sys.stderr):
        yield


@contextmanager
def _descriptor_apart(args: argparse.Namespace) -> Iterator[None]:
    """The same for what libraries and child processes write past Python: ``ONEDNN_VERBOSE``, ``os.system``."""
    if not isinstance(sys.stdout, io.TextIOWrapper) or sys.stdout.closed or _descriptor(sys.stdout) != 1:
        yield
        return
    kept, elsewhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        sys.stdout.flush()
        with open(kept, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors) as stream:
            args.stdout = stream
            os.dup2(2 if _is_open(2) else elsewhere, 1)
            try:
                yield
            finally:
                os.dup2(kept, 1)
    finally:
        os.close(elsewhere)


def _descriptor(stream: io.TextIOWrapper) -> int:
    try:
        return stream.fileno()
    except OSError:  # no file behind it
        return -1


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def split_at_dashes(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """What stands before ``--``, and what stands after it (a profiled script's own arguments)."""
    if "--" not in words:
        return list(words), []
    at = list(words).index("--")
    return list(words[:at]), list(words[at + 1 :])


def _say(message: str) -> None:
    sys.stderr.write(f"referee: {message}\n")


def entry() -> NoReturn:
    """The console script."""
    fix_layout(sys.argv[1:])
    sys.exit(main())
