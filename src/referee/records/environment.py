"""What is this machine, and what can be measured on it? The record of ``referee env`` (schema ``referee.env/1``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from referee.records.finding import Finding, Scalar


@dataclass(frozen=True, kw_only=True)
class DeviceEntry:
    """A device that could be measured on: its name, whether it is here, and its description or what is missing."""

    name: str
    available: bool
    detail: str
    settling: str


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The machine as provenance would state it, the devices, and the optional parts that are present or missing."""

    chip: Mapping[str, Scalar]
    software: Mapping[str, Scalar]
    switches: Mapping[str, Scalar]
    machine_state: Mapping[str, Scalar]
    devices: tuple[DeviceEntry, ...]
    extras: Mapping[str, Scalar]
    """Optional packages and tools by name: their version, or ``None`` where missing."""
    findings: tuple[Finding, ...] = ()
    schema: str = "referee.env/1"
