"""What is in the file, as columns? One row per event that has a time, sorted by start, times as integers.

Everything above this layer works on these arrays; names, categories, threads and streams are interned as small codes.
Row numbers are positions in the arrays and stay valid for the life of the :class:`Trace`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from referee.records.capture import Recording
from referee.records.finding import Finding
from referee.records.provenance import Provenance

IntColumn: TypeAlias = NDArray[np.int64]
CodeColumn: TypeAlias = NDArray[np.int32]
ByteColumn: TypeAlias = NDArray[np.uint8]
BoolColumn: TypeAlias = NDArray[np.bool_]
RowNumbers: TypeAlias = NDArray[np.int64]

NONE = -1
"""In integer columns: not stated in the file, or no such row."""


class Kind(IntEnum):
    """What a row is, decided by its category (and for a few frames by its name), never by "has a stream"."""

    OTHER = 0
    """Known to be none of the below (profiler overhead, the trace's own row, synchronisation rows of a device)."""
    OPERATOR = 1
    """``cpu_op`` (old files: ``Operator``), except profiler-step frames and data-loader frames."""
    STEP = 2
    """Host-side ``ProfilerStep#k``."""
    LOADER = 3
    """Data-loader frames: ``enumerate(DataLoader)#…__next__`` and their like."""
    ANNOTATION = 4
    """``user_annotation`` on the host, other than profiler steps and loader frames."""
    PYTHON = 5
    """``python_function``."""
    RUNTIME = 6
    """Runtime calls of any vendor (``cuda_runtime``, ``Runtime``, ``mtia_runtime`` …)."""
    DRIVER = 7
    """Driver calls (``cuda_driver`` …)."""
    KERNEL = 8
    """A kernel on a device, collectives included."""
    MEMCPY = 9
    """A copy by a device's engine."""
    MEMSET = 10
    """A fill by a device's engine."""
    DEVICE_OTHER = 11
    """Work on another vendor's device whose category is known to be device work but is no kernel, copy or fill."""
    DEVICE_ANNOTATION = 12
    """An annotation projected onto a device (``gpu_user_annotation``): never work."""
    DEVICE_SYNC = 13
    """A synchronisation row on a device (``cuda_sync``): never work."""
    OVERHEAD = 14
    """The profiler's own overhead rows."""
    UNKNOWN = 15
    """A category that is not known: kept, counted, reported by name."""


DEVICE_KINDS = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET, Kind.DEVICE_OTHER)
"""The kinds that are device rows (device work)."""
ON_DEVICE_KINDS = (*DEVICE_KINDS, Kind.DEVICE_ANNOTATION, Kind.DEVICE_SYNC)
"""The kinds that lie on a device's timeline, work or not: these alone have a device and a stream."""
CALL_KINDS = (Kind.RUNTIME, Kind.DRIVER)
"""The kinds that are runtime or driver calls."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """The columns, all of one length, sorted by ``start_ns``, then longer first, then by place in the file.

    ====================  ======  ======================================================================
    column                dtype   meaning
    ====================  ======  ======================================================================
    ``start_ns``          int64   start, nanoseconds since the trace's ``base_ns``
    ``end_ns``            int64   end (``start_ns`` + duration; never before the start: see ``negative``)
    ``name``              int32   code into ``Trace.names``
    ``category``          int32   code into ``Trace.categories``
    ``kind``              uint8   :class:`Kind`
    ``thread``            int32   code into ``Trace.threads`` (the pair of pid and tid as written)
    ``device``            int32   device ordinal, :data:`NONE` on the host or if not stated
    ``stream``            int64   stream on that device, :data:`NONE` on the host or if not stated
    ``correlation``       int64   correlation id, 0 or :data:`NONE` where there is none
    ``external_id``       int64   the ``External id`` that ties an operator to its calls, :data:`NONE` if absent
    ``place``             int64   position among the file's events, for reading ``args`` again
    ====================  ======  ======================================================================
    """

    start_ns: IntColumn
    end_ns: IntColumn
    name: CodeColumn
    category: CodeColumn
    kind: ByteColumn
    thread: CodeColumn
    device: CodeColumn
    stream: IntColumn
    correlation: IntColumn
    external_id: IntColumn
    place: IntColumn

    def __len__(self) -> int:
        return len(self.start_ns)

    def of(self, *kinds: Kind) -> RowNumbers:
        """The row numbers of these kinds, in order of start."""
        if len(kinds) == 1:
            order, bounds = self._by_kind
            return order[bounds[kinds[0]] : bounds[kinds[0] + 1]].astype(np.int64)
        found = self._by_kinds.get(kinds)
        if found is None:
            wanted = np.zeros(256, np.bool_)
            wanted[[int(kind) for kind in kinds]] = True
            found = self._by_kinds[kinds] = np.flatnonzero(wanted[self.kind]).astype(np.int64)
        return found.copy()

    @cached_property
    def _by_kinds(self) -> dict[tuple[Kind, ...], RowNumbers]:
        """What was asked for together, found once."""
        return {}

    @cached_property
    def _by_kind(self) -> tuple[CodeColumn | RowNumbers, IntColumn]:
        """The row numbers grouped by kind, and where each kind begins: sorted once, asked for many times."""
        order: CodeColumn | RowNumbers = np.argsort(self.kind, kind="stable").astype(np.int64)
        if len(self) < 1 << 31:
            order = order.astype(np.int32)
        bounds = np.searchsorted(self.kind[order], np.arange(256 + 1)).astype(np.int64)
        return order, bounds


@dataclass(frozen=True, kw_only=True, eq=False)
class Links:
    """Which call launched which device row, and which operator made the call. Arrays run over all rows.

    ``launch_of``     int64  for a device row: the row number of its launch (the outermost call where a driver call
                             nests in a runtime call), else :data:`NONE`
    ``first_of``      bool   for a device row: it is the first row (by start) of its launch; false where unlinked
    ``is_launch``     bool   for a call: it counts as a launch (DESIGN: linked device row, or of a launch family; nested
                             calls only once)
    ``operator_of``   int64  for a call: the innermost operator row enclosing it on its thread, else :data:`NONE`
    """

    launch_of: RowNumbers
    first_of: BoolColumn
    is_launch: BoolColumn
    operator_of: RowNumbers


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step on the host: its name, start and end, and the row it was taken from (:data:`NONE` if inferred)."""

    name: str
    start_ns: int
    end_ns: int
    row: int = NONE
    cut: bool = False
    """Cut off by the edge of the trace."""


