"""``referee env``: what is this machine, and what can be measured on it?"""

from __future__ import annotations

import argparse
import shutil
from importlib.metadata import PackageNotFoundError, version

from referee.cli.live import require_torch
from referee.cli.output import add_output_arguments, check_output_arguments, deliver

_PACKAGES = ("torch", "torch_xla", "nvidia-ml-py", "numpy", "msgspec", "isal", "zstandard")
_TOOLS = ("g++", "nvidia-smi", "rocm-smi", "nsys")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Read the machine, list the devices, show."""
    check_output_arguments(args)
    require_torch()
    from referee.device.provenance import collect
    from referee.device.registry import list_devices, open_device
    from referee.records.environment import Environment

    read = collect(open_device("cpu"), dtype="none", shapes=(), method={"clock": "none"})
    environment = Environment(
        chip=read.chip,
        software=read.software,
        switches=read.switches,
        machine_state=read.machine_state,
        devices=list_devices(),
        extras={name: _version(name) for name in _PACKAGES} | {name: shutil.which(name) for name in _TOOLS},
    )
    deliver(environment, args)
    return 0


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
