"""NVML on a library of the test's own: what one call refuses does not hide what the others say."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from referee.device.cuda import _architecture, _numa_node, _uuid
from referee.device.nvml import read_nvml
from referee.records.provenance import REGISTRY


class NVMLError(Exception):
    """What the library raises."""


def refuse(*_: object) -> Any:
    raise NVMLError


class Library(SimpleNamespace):
    """A GPU at 1,980 MHz, limited by its power cap."""

    def __init__(self, **changes: Any) -> None:
        calls: dict[str, Any] = {
            "NVMLError": NVMLError,
            "NVML_CLOCK_SM": 1,
            "NVML_CLOCK_MEM": 2,
            "NVML_TEMPERATURE_GPU": 0,
            "nvmlClocksThrottleReasonSwPowerCap": 4,
            "nvmlClocksThrottleReasonHwSlowdown": 8,
            "opened": 0,
            "nvmlDeviceGetHandleByUUID": lambda uuid: uuid,
            "nvmlSystemGetDriverVersion": lambda: b"550.54",
            "nvmlDeviceGetCurrPcieLinkWidth": lambda _: 16,
            "nvmlDeviceGetCurrPcieLinkGeneration": lambda _: 5,
            "nvmlDeviceGetClockInfo": lambda _, kind: {1: 1980, 2: 2619}[kind],
            "nvmlDeviceGetEnforcedPowerLimit": lambda _: 700_000,
            "nvmlDeviceGetTemperature": lambda _, kind: 41,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _: 4,
            "nvmlDeviceGetMigMode": lambda _: [0, 0],
        }
        super().__init__(**{**calls, **changes})

    def nvmlInit(self) -> None:  # noqa: N802 - the library's name
        self.opened += 1

    def nvmlShutdown(self) -> None:  # noqa: N802 - the library's name
        self.opened -= 1


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Any:
    def install(**changes: Any) -> Library:
        library = Library(**changes)
        monkeypatch.setitem(sys.modules, "pynvml", library)
        return library

    return install


def test_everything_the_library_says_is_read(install: Any) -> None:
    library = install()
    assert read_nvml("GPU-1") == {
        "driver": "550.54",
        "pcie_width": 16,
        "pcie_generation": 5,
        "sm_clock_mhz": 1980,
        "memory_clock_mhz": 2619,
        "power_limit_w": 700.0,
        "temperature_c": 41,
        "throttle_reasons": "power cap",
        "mig": "off",
    }
    assert library.opened == 0
    assert all(f"accelerator.{key}" in REGISTRY for key in read_nvml("GPU-1"))


def test_what_is_refused_is_left_out_alone(install: Any) -> None:
    install(nvmlDeviceGetMigMode=refuse, nvmlDeviceGetTemperature=refuse)
    found = read_nvml("GPU-1")
    assert "mig" not in found
    assert "temperature_c" not in found
    assert found["sm_clock_mhz"] == 1980


def test_several_and_no_throttle_reasons(install: Any) -> None:
    install(nvmlDeviceGetCurrentClocksThrottleReasons=lambda _: 12)
    assert read_nvml("GPU-1")["throttle_reasons"] == "power cap, hardware slowdown"
    install(nvmlDeviceGetCurrentClocksThrottleReasons=lambda _: 0)
    assert read_nvml("GPU-1")["throttle_reasons"] == "none"


def test_a_gpu_the_library_does_not_know_is_not_read(install: Any) -> None:
    library = install(nvmlDeviceGetHandleByUUID=refuse)
    assert read_nvml("GPU-1") == {}
    assert library.opened == 0


def test_without_the_package_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert read_nvml("GPU-1") == {}
    assert read_nvml(None) == {}


def test_architectures_of_both_makers() -> None:
    assert _architecture(SimpleNamespace(major=9, minor=0, gcnArchName="NVIDIA H100 80GB HBM3")) == "sm_90"
    assert _architecture(SimpleNamespace(major=9, minor=4, gcnArchName="gfx942:sramecc+:xnack-")) == "gfx942"
    assert _architecture(SimpleNamespace(major=8, minor=6)) == "sm_86"


def test_what_torch_does_not_tell_is_not_guessed() -> None:
    assert _uuid(SimpleNamespace()) is None
    assert _uuid(SimpleNamespace(uuid="4b2f")) == "GPU-4b2f"
    assert _numa_node(SimpleNamespace()) is None
    assert _numa_node(SimpleNamespace(pci_domain_id=0xFFFF, pci_bus_id=0xFF, pci_device_id=0x1F)) is None
