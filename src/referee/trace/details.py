"""What do the arguments of the rows say beyond the columns? Launch shapes, bytes, operator inputs, memory, event waits.

The file is read once more, and only on demand: the columns alone serve most questions, and arguments are most of a
file's text. What a file does not state is absent; damaged text gives what the reader could read of it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from referee.errors import RefereeError
from referee.trace.backward import FLOW, BackwardLinks, FlowEvent, link_backward
from referee.trace.blob import Blob
from referee.trace.columns import NONE, IntColumn, RowNumbers, Trace
from referee.trace.document import find_opening
from referee.trace.numbers import parse_ns
from referee.trace.salvage import number_text, plain
from referee.trace.source import open_text
from referee.trace.splice import splice
from referee.trace.unpack import SQLITE


class _Args(msgspec.Struct, frozen=True, gc=False):
    """The arguments that are kept."""

    grid: Any = None
    block: Any = None
    blocks_per_sm: Any = msgspec.field(default=None, name="blocks per SM")
    occupancy: Any = msgspec.field(default=None, name="est. achieved occupancy %")
    size: Any = msgspec.field(default=None, name="bytes")
    dims: Any = msgspec.field(default=None, name="Input Dims")
    types: Any = msgspec.field(default=None, name="Input type")
    sequence: Any = msgspec.field(default=None, name="Sequence number")
    forward_thread: Any = msgspec.field(default=None, name="Fwd thread id")
    sync_kind: Any = msgspec.field(default=None, name="cuda_sync_kind")
    waits_for: Any = msgspec.field(default=None, name="wait_on_cuda_event_record_corr_id")
    waits_for_stream: Any = msgspec.field(default=None, name="wait_on_stream")
    group_ranks: Any = msgspec.field(default=None, name="Process Group Ranks")
    group_name: Any = msgspec.field(default=None, name="Process Group Name")
    memory_bytes: Any = msgspec.field(default=None, name="Bytes")
    allocated: Any = msgspec.field(default=None, name="Total Allocated")
    reserved: Any = msgspec.field(default=None, name="Total Reserved")
    device_type: Any = msgspec.field(default=None, name="Device Type")


class _Event(msgspec.Struct, gc=False):
    """One event; ``ts`` only for instants and arrows, ``id``, ``pid`` and ``tid`` only for arrows."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    id: Any = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = msgspec.Raw(b"")
    args: _Args = _Args()


class _File(msgspec.Struct, gc=False):
    """A file that is an object."""

    traceEvents: list[_Event] = msgspec.field(default_factory=list)  # noqa: N815 - the file's own key


_FILE = msgspec.json.Decoder(_File)
_LIST = msgspec.json.Decoder(list[_Event])
_BOM = b"\xef\xbb\xbf"
_NOTHING = _Args()
_KEYS_OF_ARGS = {field.name: field.encode_name for field in msgspec.structs.fields(_Args)}

_MOST_BLOCKS = 2.0**31
"""A grid's limit in one direction: no device has more blocks on a multiprocessor."""

FloatColumn = NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Launches:
    """Launch shapes and sizes; the arrays run over ``rows``, device rows in order of start."""

    rows: RowNumbers
    grid: IntColumn
    """Blocks in the grid, 0 where not stated."""
    block: IntColumn
    """Threads in a block, 0 where not stated."""
    blocks_per_sm: FloatColumn
    """Blocks per multiprocessor as the profiler computed them, NaN where not stated."""
    occupancy_frac: FloatColumn
    """Estimated achieved occupancy, NaN where not stated."""
    size_bytes: IntColumn
    """Bytes that a copy or a fill moves, :data:`NONE` where not stated."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Memory:
    """The allocator's events on devices, in order of time; totals are :data:`NONE` where not stated."""

    time_ns: IntColumn
    change_bytes: IntColumn
    allocated_bytes: IntColumn
    reserved_bytes: IntColumn


