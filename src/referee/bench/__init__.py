"""How long does it take? The plan, the only timing loop, stopping rules, guards, sweep, compare.

This package and the function ``referee.bench(f, *args)`` share a name, and importing a module of the package makes
``referee.bench`` the package. So the package itself can be called, and tells the function's signature and parameters:
whichever of the two a user meets, it does the same.
"""

from __future__ import annotations

import inspect
import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    """A package that answers a call with :func:`referee.api.bench`."""

    # By name: this layer does not know the interface above it.

    def __call__(self, *args: Any, **options: Any) -> Any:
        return import_module("referee.api").bench(*args, **options)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(import_module("referee.api").bench)

    @property
    def __doc__(self) -> str:  # type: ignore[override]  # what help and a notebook show is the function's
        function = import_module("referee.api").bench
        return f"bench{inspect.signature(function)}\n\n{inspect.getdoc(function)}"


sys.modules[__name__].__class__ = _CallablePackage
