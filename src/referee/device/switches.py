"""Which switches that change speed are set in this process, and which software is it? As torch itself says.

Nothing is loaded for the question: where torch is not loaded (a fake device) its keys are left out.
"""

from __future__ import annotations

import functools
import os
import platform
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from referee import __version__
from referee.device.watchers import read_watchers
from referee.records.finding import Scalar

_ALLOCATOR = (
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
)
_BLOCKING = ("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL")


def loaded_torch() -> Any:
    """The torch module if this process has loaded it, else ``None``."""
    return sys.modules.get("torch")


@functools.cache
def _constant_software(torch_is_loaded: bool) -> Mapping[str, Scalar]:
    found: dict[str, Scalar | None] = {
        "python": f"{platform.python_version()} {platform.python_implementation()}",
        "referee": __version__,
        "os": platform.platform(),
        "xla": _version("torch_xla"),
    }
    torch = loaded_torch()
    if torch_is_loaded and torch is not None:
        found["torch"] = str(torch.__version__)
        found["torch_build"] = _build(torch)
        found["cuda"] = torch.version.cuda or "none"
        found["rocm"] = getattr(torch.version, "hip", None) or "none"
        found["cudnn"] = (torch.backends.cudnn.version() or "none") if torch.version.cuda else "none"
    return {key: value for key, value in found.items() if value is not None}


def read_software() -> Mapping[str, Scalar]:
    """The software keys except those of the measured code's repository."""
    return _constant_software(loaded_torch() is not None)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def _build(torch: Any) -> str:
    flavour = f"cuda {torch.version.cuda}" if torch.version.cuda else "cpu"
    if getattr(torch.version, "hip", None):
        flavour = f"rocm {torch.version.hip}"
    debug = " debug" if torch.version.debug else ""
    return f"{str(torch.version.git_version)[:12]} {flavour} {torch.backends.cpu.get_cpu_capability()}{debug}"


def read_threads() -> Mapping[str, Scalar]:
    """Intra-op and inter-op threads that torch uses."""
    torch = loaded_torch()
    if torch is None:
        return {}
    return {"threads": torch.get_num_threads(), "interop_threads": torch.get_num_interop_threads()}


def read_switches(device_type: str) -> Mapping[str, Scalar]:
    """The switches as they stand around the step; ``device_type`` says whose autocast state is read."""
    found: dict[str, Scalar] = {
        "allocator": _environment(_ALLOCATOR, default="default"),
        "debugger": debugger(loaded_torch()),
        "launch_blocking": _environment(_BLOCKING, default="off"),
    }
    torch = loaded_torch()
    if torch is not None:
        found.update(
            float32_matmul_precision=torch.get_float32_matmul_precision(),
            tf32_matmul=read_flag(torch.backends.cuda.matmul, "allow_tf32"),
            tf32_cudnn=read_flag(torch.backends.cudnn, "allow_tf32"),
            cudnn_benchmark=bool(torch.backends.cudnn.benchmark),
            default_dtype=str(torch.get_default_dtype()).removeprefix("torch."),
            deterministic=torch.are_deterministic_algorithms_enabled() or bool(torch.backends.cudnn.deterministic),
            grad_mode=grad_mode(torch),
            autocast=autocast(torch, device_type),
        )
    return found


def debugger(torch: Any) -> str:
    """What watches every line, call or operator of this thread; ``off`` where nothing does."""
    return ", ".join(read_watchers(torch)) or "off"


def read_flag(module: Any, name: str) -> Scalar:
    """A TF32 flag. torch refuses to read the old flags after the new ones were set differently; then: mixed."""
    try:
        return bool(getattr(module, name))
    except RuntimeError:
        return "mixed"


def grad_mode(torch: Any) -> str:
    """``grad``, ``no_grad`` or ``inference_mode``, as it is on this thread now."""
    if torch.is_inference_mode_enabled():
        return "inference_mode"
    return "grad" if torch.is_grad_enabled() else "no_grad"


def autocast(torch: Any, device_type: str) -> str:
    """``off``, or the device and dtype that autocast is on for, on this thread now."""
    try:
        if not torch.is_autocast_enabled(device_type):
            return "off"
        return f"{device_type} {str(torch.get_autocast_dtype(device_type)).removeprefix('torch.')}"
    except RuntimeError:  # a device type that autocast does not know
        return "off"


def _environment(names: tuple[str, ...], *, default: str) -> str:
    """Those of the variables that are set and not 0, as ``NAME=value``."""
    set_ = [f"{name}={os.environ[name]}" for name in names if os.environ.get(name, "0") not in ("", "0")]
    return " ".join(set_) or default
