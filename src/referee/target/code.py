"""Where is the code that a target names? Finds and loads a file, a module or a statement."""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, TypeVar

from referee.device.state import State, read_state
from referee.errors import TargetError
from referee.target.errors import as_step_error, describe, user_place

_Compiled = TypeVar("_Compiled")

STATEMENT_FILE = "<stmt>"
SETUP_FILE = "<setup>"

_SET_BY_IMPORT: dict[str, tuple[State, tuple[str, ...]]] = {}
"""What was in force once a module had been imported, and which switches that had set: it is imported only once."""


@dataclass(frozen=True, kw_only=True)
class Code:
    """What a spec names, and the file it stands in (``None`` where there is none)."""

    spec: str
    named: Callable[..., object]
    source_file: str | None


def load_code(spec: str) -> Code:
    """The callable that ``FILE.py:NAME`` or ``package.module:NAME`` names.

    Raises :class:`~referee.errors.TargetError` if the file or module is not there, cannot be imported, does not define
    NAME, or NAME cannot be called.
    """
    place, _, name = spec.rpartition(":")
    if not place or not name:
        raise TargetError(f"{spec!r} does not say what to measure.", hint=_spec_hint(spec))
    is_package = "/" not in place and (Path(place) / "__init__.py").is_file()
    is_file = place.endswith(".py") or "/" in place or (Path(place).exists() and not is_package)
    module = _load_file(Path(place)) if is_file else _load_module(place)
    named = _attribute(module, name, place)
    if not callable(named):
        raise TargetError(
            f"{name} in {place} is of type {type(named).__name__} and cannot be called.", hint=_make_hint(name)
        )
    return Code(spec=spec, named=named, source_file=getattr(module, "__file__", None))


def _spec_hint(spec: str) -> str:
    if spec.rstrip(":").endswith(".py"):
        return f"Write {spec.rstrip(':')}:NAME, with the name of the function that is the step or builds it."
    return "Write FILE.py:NAME or package.module:NAME."


def _make_hint(name: str) -> str:
    return f"Define a function {name} that does one step, or that returns one."


def _load_file(path: Path) -> ModuleType:
    if path.is_dir():
        raise TargetError(f"{path} is a directory, not a Python file.", hint="Write FILE.py:NAME.")
    if not path.is_file():
        raise TargetError(f"{path} does not exist.", hint=_file_hint(path))
    full = path.resolve()
    # A name of our own: a user's file may be called like an installed package, and two files may be called alike.
    name = f"referee_target_{full.stem}_{hashlib.sha256(str(full).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, full)
    if spec is None or spec.loader is None:
        raise TargetError(f"{path} is not a Python file.", hint="Write FILE.py:NAME.")
    module = importlib.util.module_from_spec(spec)
    if str(full.parent) not in sys.path:
        sys.path.insert(0, str(full.parent))  # as `python FILE.py` does, so that its neighbours can be imported
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # the user's code: anything can come out
        del sys.modules[name]
        raise _import_error(str(path), error) from error
    return module


def _file_hint(path: Path) -> str:
    try:
        beside = [p.name for p in path.parent.glob("*.py")]
    except OSError:
        beside = []
    close = get_close_matches(path.name, beside, n=1)
    return f"Did you mean {path.parent / close[0]}?" if close else ""


def _load_module(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does
    before = read_state()
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise TargetError(f"There is no module {name}.", hint="For a file write FILE.py:NAME.") from error
        raise _import_error(name, error) from error
    except (Exception, SystemExit) as error:  # the user's code: anything can come out
        raise _import_error(name, error) from error
    if name in _SET_BY_IMPORT:
        state, paths = _SET_BY_IMPORT[name]
        state.put(paths)
    else:
        after = read_state()
        _SET_BY_IMPORT[name] = after, tuple(difference.path for difference in before.moved(after))
    return module


def _import_error(place: str, error: BaseException) -> TargetError:
    if isinstance(error, SyntaxError):
        return TargetError(f"{error.filename or place}:{error.lineno} is not Python: {error.msg}.")
    where = user_place(error.__traceback__)
    at = f" (at {where})" if where else ""
    if isinstance(error, SystemExit):
        return TargetError(
            f"{place} ended the program while it was imported{at}.",
            hint="Put what it runs under if __name__ == '__main__'.",
        )
    hint = ""
    if isinstance(error, ModuleNotFoundError) and error.name:
        hint = f"Install what provides the module {error.name}, in this Python's environment."
    return TargetError(f"{place} cannot be imported: {describe(error)}{at}.", hint=hint)


def _attribute(module: ModuleType, name: str, place: str) -> Any:
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise TargetError(f"{place} defines no {name}.", hint=_name_hint(module, name))
        found = getattr(found, part)
    return found


def _name_hint(module: ModuleType, name: str) -> str:
    own = [
        key
        for key, value in vars(module).items()
        if callable(value) and not key.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
    close = get_close_matches(name, own, n=1)
    if close:
        return f"Did you mean {close[0]}?"
    return f"It defines {', '.join(own[:8])}." if own else "It defines nothing that can be called."


def compile_statement(stmt: str, setup: str) -> Callable[[], object]:
    """A function that executes ``stmt`` with the names that ``setup`` made, and returns its last line's value."""
    names: dict[str, Any] = {"__name__": "__referee__"}
    setup_code = _compile(ast.parse, setup, SETUP_FILE, "--setup")
    try:
        exec(compile(setup_code, SETUP_FILE, "exec"), names)
    except (Exception, SystemExit) as error:  # the user's code: anything can come out
        raise as_step_error(error, "--setup") from error
    tree = _compile(ast.parse, stmt, STATEMENT_FILE, "--stmt")
    if not tree.body:
        raise TargetError("--stmt is empty.", hint="Give the statement to be timed.")
    exec(_compile(lambda _, __: _as_function(tree), stmt, STATEMENT_FILE, "--stmt"), names)
    step: Callable[[], object] = names["_referee_step"]
    return step


def _compile(parse: Callable[[str, str], _Compiled], text: str, filename: str, option: str) -> _Compiled:
    try:
        return parse(text, filename)
    except (SyntaxError, ValueError) as error:
        line = f" (line {error.lineno})" if isinstance(error, SyntaxError) else ""
        raise TargetError(f"{option} is not Python{line}: {getattr(error, 'msg', error)}.") from error


def _as_function(tree: ast.Module) -> CodeType:
    """``def _referee_step(): <the statement>; return <its last expression>``.

    A function, so that names the statement assigns are locals, as fast as in ``timeit``.
    """
    body = list(tree.body)
    last = body[-1]
    if isinstance(last, ast.Expr):
        body[-1] = ast.copy_location(ast.Return(last.value), last)
    function = ast.parse("def _referee_step(): pass").body[0]
    assert isinstance(function, ast.FunctionDef)
    function.body = body
    return compile(ast.fix_missing_locations(ast.Module([function], [])), STATEMENT_FILE, "exec")