@dataclass(frozen=True, kw_only=True)
class DeviceProperties:
    """What the file's ``deviceProperties`` say of one device; ``raw`` keeps all of it."""

    ordinal: int
    name: str | None
    sm_count: int | None
    raw: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """A trace in memory. ``events`` counts every entry of the file's event list, of whatever phase."""

    source: str
    base_ns: int
    """What was subtracted from every timestamp, so that ``start_ns`` begins near zero."""
    events: int
    rows: Rows
    links: Links
    steps: tuple[Step, ...]
    steps_from: str
    """``profiler-steps``, ``annotations``, ``periodicity``, ``none``, or ``named`` (the user named them)."""
    names: tuple[str, ...]
    categories: tuple[str, ...]
    threads: tuple[tuple[str, str], ...]
    devices: tuple[DeviceProperties, ...]
    metadata: Mapping[str, Any]
    """The file's own top-level keys other than the event list and the device properties."""
    findings: tuple[Finding, ...]
    """What the reader noticed: truncated, repaired, unknown categories, negative durations and so on."""
    provenance: Provenance | None = None
    recording: Recording | None = None
    """How the file was recorded, where a capture of ours wrote it; what that found is among the findings."""

    def name_of(self, row: int) -> str:
        """The name of a row."""
        return self.names[int(self.rows.name[row])]
