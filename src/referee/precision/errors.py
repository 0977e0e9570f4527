"""What did the user's code or torch complain about, in a line?"""

from __future__ import annotations

_MOST_WORDS = 160
"""Characters of an error that are shown: torch's messages go on for pages."""


def first_sentence(error: BaseException) -> str:
    """The beginning of what ``error`` says, in one line."""
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    sentence = text.split(". ")[0].rstrip(".")
    return sentence if len(sentence) <= _MOST_WORDS else f"{sentence[:_MOST_WORDS]}…"
