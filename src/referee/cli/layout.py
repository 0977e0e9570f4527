"""Where in memory does this process lie? Always in the same place, where some tens of nanoseconds are to be told apart.

The system gives each process other addresses. Which branches and cache lines share a place then differs from run to
run, and with it a small operator's time: two fresh processes differed by 1 to 3 % (standard deviation of ten, 1.6 µs)
and single stages by up to 30 ns, however long each of them measured. With addresses and hashing fixed and small memory
on large pages it was 0.5 % and 6 ns. So the command starts itself again, once, before anything large is loaded.

Loading torch is most of what such a command takes. The collector walks its objects again and again meanwhile, and once
more when the process ends, without finding any: it is kept from them, which saves 0.35 s of 2.3 s.
"""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod

_NO_RANDOM_ADDRESSES = 0x0040000
"""``ADDR_NO_RANDOMIZE`` of <sys/personality.h>."""

_READ_ONLY = 0xFFFFFFFF
"""Asks ``personality`` for the present value."""

_MARK = "REFEREE_LAYOUT"
"""Set for the new start alone: which of :data:`_SETTINGS` were added for it."""

_SETTINGS = {"PYTHONHASHSEED": "0", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Sets and dictionaries laid out the same, and the heap on large pages, whose place in the caches is the same too."""

_LARGE = 1 << 17
"""Tensors of more numbers than this may be given large pages by that setting, which would change what they cost."""


def fix_layout(words: Sequence[str]) -> None:
    """Start the command again with fixed addresses if it takes an operator apart; returns where that is not needed.

    ``words`` are those behind the program's name. Where the system refuses (other systems than Linux, some containers)
    the command goes on as it is; the record says which it was.
    """
    if _MARK in os.environ:
        _restore()
        return
    if sys.platform != "linux" or not takes_operator(words) or not _fix_addresses():
        return
    environment = settings(os.environ, words)
    os.execve(sys.executable, sys.orig_argv, environment)


def load_torch_once() -> None:
    """Load torch with the collector off, and leave to it only what is made later; does nothing where it is loaded.

    For a command that measures with the collector off and brings no code of the user's: what a step makes in cycles
    must be found. Raises :class:`~referee.errors.PackageMissing` without torch.
    """
    from referee.device.host import load_torch

    if "torch" in sys.modules:
        return
    enabled = gc.isenabled()
    gc.disable()
    try:
        load_torch()
        gc.freeze()
    finally:
        if enabled:
            gc.enable()


def takes_operator(words: Sequence[str]) -> bool:
    """Whether the command line takes one operator apart; a step (``FILE.py:NAME``) brings its own code."""
    others = [word.replace("::", "") for word in words[1:]]
    return words[:1] == ["anatomy"] and not any(re.search(r"\w:[A-Za-z_]", word) for word in others)


def settings(environment: Mapping[str, str], words: Sequence[str]) -> dict[str, str]:
    """The environment for the new start; what the user has set stays."""
    wanted = dict(_SETTINGS)
    if any(prod(map(int, re.findall(r"\d+", shape))) > _LARGE for shape in _shapes(words)):
        del wanted["GLIBC_TUNABLES"]
    added = {name: value for name, value in wanted.items() if name not in environment}
    return {**environment, **added, _MARK: ",".join(added)}


def _shapes(words: Sequence[str]) -> list[str]:
    following = [after for word, after in pairwise(words) if word == "--shape"]
    return following + [word for word in words if word.startswith("--shape=")]


def _restore() -> None:
    """What was set for this start is not handed on to children."""
    for name in os.environ.pop(_MARK).split(","):
        if name in _SETTINGS:
            os.environ.pop(name, None)


def _fix_addresses() -> bool:
    """Ask the system not to place what is started next at random; whether it agreed, and it was not so already."""
    import ctypes

    try:
        personality = ctypes.CDLL(None).personality
    except (OSError, AttributeError):
        return False
    personality.argtypes, personality.restype = [ctypes.c_ulong], ctypes.c_int
    now = personality(_READ_ONLY)
    if now < 0 or now & _NO_RANDOM_ADDRESSES:
        return False
    return bool(personality(now | _NO_RANDOM_ADDRESSES) >= 0)
