"""Which commit is the measured code, was its tree clean, and what was in its file? Asked once in a process.

Once for each folder and file, because the code that runs is the code that was loaded, whatever happens to the tree
afterwards.
"""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from referee.records.finding import Scalar

_TIMEOUT_S = 2.0
"""A status that takes longer (a huge tree on a slow disk) is not worth delaying a measurement for: not read."""


_DIGEST_LENGTH = 16
"""Hexadecimal digits: enough to tell two versions of one file apart."""


def read_repository(source_file: str | None) -> Mapping[str, Scalar]:
    """``git_commit`` and ``git_dirty`` of the repository that holds ``source_file``, and the file's own digest."""
    if source_file is None:
        return {}
    file = Path(source_file).resolve()
    return {**_read_folder(str(file.parent)), **_read_file(str(file))}


@functools.cache
def _read_file(file: str) -> Mapping[str, Scalar]:
    try:
        digest = hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError:
        return {}
    return {"source_digest": digest[:_DIGEST_LENGTH]}


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
