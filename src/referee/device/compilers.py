"""Was anything compiled? Counts kept by torch's own compiler, read without loading it.

Loading ``torch._dynamo`` takes over a second, so a process that never compiled is not made to: the counts are zero as
long as it is not loaded. The names are torch-internal and not promised; what is not there reads 0.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
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
