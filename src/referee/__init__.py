"""Referee: an honest referee for PyTorch performance.

``import referee`` loads neither torch nor numpy; names below are resolved on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

__all__ = ["__version__", "bench", "compare", "load", "save", "shapes", "sweep", "verify"]

_API = frozenset(__all__) - {"__version__", "bench"}


def __getattr__(name: str) -> Any:
    """Resolve a public name on first use."""
    if name == "bench":
        return import_module("referee.bench")  # the package, which can be called
    if name not in _API:
        raise AttributeError(f"module 'referee' has no attribute {name!r}")
    return getattr(import_module("referee.api"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
