"""What does NVIDIA's management library say about a GPU just now? Read through ``nvidia-ml-py`` where it is installed.

Every figure is read on its own: a container or a virtual GPU that refuses one of them still gives the others, and what
is refused is left out ("not read").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from referee.records.finding import Scalar

_MW_PER_W = 1000

_THROTTLE = (
    ("nvmlClocksThrottleReasonGpuIdle", "idle"),
    ("nvmlClocksThrottleReasonApplicationsClocksSetting", "application clocks"),
    ("nvmlClocksThrottleReasonSwPowerCap", "power cap"),
    ("nvmlClocksThrottleReasonHwSlowdown", "hardware slowdown"),
    ("nvmlClocksThrottleReasonSyncBoost", "sync boost"),
    ("nvmlClocksThrottleReasonSwThermalSlowdown", "thermal (software)"),
    ("nvmlClocksThrottleReasonHwThermalSlowdown", "thermal (hardware)"),
    ("nvmlClocksThrottleReasonHwPowerBrakeSlowdown", "power brake"),
)


def read_nvml(uuid: str | None) -> Mapping[str, Scalar]:
    """The accelerator keys that NVML knows for the GPU ``uuid``; empty without the package, the library or the GPU."""
    if uuid is None:
        return {}
    try:
        import pynvml
    except ImportError:
        return {}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return {}
    try:
        return _read_device(pynvml, uuid)
    finally:
        pynvml.nvmlShutdown()


def _read_device(nvml: Any, uuid: str) -> Mapping[str, Scalar]:
    handle = _try(nvml, lambda: nvml.nvmlDeviceGetHandleByUUID(uuid))
    if handle is None:
        return {}
    read: Mapping[str, Callable[[], Scalar]] = {
        "driver": lambda: _text(nvml.nvmlSystemGetDriverVersion()),
        "pcie_width": lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(handle),
        "pcie_generation": lambda: nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle),
        "sm_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        "memory_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
        "power_limit_w": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / _MW_PER_W,
        "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        "throttle_reasons": lambda: _throttle(nvml, handle),
        "mig": lambda: "on" if nvml.nvmlDeviceGetMigMode(handle)[0] else "off",
        "numa_node": lambda: nvml.nvmlDeviceGetNumaNodeId(handle),
    }
    found = {key: _try(nvml, call) for key, call in read.items()}
    return {key: value for key, value in found.items() if value is not None}


def _try(nvml: Any, call: Callable[[], Any]) -> Any:
    """The figure, or ``None`` where this driver, device or container does not give it (or its package is too old)."""
    try:
        return call()
    except (nvml.NVMLError, AttributeError):
        return None


def _text(value: object) -> str:
    """Older versions of the package return bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def _throttle(nvml: Any, handle: Any) -> str:
    """The active throttle reasons, comma-separated; ``none``."""
    bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    active = [word for name, word in _THROTTLE if bits & getattr(nvml, name, 0)]
    return ", ".join(active) or "none"
