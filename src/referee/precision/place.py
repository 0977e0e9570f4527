"""Where in the user's code is this? The module that is running, and the line outside of torch and of this package."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_OWN = str(Path(__file__).resolve().parents[1])


@contextmanager
def module_stack(names: Mapping[int, str]) -> Iterator[Callable[[], str]]:
    """While entered, the function it gives names the innermost module that is running (empty outside of any)."""
    from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

    running: list[str] = []

    def enter(module: Any, args: Any) -> None:
        running.append(names.get(id(module), type(module).__name__))

    def leave(module: Any, args: Any, output: Any) -> None:
        if running:
            running.pop()

    before = register_module_forward_pre_hook(enter)
    after = register_module_forward_hook(leave, always_call=True)
    try:
        yield lambda: running[-1] if running else ""
    finally:
        before.remove()
        after.remove()


def user_line() -> str:
    """``FILE:LINE`` of the innermost frame that belongs neither to torch nor to this package; empty where none does."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not (name.startswith((_OWN, "<frozen")) or _in_torch(name) or name.endswith("contextlib.py")):
            return f"{Path(name).name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _in_torch(name: str) -> bool:
    parts = Path(name).parts
    return "torch" in parts and "site-packages" in parts
