"""Does the file hold what it should? Counts rows, steps and launches in the JSON as it was written."""

from __future__ import annotations

import re
from collections import Counter

from referee.capture.rows import CorrelationId, Event, TraceFile, nest
from referee.records.capture import Integrity

_STEP = re.compile(r"ProfilerStep#(\d+)")
_DEVICE_CATEGORIES = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "concurrent_kernel", "mtia_ccp_events"})
_CALL_CATEGORIES = frozenset(
    {"cuda_runtime", "cuda_driver", "xpu_runtime", "privateuse1_runtime", "privateuse1_driver", "mtia_runtime"}
)
_HOST_CATEGORIES = ("cpu_op", "python_function", "user_annotation")
_LAUNCH_FAMILY = re.compile(r"(?:cuda|cu|hip)\w*?(?:LaunchKernel|LaunchCooperativeKernel|GraphLaunch)")
_BACKWARD = "autograd::engine::evaluate_function"
_MODE_FRAME = "PythonDispatchMode"
_FEWEST_NAMES = 3
"""So many names of operators in rows of their own name tell a mode that leaves no frame from overloads of some."""


def check_integrity(file: TraceFile) -> Integrity:
    """The counts of a trace."""
    rows = [event for event in file.events if event.ph == "X" and event.cat is not None]
    categories = Counter(row.cat for row in rows)
    on_device = [row.details.correlation for row in rows if row.cat in _DEVICE_CATEGORIES]
    calls = {row.details.correlation for row in rows if row.cat in _CALL_CATEGORIES}
    launches = _launches(rows, calls, on_device)
    steps = _steps(rows)
    repeated, by_mode = _repeated(file)
    return Integrity(
        events=len(file.events),
        ops=categories["cpu_op"],
        steps_found=steps,
        device_rows=len(on_device),
        launches=len(launches),
        launches_unmatched=len(launches - set(on_device)),
        device_rows_unlinked=sum(correlation not in calls for correlation in on_device),
        lost=file.dropped,
        host_rows=sum(categories[category] for category in _HOST_CATEGORIES),
        backward_ops=sum(row.cat == "cpu_op" and str(row.name).startswith(_BACKWARD) for row in rows),
        repeated_ops=repeated,
        repeated_by_mode=by_mode,
        frames=categories["python_function"],
        annotations=categories["user_annotation"] - len(steps),
    )


def _launches(rows: list[Event], calls: set[CorrelationId], on_device: list[CorrelationId]) -> set[CorrelationId]:
    """The correlation ids of launches.

    By id and not by name alone, so that a launch call of an unknown name is one as soon as it launched something, and a
    driver call inside a runtime call is not a second one.
    """
    family = {
        row.details.correlation for row in rows if row.cat in _CALL_CATEGORIES and _LAUNCH_FAMILY.match(str(row.name))
    }
    return family | (calls & set(on_device))


def _steps(rows: list[Event]) -> tuple[int, ...]:
    """The iterations that have a complete row of their own on the host."""
    marked = (_STEP.fullmatch(str(row.name)) for row in rows if row.cat == "user_annotation")
    return tuple(sorted({int(step.group(1)) for step in marked if step}))


def _repeated(file: TraceFile) -> tuple[int, bool]:
    """How many operator rows are repeated, lying in a row of the same name, and whether a dispatch mode did it.

    Where it leaves a frame of its own between the two (torch 2.13), that is the proof. Without one, rows of fewer names
    than :data:`_FEWEST_NAMES` prove nothing: an overload may call another one (``add.Scalar``, ``sum``). More of them
    come from an older mode or from a transform (``vmap``, ``grad``), which dispatches each operator once a level.
    """
    framed, bare = Counter[str](), Counter[str]()
    for row in nest(file.events, categories=frozenset({"cpu_op"})):
        around = [outer.name for outer in row.path[:-1]]
        inside_mode = bool(around) and around[-1] == _MODE_FRAME
        names = [name for name in around if name != _MODE_FRAME]
        if names and names[-1] == row.event.name:
            (framed if inside_mode else bare)[str(row.event.name)] += 1
    if framed:
        return framed.total(), True
    return bare.total() if len(bare) >= _FEWEST_NAMES else 0, False
