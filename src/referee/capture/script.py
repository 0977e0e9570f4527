"""How is somebody's script run as ``python`` would run it, and ended when there is nothing more to record?

The script's own handlers for everything (``except:``, ``except BaseException:``) let pass what ends it: they are given
a handler before them, in the syntax tree, that raises it again. ``os._exit`` ends a process without a word and without
what is still to be written, so while a script runs it is answered by Referee first.
"""

from __future__ import annotations

import ast
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NoReturn

from referee.capture.boundary import Boundary
from referee.errors import OptionError, TargetError

_MARK = "__referee_step__"
_ENDED = "__referee_ended__"


class ScriptEnded(BaseException):
    """Ends the script. No Exception, so that the script does not swallow it."""


class PlanComplete(ScriptEnded):
    """Everything planned is recorded."""


class ProcessExit(ScriptEnded):
    """The script called ``os._exit(status)``."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def compile_script(path: Path, boundary: Boundary) -> CodeType:
    """The script's code, with the function that the user named marked; one sentence if that is not possible."""
    try:
        tree = ast.parse(path.read_bytes(), filename=os.fspath(path))
    except OSError as error:
        raise TargetError(f"The script {path} cannot be read: {error.strerror}.") from error
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise TargetError(f"{path}{line} is not Python: {getattr(error, 'msg', error)}.") from error
    if boundary.kind == "function":
        found = _find_function(tree.body, boundary.name.split("."))
        if found is None:
            raise OptionError(f"{path} defines no function {boundary.name}.", hint="Write NAME or CLASS.NAME.")
        mark = ast.Name(id=_MARK, ctx=ast.Load())
        # Innermost, so that it counts calls of the function itself and not of what a decorator makes of it.
        found.decorator_list.append(ast.copy_location(mark, found))
    for block in ast.walk(tree):
        if isinstance(block, ast.Try) and any(_catches_all(handler.type) for handler in block.handlers):
            block.handlers.insert(0, _let_pass(block.handlers[0]))
    return compile(tree, os.fspath(path), "exec")


def _find_function(body: Sequence[ast.stmt], names: list[str]) -> ast.FunctionDef | None:
    for statement in body:
        if isinstance(statement, ast.FunctionDef) and len(names) == 1 and statement.name == names[0]:
            return statement
        if isinstance(statement, ast.ClassDef) and len(names) > 1 and statement.name == names[0]:
            return _find_function(statement.body, names[1:])
    return None


def _catches_all(caught: ast.expr | None) -> bool:
    """Whether a handler of this type catches what ends the script, as far as can be read."""
    if isinstance(caught, ast.Tuple):
        return any(_catches_all(one) for one in caught.elts)
    return caught is None or (isinstance(caught, ast.Name) and caught.id == "BaseException")


def _let_pass(first: ast.ExceptHandler) -> ast.ExceptHandler:
    """A handler to stand before ``first``: what ends the script is raised again."""
    ended = ast.Name(id=_ENDED, ctx=ast.Load())
    handler = ast.ExceptHandler(type=ended, name=None, body=[ast.Raise(exc=None, cause=None)])
    for node in ast.walk(handler):
        ast.copy_location(node, first)
    return handler


@contextmanager
def running_as_main(
    path: Path, args: Sequence[str], *, mark: Callable[[Any], Any], on_exit: Callable[[int], None]
) -> Iterator[ModuleType]:
    """A fresh ``__main__`` with the arguments and the import path that ``python path args`` would give it.

    ``mark`` decorates the function that the user named; ``on_exit(status)`` is called before the process ends by
    ``os._exit`` (of this process alone: a fork's is its own).
    """
    main = ModuleType("__main__")
    main.__file__ = os.fspath(path)
    setattr(main, _MARK, mark)
    setattr(main, _ENDED, ScriptEnded)
    before = sys.modules["__main__"], sys.argv, list(sys.path), os._exit, threading.excepthook
    sys.modules["__main__"], sys.argv = main, [os.fspath(path), *args]
    sys.path.insert(0, os.fspath(path.resolve().parent))
    os._exit = _exit_after(on_exit, os._exit)  # type: ignore[assignment]  # not by the very name of its parameter
    threading.excepthook = lambda raised: None if raised.exc_type is PlanComplete else before[4](raised)
    try:
        with warnings.catch_warnings():
            # Told by torch because of the hooks that look for the loop: nothing that the script could mend.
            warnings.filterwarnings("ignore", message=r"Using `torch\.compile\(module\)` when there are global hooks")
            yield main
    finally:
        sys.modules["__main__"], sys.argv, sys.path[:], os._exit, threading.excepthook = before


def _exit_after(on_exit: Callable[[int], None], really: Callable[[int], NoReturn]) -> Callable[[int], NoReturn]:
    process = os.getpid()

    def exit_process(status: int) -> NoReturn:
        if os.getpid() == process:
            on_exit(status)
        really(status)

    return exit_process


def line_of(error: BaseException, path: Path) -> str:
    """Where in the script it was raised, as ``in line N``."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == os.fspath(path)]
    return f" in line {lines[-1]}" if lines else ""


def exit_words(code: object) -> tuple[int, str]:
    """The status that ``SystemExit(code)`` gives a process, and what Python would print of it."""
    if code is None or isinstance(code, int):
        return int(code or 0), ""
    return 1, str(code)
