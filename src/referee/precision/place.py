"""Where in the user's code is this? The module that is running, the user's line, the name of a parameter."""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_OWN = str(Path(__file__).resolve().parents[1])
_COMMAND = str(Path(_OWN) / "cli")
_STANDARD_LIBRARY = str(Path(traceback.__file__).resolve().parent)
_INSTALLED = ("site-packages", "dist-packages")


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
    """``FILE:LINE`` of :func:`user_frame`; empty where there is none."""
    frame = user_frame()
    return "" if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def user_frame() -> Any:
    """The innermost frame in the user's own code, else in an installed library other than torch.

    ``None`` where neither is on the way from here to this package's command: what started the command is nobody's.
    """
    library = None
    frame: Any = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_COMMAND):
            break
        if _is_installed(name):
            library = library or (None if _in_torch(name) else frame)
        elif not name.startswith((_OWN, "<frozen", _STANDARD_LIBRARY)):
            return frame
        frame = frame.f_back
    return library


def users_line_of(error: BaseException) -> str:
    """``FILE:LINE`` of the innermost place in the user's own code on the way to where ``error`` was raised."""
    line = ""
    for frame, number in traceback.walk_tb(error.__traceback__):
        name = frame.f_code.co_filename
        if not _is_installed(name) and not name.startswith((_OWN, "<frozen", _STANDARD_LIBRARY)):
            line = f"{Path(name).name}:{number}"
    return line


def _is_installed(name: str) -> bool:
    return not name.startswith(_OWN) and any(part in _INSTALLED for part in Path(name).parts)


def _in_torch(name: str) -> bool:
    return "torch" in Path(name).parts


def parameter_name(parameter: Any) -> str:
    """The parameter's name from the outermost module that holds it; empty where none does.

    Looks at every live object, so it is for what has gone wrong only.
    """
    from torch.nn import Module

    modules = [item for item in gc.get_objects() if issubclass(type(item), Module)]
    holders = ((module, name) for module in modules for name, held in module._parameters.items() if held is parameter)
    module, name = next(holders, (None, ""))
    above = {id(part): (outer, key) for outer in modules for key, part in outer._modules.items() if part is not None}
    seen: set[int] = set()
    while module is not None and id(module) in above and id(module) not in seen:
        seen.add(id(module))
        module, key = above[id(module)]
        name = f"{key}.{name}"
    return name
