"""Does a ``contiguous()`` undo channels_last? Which, at what line, how many bytes it copies, and the step without it.

A tensor whose channels are innermost is dense, yet ``contiguous()`` copies it into the other layout, and what follows
has to work in that. On a tensor that is contiguous already the same call costs nothing, so nobody sees which one it is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from referee.device.host import load_torch
from referee.remedy.fix import Loaded, Situation, Step
from referee.units import format_bytes

_CLONES = ("aten::clone", "aten::contiguous", "aten::_to_copy")


@dataclass
class Undone:
    """One line that turns layouts back."""

    place: str
    calls: int = 0
    copied_bytes: int = 0

    @property
    def words(self) -> str:
        """What it does, in words."""
        times = "" if self.calls == 1 else f" in {self.calls} calls"
        return f"contiguous() at {self.place} copies {format_bytes(self.copied_bytes)}{times} and undoes channels_last"


def find_undone(step: Step) -> list[Undone]:
    """Call ``step`` once and say which lines turned a channels_last tensor back, those that copy most first."""
    found: dict[str, Undone] = {}

    def note(tensor: Any, original: Callable[..., Any], place: str) -> Any:
        line = found.setdefault(place, Undone(place))
        line.calls += 1
        line.copied_bytes += tensor.numel() * tensor.element_size()
        return original(tensor)

    with _instead(note):
        step()
    return sorted(found.values(), key=lambda line: -line.copied_bytes)


def keep_layout(loaded: Loaded, _: Situation) -> Step:
    """The step with such calls left out."""

    def kept() -> object:
        with _instead(lambda tensor, _original, _place: tensor):
            return loaded.step()

    return kept


def undoes_nothing(situation: Situation) -> str:
    """Why there is nothing to leave out, else an empty text."""
    if situation.seen.compiled != "no":
        return f"the step is compiled: {situation.seen.compiled}"
    copies = [op for op in situation.seen.ops if op.partition(".")[0] in _CLONES]
    if situation.seen.basis == "operators" and not copies:
        return "no tensor is copied into another layout"
    return "" if find_undone(situation.loaded.step) else "no contiguous() undoes channels_last"


def undone_words(situation: Situation) -> tuple[str, ...]:
    """The lines, in words."""
    return tuple(line.words for line in find_undone(situation.loaded.step)[:3])


@contextmanager
def _instead(replacement: Callable[[Any, Callable[..., Any], str], Any]) -> Iterator[None]:
    """``replacement(tensor, original, place)`` in the stead of each ``contiguous()`` that would undo channels_last."""
    torch = load_torch()
    own = torch.Tensor.__dict__.get("contiguous")
    original = torch.Tensor.contiguous
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}

    def contiguous(self: Any, *args: Any, **kwargs: Any) -> Any:
        layout = formats.get(self.dim())
        plain = not args and kwargs.get("memory_format", torch.contiguous_format) == torch.contiguous_format
        if plain and layout is not None and not self.is_contiguous() and self.is_contiguous(memory_format=layout):
            frame = sys._getframe(1)
            return replacement(self, original, f"{frame.f_code.co_filename}:{frame.f_lineno}")
        return original(self, *args, **kwargs)

    torch.Tensor.contiguous = contiguous
    try:
        yield
    finally:
        if own is None:
            del torch.Tensor.contiguous
        else:
            torch.Tensor.contiguous = own
