"""Where does one iteration of somebody's script end? Found through optimizer steps or module calls, or named.

A boundary is written ``optimizer``, ``optimizer:CLASS``, ``module``, ``module:CLASS`` or ``function:NAME``. Without one
the first optimizer that steps is taken, and another of its class once it is no more; a script that never steps one (and
holds none) is taken to infer, and then the outermost module that is called again is the step. torch's own global hooks
find both; nothing is patched.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from referee.errors import OptionError

KINDS = ("auto", "optimizer", "module", "function")
_PATIENCE_CALLS = 32
"""Module calls without an optimizer's step, although there is an optimizer, until the calls are taken as the step: more
than the sanity checks before a training, fewer than a validation epoch."""


@dataclass(frozen=True, kw_only=True)
class Boundary:
    """What ends an iteration: its kind, and the class or function that the user named, if any."""

    kind: str
    name: str = ""

    @classmethod
    def parse(cls, text: str) -> Boundary:
        """The boundary a user wrote; raises :class:`~referee.errors.OptionError` for anything else."""
        kind, _, name = text.partition(":")
        if kind not in KINDS or (kind == "function" and not name) or (kind == "auto" and name):
            raise OptionError(
                f"{text!r} names no step.",
                hint="Write optimizer, optimizer:CLASS, module, module:CLASS or function:NAME.",
            )
        return cls(kind=kind, name=name)


class StepFinder:
    """Watches a running script and calls ``on_step`` at the end of each iteration.

    ``on_found`` is called once, when it is clear what an iteration is, with a few words. ``on_inputs(module, inputs)``
    is called once, with the first outermost module call, so that shapes and dtype can be noted.
    """

    def __init__(
        self,
        boundary: Boundary,
        *,
        on_step: Callable[[], None],
        on_found: Callable[[str], None],
        on_inputs: Callable[[Any, tuple[Any, ...]], None],
    ) -> None:
        self._boundary, self._on_step, self._on_found, self._on_inputs = boundary, on_step, on_found, on_inputs
        self._optimizer: weakref.ref[Any] | None = None
        self._class = ""
        self._others_in_a_row, self._look_after = 0, 1
        self.several = False
        """Whether other optimizers step beside the one that was taken."""
        self._calls: dict[int, int] = {}
        self._patience_calls: int | None = None
        self._depth = 0
        self._seen_inputs = False
        self._found = False
        self._finding: list[Any] = []
        self._lasting: list[Any] = []

    def install(self) -> None:
        """Begin to watch."""
        from torch.nn.modules import module as modules
        from torch.optim import optimizer as optimizers

        self._finding = [
            modules.register_module_forward_pre_hook(self._before_module),
            modules.register_module_forward_hook(self._after_module, always_call=True),
        ]
        if self._boundary.kind in ("auto", "optimizer"):
            self._lasting.append(optimizers.register_optimizer_step_post_hook(self._after_optimizer))

    def remove(self) -> None:
        """Stop watching."""
        for handles in (self._finding, self._lasting):
            while handles:
                handles.pop().remove()

    def function_called(self) -> None:
        """The function that the user named has returned."""
        if not self._found:
            self._settle_on(f"through one call of {self._boundary.name}()")
        self._on_step()

    def _settle_on(self, words: str) -> None:
        """It is clear now; the hooks on every module, which slow each call, are taken off."""
        self._found = True
        self._on_found(words)
        if self._seen_inputs:
            self._stop_finding()

    def _stop_finding(self) -> None:
        while self._finding:
            self._finding.pop().remove()

    def _after_optimizer(self, optimizer: Any, args: object, kwargs: object) -> None:
        name = type(optimizer).__name__
        if self._optimizer is None:
            if self._found or (self._boundary.name and self._boundary.name != name):
                return
            self._optimizer, self._class = weakref.ref(optimizer), name
            self._settle_on(f"from one {name}.step() to the next")
        if self._optimizer() is optimizer or (name == self._class and self._succeeds(optimizer)):
            self._others_in_a_row = 0
            self._on_step()
        else:
            self.several = True

    def _succeeds(self, optimizer: Any) -> bool:
        """Whether ``optimizer`` takes the place of the one taken, which is no more: each fold, say, makes its own.

        A scheduler ties an optimizer into a cycle, so the collector decides; asked ever more rarely, as it takes time.
        """
        assert self._optimizer is not None
        self._others_in_a_row += 1
        if self._optimizer() is not None and self._others_in_a_row >= self._look_after:
            self._look_after *= 2
            gc.collect()
        if self._optimizer() is not None:
            return False
        self._optimizer, self._look_after = weakref.ref(optimizer), 1
        return True

    def _before_module(self, module: Any, inputs: tuple[Any, ...]) -> None:
        self._depth += 1
        if self._depth == 1 and not self._seen_inputs:
            self._seen_inputs = True
            self._on_inputs(module, inputs)

    def _after_module(self, module: Any, inputs: object, outputs: object) -> None:
        # Hooks that came while a forward was under way see its end without its beginning.
        self._depth = max(0, self._depth - 1)
        if self._found:
            if self._depth == 0:
                self._stop_finding()
            return
        if self._boundary.kind in ("auto", "module") and self._is_step(module):
            self._take_module(module)

    def _is_step(self, module: Any) -> bool:
        """Whether calls of ``module``, of which one has just ended, are to be taken as iterations."""
        if self._boundary.name:
            return type(module).__name__ == self._boundary.name
        if self._depth > 0:
            return False
        if self._boundary.kind == "module":
            return True
        count = self._calls[id(module)] = self._calls.get(id(module), 0) + 1
        if count == 2 and self._patience_calls is None:
            self._patience_calls = _PATIENCE_CALLS if _has_optimizer() else 2
        return self._patience_calls is not None and count >= self._patience_calls

    def _take_module(self, module: Any) -> None:
        self._lasting.append(module.register_forward_hook(lambda *_: self._on_step()))
        self._settle_on(f"from one call of {type(module).__name__} to the next")
        # The call that has just ended is the end of an iteration too; the module's own hook comes too late for it.
        self._on_step()


def _has_optimizer() -> bool:
    """Whether the script holds an optimizer that may yet step. Looks through all objects, once: some 100 ms."""
    from torch.optim import Optimizer

    gc.collect()
    # By type(), because isinstance() asks some objects for their class, and they answer with a deprecation warning.
    return any(issubclass(type(item), Optimizer) for item in gc.get_objects())
