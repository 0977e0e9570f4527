"""Was anything compiled? Counts kept by torch's own compiler, read without loading it.

Loading ``torch._dynamo`` takes over a second, so a process that never compiled is not made to: the counts are zero as
long as it is not loaded. The names are torch-internal and not promised; what is not there reads 0.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NS_PER_S = 1_000_000_000


def compile_counters() -> Mapping[str, int]:
    """How much was compiled so far in this process? Always the same keys, so that two readings can be subtracted.

    ``compile.frames``: Python frames given to the compiler, recompilations included. ``compile.recompiles``: frames
    compiled again because a guard failed. ``compile.graphs``, ``compile.graph_breaks``: as their names say.
    """
    utils: Any = sys.modules.get("torch._dynamo.utils")
    convert: Any = sys.modules.get("torch._dynamo.convert_frame")
    counters: Any = getattr(utils, "counters", None) or {}
    per_frame: Any = getattr(convert, "FRAME_COMPILE_COUNTER", None) or {}
    return {
        "compile.frames": _count(counters, "frames", "total"),
        "compile.recompiles": sum(max(0, times - 1) for times in list(per_frame.values())),
        "compile.graphs": _count(counters, "stats", "unique_graphs"),
        "compile.graph_breaks": sum(dict(counters.get("graph_break", {})).values()),
    }


def _count(counters: Any, group: str, name: str) -> int:
    # ``counters`` makes missing entries on reading; ``get`` leaves it as it is.
    return int(counters.get(group, {}).get(name, 0))


def recompile_reason() -> tuple[str, str] | None:
    """Which frame was compiled last, and why again? The compiler's own words on the guard that failed.

    ``None`` where nothing was compiled again, or where this torch does not say. A frame is named as in ``step
    (train.py:12)``; the reason is as in ``tensor 'x' size mismatch at index 0. expected 4, actual 5``.
    """
    utils: Any = sys.modules.get("torch._dynamo.utils")
    read: Any = getattr(utils, "get_compilation_metrics", None)
    metrics = list(read()) if read is not None else []
    text = getattr(metrics[-1], "recompile_reason", None) if metrics else None
    if not text:
        return None
    # Number of the frame and of its version, the guard, the code of the frame as a comment; then the user's stack.
    first = str(text).splitlines()[0].partition("  #")[0]
    reason = re.sub(r"^\d+/\d+: ", "", first).strip().rstrip(".")
    # A version given up because there are too many has a reason and no name.
    name, file, line = (getattr(metrics[-1], key, None) for key in ("co_name", "co_filename", "co_firstlineno"))
    return f"{name} ({Path(str(file)).name}:{line})" if name else "a frame", reason


def compile_time_ns() -> int | None:
    """How long has compiling taken so far in this process, in nanoseconds? ``None`` where torch does not say."""
    utils: Any = sys.modules.get("torch._dynamo.utils")
    if utils is None:
        return 0
    metrics: Any = getattr(utils, "compilation_time_metrics", None)
    if metrics is None:
        return None
    # One entry per frame, in seconds; everything else in this table is part of it.
    names = [name for name in metrics if str(name).startswith(("_compile.compile_inner", "entire_frame_compile"))]
    if not names:
        return 0 if not metrics else None
    return int(max(sum(metrics[name]) for name in names) * NS_PER_S)
