"""What ran on each device, and when did the host hand it over? One :class:`Work` per device, shared by the analyses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from referee.trace.columns import DEVICE_KINDS, NONE, BoolColumn, IntColumn, RowNumbers, Trace
from referee.trace.intervals import IntervalSet, measure, union
from referee.units import NS_PER_US

DEFAULT_LATENCY_NS = 5 * NS_PER_US
"""Bare launch latency where no row shows it."""
MOST_LATENCY_NS = 20 * NS_PER_US
"""No launch path known takes longer by itself: H100 1.7, A100 about 0, MI210 5.8, MI300 14-16 µs."""
CLEAR_GAP_NS = 2 * NS_PER_US
"""Queued rows follow one another within a microsecond or two."""
FEWEST_SHOWN = 3
"""Fewer rows that end a gap show no latency: two may be late alike by chance."""
FEWEST_SPREAD = 5
"""Of so many rows the middle half must agree; of fewer all must: of five, the quartiles leave out one at either end."""


@dataclass(frozen=True, eq=False)
class Work:
    """The device rows of one device in order of start; every array runs over them."""

    device: int
    rows: RowNumbers
    start_ns: IntColumn
    end_ns: IntColumn
    stream: IntColumn
    launch: RowNumbers
    """Row number of the launch, or :data:`NONE`."""
    first: BoolColumn
    """First row of its launch."""
    launch_start_ns: IntColumn
    launch_end_ns: IntColumn
    """Start and end of the launch; 0 where there is none: mask with ``linked``."""

    @cached_property
    def linked(self) -> BoolColumn:
        """The row has a launch in the file."""
        linked: BoolColumn = self.launch != NONE
        return linked

    @cached_property
    def submission_ns(self) -> IntColumn:
        """When the row was handed over: the earlier of its launch's end and its own start."""
        return np.minimum(self.launch_end_ns, self.start_ns)

    @cached_property
    def busy(self) -> IntervalSet:
        """The union over streams."""
        return union(self.start_ns, self.end_ns)

    @cached_property
    def busy_ns(self) -> int:
        """Its length."""
        return measure(self.busy)

    @property
    def begin_ns(self) -> int:
        """Start of the window."""
        return int(self.start_ns[0])

    @cached_property
    def finish_ns(self) -> int:
        """End of the window."""
        return int(self.end_ns.max())

    @property
    def window_ns(self) -> int:
        """First device start to last device end."""
        return self.finish_ns - self.begin_ns

    @cached_property
    def stream_free_ns(self) -> IntColumn:
        """When everything that started earlier on the row's own stream had ended; far in the past for the first."""
        free = np.full(self.rows.size, np.iinfo(np.int64).min, dtype=np.int64)
        order = np.argsort(self.stream, kind="stable")
        same = np.diff(self.stream[order]) == 0
        bounds = np.flatnonzero(np.concatenate(([True], ~same, [True])))
        for low, high in pairwise(bounds):
            members = order[low:high]
            free[members[1:]] = np.maximum.accumulate(self.end_ns[members])[:-1]
        return free

    @cached_property
    def latency_ns(self) -> int:
        """Bare launch latency; 5 µs where the rows do not show it."""
        return DEFAULT_LATENCY_NS if self.shown_latency_ns is None else self.shown_latency_ns

    @cached_property
    def shown_latency_ns(self) -> int | None:
        """Median of start minus launch end over rows launched onto an idle stream, 0 to 20 µs; ``None``: none shows it.

        Where the host launches faster than that latency nothing is launched onto an idle stream although the device
        is: then what the rows show that it waited for counts, if they agree with one another.
        """
        known = self.first & self.linked & (self.stream_free_ns > np.iinfo(np.int64).min)
        # The first row of a stream says nothing: what ran there before the recording began is not known. Nor does one
        # whose call waited for it (a pageable copy): the call's end is no moment at which the row was handed over.
        known &= ~self._awaited
        delay_ns = self.start_ns - self.launch_end_ns
        onto_idle = known & (self.stream_free_ns <= self.launch_start_ns)
        if onto_idle.any():
            return int(np.clip(round(float(np.median(delay_ns[onto_idle]))), 0, MOST_LATENCY_NS))
        after_gap = known & (self.start_ns - self._device_free_ns >= CLEAR_GAP_NS)
        shown_ns = delay_ns[after_gap]
        if shown_ns.size < FEWEST_SHOWN or int(shown_ns.max()) > MOST_LATENCY_NS:
            return None
        apart = (0.25, 0.5, 0.75) if shown_ns.size >= FEWEST_SPREAD else (0.0, 0.5, 1.0)
        low, middle, high = np.quantile(shown_ns, apart)
        # A latency is the same for all; how long rows were queued behind others is not.
        return max(0, round(float(middle))) if high - low <= CLEAR_GAP_NS else None

    @property
    def _awaited(self) -> BoolColumn:
        """The row lies within its call and takes half of it or more."""
        within = (self.launch_start_ns <= self.start_ns) & (self.end_ns <= self.launch_end_ns)
        awaited: BoolColumn = within & (2 * (self.end_ns - self.start_ns) >= self.launch_end_ns - self.launch_start_ns)
        return awaited

    @cached_property
    def _device_free_ns(self) -> IntColumn:
        """When everything that started earlier on the device had ended; its own start for the first row."""
        return np.concatenate((self.start_ns[:1], np.maximum.accumulate(self.end_ns)[:-1]))


def work_by_device(trace: Trace) -> tuple[Work, ...]:
    """The work of every device that has a device row, in order of ordinal."""
    rows, links = trace.rows, trace.links
    device_rows = rows.of(*DEVICE_KINDS)
    ordinals = rows.device[device_rows]
    return tuple(
        _work(trace, int(ordinal), device_rows[ordinals == ordinal], launch_of=links.launch_of)
        for ordinal in np.unique(ordinals)
    )


def _work(trace: Trace, device: int, members: RowNumbers, *, launch_of: RowNumbers) -> Work:
    rows = trace.rows
    launch = launch_of[members]
    linked = launch != NONE
    return Work(
        device=device,
        rows=members,
        start_ns=rows.start_ns[members],
        end_ns=rows.end_ns[members],
        stream=rows.stream[members],
        launch=launch,
        first=trace.links.first_of[members],
        launch_start_ns=np.where(linked, rows.start_ns[launch], 0),
        launch_end_ns=np.where(linked, rows.end_ns[launch], 0),
    )


def window_ns(works: Sequence[Work]) -> int:
    """The windows of all devices together."""
    return sum(work.window_ns for work in works)
