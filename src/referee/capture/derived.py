"""What else can be read off a capture at once? The memory timeline, and stacks folded for a flame graph.

Both are views of rows that are in the trace as well; they are written beside it because the tools that draw them read
these forms.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import msgspec

from referee.capture.rows import Event, TraceFile, nest

_DEVICE_TYPES = {
    0: "cpu", 1: "cuda", 6: "hip", 9: "xla", 12: "xpu", 13: "mps", 14: "meta", 15: "hpu", 17: "lazy", 19: "mtia",
    20: "privateuseone",
}  # fmt: skip
"""The numbers that c10::DeviceType gives the devices, as the profiler writes them into a memory row."""
_STACK_CATEGORIES = frozenset({"python_function", "cpu_op", "user_annotation"})


@dataclass(frozen=True, kw_only=True)
class MemoryTimeline:
    """Memory on one device over a capture, in allocator events: times since the first event, and bytes then in use.

    ``in_use_bytes`` counts from what was in use when recording began, which the profiler cannot see: 0 at the start,
    below 0 once memory from before is freed. ``peak_bytes`` and ``held_bytes`` (at the end) count from there as well.
    """

    device: str
    time_ns: tuple[int, ...]
    in_use_bytes: tuple[int, ...]
    peak_bytes: int
    held_bytes: int
    allocations: int
    frees: int
    allocated_bytes: int
    """All that was ever allocated, freed or not."""


def memory_timelines(file: TraceFile) -> tuple[MemoryTimeline, ...]:
    """The memory timeline of each device in ``file``; empty unless memory was recorded."""
    by_device: dict[str, list[Event]] = {}
    for event in file.events:
        if event.name == "[memory]" and event.ts is not None and event.details.bytes_ is not None:
            by_device.setdefault(_device_name(event), []).append(event)
    return tuple(_timeline(device, events) for device, events in sorted(by_device.items()))


def _timeline(device: str, events: list[Event]) -> MemoryTimeline:
    events.sort(key=lambda event: event.start_ns)
    in_use, points = 0, []
    changes = [event.details.bytes_ or 0 for event in events]
    for change in changes:
        in_use += change
        points.append(in_use)
    return MemoryTimeline(
        device=device,
        time_ns=tuple(event.start_ns - events[0].start_ns for event in events),
        in_use_bytes=tuple(points),
        peak_bytes=max(0, *points),
        held_bytes=in_use,
        allocations=sum(change > 0 for change in changes),
        frees=sum(change < 0 for change in changes),
        allocated_bytes=sum(change for change in changes if change > 0),
    )


def _device_name(event: Event) -> str:
    details = event.details
    kind = _DEVICE_TYPES.get(details.device_type or 0, f"device type {details.device_type}")
    return kind if details.device_id in (None, -1) else f"{kind}:{details.device_id}"


def timelines_json(timelines: tuple[MemoryTimeline, ...]) -> bytes:
    """The timelines as JSON."""
    return msgspec.json.encode({"schema": "referee.memory/1", "devices": timelines}) + b"\n"


def fold_stacks(file: TraceFile) -> dict[str, int]:
    """How much time was spent in each stack itself? Frames from the outside in, joined by ``;`` → nanoseconds.

    Python functions, annotations and operators make one stack. The times add up to what the outermost rows cover.
    """
    folded: Counter[str] = Counter()
    for row in nest(file.events, categories=_STACK_CATEGORIES):
        if row.self_ns > 0:
            folded[";".join(_frame(event) for event in row.path)] += row.self_ns
    return dict(folded)


def _frame(event: Event) -> str:
    """A frame's name without the separator, which ``file(line): function`` of a lambda or a path may hold."""
    return str(event.name).replace(";", ":")


def folded_text(folded: dict[str, int]) -> bytes:
    """The stacks as flame-graph tools read them: one line each, the nanoseconds last."""
    return "".join(f"{stack} {ns}\n" for stack, ns in sorted(folded.items())).encode()
