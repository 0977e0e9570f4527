"""What of a trace may be shared? A copy of the file without host, user and path names.

Every text in the file is looked at, keys too, and so is what stands outside of texts where the file is damaged: paths
keep their last part; all texts under telling keys (``host_name``, ``tw_user``, ``api_token``, ``env`` …) are replaced,
and the names among them, like those of this user and host and of homes in paths, everywhere they occur; so are
addresses of mail and of the network, and what looks like a password or an access token. Numbers are copied as they are
written, and names of operators, kernels, annotations, modules and functions stay, so that the copy gives the same
report.
"""

from __future__ import annotations

import getpass
import gzip
import json
import os
import re
import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import IO, cast

import zstandard

from referee.errors import OptionError
from referee.trace.kinds import KIND_OF_CATEGORY
from referee.trace.source import open_text
from referee.trace.unpack import DATABASE_SUFFIX, SQLITE

_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*(?:"(?:\s*:)?|\\?\Z)|[^"\s\d.,:\[\]{}]{3,}[^"]*', re.DOTALL)
"""A text, with the colon behind it if it is a key; one that the file's end cuts; words outside of texts."""
_PATH = re.compile(r"(?:(?<![\w.])[A-Za-z]:|~)?(?:[/\\][^/\\\s\"'<>|:*?(),]+)+[/\\](?=[^/\\\s])")
_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)+")
_ADDRESS = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])")
_ADDRESS_6 = re.compile(r"(?i)(?<![\w:])(?:[0-9a-f]{1,4}::?){4,7}[0-9a-f]{1,4}(?![\w:])")
_SECRET = re.compile(
    r"(?i)(?<=\b)(?:sk-|hf_|gh[opsur]_|github_pat_|glpat-|xox[abp]-|AKIA|eyJ)[\w.-]{12,}|"
    r"(--[\w-]*(?:passw|secret|token|key)[\w-]*\s+|"
    r"(?:password|passwd|secret|token|(?:api|access)[_-]?key)['\"]?\s*(?:=|:(?!:))\s*)(?!\d{1,6}\b)['\"]?[^\s'\"]+"
)
"""What looks like an access token, or follows a word that says so (``--token x``)."""
_HOME = re.compile(rb'(?i)[/\\](?:home|users)(?:/|\\\\|\\/)([^/\\":*?<>|]{1,64})')
_TELLING_KEY = re.compile(
    r"(?i)host|user|login|owner|author|e?mail|job|task|cluster|entitlement|attribution|workflow|ticket|account|trace_?id|"
    r"project|team|^node$|started_by|cwd|home|secret|token(?!s|iz)|passw|credential|(?:api|access|private)_?key|"
    r"cmd|command|argv|^env(?:iron(?:ment)?)?$|uuid|serial"
)
_NAMING_KEY = re.compile(r"(?i)host|user|login|owner|author|started_by|^node$")
"""Keys whose values are names of people or machines, to be looked for in all other texts too."""
_COMMON = frozenset(
    {"root", "user", "users", "host", "localhost", "prod", "true", "false", "none", "python", "cuda", "cpu", "aten"}
    | {"torch", "autograd", "step", "profilerstep", "forward", "backward", "train", "model", "stream", "work", "name"}
    | {word for category in KIND_OF_CATEGORY for word in (category.lower(), *category.lower().split("_"))}
)
"""Words that say nothing of anybody, and those without which the copy could not be read."""
_LEAST_NAME = 4
"""Names shorter than this are not looked for inside other texts: they are in too many words."""
REDACTED = "redacted"
_OTHERS = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.zst", ".bz2", ".xz", ".7z", DATABASE_SUFFIX, ".parquet", ".arrow")
"""Suffixes of files that a copy is not."""


def redact_trace(source: str | os.PathLike[str], target: str | os.PathLike[str], *, again: bool = False) -> int:
    """Write a copy of the trace at ``source`` that is safe to share to ``target``; answers how many texts changed.

    The copy is plain JSON, or packed where the target's name ends in ``.gz`` or ``.zst``. The original is never
    replaced. ``again``: of standard input or a pipe, what was read of it before.
    Raises :class:`~referee.errors.OptionError` for another kind of target, or a source that is no JSON.
    """
    target = os.fspath(target)
    if target.lower().endswith(_OTHERS):
        raise OptionError(f"{target}: the suffix says the format.", hint="Use .json, .json.gz or .json.zst.")
    if os.path.exists(target) and os.path.exists(source) and os.path.samefile(source, target):
        raise OptionError(f"{target} is the trace itself.", hint="Name another file for the copy.")
    with open_text(source, again=again) as text:
        if text.blob.read(0, len(SQLITE)) == SQLITE:
            raise OptionError(
                f"{os.fspath(source)} is a database, and only JSON traces can be redacted.",
                hint="Share its report instead: --report FILE.html.",
            )
        data = text.blob.read(0, text.blob.size)
    changed, count = redact(data)
    partial = f"{target}.part-{os.getpid()}"
    try:
        with _opened(partial, suffix=os.path.splitext(target)[1].lower()) as file:
            file.write(changed)
        os.replace(partial, target)
    except OSError as error:
        raise OptionError(f"{target} cannot be written: {error.strerror}.") from error
    finally:
        if os.path.exists(partial):
            os.unlink(partial)
    return count


