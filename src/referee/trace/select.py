"""What does only this step, this stretch of time or this device say? Narrows a trace; all row numbers are new.

A step keeps the host rows that touch it and the device rows that were launched from within it; a stretch keeps what
touches it and the calls that launched that, and a call whose device rows all lie elsewhere is no launch of it; a device
keeps its own rows, the calls that launched them, and all host rows that launched nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from referee.errors import OptionError
from referee.trace.columns import (
    DEVICE_KINDS,
    NONE,
    ON_DEVICE_KINDS,
    BoolColumn,
    Kind,
    Links,
    RowNumbers,
    Rows,
    Step,
    Trace,
)
from referee.units import format_ns

_COLUMNS = tuple(Rows.__dataclass_fields__)


def select(
    trace: Trace,
    *,
    step: str | None = None,
    range_ns: tuple[int, int] | None = None,
    device: int | None = None,
) -> Trace:
    """The trace of one step (its number or name, or an annotation's name), one stretch, one device, or all of these.

    ``range_ns`` is half-open, in nanoseconds from the start of the trace. Raises :class:`~referee.errors.OptionError`
    if the trace has no such step, stretch or device.
    """
    if device is not None:
        trace = _narrow(trace, _of_device(trace, device))
    if step is not None:
        trace = _one_step(trace, step)
    if range_ns is not None:
        trace = _narrow(trace, _in_range(trace, range_ns))
    return trace


def leave_out(trace: Trace, rows: RowNumbers) -> Trace:
    """The trace without some rows."""
    keep = np.ones(len(trace.rows), np.bool_)
    keep[rows] = False
    return _narrow(trace, keep)


def find_step(trace: Trace, wanted: str) -> tuple[Step, ...]:
    """The steps that ``wanted`` names: a step's number or whole name, else every row of an annotation of that name."""
    numbered = [step for step in trace.steps if step.name == wanted or step.name.rpartition("#")[2].strip() == wanted]
    if numbered:
        return tuple(numbered)
    rows = trace.rows
    named = [row for row in rows.of(Kind.ANNOTATION, Kind.STEP) if trace.name_of(row) == wanted]
    if not named:
        known = ", ".join(step.name for step in trace.steps[:8]) or "none"
        raise OptionError(f"{trace.source} has no step or annotation {wanted!r}.", hint=f"Its steps are: {known}.")
    return tuple(
        Step(name=f"{wanted} ({count})", start_ns=int(rows.start_ns[row]), end_ns=int(rows.end_ns[row]), row=int(row))
        for count, row in enumerate(named, 1)
    )


def _one_step(trace: Trace, wanted: str) -> Trace:
    steps = find_step(trace, wanted)
    rows, links = trace.rows, trace.links
    keep = np.zeros(len(rows), np.bool_)
    host = ~np.isin(rows.kind, [int(kind) for kind in ON_DEVICE_KINDS])
    linked = np.flatnonzero(links.launch_of != NONE)
    for step in steps:
        keep |= host & _touches(rows, step.start_ns, step.end_ns)
        launched = rows.start_ns[links.launch_of[linked]]
        keep[linked[(launched >= step.start_ns) & (launched < step.end_ns)]] = True
    return _narrow(trace, keep, steps=steps, steps_from="named")


def _in_range(trace: Trace, range_ns: tuple[int, int]) -> BoolColumn:
    keep = _touches(trace.rows, *range_ns)
    if not keep.any():
        length = int(trace.rows.end_ns.max()) if len(trace.rows) else 0
        raise OptionError(
            f"{trace.source} has no row between {format_ns(range_ns[0])} and {format_ns(range_ns[1])}.",
            hint=f"It is {format_ns(length)} long.",
        )
    launches = trace.links.launch_of[keep]
    keep[launches[launches != NONE]] = True
    return keep


def _touches(rows: Rows, start: int, end: int) -> BoolColumn:
    """Rows that overlap [start, end), or lie in it without a duration."""
    touching: BoolColumn = np.logical_and(rows.start_ns < end, (rows.end_ns > start) | (rows.start_ns >= start))
    return touching


def _of_device(trace: Trace, device: int) -> BoolColumn:
    rows, links = trace.rows, trace.links
    on_device = np.isin(rows.kind, [int(kind) for kind in ON_DEVICE_KINDS])
    own: BoolColumn = on_device & (rows.device == device)
    if not own.any():
        known = ", ".join(str(number) for number in np.unique(rows.device[rows.of(*DEVICE_KINDS)]))
        raise OptionError(f"{trace.source} has no row on device {device}.", hint=f"Its devices are: {known or 'none'}.")
    keep = ~on_device | own
    # A launch for another device alone is not this device's launch.
    elsewhere = links.launch_of[on_device & ~own]
    keep[elsewhere[elsewhere != NONE]] = False
    here = links.launch_of[own]
    keep[here[here != NONE]] = True
    return keep


def _narrow(
    trace: Trace, keep: BoolColumn, *, steps: Sequence[Step] | None = None, steps_from: str | None = None
) -> Trace:
    """The trace of some rows; links to rows that are left out become none."""
    kept = np.flatnonzero(keep).astype(np.int64)
    renumbered = np.full(len(trace.rows) + 1, NONE, np.int64)  # the last entry answers for NONE
    renumbered[kept] = np.arange(len(kept))
    launch_of = renumbered[trace.links.launch_of[kept]]
    links = Links(
        launch_of=launch_of,
        first_of=trace.links.first_of[kept] & (launch_of != NONE),
        is_launch=_launches_left(trace.links, keep)[kept],
        operator_of=renumbered[trace.links.operator_of[kept]],
    )
    chosen = _steps_of(trace, renumbered) if steps is None else tuple(_renumber(step, renumbered) for step in steps)
    return replace(
        trace,
        rows=Rows(**{name: getattr(trace.rows, name)[kept] for name in _COLUMNS}),
        links=links,
        steps=chosen,
        steps_from=steps_from or trace.steps_from,
        events=len(kept),
    )


def _launches_left(links: Links, keep: BoolColumn) -> BoolColumn:
    """Which calls are launches of what is kept? One whose every device row is left out has not lost its rows."""
    linked = np.flatnonzero(links.launch_of != NONE)
    had, has = np.zeros(len(keep), np.bool_), np.zeros(len(keep), np.bool_)
    had[links.launch_of[linked]] = True
    has[links.launch_of[linked[keep[linked]]]] = True
    return links.is_launch & (has | ~had)


def _steps_of(trace: Trace, renumbered: RowNumbers) -> tuple[Step, ...]:
    return tuple(
        _renumber(step, renumbered) for step in trace.steps if step.row == NONE or renumbered[step.row] != NONE
    )


def _renumber(step: Step, renumbered: RowNumbers) -> Step:
    return replace(step, row=int(renumbered[step.row]))
