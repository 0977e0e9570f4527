"""Which quotes end a text, and which belong into it? A guess at what a writer meant that forgot to escape them.

A quote ends a text if what follows is what may follow one in JSON: a colon after a key; after a value a comma and the
next key (or, in a list, the next value), or a closing bracket. Every other quote inside a text is escaped, and so is a
backslash that begins no escape.
"""

from __future__ import annotations

import re

_END_OF_KEY = re.compile(r"\s*:")
_END_OF_VALUE = re.compile(r'\s*(?:,\s*(?:"(?:[^"\\]|\\.)*"\s*:|[\[{"\d.tfnIN-])|[\]}]|$)')
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')


def requote(text: str) -> str:
    """The text of one object, with quotes and backslashes inside its texts escaped."""
    parts: list[str] = []
    position = 0
    while (opening := text.find('"', position)) >= 0:
        parts.append(text[position : opening + 1])
        position = _copy_text(text, opening + 1, parts)
    parts.append(text[position:])
    return "".join(parts)


def _copy_text(text: str, position: int, parts: list[str]) -> int:
    """Copy one text from behind its opening quote up to behind its closing quote, escaping what lies between."""
    while position < len(text):
        char = text[position]
        if char == "\\":
            escape = _ESCAPE.match(text, position)
            parts.append(escape.group() if escape else "\\\\")
            position = escape.end() if escape else position + 1
        elif char == '"':
            if _END_OF_KEY.match(text, position + 1) or _END_OF_VALUE.match(text, position + 1):
                parts.append('"')
                return position + 1
            parts.append('\\"')
            position += 1
        else:
            parts.append(char)
            position += 1
    return position
