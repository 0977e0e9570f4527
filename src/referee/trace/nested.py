"""Where does this value end, and what of it is nested too deeply? Counts brackets, without recursion.

The decoders give up on values that nest a thousand levels deep, whatever is inside. Nothing that becomes a column lies
deeper than two, so what lies too deep is replaced by ``null`` and the rest is read.
"""

from __future__ import annotations

import json
import re

DEEPEST = 64
"""Levels that are kept; recorded arguments nest four levels deep at most."""
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{]+|[\]}]+', re.DOTALL)
_NEXT_KEY = re.compile(r'\s*,\s*("[^"\\]*(?:\\.[^"\\]*)*")\s*:\s*', re.DOTALL)
_BEHIND_NUMBER = (" ", "\t", "\r", "\n", ",")
_VALUES = json.JSONDecoder(strict=False)


def shallow(text: str, position: int = 0) -> tuple[str, int] | None:
    """The object or list that begins at ``position`` without what lies too deep in it, and where it ends.

    ``None`` if it has no end. Brackets inside texts do not count.
    """
    depth, parts, kept_from = 0, [], position
    for match in _TOKEN.finditer(text, position):
        token = match.group()
        if token[0] == '"':
            continue
        if token[0] in "[{":
            if depth <= DEEPEST < depth + len(token):
                # The first bracket that is too deep stands at this place of the run.
                parts += [text[kept_from : match.start() + DEEPEST - depth], "null"]
            depth += len(token)
            continue
        if depth > DEEPEST >= depth - len(token):
            kept_from = match.start() + depth - DEEPEST
        if depth <= len(token):
            end = match.start() + depth
            return "".join((*parts, text[kept_from:end])), end
        depth -= len(token)
    return None


def end_of_object(text: str) -> int | None:
    """Where the object ends that this text continues: behind its closing brace; ``None`` if that is not there."""
    depth = 1
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token[0] in "[{":
            depth += len(token)
        elif token[0] != '"':
            if depth <= len(token):
                return match.start() + depth
            depth -= len(token)
    return None


def end_of_values(text: str) -> int:
    """Where the last whole value ends of the object that this text continues, and does not complete.

    ``text`` begins behind a value. A number that nothing follows may have gone on: it is not whole.
    """
    position = 0
    while (match := _NEXT_KEY.match(text, position)) is not None:
        end = _end_of_value(text, match.end())
        if end is None or (text[end - 1].isdigit() and text[end : end + 1] not in _BEHIND_NUMBER):
            break
        position = end
    return position


def _end_of_value(text: str, position: int) -> int | None:
    if text[position : position + 1] in ("{", "["):
        found = shallow(text, position)
        return None if found is None else found[1]
    try:
        return int(_VALUES.raw_decode(text, position)[1])
    except ValueError:
        return None


def value_of_key(text: str, key: str) -> tuple[int, bool]:
    """Where the value of ``key`` begins among the keys of the object at the beginning of ``text``, -1 if nowhere.

    And whether the object ends in the text.
    """
    depth, found = 0, -1
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token[0] == '"':
            if depth == 1 and found < 0 and _is_key(token, key):
                colon = re.compile(r"\s*:\s*").match(text, match.end())
                found = colon.end() if colon else -1
        elif token[0] in "[{":
            depth += len(token)
        else:
            depth -= len(token)
            if depth <= 0:
                return found, True
    return found, False


def _is_key(token: str, key: str) -> bool:
    """Whether a text, as it is written, is this key; letters may be written by their numbers."""
    if "\\" not in token:
        return token == f'"{key}"'
    try:
        return bool(_VALUES.decode(token) == key)
    except ValueError:
        return False