def _opened(path: str, *, suffix: str) -> IO[bytes]:
    """A file to write text to, which is packed as ``suffix`` says."""
    if suffix == ".gz":
        return cast("IO[bytes]", gzip.open(path, "wb", 6))
    if suffix == ".zst":
        return cast("IO[bytes]", zstandard.open(path, "wb"))
    return open(path, "wb")


def redact(data: bytes) -> tuple[bytes, int]:
    """The text of a trace without what tells where and by whom it was recorded, and how many texts changed."""
    redactor = _Redactor({*_own_names(), *_told_names(data)})
    return _TEXT.sub(redactor.replace, data), redactor.count


class _Redactor:
    """Goes through the texts of a file in order, knowing the key that stands before each value."""

    def __init__(self, names: Iterable[str]) -> None:
        longest_first = sorted(names, key=len, reverse=True)
        pattern = "|".join(re.escape(name) for name in longest_first)
        self._names = re.compile(rf"(?i)(?<![a-z0-9])(?:{pattern})(?![a-z0-9])") if pattern else None
        self._known: dict[bytes, bytes] = {}
        self._telling = False
        self._depth = 0
        """Brackets that are open of the list or object of a telling key."""
        self._seen = 0
        self._opened = False
        self.count = 0

    def replace(self, match: re.Match[bytes]) -> bytes:
        """One key or value, or words outside of both."""
        token = match.group()
        if not token.startswith(b'"'):
            return self._clean_outside(token)
        self._leave_container(match)
        if token.endswith(b":"):
            key = token[:-1].rstrip()
            self._telling = _TELLING_KEY.search(_decoded(key)) is not None
            if self._telling and self._depth == 0:
                self._depth = match.string[match.end() : match.end() + 64].lstrip()[:1] in (b"[", b"{")
                self._seen = match.end()
                self._opened = False
            cleaned = self._clean_key(key)
            self.count += cleaned != key
            return cleaned + token[len(key) :]
        changed = self._clean(token)
        self._telling = False
        self.count += changed != token
        return changed

    def _leave_container(self, match: re.Match[bytes]) -> None:
        """Count the brackets up to this text while it may stand inside the list or object of a telling key."""
        if not self._depth:
            return
        for bracket in re.findall(rb"[\[{\]}]", match.string[self._seen : match.start()]):
            if bracket in b"[{":
                self._depth += self._opened
                self._opened = True
            else:
                self._depth -= 1
            if self._depth == 0:
                break
        self._seen = match.end()

    def _clean_outside(self, words: bytes) -> bytes:
        """Words where the file's texts are broken; what are no words of anybody stays as it is, byte by byte."""
        text = words.decode("utf-8", "surrogateescape")
        cleaned = self.clean_text(text).encode("utf-8", "surrogateescape")
        self.count += cleaned != words
        return cleaned

    def _clean_key(self, token: bytes) -> bytes:
        """A key; one that is a single word stays, or the copy could lose what the reader looks for."""
        return token if re.fullmatch(rb'"[A-Za-z_ ]*"', token) else self._cleaned(token)

    def _clean(self, token: bytes) -> bytes:
        if self._telling or self._depth:
            return token if token == b'""' else f'"{REDACTED}"'.encode()
        return self._cleaned(token)

    def _cleaned(self, token: bytes) -> bytes:
        known = self._known.get(token)
        if known is None:
            text = _decoded(token)
            cleaned = self.clean_text(text)
            known = token if cleaned == text else json.dumps(cleaned).encode()
            self._known[token] = known
        return known

    def clean_text(self, text: str) -> str:
        """A text without paths, addresses, access tokens and known names."""
        # Names go first: a path that is cut can join one with what follows it.
        text = self._names.sub(REDACTED, text) if self._names else text
        text = _SECRET.sub(lambda found: (found[1] or "") + REDACTED, _MAIL.sub(REDACTED, _PATH.sub(_shortened, text)))
        return _ADDRESS_6.sub("::", _ADDRESS.sub("0.0.0.0", text))


def _shortened(path: re.Match[str]) -> str:
    """Nothing of a path's folders; a relative one keeps its first part, which names a package, apart from the last."""
    before = path.string[path.start() - 1 : path.start()]
    return "/" if before.isalnum() or before == "_" else ""


def _decoded(token: bytes) -> str:
    try:
        text = json.loads(token, strict=False)
    except ValueError:
        text = token.decode("utf-8", "replace").strip('"')
    return str(text)


def _own_names() -> set[str]:
    """The names of this user and this machine."""
    names = {socket.gethostname(), socket.gethostname().partition(".")[0], os.path.basename(os.path.expanduser("~"))}
    with suppress(KeyError, OSError):
        names.add(getpass.getuser())
    return {name for name in names if _is_telling(name)}


def _told_names(data: bytes) -> set[str]:
    """The names of people and machines that stand under the file's own keys."""
    found = set()
    for match in re.finditer(rb'("(?:[^"\\]|\\.){1,64}")\s*:\s*("(?:[^"\\]|\\.){1,256}")', data):
        if _NAMING_KEY.search(_decoded(match.group(1))) and _is_telling(value := _decoded(match.group(2))):
            found.add(value)
    homes = (match.group(1).decode("utf-8", "replace").strip() for match in _HOME.finditer(data))
    return found | {name for name in homes if _is_telling(name)}


def _is_telling(name: str) -> bool:
    return len(name) >= _LEAST_NAME and name.lower() not in _COMMON and not name.isdigit()
