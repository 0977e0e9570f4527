"""Referee: an honest referee for PyTorch performance.

``import referee`` loads neither torch nor numpy; names below are resolved on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_WHERE = {
    "compare": "referee.api",
    "diagnose": "referee.analysis.diagnose",
    "load": "referee.api",
    "read_trace": "referee.trace.reader",
    "save": "referee.api",
    "shapes": "referee.api",
    "sweep": "referee.api",
    "sweep_grid": "referee.api",
    "to_arrow": "referee.trace.table",
    "to_pandas": "referee.trace.table",
    "to_polars": "referee.trace.table",
    "verify": "referee.api",
}
"""Public name → the module that defines it, loaded on first use."""

__all__ = [
    "__version__",
    "bench",
    "compare",
    "diagnose",
    "load",
    "read_trace",
    "save",
    "shapes",
    "sweep",
    "sweep_grid",
    "to_arrow",
    "to_pandas",
    "to_polars",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Resolve a public name on first use."""
    if name == "bench":
        return import_module("referee.bench")  # the package, which can be called
    if name not in _WHERE:
        raise AttributeError(f"module 'referee' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
