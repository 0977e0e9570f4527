"""What does a report of Nsight Systems hold, exported as SQLite? Its tables as the same columns as any other trace.

Kernels, copies, fills and synchronisation rows lie on devices, calls of the runtime and driver on threads; NVTX ranges
become annotations, those that torch's ``emit_nvtx`` writes (``aten::add, seq = 5``) operators. Times are integer
nanoseconds already. Tables and columns that a version of the exporter does not write are simply not there.

The database is opened read-only. Its layout is that of NVIDIA's documentation of the exporter (2021.5 to 2025).
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from referee.errors import TraceError
from referee.records.finding import Finding
from referee.records.provenance import Provenance
from referee.trace.assemble import EventTable, Labels, Surroundings, assemble
from referee.trace.blob import Blob
from referee.trace.columns import NONE, DeviceProperties, Trace

_PUSH_POP, _START_END = (59, 70), (60, 71)
"""Kinds of NVTX ranges: those of a thread that nest, and those of a process."""
_COPIES = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP", 11: "Managed HtoD", 12: "Managed DtoH", 13: "Managed DtoD"}
_OPERATOR = re.compile(r"(aten::[\w.]+|[\w:]+Backward\d*)(?:, (?:op_id|seq) = .*)?")
_LOW, _ID_BITS = 0xFFFFFF, 24
"""A global id holds the process in bits 24 to 47 and the thread in the lowest 24."""
_MOST_NS = 1 << 62
_UNREADABLE = (sqlite3.Error, OverflowError, UnicodeDecodeError)
"""What reading a damaged database raises."""
_HINT = "Export the report with: nsys export --type sqlite REPORT.nsys-rep"


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What a row of a device says beyond the columns, as it is written; ``None`` where it is not."""

    grid: list[Any] | None = None
    block: list[Any] | None = None
    size: Any = None


@dataclass(kw_only=True)
class _Columns:
    """The rows so far, column by column."""

    start: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    name: list[int] = field(default_factory=list)
    category: list[int] = field(default_factory=list)
    thread: list[int] = field(default_factory=list)
    device: list[int] = field(default_factory=list)
    stream: list[int] = field(default_factory=list)
    correlation: list[int] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    categories: dict[str, int] = field(default_factory=dict)
    threads: dict[tuple[str, str], int] = field(default_factory=dict)
    processes: dict[int, int] = field(default_factory=dict)
    arguments: dict[int, Arguments] = field(default_factory=dict)
    """By the row's place; filled where they are asked for."""
    unusable: int = 0

    def add(
        self, category: str, name: str, start: Any, end: Any, thread: tuple[int, int | str], *, device: Any = NONE,
        stream: Any = NONE, correlation: Any = None, arguments: Arguments | None = None,
    ) -> None:  # fmt: skip
        """One row; without an end it has no duration."""
        end = start if end is None else end
        if not (isinstance(start, int) and isinstance(end, int) and abs(start) < _MOST_NS and abs(end) < _MOST_NS):
            self.unusable += 1
            return
        if arguments is not None:
            self.arguments[len(self.start)] = arguments
        self.start.append(start)
        self.end.append(end)
        self.name.append(self.names.setdefault(name, len(self.names)))
        self.category.append(self.categories.setdefault(category, len(self.categories)))
        self.thread.append(self.threads.setdefault((str(thread[0]), str(thread[1])), len(self.threads)))
        self.device.append(_small(device))
        self.stream.append(_small(stream))
        self.correlation.append(self._unique(thread[0], correlation))

    def _unique(self, process: int, correlation: Any) -> int:
        """Correlation ids count by process: those of a second one are moved beyond the first one's 32 bits."""
        if not isinstance(correlation, int) or correlation <= 0:
            return NONE
        number = self.processes.setdefault(process, len(self.processes))
        return correlation + ((number & 0xFFFF) << 40) if correlation < 1 << 40 else correlation


