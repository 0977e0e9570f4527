"""Which commit is the measured code, and was its tree clean? Asked of git once per folder and process.

Once, because the code that runs is the code that was loaded, whatever happens to the tree afterwards.
"""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from referee.records.finding import Scalar

_TIMEOUT_S = 2.0
"""A status that takes longer (a huge tree on a slow disk) is not worth delaying a measurement for: not read."""


def read_repository(source_file: str | None) -> Mapping[str, Scalar]:
    """``git_commit`` and ``git_dirty`` of the repository that holds ``source_file``; empty outside one."""
    if source_file is None:
        return {}
    return _read_folder(str(Path(source_file).resolve().parent))


@functools.cache
def _read_folder(folder: str) -> Mapping[str, Scalar]:
    command = ["git", "-C", folder, "status", "--porcelain=v2", "--branch", "--untracked-files=no"]
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}  # reading must not disturb a git command of the user's
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, env=environment, check=False)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return {}
    if done.returncode != 0:
        return {}
    lines = done.stdout.splitlines()
    commit = next((line.split()[-1] for line in lines if line.startswith("# branch.oid ")), None)
    dirty = any(not line.startswith("#") for line in lines)
    return {"git_commit": commit, "git_dirty": dirty} if commit else {"git_dirty": dirty}
