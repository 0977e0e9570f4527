"""What could the device of a trace do at best? By its stated name, else by what its kernels were built for."""

from __future__ import annotations

import re
from collections.abc import Iterable

from referee.records.peaks import Peak, find_peak
from referee.trace.columns import Trace

_ARCHITECTURE = re.compile(r"(?:ISA|gfx)(942)")
"""Kernels of AMD's libraries carry the architecture they were built for."""
_OF_ARCHITECTURE = {"942": "mi300x"}


def peak_of(trace: Trace, device: int) -> Peak | None:
    """The peaks of a device of the trace: by its stated name, else by the architecture in its kernels' names."""
    named = next((d.name for d in trace.devices if d.ordinal == device and d.name), None)
    return find_peak(named) if named else _by_kernels(trace.names)


def _by_kernels(names: Iterable[str]) -> Peak | None:
    for name in names:
        match = _ARCHITECTURE.search(name)
        if match:
            return find_peak(_OF_ARCHITECTURE[match.group(1)])
    return None
