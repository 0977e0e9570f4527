"""Where is the code of another revision? A checkout of its own beside the user's, which stays untouched.

A process that runs there must not run the user's working tree all the same: an absolute path leads to it, and so does
what an editable install or ``PYTHONPATH`` puts on the path of imports.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import referee
from referee.errors import EnvironmentLacks, OptionError
from referee.records.finding import Finding

_PREFIX = "referee-revision-"
_OWN = Path(referee.__file__).resolve().parent


@contextmanager
def checkout(revision: str, *, repository: str | Path = ".") -> Iterator[Path]:
    """A temporary folder with ``revision`` of the repository that ``repository`` lies in, removed at the end.

    Uses ``git worktree``, so nothing is stashed, switched or overwritten. Yields the folder that corresponds to
    ``repository`` inside the checkout. Raises :class:`~referee.errors.OptionError` for what is no revision or no
    repository.
    """
    top = top_of(repository)
    commit = _git(
        repository, "rev-parse", "--verify", f"{revision}^{{commit}}", what=f"{revision!r} is no revision of {top.name}"
    )
    below = Path(repository).resolve().relative_to(top)
    with _ended_in_order(), tempfile.TemporaryDirectory(prefix=_PREFIX) as folder:
        place = Path(folder) / commit[:12]
        _git(
            top,
            "worktree",
            "add",
            "--detach",
            "--quiet",
            str(place),
            commit,
            what=f"{revision!r} cannot be checked out",
        )
        try:
            yield place / below
        finally:
            _git(top, "worktree", "remove", "--force", str(place), what="the temporary checkout cannot be removed")


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Being told to end (a time limit, a closed terminal) unwinds as Ctrl-C does: no checkout is left behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    asked = (signal.SIGTERM, signal.SIGHUP)
    replaced = {number: signal.signal(number, end) for number in asked if signal.getsignal(number) == signal.SIG_DFL}
    try:
        yield
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)


def top_of(repository: str | Path = ".") -> Path:
    """The top folder of the repository that ``repository`` lies in."""
    words = f"{repository} is in no git repository"
    return Path(_git(repository, "rev-parse", "--show-toplevel", what=words)).resolve()


def target_in(spec: str, *, top: Path) -> str:
    """The target ``spec`` by its path from here, so that the same words name it in a checkout.

    Raises :class:`~referee.errors.OptionError` for a file outside of the repository: both revisions would run it.
    """
    place, colon, name = spec.rpartition(":")
    if not place.endswith(".py") and "/" not in place:
        return spec
    file = Path(place).resolve()
    if not file.is_relative_to(top):
        raise OptionError(
            f"{place} lies outside of the repository {top.name}, so that both revisions would run the same file.",
            hint="Name a file of the repository.",
        )
    return f"{os.path.relpath(file, Path.cwd().resolve())}{colon}{name}"


def environment_in(folder: Path, *, top: Path) -> Mapping[str, str]:
    """The environment for a process in the checkout that ``folder`` lies in: imports from the tree below ``top`` (by
    ``PYTHONPATH``, or by an editable install) come from the checkout instead."""
    place = top_of(folder)
    given = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    ours = [path for path in map(Path, sys.path) if _is_working_tree(path, top=top)]
    paths = [*(_moved(Path(path), top=top, place=place) for path in given)]
    paths += [_moved(path, top=top, place=place) for path in ours]
    if (place / "src").is_dir():
        paths.append(str(place / "src"))
    kept = [path for path in dict.fromkeys(paths) if not (Path(path) / "referee" / "__init__.py").is_file()]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(kept)}


def _moved(path: Path, *, top: Path, place: Path) -> str:
    return str(place / path.resolve().relative_to(top)) if _is_working_tree(path, top=top) else str(path)


def _is_working_tree(path: Path, *, top: Path) -> bool:
    """Whether ``path`` is absolute and one of the user's own below ``top``: no environment that lies there too."""
    if not path.is_absolute() or not path.resolve().is_relative_to(top):
        return False
    inside = path.resolve().relative_to(top).parts
    apart = path.is_relative_to(sys.prefix) or "site-packages" in inside
    return not apart and not any(part.startswith(_PREFIX) for part in inside)


def check_code(source_file: str | None, *, top: Path) -> tuple[Finding, ...]:
    """Does this process, which should run a checkout, run code of the working tree below ``top``, or installed code?"""
    loaded = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    files = {name: Path(file) for name, file in loaded.items() if isinstance(file, str)}
    stray = {n: f for n, f in files.items() if _is_working_tree(f, top=top) and not f.resolve().is_relative_to(_OWN)}
    if not stray and source_file is not None and not Path(source_file).resolve().is_relative_to(top_of(Path.cwd())):
        stray = {"the target": Path(source_file)}
    if not stray:
        return ()
    name, file = next(iter(stray.items()))
    return (
        Finding(
            code="other-code",
            severity="fatal",
            message=f"What runs is not this revision's code: {name} is imported from {file}.",
            evidence={"modules": len(stray), "module": name, "file": str(file)},
            hint="Put the folder that its package lies in on PYTHONPATH: each revision's own is then taken.",
        ),
    )


def _git(folder: str | Path, *arguments: str, what: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True)
    except FileNotFoundError as error:
        raise EnvironmentLacks("Comparing revisions needs git, which is not installed.") from error
    if done.returncode != 0:
        words = done.stderr.strip().splitlines()
        raise OptionError(f"{what}{': ' + words[-1] if words else ''}.")
    return done.stdout.strip()
