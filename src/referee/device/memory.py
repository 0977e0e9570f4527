"""How much memory does one call need? A pass of its own: counting allocations would disturb the times.

On CUDA the caching allocator keeps the figures; on the CPU (and for lazy tensors, whose graphs run on it) they come
from the allocation rows of torch's profiler.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from referee.device.host import load_torch
from referee.device.protocol import Device
from referee.errors import EnvironmentLacks, OptionError


@dataclass(frozen=True, kw_only=True)
class MemoryUse:
    """What one call allocated, in bytes above what was held before it.

    ``peak_bytes``: the most held at once. ``allocated_bytes``, ``allocations``: all requests together. ``kept_bytes``:
    what is still held after the call while its output lives. ``driver_allocations``: requests that the caching
    allocator had to pass on to the driver; ``None`` where there is no such allocator.
    """

    peak_bytes: int
    allocated_bytes: int
    allocations: int
    kept_bytes: int
    driver_allocations: int | None
    basis: str


def measure_memory(step: Callable[[], object], device: Device) -> MemoryUse:
    """Call ``step`` once, warm, and count its memory.

    Raises :class:`~referee.errors.EnvironmentLacks` where the device's allocator cannot be watched, and
    :class:`~referee.errors.OptionError` under a profiler. What the step raises passes through.
    """
    torch = load_torch()
    device.settle(step())  # caches, workspaces and the optimizer's state are made by the first call
    kind = device.name.partition(":")[0]
    if kind == "cuda":
        return _measure_cuda(torch, step, device)
    if kind in ("cpu", "lazy"):
        return _measure_host(torch, step, device)
    raise EnvironmentLacks(f"The allocator of {device.name} cannot be watched.", hint="Use the CPU or a CUDA device.")


def _measure_cuda(torch: Any, step: Callable[[], object], device: Device) -> MemoryUse:
    place = torch.device(device.name)
    torch.cuda.reset_peak_memory_stats(place)
    before = torch.cuda.memory_stats(place)
    output = step()
    device.settle(output)
    after = torch.cuda.memory_stats(place)

    def grown(name: str) -> int:
        return int(after.get(name, 0) - before.get(name, 0))

    held = int(before.get("allocated_bytes.all.current", 0))
    return MemoryUse(
        peak_bytes=int(after.get("allocated_bytes.all.peak", 0)) - held,
        allocated_bytes=grown("allocated_bytes.all.allocated"),
        allocations=grown("allocation.all.allocated"),
        kept_bytes=grown("allocated_bytes.all.current"),
        driver_allocations=grown("num_device_alloc"),
        basis="caching allocator",
    )


def _measure_host(torch: Any, step: Callable[[], object], device: Device) -> MemoryUse:
    if torch.autograd.profiler._is_profiler_enabled:
        raise OptionError("Memory cannot be counted while a profiler is recording.", hint="Count it before.")
    # Kineto reports each start and stop on standard error unless told otherwise before its first session.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    profiler = torch.autograd.profiler.profile(profile_memory=True, use_kineto=True)
    with profiler:
        output = step()
        device.settle(output)
    rows = [event for event in profiler.kineto_results.events() if event.name() == "[memory]"]
    rows.sort(key=lambda event: event.start_ns())
    use = fold_requests(event.nbytes() for event in rows)
    del output
    return use


def fold_requests(changes: Iterable[int]) -> MemoryUse:
    """The figures of a series of allocations (above 0) and releases (below 0), in bytes, in order of time."""
    held = peak = total = count = 0
    for change in changes:
        held += change
        peak = max(peak, held)
        if change > 0:
            total += change
            count += 1
    return MemoryUse(
        peak_bytes=peak,
        allocated_bytes=total,
        allocations=count,
        kept_bytes=held,
        driver_allocations=None,
        basis="profiler's allocation rows",
    )
