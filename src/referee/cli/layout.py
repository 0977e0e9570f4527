"""Where in memory does a command that measures lie? Always in the same place, unless told otherwise.

The system gives each process other addresses. Which branches and cache lines share a place then differs from run to
run, and with it a small operator's time, however long one measures (:mod:`referee.device.layout`). A number that is to
be published, or held against another, should not carry that draw: the command starts itself again, once, before
anything large is loaded, and the record says so. It is one layout of many; ``compare --processes`` draws a new one for
each process, and its interval is over them.

Where tens of nanoseconds are told apart, in the stages of one operator, hashing is fixed too, and small memory lies on
large pages: two fresh processes differed by up to 30 ns a stage without that, and by 6 ns with it. A step that is
measured keeps the memory that it has elsewhere.

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

from referee.device.layout import Layout, ask_for_layout

_MEASURING = frozenset({"bench", "sweep", "compare", "verify"})
"""Commands that measure the user's own code, in this process."""

_PROCESSES = ("--processes", "--revisions")
"""With these ``compare`` measures in processes of its own, each of which is told its layout."""

_NAME = "referee"
"""The command, and the package that ``python -m`` runs."""

_MARK = "REFEREE_LAYOUT"
"""Set for the new start alone: which of :data:`_SETTINGS` were added for it."""

_SETTINGS = {"PYTHONHASHSEED": "0", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Sets and dictionaries laid out the same, and the heap on large pages, whose place in the caches is the same too."""

_LARGE = 1 << 17
"""Tensors of more numbers than this may be given large pages by that setting, which would change what they cost."""


def fix_layout(words: Sequence[str]) -> None:
    """Start the command again at the addresses that it wants; returns where that is not needed, or not to be had.

    ``words`` are those behind the program's name. Where the system refuses (other systems than Linux, some containers)
    the command goes on as it is; the record says which it was. So it does where more than this command would start
    again: a script of the user's that calls it, or a debugger that watches.
    """
    layout = wanted_layout(words)
    if _MARK in os.environ or (layout is not None and not _is_watched() and is_whole_program(words)):
        start_again(layout, words)


def start_again(layout: Layout | None, words: Sequence[str]) -> None:
    """Start this program again, whatever it is, so placed, with the settings of the command line ``words``.

    Returns in the new start, where it is so placed already, and where the system refuses.
    """
    if _MARK in os.environ:
        _restore()
        return
    if layout is None or not ask_for_layout(layout):
        return
    try:
        os.execve(sys.executable, sys.orig_argv, settings(os.environ, words))
    except OSError:  # this process stays where it is, and must not say otherwise
        ask_for_layout("random" if layout == "fixed" else "fixed")


def is_whole_program(words: Sequence[str]) -> bool:
    """Whether this process was started as ``referee WORDS`` or ``python -m referee WORDS``, and as nothing more."""
    before = sys.orig_argv[: len(sys.orig_argv) - len(words)]
    if not sys.executable or sys.orig_argv[len(before) :] != list(words):
        return False
    return before[-2:] == ["-m", _NAME] or any(os.path.basename(word) in (_NAME, f"-m{_NAME}") for word in before[-1:])


def _is_watched() -> bool:
    """Whether a debugger, a tracer or a profiler of Python's follows this process: it would be lost, or begin anew."""
    return sys.gettrace() is not None or sys.getprofile() is not None


def wanted_layout(words: Sequence[str]) -> Layout | None:
    """At which addresses a command line wants to measure; ``None`` where it does not matter, or nothing is measured."""
    if takes_operator(words):
        return "fixed"
    if not _MEASURING.intersection(words[:1]):
        return None
    if words[0] == "compare" and any(is_option(word, _PROCESSES) for word in words):
        return None
    stated = _values(words, "--layout")
    return "random" if stated[-1:] == ["random"] else "fixed"


def is_option(word: str, names: Sequence[str]) -> bool:
    """Whether a word of the command line is one of the options, alone or with its value, in full or shortened."""
    flag = word.partition("=")[0]
    return len(flag) > len("--") and any(name.startswith(flag) for name in names)


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
    wanted = dict(_SETTINGS) if takes_operator(words) else {}
    if any(prod(map(int, re.findall(r"\d+", shape))) > _LARGE for shape in _values(words, "--shape")):
        wanted.pop("GLIBC_TUNABLES", None)
    added = {name: value for name, value in wanted.items() if name not in environment}
    return {**environment, **added, _MARK: ",".join(added)}


def _values(words: Sequence[str], option: str) -> list[str]:
    """What is stated for an option, ``--option VALUE`` or ``--option=VALUE``, in full or shortened, in order."""
    pairs = pairwise([*words, ""])
    return [word.partition("=")[2] if "=" in word else after for word, after in pairs if is_option(word, (option,))]


def _restore() -> None:
    """What was set for this start is not handed on to children."""
    for name in os.environ.pop(_MARK).split(","):
        if name in _SETTINGS:
            os.environ.pop(name, None)
