"""How is a small trace written by hand, for tests and documentation? Rows in integer nanoseconds, then ``build``.

>>> builder = TraceBuilder().launch("cudaLaunchKernel", 0, 5_000, correlation=1)
>>> trace = builder.kernel("k", 7_000, 2_000, correlation=1).build()
>>> int(trace.links.launch_of[1])
0

``build`` takes the same path as files do, and ``to_json`` writes what the profiler would have written: reading that
gives the trace that ``build`` gives.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from referee.trace.assemble import EventTable, Labels, Surroundings, assemble
from referee.trace.columns import NONE, DeviceProperties, Trace

HOST_PID = 1000
"""The process of hand-made host rows; device rows have their device's number for a process, as in Kineto's files."""
MAIN_THREAD = 1


@dataclass(frozen=True, kw_only=True)
class Event:
    """One row as it was asked for."""

    name: str
    category: str
    start_ns: int
    duration_ns: int
    pid: int
    tid: int
    device: int = NONE
    stream: int = NONE
    correlation: int = NONE
    external_id: int = NONE
    args: Mapping[str, Any] = field(default_factory=dict)


class TraceBuilder:
    """Collects rows; every method but ``build`` and ``to_json`` returns the builder, so that calls chain.

    Times are integer nanoseconds. ``args`` are further arguments of the event, as they stand in a file.
    """

    def __init__(self, *, source: str = "hand-made", base_ns: int = 0) -> None:
        self._source = source
        self._base_ns = base_ns
        self._events: list[Event] = []
        self._devices: list[DeviceProperties] = []
        self._metadata: dict[str, Any] = {"schemaVersion": 1}

    # host rows

    def op(
        self, name: str, start: int, dur: int, *, thread: int = MAIN_THREAD, external_id: int = NONE, **args: Any
    ) -> TraceBuilder:
        """An operator."""
        return self._host("cpu_op", name, start, dur, thread, external_id=external_id, args=args)

    def launch(
        self,
        name: str,
        start: int,
        dur: int,
        *,
        correlation: int = NONE,
        thread: int = MAIN_THREAD,
        external_id: int = NONE,
        driver: bool = False,
        **args: Any,
    ) -> TraceBuilder:
        """A runtime call (with ``driver`` a driver call), whether it launches something or not."""
        category = "cuda_driver" if driver else "cuda_runtime"
        return self._host(
            category, name, start, dur, thread, correlation=correlation, external_id=external_id, args=args
        )

    def sync(
        self,
        start: int,
        dur: int,
        *,
        name: str = "cudaDeviceSynchronize",
        correlation: int = NONE,
        thread: int = MAIN_THREAD,
    ) -> TraceBuilder:
        """A call that waits for the device."""
        return self._host("cuda_runtime", name, start, dur, thread, correlation=correlation)

    def step(self, number: int, start: int, dur: int, *, thread: int = MAIN_THREAD) -> TraceBuilder:
        """The profiler's row for step ``number``."""
        return self._host("user_annotation", f"ProfilerStep#{number}", start, dur, thread)

    def annotation(self, name: str, start: int, dur: int, *, thread: int = MAIN_THREAD) -> TraceBuilder:
        """A user's annotation."""
        return self._host("user_annotation", name, start, dur, thread)

    def loader(self, start: int, dur: int, *, thread: int = MAIN_THREAD, workers: bool = False) -> TraceBuilder:
        """A data loader's frame."""
        iterator = "_MultiProcessingDataLoaderIter" if workers else "_SingleProcessDataLoaderIter"
        return self._host("user_annotation", f"enumerate(DataLoader)#{iterator}.__next__", start, dur, thread)

    def python(self, name: str, start: int, dur: int, *, thread: int = MAIN_THREAD) -> TraceBuilder:
        """A Python frame."""
        return self._host("python_function", name, start, dur, thread)

    def overhead(self, name: str, start: int, dur: int, *, thread: int = MAIN_THREAD) -> TraceBuilder:
        """A row of the profiler's own overhead, such as ``CUPTI activity buffer request``."""
        return self._host("overhead", name, start, dur, thread)

    # device rows

    def kernel(
        self,
        name: str,
        start: int,
        dur: int,
        *,
        stream: int = 7,
        correlation: int = NONE,
        device: int = 0,
        **args: Any,
    ) -> TraceBuilder:
        """A kernel."""
        return self._device("kernel", name, start, dur, stream, correlation, device, args)

    def memcpy(
        self,
        start: int,
        dur: int,
        *,
        name: str = "Memcpy HtoD (Pinned -> Device)",
        stream: int = 7,
        correlation: int = NONE,
        device: int = 0,
        **args: Any,
    ) -> TraceBuilder:
        """A copy by a device."""
        return self._device("gpu_memcpy", name, start, dur, stream, correlation, device, args)

    def memset(
        self,
        start: int,
        dur: int,
        *,
        name: str = "Memset (Device)",
        stream: int = 7,
        correlation: int = NONE,
        device: int = 0,
        **args: Any,
    ) -> TraceBuilder:
        """A fill by a device."""
        return self._device("gpu_memset", name, start, dur, stream, correlation, device, args)

    def device_annotation(self, name: str, start: int, dur: int, *, stream: int = 7, device: int = 0) -> TraceBuilder:
        """A user's annotation as projected onto a device: never work."""
        return self._device("gpu_user_annotation", name, start, dur, stream, NONE, device, {})

    def device_sync(
        self,
        name: str,
        start: int,
        dur: int,
        *,
        stream: int = 7,
        correlation: int = NONE,
        device: int = 0,
        **args: Any,
    ) -> TraceBuilder:
        """A synchronisation row of a device, such as ``Stream Wait Event``: never work."""
        return self._device("cuda_sync", name, start, dur, stream, correlation, device, args)

    def row(
        self,
        category: str,
        name: str,
        start: int,
        dur: int,
        *,
        pid: int = HOST_PID,
        tid: int = MAIN_THREAD,
        stream: int = NONE,
        correlation: int = NONE,
        device: int = NONE,
        external_id: int = NONE,
        **args: Any,
    ) -> TraceBuilder:
        """Any other row, with its category as a file would write it."""
        self._events.append(
            Event(
                name=name,
                category=category,
                start_ns=start,
                duration_ns=dur,
                pid=pid,
                tid=tid,
                device=device,
                stream=stream,
                correlation=correlation,
                external_id=external_id,
                args=args,
            )
        )
        return self

    # what stands beside the rows

    def device_properties(
        self, name: str, *, ordinal: int = 0, sm_count: int | None = None, **raw: Any
    ) -> TraceBuilder:
        """What the file says of a device."""
        properties = {"id": ordinal, "name": name, **({} if sm_count is None else {"numSms": sm_count}), **raw}
        self._devices.append(DeviceProperties(ordinal=ordinal, name=name, sm_count=sm_count, raw=properties))
        return self

    def metadata(self, **keys: Any) -> TraceBuilder:
        """Further keys of the file's top level."""
        self._metadata.update(keys)
        return self

    # results

    def build(self) -> Trace:
        """The trace, linked and divided into steps as a file's would be."""
        origin = min((event.start_ns for event in self._events), default=0)
        table, labels = _tabulate(self._events, origin_ns=origin)
        surroundings = Surroundings(
            source=self._source,
            base_ns=self._base_ns + origin,
            events=len(self._events),
            devices=tuple(self._devices),
            metadata=dict(self._metadata),
        )
        return assemble(table, labels=labels, surroundings=surroundings)

    def to_json(self) -> bytes:
        """The file that the profiler would have written, in decimal microseconds exact to the nanosecond."""
        head = {"deviceProperties": [dict(device.raw) for device in self._devices], **self._metadata}
        events = ",\n".join(_event_json(event, base_ns=self._base_ns) for event in self._events)
        return f'{json.dumps(head)[:-1]}, "traceEvents": [\n{events}\n]}}\n'.encode()

    def _host(
        self,
        category: str,
        name: str,
        start: int,
        dur: int,
        thread: int,
        *,
        correlation: int = NONE,
        external_id: int = NONE,
        args: Mapping[str, Any] | None = None,
    ) -> TraceBuilder:
        return self.row(
            category, name, start, dur, tid=thread, correlation=correlation, external_id=external_id, **(args or {})
        )

    def _device(
        self,
        category: str,
        name: str,
        start: int,
        dur: int,
        stream: int,
        correlation: int,
        device: int,
        args: Mapping[str, Any],
    ) -> TraceBuilder:
        return self.row(
            category,
            name,
            start,
            dur,
            pid=device,
            tid=stream,
            stream=stream,
            correlation=correlation,
            device=device,
            **args,
        )


