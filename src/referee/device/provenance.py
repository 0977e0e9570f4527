"""Where does a number measured now come from? Fills the provenance with everything that can be read here.

What cannot be read is left out, which the record shows as "not read". Never imports torch: where torch is not loaded
its keys are left out too. Costs some 20 ms the first time in a process and a few milliseconds after that.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from referee.device.chip import read_chip, read_machine_state, throttled_periods
from referee.device.layout import address_layout
from referee.device.protocol import Device
from referee.device.repository import read_repository
from referee.device.switches import read_software, read_switches, read_threads
from referee.records.finding import Scalar
from referee.records.provenance import Provenance, TensorSpec


class Source(Protocol):
    """What provenance wants to know of a target: its name and the file it stands in."""

    @property
    def name(self) -> str:
        """As the user wrote it."""

    @property
    def source_file(self) -> str | None:
        """The file whose repository is the measured code's; ``None`` for a statement."""


@dataclass(frozen=True, kw_only=True)
class MachineMark:
    """The state of the machine before a measurement: what the measurement itself would change afterwards."""

    state: Mapping[str, Scalar]
    throttled_periods: int | None
    time_utc: str


def mark_machine() -> MachineMark:
    """Note the machine's state now, before measuring: its load without ours, and the time."""
    return MachineMark(
        state=read_machine_state(),
        throttled_periods=throttled_periods(),
        time_utc=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def collect(
    device: Device,
    *,
    dtype: str,
    shapes: Iterable[TensorSpec],
    method: Mapping[str, Scalar],
    target: Source | None = None,
    before: MachineMark | None = None,
    switches: Mapping[str, Scalar] | None = None,
    devices: Collection[str] = (),
    threads: int | None = None,
) -> Provenance:
    """The provenance of a number measured on ``device`` just now.

    ``method`` must hold ``clock``; ``timer``, ``address_layout`` and ``target`` are filled in here. ``before`` is the
    mark set before the measurement; without it the state is read now and throttling is not known. ``switches`` adds to
    or replaces what is read on this thread (what was observed *inside* the step: autocast site, compilation).
    ``devices`` are those on which the step was seen to compute: one that takes no part is not stated. ``threads`` are
    those with which it was seen to compute, where a step sets them itself. Raises
    :class:`~referee.errors.ProvenanceError` for keys that the registry does not list.
    """
    mark = before if before is not None else mark_machine()
    given: dict[str, Scalar] = {"timer": _timer()}
    layout = address_layout()
    if layout is not None:
        given["address_layout"] = layout
    if target is not None:
        given["target"] = target.name
    return Provenance(
        dtype=dtype,
        shapes=tuple(shapes),
        chip={**read_chip(), **read_threads(), **({} if threads is None else {"threads": threads})},
        accelerator=device.describe() if _takes_part(device, devices) else None,
        method={**given, **method},
        software={**read_software(), **read_repository(target.source_file if target is not None else None)},
        switches={**read_switches(device.name.partition(":")[0]), **(switches or {})},
        machine_state={**mark.state, "time_utc": mark.time_utc, **_throttled(before)},
    )


def _takes_part(device: Device, devices: Collection[str]) -> bool:
    """Whether ``device`` is among those of the step; where nothing is known of those it is taken to be."""
    kind = device.name.partition(":")[0]
    return not devices or any(used.partition(":")[0] == kind for used in devices)


def _timer() -> str:
    """``perf_counter (CLOCK_MONOTONIC), resolution 1 ns``."""
    info = time.get_clock_info("perf_counter")
    name = info.implementation.partition("(")[2].rstrip(")") or info.implementation
    return f"perf_counter ({name}), resolution {info.resolution * 1e9:.0f} ns"


def _throttled(before: MachineMark | None) -> Mapping[str, Scalar]:
    if before is None or before.throttled_periods is None:
        return {}
    now = throttled_periods()
    return {} if now is None else {"throttled": now > before.throttled_periods}
