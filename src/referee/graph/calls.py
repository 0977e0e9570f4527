"""What does this call do? Families of runtime and driver calls by name, for every vendor whose names are known.

A name decides only what no link can tell: that a call waits, frees, allocates, or orders streams. Whether a call
launched something is decided by its link to a device row, never here.
"""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np

from referee.trace.columns import CALL_KINDS, BoolColumn, RowNumbers, Trace

WAITS = re.compile(r"synchroni[sz]e|EventsWait$|EventWait$|QueueFinish$", re.IGNORECASE)
"""Calls that return only when device work is done: ``*Synchronize`` of CUDA, HIP, Level Zero and MTIA, and SYCL's."""

COPIES = re.compile(r"^(?!.*(?:async|enqueue)).*memcpy", re.IGNORECASE)
"""Copies that are not asynchronous: ``cudaMemcpy``, ``hipMemcpyWithStream``, ``cuMemcpyDtoH_v2`` and their like. SYCL's
``urEnqueueUSMMemcpy`` only hands its copy over; where it was told to wait, it covers its row."""

FREES = re.compile(r"(Free|FreeHost|HostFree|FreeArray)(_v\d+)?$")
"""Calls that wait for the device and then give memory back: ``cudaFree``, ``hipFree``, ``cuMemFree_v2``."""

ALLOCATIONS = re.compile(
    r"malloc|memalloc|hostalloc|allochost|memcreate|memmap|memunmap|memsetaccess|memrelease|memaddress|"
    r"host(un)?register|mem(ory)?pool|free(async|host|array)?(_v\d+)?$",
    re.IGNORECASE,
)
"""Calls that obtain or return memory from the driver."""

EVENT_WAITS = re.compile(r"StreamWaitEvent|waitOnEvent|WaitValue", re.IGNORECASE)
"""Calls that make a stream wait for another one's event."""

GRAPH_LAUNCHES = re.compile(r"GraphLaunch", re.IGNORECASE)
"""Calls that replay a recorded graph."""


COLLECTIVES = re.compile(
    r"nccl|rccl|mscclpp|msccl|oneccl|hccl|hcom_|nvshmem|multimem|cross_device_reduce|custom_ar_|deep_ep::|userbuffers_|"
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all",
    re.IGNORECASE,
)
"""Kernels that talk to other devices: the collective libraries, the all-reduce kernels of inference servers, and the
exchange of experts' tokens."""


LOCAL_COPIES = re.compile(r"DtoD|D2D|device[- _]?to[- _]?device", re.IGNORECASE)
"""Copies within the memory of a device, on no link: Kineto's ``Memcpy DtoD (Device -> Device)``, HIP's
``CopyDeviceToDevice``, Nsight's ``Device-to-Device``. One between devices is called peer to peer."""


def named(trace: Trace, rows: RowNumbers, pattern: re.Pattern[str]) -> BoolColumn:
    """Which of these rows have a name that matches? A name is looked at once, however often it is asked about."""
    codes = trace.rows.name[rows]
    matches = np.zeros(max(len(trace.names), 1), dtype=bool)
    for code in np.flatnonzero(np.bincount(codes, minlength=1)):
        matches[code] = _matches(pattern, trace.names[code])
    flags: BoolColumn = matches[codes]
    return flags


@lru_cache(maxsize=1 << 14)
def _matches(pattern: re.Pattern[str], name: str) -> bool:
    # Names of kernels are hundreds of characters long, and each step asks about the same ones.
    return pattern.search(name) is not None


def calls_named(trace: Trace, pattern: re.Pattern[str], *, among: RowNumbers | None = None) -> RowNumbers:
    """Row numbers of the runtime and driver calls (or of those ``among``) whose name matches, in order of start."""
    calls = trace.rows.of(*CALL_KINDS) if among is None else among
    return calls[named(trace, calls, pattern)]
