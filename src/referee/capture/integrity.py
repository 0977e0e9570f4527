"""Does the file hold what it should? Counts rows, steps and launches in the JSON as it was written.

This is no trace reader: it takes the few fields that tell a whole capture from a failed one, and nothing else.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import msgspec

from referee.records.capture import Integrity

_STEP = re.compile(r"ProfilerStep#(\d+)")
_DEVICE_CATEGORIES = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "concurrent_kernel", "mtia_ccp_events"})
_CALL_CATEGORIES = frozenset(
    {"cuda_runtime", "cuda_driver", "xpu_runtime", "privateuse1_runtime", "privateuse1_driver", "mtia_runtime"}
)
_LAUNCH_FAMILY = re.compile(r"(?:cuda|cu|hip)\w*?(?:LaunchKernel|LaunchCooperativeKernel|GraphLaunch)")


class _Args(msgspec.Struct):
    correlation: int | str | None = None


class _Event(msgspec.Struct):
    ph: str = ""
    cat: str | None = None
    name: str | int | float | None = None
    args: _Args | msgspec.UnsetType = msgspec.UNSET


class _File(msgspec.Struct):
    trace_events: list[_Event] = msgspec.field(name="traceEvents", default_factory=list)
    dropped: int | None = msgspec.field(name="droppedEvents", default=None)


def check_integrity(text: bytes) -> Integrity | None:
    """The counts of a trace's JSON; ``None`` where it cannot be decoded (Kineto may write what JSON forbids)."""
    try:
        file = msgspec.json.decode(text, type=_File)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return _count(file.trace_events, dropped=file.dropped)


def _count(events: Iterable[_Event], *, dropped: int | None) -> Integrity:
    categories: Counter[str] = Counter()
    steps: set[int] = set()
    calls: set[int | str | None] = set()
    of_launch_family: set[int | str | None] = set()
    on_device: list[int | str | None] = []
    total = 0
    for event in events:
        total += 1
        if event.ph != "X" or event.cat is None:
            continue
        categories[event.cat] += 1
        correlation = event.args.correlation if isinstance(event.args, _Args) else None
        if event.cat in _DEVICE_CATEGORIES:
            on_device.append(correlation)
        elif event.cat in _CALL_CATEGORIES:
            calls.add(correlation)
            if _LAUNCH_FAMILY.match(str(event.name)):
                of_launch_family.add(correlation)
        elif event.cat == "user_annotation" and (step := _STEP.fullmatch(str(event.name))):
            steps.add(int(step.group(1)))
    # By correlation id, so that a launch call of an unknown name is one as soon as it launched something, and a driver
    # call inside a runtime call is not a second one.
    launches = of_launch_family | (calls & set(on_device))
    return Integrity(
        events=total,
        ops=categories["cpu_op"],
        steps_found=tuple(sorted(steps)),
        device_rows=len(on_device),
        launches=len(launches),
        launches_unmatched=len(launches - set(on_device)),
        device_rows_unlinked=sum(correlation not in calls for correlation in on_device),
        lost=dropped,
    )
