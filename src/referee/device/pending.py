"""Is what the step handed back finished? Work that has not begun, or that goes on after the call has returned."""

from __future__ import annotations

import inspect
import itertools
from contextlib import suppress

from referee.device.settle import find_leaves

_HANDLES = (("result", "add_done_callback"), ("wait", "is_completed"), ("wait", "then"), ("wait", "ready", "get"))
"""What handles on work elsewhere can do: futures (concurrent, asyncio), collectives, torch's futures, results of a
process pool. None of them is anything else that a step returns."""


def pending(output: object) -> tuple[str, str] | None:
    """What is unfinished about ``output``, as words behind "returns", and the mend; ``None`` where nothing is.

    What has not begun is closed, so that nobody is warned of it.
    """
    if inspect.iscoroutine(output) or inspect.isgenerator(output) or inspect.isasyncgen(output):
        kind = "generator" if inspect.isgenerator(output) else "coroutine"
        with suppress(AttributeError):
            output.close()  # type: ignore[union-attr]  # quietens "was never awaited"
        return f"a {kind}, whose work has not begun", "Return its finished result."
    if isinstance(output, (map, filter, itertools.starmap)):
        return f"a {type(output).__name__}, whose work has not begun", "Return its finished result: list(…)."
    handles: list[object] = find_leaves(output, _is_handle)
    if handles:
        kind = type(handles[0]).__name__
        return f"a {kind}, whose work may go on after the call has returned", "Wait for it, and return its result."
    return None


def _is_handle(item: object) -> bool:
    """Whether ``item`` is a handle on work elsewhere. Asks the type: attributes of an object may run code."""
    kind = type(item)
    return any(all(hasattr(kind, name) for name in names) for names in _HANDLES)
