"""How are calls of torch noticed while they go through unchanged? Wrappers, put in place and taken away again."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

Before = Callable[[Any, Sequence[Any], dict[str, Any]], None]
After = Callable[..., None]


class Intercepts:
    """A set of interceptions, undone in reverse order on leaving."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def __enter__(self) -> Intercepts:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._undo:
            self._undo.pop()()

    def wrap(
        self,
        owner: Any,
        name: str,
        *,
        before: Before | None = None,
        after: After | None = None,
        failed: Callable[[Any], None] | None = None,
        given: Callable[[Any], Any] | None = None,
    ) -> None:
        """Call ``before(owner or self, args, kwargs)`` and ``after(…, args, result)`` round ``owner.name``.

        Of a class the first argument is the instance, of a module the module. ``after`` may take the keywords as well.
        ``failed`` is told when the call raised. ``given`` may put an equal one in the place of each
        argument.
        """
        from torch.compiler import is_compiling

        plain = getattr(owner, name)
        of_class = inspect.isclass(owner)
        wants_keywords = after is not None and len(inspect.signature(after).parameters) == 4

        @functools.wraps(plain)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if is_compiling():  # a compiler that follows the call is to see torch's function alone
                return plain(*args, **kwargs)
            if given is not None:
                args, kwargs = tuple(map(given, args)), {key: given(value) for key, value in kwargs.items()}
            subject, rest = (args[0], args[1:]) if of_class else (owner, args)
            if before is not None:
                before(subject, rest, kwargs)
            try:
                result = plain(*args, **kwargs)
            except BaseException:
                if failed is not None:
                    failed(subject)
                raise
            if after is not None:
                after(subject, rest, result, *((kwargs,) if wants_keywords else ()))
            return result

        own = name in vars(owner)
        setattr(owner, name, wrapped)
        self._undo.append(lambda: setattr(owner, name, plain) if own else delattr(owner, name))

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Put ``value`` in place of ``owner.name``."""
        plain = getattr(owner, name)
        setattr(owner, name, value)
        self._undo.append(lambda: setattr(owner, name, plain))

    def replace_attribute(self, kind: Any, name: str, value: Any) -> None:
        """Give the class ``kind`` its own ``name`` for a while, whether it has one or inherits it."""
        own = vars(kind).get(name)
        setattr(kind, name, value)
        self._undo.append(lambda: delattr(kind, name) if own is None else setattr(kind, name, own))

    def hook_steps(self, *, before: Callable[[Any], None], after: Callable[[Any], None]) -> None:
        """Call ``before`` and ``after`` with the optimizer round every step of any optimizer."""
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        handles = (
            register_optimizer_step_pre_hook(lambda optimizer, args, kwargs: before(optimizer)),
            register_optimizer_step_post_hook(lambda optimizer, args, kwargs: after(optimizer)),
        )
        self._undo += [handle.remove for handle in handles]

    def wrap_schedulers(self, before: Callable[[Any], None]) -> None:
        """Call ``before`` with the scheduler when any learning-rate scheduler steps.

        Each kind of scheduler may have its own ``step``, and an instance may have wrapped it; all go through the class
        attribute at the time of the call, which is what is replaced, for every kind that is loaded.
        """
        from torch.optim.lr_scheduler import LRScheduler

        kinds = [LRScheduler, *_subclasses(LRScheduler)]
        for kind in kinds:
            if "step" in vars(kind):
                self.wrap(kind, "step", before=lambda scheduler, args, kwargs: before(scheduler))


def _subclasses(kind: type) -> list[type]:
    found: list[type] = []
    direct: list[type] = kind.__subclasses__()
    for below in direct:
        found += [below, *_subclasses(below)]
    return found