def _small(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 31 else NONE


def read_nsys(blob: Blob, *, source: str, provenance: Provenance | None = None) -> Trace:
    """The trace in an SQLite export.

    Raises :class:`~referee.errors.TraceError` if the database cannot be read or holds no table of activities.
    """
    try:
        with closing(_open(blob)) as database:
            reader = _Reader(database)
            reader.read()
            devices = reader.devices()
    except _UNREADABLE as error:
        reason = " ".join(str(error).split())
        raise TraceError(f"{source} is an SQLite file that cannot be read: {reason}.", hint=_HINT) from error
    if not reader.is_export:
        raise TraceError(
            f"{source} is an SQLite file, but no export of Nsight Systems: none of its tables.", hint=_HINT
        )
    columns = reader.columns
    if not columns.start:
        raise TraceError(f"{source} holds no events.", hint="Record with: nsys profile --trace=cuda,nvtx")
    return _assemble(columns, source=source, devices=devices, provenance=provenance)


def read_arguments(blob: Blob) -> dict[int, Arguments]:
    """What the rows of a device say beyond the columns, by their place; nothing if the database cannot be read."""
    try:
        with closing(_open(blob)) as database:
            reader = _Reader(database, with_arguments=True)
            reader.read()
    except _UNREADABLE:
        return {}
    return reader.columns.arguments


def is_export(blob: Blob) -> bool:
    """Whether a database has a table of activities or ranges."""
    try:
        with closing(_open(blob)) as database:
            return _Reader(database).is_export
    except _UNREADABLE:
        return False


def _open(blob: Blob) -> sqlite3.Connection:
    """The database, read-only: by its open file where the system can, else from memory."""
    if blob.descriptor is not None:
        try:
            database = sqlite3.connect(f"file:/proc/self/fd/{blob.descriptor}?mode=ro&immutable=1", uri=True)
            database.execute("SELECT count(*) FROM sqlite_master")
            return database
        except sqlite3.OperationalError:
            pass  # no such file system here
    database = sqlite3.connect(":memory:")
    database.deserialize(blob.read(0, blob.size))
    return database


class _Reader:
    """Takes the tables of a database, each by what it holds."""

    def __init__(self, database: sqlite3.Connection, *, with_arguments: bool = False) -> None:
        database.text_factory = lambda text: text.decode("utf-8", "replace")
        self._database = database
        # Views are not asked: what one computes may take for ever.
        self.tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        self.columns = _Columns()
        self._with_arguments = with_arguments
        self._strings: dict[Any, str] = {}

    @property
    def is_export(self) -> bool:
        """Whether any table is one that is known."""
        return bool(self.tables & {table for table, _ in _READERS})

    def read(self) -> None:
        """Read all tables that are known."""
        self._strings = {row["id"]: str(row["value"]) for row in self._rows("StringIds", "id", "value")}
        for table, read in _READERS:
            read(self, table)

    def _rows(self, table: str, *wanted: str) -> Iterator[dict[str, Any]]:
        """The rows of a table with the columns that are wanted; a column that is not there is ``None``."""
        if table not in self.tables:
            return
        there = {row[1] for row in self._database.execute(f"PRAGMA table_info({table})")}
        chosen = [column for column in wanted if column in there]
        if not chosen:
            return
        nothing: dict[str, Any] = dict.fromkeys(wanted)
        quoted = ", ".join(f'"{column}"' for column in chosen)
        for row in self._database.execute(f"SELECT {quoted} FROM {table}"):
            yield nothing | dict(zip(chosen, row, strict=True))

    def _text(self, *candidates: Any) -> str:
        """The first text that an id stands for."""
        return next((self._strings[one] for one in candidates if one in self._strings), "unnamed")

    def calls(self, table: str) -> None:
        """Calls of the runtime and the driver, which the export keeps in one table."""
        for row in self._rows(table, "start", "end", "globalTid", "correlationId", "nameId"):
            # The export appends the version of a call that has several: cudaLaunchKernel_v7000.
            name = re.sub(r"_v\d+$", "", self._text(row["nameId"]))
            category = "cuda_driver" if re.match(r"cu[A-Z]", name) else "cuda_runtime"
            thread = _thread(row["globalTid"])
            self.columns.add(category, name, row["start"], row["end"], thread, correlation=row["correlationId"])

    def kernels(self, table: str) -> None:
        """Kernels."""
        shape = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
        for row in self._device_rows(table, "demangledName", "shortName", *(shape if self._with_arguments else ())):
            self._add_device("kernel", self._text(row["demangledName"], row["shortName"]), row)

    def graphs(self, table: str) -> None:
        """Whole graphs as one row, as recorded by default."""
        for row in self._device_rows(table, "graphId"):
            self._add_device("kernel", f"graph {row['graphId']}", row)

    def copies(self, table: str) -> None:
        """Copies."""
        for row in self._device_rows(table, "copyKind", *self._size()):
            self._add_device("gpu_memcpy", f"Memcpy {_COPIES.get(row['copyKind'], 'of another kind')}", row)

    def fills(self, table: str) -> None:
        """Fills."""
        for row in self._device_rows(table, *self._size()):
            self._add_device("gpu_memset", "Memset (Device)", row)

    def waits(self, table: str) -> None:
        """Synchronisation rows."""
        kinds = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
        for row in self._device_rows(table, "syncType"):
            self._add_device("cuda_sync", kinds.get(row["syncType"], "Sync"), row)

    def ranges(self, table: str) -> None:
        """NVTX ranges; marks and definitions are no rows."""
        for row in self._rows(table, "start", "end", "eventType", "text", "textId", "globalTid"):
            if row["eventType"] not in (*_PUSH_POP, *_START_END) or row["end"] is None:
                continue
            text = row["text"] if row["text"] else self._text(row["textId"])
            operator = _OPERATOR.fullmatch(text) if row["eventType"] in _PUSH_POP else None
            category, name = ("cpu_op", operator.group(1)) if operator else ("user_annotation", text)
            self.columns.add(category, name, row["start"], row["end"], _thread(row["globalTid"]))

    def overhead(self, table: str) -> None:
        """The profiler's own work."""
        for row in self._rows(table, "start", "end", "globalTid", "nameId"):
            self.columns.add("overhead", self._text(row["nameId"]), row["start"], row["end"], _thread(row["globalTid"]))

    def devices(self) -> tuple[DeviceProperties, ...]:
        """The devices, by the ordinals that CUDA gave them where the export says so."""
        ordinals = {row["gpuId"]: row["cudaId"] for row in self._rows("TARGET_INFO_CUDA_DEVICE", "gpuId", "cudaId")}
        found: list[DeviceProperties] = []
        for row in self._rows("TARGET_INFO_GPU", "id", "name", "smCount", "totalMemory", "clockRate"):
            ordinal = ordinals.get(row["id"], row["id"])
            name, sm_count = row["name"], row["smCount"]
            found.append(
                DeviceProperties(
                    ordinal=ordinal if isinstance(ordinal, int) else len(found),
                    name=name if isinstance(name, str) else None,
                    sm_count=sm_count if isinstance(sm_count, int) else None,
                    raw={key: value for key, value in row.items() if value is not None},
                )
            )
        return tuple(found)

    def _device_rows(self, table: str, *more: str) -> Iterator[dict[str, Any]]:
        return self._rows(table, "start", "end", "deviceId", "streamId", "correlationId", "globalPid", *more)

    def _size(self) -> tuple[str, ...]:
        return ("bytes",) if self._with_arguments else ()

    def _add_device(self, category: str, name: str, row: dict[str, Any]) -> None:
        process = _thread(row["globalPid"])[0]
        arguments = None
        if self._with_arguments:
            grid, block = (_three(row, "grid"), _three(row, "block"))
            arguments = Arguments(grid=grid, block=block, size=row.get("bytes"))
        self.columns.add(
            category, name, row["start"], row["end"], (process, f"stream {row['streamId']}"), device=row["deviceId"],
            stream=row["streamId"], correlation=row["correlationId"], arguments=arguments,
        )  # fmt: skip


_READERS = (
    ("CUPTI_ACTIVITY_KIND_RUNTIME", _Reader.calls),
    ("CUPTI_ACTIVITY_KIND_KERNEL", _Reader.kernels),
    ("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", _Reader.graphs),
    ("CUPTI_ACTIVITY_KIND_MEMCPY", _Reader.copies),
    ("CUPTI_ACTIVITY_KIND_MEMSET", _Reader.fills),
    ("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", _Reader.waits),
    ("NVTX_EVENTS", _Reader.ranges),
    ("PROFILER_OVERHEAD", _Reader.overhead),
)
"""Table → how it is read."""


def _three(row: dict[str, Any], what: str) -> list[Any] | None:
    """A launch's size in three directions; one that is not written is 1."""
    stated = [row.get(f"{what}{axis}") for axis in "XYZ"]
    return None if stated[0] is None else [1 if one is None else one for one in stated]


def _thread(global_id: Any) -> tuple[int, int]:
    """The process and thread of a global id."""
    if not isinstance(global_id, int):
        return 0, 0
    return (global_id >> _ID_BITS) & _LOW, global_id & _LOW


def _assemble(
    columns: _Columns, *, source: str, devices: tuple[DeviceProperties, ...], provenance: Provenance | None
) -> Trace:
    base = min(columns.start)

    def whole(values: list[int]) -> Any:
        return np.array(values, np.int64)

    start = whole(columns.start)
    table = EventTable(
        start_ns=start - base,
        duration_ns=whole(columns.end) - start,
        name=np.array(columns.name, np.int32),
        category=np.array(columns.category, np.int32),
        thread=np.array(columns.thread, np.int32),
        device=np.array(columns.device, np.int32),
        stream=whole(columns.stream),
        correlation=whole(columns.correlation),
        external_id=np.full(len(start), NONE, np.int64),
        place=np.arange(len(start), dtype=np.int64),
    )
    labels = Labels(names=tuple(columns.names), categories=tuple(columns.categories), threads=tuple(columns.threads))
    unusable = Finding(
        code="unusable-times",
        severity="warning",
        message=f"{columns.unusable} events have a start or an end that is no time: left out.",
        evidence={"events": columns.unusable},
    )
    return assemble(
        table,
        labels=labels,
        surroundings=Surroundings(
            source=source,
            base_ns=base,
            events=len(start) + columns.unusable,
            devices=devices,
            findings=(unusable,) if columns.unusable else (),
            provenance=provenance,
            metadata={"format": "nsys"},
        ),
    )