def _tabulate(events: list[Event], *, origin_ns: int) -> tuple[EventTable, Labels]:
    """The columns of hand-made rows, coded in order of first appearance as the reader does."""
    names: dict[str, int] = {}
    categories: dict[str, int] = {}
    threads: dict[tuple[str, str], int] = {}
    for event in events:
        names.setdefault(event.name, len(names))
        categories.setdefault(event.category, len(categories))
        threads.setdefault((str(event.pid), str(event.tid)), len(threads))

    def whole(values: list[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.array(values, np.int64)

    def code(values: list[int]) -> np.ndarray[Any, np.dtype[np.int32]]:
        return np.array(values, np.int32)

    table = EventTable(
        start_ns=whole([event.start_ns - origin_ns for event in events]),
        duration_ns=whole([event.duration_ns for event in events]),
        name=code([names[event.name] for event in events]),
        category=code([categories[event.category] for event in events]),
        thread=code([threads[str(event.pid), str(event.tid)] for event in events]),
        device=code([event.device for event in events]),
        stream=whole([event.stream for event in events]),
        correlation=whole([event.correlation for event in events]),
        external_id=whole([event.external_id for event in events]),
        place=np.arange(len(events), dtype=np.int64),
    )
    return table, Labels(names=tuple(names), categories=tuple(categories), threads=tuple(threads))


def _event_json(event: Event, *, base_ns: int) -> str:
    """One event in Kineto's layout."""
    stated = {
        "External id": event.external_id,
        "device": event.device,
        "stream": event.stream,
        "correlation": event.correlation,
    }
    args = {key: value for key, value in stated.items() if value != NONE} | dict(event.args)
    head = json.dumps({"ph": "X", "cat": event.category, "name": event.name, "pid": event.pid, "tid": event.tid})[:-1]
    start, duration = microseconds(base_ns + event.start_ns), microseconds(event.duration_ns)
    return f'  {head}, "ts": {start}, "dur": {duration}, "args": {json.dumps(args)}}}'


def microseconds(ns: int) -> str:
    """Integer nanoseconds as decimal microseconds, exactly: ``1234`` becomes ``1.234``."""
    sign, whole = "-" if ns < 0 else "", abs(ns)
    return f"{sign}{whole // 1000}.{whole % 1000:03d}"
