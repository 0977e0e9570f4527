"""Is ours the only profiler? Two at once crash the process (torch 2.13), so the second is refused in one sentence.

A profiler that warms up is not enabled yet, and torch asks only for those that are. So profilers under way are looked
for before a window opens; and while one is open, another one's preparing raises. Where torch names these things
otherwise, torch's own answer is what remains.
"""

from __future__ import annotations

import gc
from typing import Any

from referee.errors import UserError

_PREPARE = "_prepare_trace"


def refuse_second(*, looking: bool) -> None:
    """Raise :class:`~referee.errors.UserError` if a torch profiler records; with ``looking`` also one that warms up.

    To look for those takes some 30 ms: all objects of the process are gone through.
    """
    import torch

    if torch.autograd._profiler_enabled() or (looking and any(_under_way(item) for item in gc.get_objects())):
        raise _second()


def _under_way(item: object) -> bool:
    from torch.autograd.profiler import profile

    # By type(), because isinstance() asks some objects for their class, and they answer with a deprecation warning.
    if not issubclass(type(item), profile):
        return False
    return bool(getattr(item, "entered", False)) and getattr(item, "kineto_results", True) is None


def _second() -> UserError:
    return UserError(
        "Another torch profiler is running already, and only one can run at a time.",
        hint="Take the other one (a torch.profiler, or a capture around this one) out for this run.",
    )


class NoOther:
    """While it is held, no other torch profiler can begin: whoever starts one gets the sentence."""

    def __init__(self) -> None:
        self._prepare: Any = None

    def hold(self) -> None:
        """From now on."""
        from torch.autograd.profiler import profile

        def refuse(other: Any) -> None:
            # Its owner stops it all the same, which would start what was not prepared, and crash.
            other.enabled, other._start_trace = False, lambda: None
            raise _second()

        self._prepare = getattr(profile, _PREPARE, None)
        if self._prepare is not None:
            setattr(profile, _PREPARE, refuse)

    def let_go(self) -> None:
        """No longer."""
        from torch.autograd.profiler import profile

        if self._prepare is not None:
            setattr(profile, _PREPARE, self._prepare)
            self._prepare = None
