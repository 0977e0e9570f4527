"""CUDA and ROCm: calls queue work on streams; every device the outputs live on is awaited; events give device time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from referee.device.accelerator import AcceleratorDevice, EventTimer
from referee.device.chip import read_text
from referee.device.nvml import read_nvml
from referee.device.protocol import DeviceTimer
from referee.records.finding import Scalar


class CudaDevice(AcceleratorDevice):
    """One GPU reached through ``torch.cuda``, NVIDIA's or (as ROCm) AMD's."""

    def __init__(self, index: int = 0) -> None:
        super().__init__("cuda", index)

    def timer(self) -> DeviceTimer | None:
        """Two events on this device's current stream. Their resolution is about half a microsecond."""
        return CudaTimer(self._torch, self._device)

    def hold(self, duration_ns: int) -> None:
        """Keep the current stream busy for about ``duration_ns``, so that what is queued meanwhile runs without gaps.

        Put before the first mark of a timer it takes the launch gaps out of device time. A spin of finite length, so a
        step that synchronises inside is slowed and not dead-locked. The length is approximate: clocks move.
        """
        khz = getattr(self._torch.cuda.get_device_properties(self._device), "clock_rate", None) or _SPIN_KHZ
        with self._torch.cuda.device(self._device):
            self._torch.cuda._sleep(duration_ns * khz // _KHZ_NS)

    def counters(self) -> Mapping[str, int]:
        """The compiler's counts, and how often the caching allocator had to go to the driver.

        In a steady state the cache serves every request: a driver allocation inside a timed window synchronises and
        means that the warm-up was not over.
        """
        stats: Mapping[str, int] = self._torch.cuda.memory_stats(self._device)
        return {
            **super().counters(),
            "cuda.device_allocs": int(stats.get("num_device_alloc", 0)),
            "cuda.device_frees": int(stats.get("num_device_free", 0)),
            "cuda.alloc_retries": int(stats.get("num_alloc_retries", 0)),
        }

    def describe(self) -> Mapping[str, Scalar] | None:
        """The properties torch knows, and what NVML tells where it can be read."""
        properties: Any = self._torch.cuda.get_device_properties(self._device)
        found: dict[str, Scalar] = {
            "name": str(properties.name),
            "index": self._device.index,
            "sm_count": int(properties.multi_processor_count),
            "memory_bytes": int(properties.total_memory),
            "compute_capability": _architecture(properties),
        }
        cache_bytes = getattr(properties, "L2_cache_size", None)
        if cache_bytes is not None:
            found["l2_cache_bytes"] = int(cache_bytes)
        node = _numa_node(properties)
        if node is not None:
            found["numa_node"] = node
        if self._torch.version.hip is None:
            found.update(read_nvml(_uuid(properties)))
        return found


_KHZ_NS = 1_000_000
_SPIN_KHZ = 1_500_000
"""Assumed where torch does not tell the clock: about the middle of what GPUs of the last ten years run at."""


class CudaTimer(EventTimer):
    """Two events that are recorded on the timed device's current stream, whichever device is current just then.

    Work on other streams that does not join the current one is not between the marks. ``uncovered_ns`` says, after
    :meth:`elapsed_ns`, how long the device went on working after the second mark was reached: more than the cost of a
    synchronisation (some 10 µs) means that the device time is too short.
    """

    def __init__(self, torch: Any, device: Any) -> None:
        super().__init__(
            torch.cuda.Event(enable_timing=True),
            torch.cuda.Event(enable_timing=True),
            stream=lambda: torch.cuda.current_stream(device),
        )
        self._torch = torch
        self._device = device
        self.uncovered_ns: int | None = None

    def elapsed_ns(self) -> float:
        """Device time between the two marks; also notes what was still running after them."""
        elapsed_ns = super().elapsed_ns()
        start_ns = time.perf_counter_ns()
        self._torch.cuda.synchronize(self._device)
        self.uncovered_ns = time.perf_counter_ns() - start_ns
        return elapsed_ns


def _architecture(properties: Any) -> str:
    """``sm_90`` on NVIDIA's, ``gfx942`` on AMD's (whose driver appends feature flags after a colon)."""
    name = getattr(properties, "gcnArchName", None)
    # CUDA builds have the attribute too, holding the device's name.
    if name and str(name).startswith("gfx"):
        return str(name).partition(":")[0]
    return f"sm_{properties.major}{properties.minor}"


def _numa_node(properties: Any) -> int | None:
    """The NUMA node that the device's PCI slot belongs to; ``None`` where torch or the kernel does not say."""
    slot = [getattr(properties, name, None) for name in ("pci_domain_id", "pci_bus_id", "pci_device_id")]
    if any(part is None for part in slot):
        return None
    domain, bus, device = slot
    text = read_text(Path(f"/sys/bus/pci/devices/{domain:04x}:{bus:02x}:{device:02x}.0/numa_node"))
    # The kernel writes -1 where the machine has no NUMA information.
    return int(text) if text is not None and int(text) >= 0 else None


def _uuid(properties: Any) -> str | None:
    """The device's UUID: the one name that CUDA and NVML share, whatever ``CUDA_VISIBLE_DEVICES`` hides."""
    uuid = getattr(properties, "uuid", None)
    return None if uuid is None else f"GPU-{uuid}"
