"""Which module ran when? Ranges named after the module hierarchy, only while a window records.

``torch.profiler(with_modules=True)`` names modules for TorchScript alone; here global module hooks put a range around
every module's forward, called ``nn.Module: PATH (CLASS)`` with the path from the outermost module that was called.
"""

from __future__ import annotations

from typing import Any


class ModuleRanges:
    """Opens a range at each module's forward and closes it after it, exceptions included."""

    def __init__(self) -> None:
        self._paths: dict[int, str] = {}
        self._open: list[tuple[int, Any]] = []
        self._handles: list[Any] = []

    def install(self) -> None:
        """Begin to mark modules."""
        from torch.nn.modules import module as registry

        self._handles = [
            registry.register_module_forward_pre_hook(self._enter),
            registry.register_module_forward_hook(self._leave, always_call=True),
        ]

    def remove(self) -> None:
        """Stop marking modules; modules that are not marked run as if nothing had been installed."""
        while self._handles:
            self._handles.pop().remove()
        while self._open:
            self._open.pop()[1].__exit__(None, None, None)

    def _enter(self, module: Any, inputs: object) -> None:
        from torch.autograd.profiler import record_function

        if not self._open:
            root = type(module).__name__
            self._paths = {id(m): f"{root}.{path}" if path else root for path, m in module.named_modules()}
        name = type(module).__name__
        marked = record_function(f"nn.Module: {self._paths.get(id(module), name)} ({name})")
        marked.__enter__()
        self._open.append((id(module), marked))

    def _leave(self, module: Any, inputs: object, outputs: object) -> None:
        # A module that was entered before the hooks were there has no range.
        if self._open and self._open[-1][0] == id(module):
            self._open.pop()[1].__exit__(None, None, None)
