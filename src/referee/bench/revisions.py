"""Where is the code of another revision? A checkout of its own beside the user's, which stays untouched."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from referee.errors import EnvironmentLacks, OptionError


@contextmanager
def checkout(revision: str, *, repository: str | Path = ".") -> Iterator[Path]:
    """A temporary folder with ``revision`` of the repository that ``repository`` lies in, removed at the end.

    Uses ``git worktree``, so nothing is stashed, switched or overwritten. Yields the folder that corresponds to
    ``repository`` inside the checkout. Raises :class:`~referee.errors.OptionError` for what is no revision or no
    repository.
    """
    top = Path(_git(repository, "rev-parse", "--show-toplevel", what=f"{repository} is in no git repository"))
    commit = _git(
        repository, "rev-parse", "--verify", f"{revision}^{{commit}}", what=f"{revision!r} is no revision of {top.name}"
    )
    below = Path(repository).resolve().relative_to(top.resolve())
    with tempfile.TemporaryDirectory(prefix="referee-revision-") as folder:
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


def _git(folder: str | Path, *arguments: str, what: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True)
    except FileNotFoundError as error:
        raise EnvironmentLacks("Comparing revisions needs git, which is not installed.") from error
    if done.returncode != 0:
        words = done.stderr.strip().splitlines()
        raise OptionError(f"{what}{': ' + words[-1] if words else ''}.")
    return done.stdout.strip()
