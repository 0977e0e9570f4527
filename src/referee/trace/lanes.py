"""What are rows without a category? What their process, or their process and thread together, are named.

Three profilers write no categories: PyTorch's older one (lists of events of ``torch.autograd.profiler``), which puts
``CPU functions`` and ``CUDA functions`` where others have the number of a process; Ascend's, whose processes are
``CANN`` and ``Ascend Hardware``; and XLA's (of JAX, TensorFlow and PyTorch/XLA), whose processes are devices and whose
threads are streams, or lines derived from them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from referee.trace.columns import CodeColumn, IntColumn
from referee.trace.kinds import KIND_OF_CATEGORY, XLA_DERIVED, XLA_OPS, XLA_STEPS, XLA_STREAM

_XLA_DEVICE = re.compile(r"/device:(?!CPU)\w+:(\d+)")
_STREAM = re.compile(r"Stream #(\d+)")
_EVENT_LIST = {"CPU functions": "cpu_op", "CUDA functions": "kernel"}
"""What ``EventList.export_chrome_trace`` calls its processes; the thread of device rows is the device's number."""
_LINES = {"XLA Ops": XLA_OPS, "Steps": XLA_STEPS}


@dataclass(frozen=True, kw_only=True)
class Lanes:
    """The names that metadata events give to processes, and to their threads."""

    processes: dict[str, str] = field(default_factory=dict)
    threads: dict[tuple[str, str], str] = field(default_factory=dict)


def name_lanes(
    lanes: Lanes,
    *,
    category: CodeColumn,
    device: CodeColumn,
    stream: IntColumn,
    thread: CodeColumn,
    categories: tuple[str, ...],
    threads: Sequence[tuple[str, str]],
) -> tuple[str, ...]:
    """Give rows without a category that of their lane, and those of XLA's devices their device and stream, in place.

    Answers the categories, with those of lanes at the end.
    """
    found = {code: said for code, pair in enumerate(threads) if (said := _said_of(pair, lanes)) is not None}
    if "" not in categories or not found:
        return categories
    bare = np.flatnonzero(category == categories.index(""))
    codes: dict[str, int] = {}
    for code in np.unique(thread[bare]).tolist():
        if code not in found:
            continue
        name, ordinal, number = found[code]
        members = bare[thread[bare] == code]
        category[members] = codes.setdefault(name, len(categories) + len(codes))
        if ordinal is not None:
            device[members] = ordinal
            stream[members] = number
    return (*categories, *codes)


def _said_of(pair: tuple[str, str], lanes: Lanes) -> tuple[str, int | None, int] | None:
    """The category of a thread's rows, the device and the stream; ``None`` where its names tell nothing."""
    if pair[0] in _EVENT_LIST:
        on_device = _EVENT_LIST[pair[0]] == "kernel" and pair[1].isdecimal()
        return _EVENT_LIST[pair[0]], int(pair[1]) if on_device else None, 0
    process = lanes.processes.get(pair[0], "")
    if process.lower() in KIND_OF_CATEGORY:
        return process, None, 0
    device = _XLA_DEVICE.match(process)
    if device is None:
        return None
    line = lanes.threads.get(pair, "")
    stream = _STREAM.match(line)
    if stream is not None:
        return XLA_STREAM, int(device[1]), int(stream[1])
    category = _LINES.get(line, XLA_DERIVED)
    if category == XLA_OPS and _has_streams(pair[0], lanes.threads):
        category = XLA_DERIVED
    return category, int(device[1]), 0


def _has_streams(process: str, threads: Mapping[tuple[str, str], str]) -> bool:
    """Whether the device's own streams are there: then its line of operations tells their time a second time."""
    return any(pid == process and _STREAM.match(name) for (pid, _), name in threads.items())