@dataclass(frozen=True, eq=False, kw_only=True)
class Operator:
    """The inputs of one operator row: a shape for each (empty for what is no tensor, or a scalar) and its dtype."""

    dims: tuple[tuple[int, ...], ...]
    types: tuple[str, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Details:
    """The arguments of a trace's rows."""

    launches: Launches
    operators: dict[int, Operator]
    """Operator rows that state their inputs."""
    sequence: dict[int, tuple[int, int]]
    """Operator row → autograd's sequence number and the thread id that ran forward (0: this is the forward)."""
    waits: dict[int, tuple[str, int, int]]
    """Synchronisation row of a device → its kind, the correlation id of the event record that it waits for, and that
    event's stream; :data:`NONE` where not stated."""
    memory: Memory
    groups: dict[int, str]
    """Collective row → the process group that it runs in: its ranks as the file lists them, else its name."""
    backward: BackwardLinks
    """Which backward operator belongs to which forward one."""


def read_details(trace: Trace) -> Details:
    """The arguments of the rows of ``trace``, from its file; all absent where that is not there any more."""
    places = trace.rows.place
    order = np.argsort(places, kind="stable")
    found: dict[int, _Args] = {}
    instants: list[_Event] = []
    flows: list[_Event] = []
    for place, event in _events(trace.source):
        if event.cat == FLOW and event.ph in ("s", "f"):
            flows.append(event)
        if event.args != _NOTHING:
            found[place] = event.args
            if event.ph == "i":
                instants.append(event)
    position = np.searchsorted(places[order], np.array(list(found), dtype=np.int64))
    position = np.minimum(position, max(order.size - 1, 0))
    by_row: dict[int, _Args] = {}
    for place, at in zip(found, position.tolist(), strict=True):
        if order.size and places[order[at]] == place:
            by_row[int(order[at])] = found[place]
    sequence = _sequence(by_row)
    return Details(
        launches=_launches(by_row),
        operators=_operators(by_row),
        sequence=sequence,
        waits={
            row: (str(a.sync_kind), _whole(a.waits_for), _whole(a.waits_for_stream))
            for row, a in by_row.items()
            if a.sync_kind is not None
        },
        memory=_memory(instants, base_ns=trace.base_ns),
        groups={row: str(group) for row, a in by_row.items() if (group := a.group_ranks or a.group_name)},
        backward=link_backward(trace, stated=sequence, flows=flows),
    )


def flows_of(trace: Trace) -> list[FlowEvent]:
    """The ends of the arrows that Ascend's profiler draws from calls to device rows."""
    return [
        event
        for _, event in _events(trace.source)
        if event.ph in ("s", "f") and "HostToDevice" in (event.cat, event.name)
    ]


_READ: weakref.WeakKeyDictionary[Trace, Details] = weakref.WeakKeyDictionary()


def details_of(trace: Trace) -> Details:
    """The arguments of the rows of ``trace``, read once for as long as the trace lives."""
    found = _READ.get(trace)
    if found is None:
        found = _READ[trace] = read_details(trace)
    return found


def _events(source: str) -> Iterable[tuple[int, _Event]]:
    """The events of the file at ``source`` and their places; none where it is gone, or no trace."""
    try:
        with open_text(source, again=True) as text:
            if text.blob.read(0, len(SQLITE)) == SQLITE:
                return _of_export(text.blob)
            return enumerate(_all_events(text.blob, source=source))
    except RefereeError:
        return ()


def _all_events(blob: Blob, *, source: str) -> list[_Event]:
    """The events of a text in its order: at once if it is valid, else piece by piece, as the reader takes them."""
    body = blob.read(0, blob.size).removeprefix(_BOM).lstrip()
    try:
        return _LIST.decode(body) if body.startswith(b"[") else _FILE.decode(body).traceEvents
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        del body
    opening = find_opening(blob, source=source)
    return list(splice(blob, opening, decode=_decoded, make=_as_event))


def _decoded(text: bytes) -> list[_Event] | None:
    try:
        return _LIST.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None


def _as_event(value: dict[str, Any]) -> _Event:
    """What :class:`_Event` keeps of an event that was read out of damaged text."""
    args = value.get("args")
    kept = {field: plain(args.get(key)) for field, key in _KEYS_OF_ARGS.items()} if isinstance(args, dict) else {}
    return _Event(
        **{key: plain(value.get(key)) for key in ("ph", "cat", "name", "id", "pid", "tid")},
        ts=number_text(value.get("ts")),
        args=_Args(**kept),
    )


def _of_export(blob: Blob) -> list[tuple[int, _Event]]:
    """What an export of Nsight Systems says of its rows: grids, blocks and bytes alone."""
    from referee.trace.nsys import read_arguments

    stated = read_arguments(blob)
    return [(place, _Event(args=_Args(grid=a.grid, block=a.block, size=a.size))) for place, a in stated.items()]


def _launches(by_row: dict[int, _Args]) -> Launches:
    rows = sorted(
        row for row, a in by_row.items() if any(v is not None for v in (a.grid, a.blocks_per_sm, a.occupancy, a.size))
    )
    args = [by_row[row] for row in rows]
    return Launches(
        rows=np.array(rows, dtype=np.int64),
        grid=np.array([_product(a.grid) for a in args], dtype=np.int64),
        block=np.array([_product(a.block) for a in args], dtype=np.int64),
        blocks_per_sm=np.array([_real(a.blocks_per_sm, most=_MOST_BLOCKS) for a in args], dtype=np.float64),
        occupancy_frac=np.array([_real(a.occupancy, most=100) / 100 for a in args], dtype=np.float64),
        size_bytes=np.array([_whole(a.size) for a in args], dtype=np.int64),
    )


def _operators(by_row: dict[int, _Args]) -> dict[int, Operator]:
    return {
        row: Operator(
            dims=tuple(_shape(dims) for dims in args.dims),
            types=tuple(str(t) for t in args.types) if isinstance(args.types, list) else (),
        )
        for row, args in by_row.items()
        if isinstance(args.dims, list)
    }


def _sequence(by_row: dict[int, _Args]) -> dict[int, tuple[int, int]]:
    return {
        row: (_whole(args.sequence), max(0, _whole(args.forward_thread)))
        for row, args in by_row.items()
        if args.sequence is not None
    }


def _memory(instants: list[_Event], *, base_ns: int) -> Memory:
    """Allocations and releases on devices; torch's device type 0 is the host."""
    events = [e for e in instants if e.args.memory_bytes is not None and _whole(e.args.device_type) not in (0, NONE)]
    since_ns = _since([e.ts for e in events], base_ns)
    keep = sorted(since_ns, key=since_ns.__getitem__)
    chosen = [events[i].args for i in keep]
    return Memory(
        time_ns=np.array([since_ns[i] for i in keep], dtype=np.int64),
        change_bytes=np.array([_whole(a.memory_bytes) for a in chosen], dtype=np.int64),
        allocated_bytes=np.array([_whole(a.allocated) for a in chosen], dtype=np.int64),
        reserved_bytes=np.array([_whole(a.reserved) for a in chosen], dtype=np.int64),
    )


def _since(tokens: list[msgspec.Raw], base_ns: int) -> dict[int, int]:
    """Position → nanoseconds since ``base_ns``, itself perhaps beyond 64 bits; without what is no time of the trace."""
    parsed, unusual = parse_ns(tokens)
    exact = {i: unusual.get(i, time) for i, time in enumerate(parsed.tolist())}
    return {i: time - base_ns for i, time in exact.items() if time is not None and abs(time - base_ns) < 1 << 62}


def _shape(value: Any) -> tuple[int, ...]:
    """A shape; empty for anything that is not a flat list of integers (a list of tensors has lists inside)."""
    if isinstance(value, list) and all(isinstance(size, int) for size in value):
        return tuple(value)
    return ()


def _product(value: Any) -> int:
    if not isinstance(value, list) or not all(isinstance(size, int) and 0 <= size < 1 << 31 for size in value):
        return 0
    product = 1
    for size in value:
        product *= size
    return min(product, (1 << 63) - 1) if value else 0


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else NONE


def _real(value: Any, *, most: float) -> float:
    """A number from 0 to ``most``; NaN for anything else, as nothing sensible can be computed from it."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most:
        return float(value)
    return float("nan")
