"""Which ways of asking for the same work are compared? What each is, before it is timed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from referee.anatomy.timing import Context


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way: its source and names, the context it needs, or why it cannot be had."""

    name: str
    source: str = ""
    names: Mapping[str, Any] = field(default_factory=dict)
    context: Context = nullcontext
    note: str = ""
    why_not: str = ""
    repeats: int = 1
    """How often the source does the work by itself."""
    part: bool = False
    """Whether it is only a part of another way, which says nothing when held against the first of the group."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Ways that do the same work; the first is what the others are held against."""

    name: str
    ways: tuple[Way, ...]
