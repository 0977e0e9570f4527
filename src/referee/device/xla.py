"""XLA through ``torch_xla``: a call records, cutting the graph hands it over, and only a wait says that it has run.

Three things are easily taken for each other here. *Recording* is what a Python call does. *Cutting* (``sync``,
``mark_step``) compiles what was recorded, unless that graph is known, and hands it over; it returns while the device
works. *Waiting* is the third, and the only one after which a clock may stop.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from referee.device.barrier import RECORDING, bridge, materialise_in, wait_for
from referee.device.host import HostClocked
from referee.device.lazy import is_started
from referee.device.protocol import Settling
from referee.errors import DeviceMissing
from referee.records.finding import Scalar
from referee.units import NS_PER_S

if TYPE_CHECKING:
    import torch

_TIMES = {
    "tracing_ns": "LazyTracing",
    "compile_ns": "CompileTime",
    "execute_ns": "ExecuteTime",
    "to_device_ns": "TransferToDeviceTime",
    "from_device_ns": "TransferFromDeviceTime",
}
"""What the bridge times, under the names of its own report. All in nanoseconds."""

_COUNTS = {"compiles": "CompileTime", "executions": "ExecuteTime"}


class XlaDevice(HostClocked):
    """One device reached through ``torch_xla`` (a TPU, or the CPU with ``PJRT_DEVICE=CPU``).

    Settling materialises exactly the outputs given and then waits for the device, as long as no step was seen to
    write in place: a parameter that is written to belongs to the step as much as its output does, so after
    :meth:`note_writes` every settle cuts everything that is recorded.
    """

    settling = Settling.LAZY
    # One cut and wait costs some 30 µs on the CPU client: long against that, short against a slice of the scheduler.
    block_target_ns = 1_000_000

    def __init__(self, index: int = 0) -> None:
        super().__init__(f"xla:{index}")
        if is_started():
            # Loading torch_xla would take the lazy tensors' shapes away from it.
            raise DeviceMissing(
                "No device xla in this process: torch's own lazy backend is in use, and there is room for one.",
                hint="Measure on the two in processes of their own.",
            )
        import torch_xla
        import torch_xla.debug.metrics

        try:
            self._device: torch.device = torch_xla.device(index)
        except (RuntimeError, IndexError) as error:
            raise DeviceMissing(f"No device xla:{index} here: {error}.", hint="Number them from 0.") from error
        self._torch_xla: Any = torch_xla
        self._metrics: Any = torch_xla.debug.metrics
        self.settles_everything = False

    def note_writes(self, tensors: Iterable[object]) -> None:
        """A step writes to ``tensors`` in place: from now on every settle cuts whatever is recorded."""
        if any(getattr(tensor, "device", self._device).type in RECORDING for tensor in tensors):
            self.settles_everything = True

    def hand_over(self, outputs: object) -> None:
        """Cut the graph of ``outputs`` and start it; returns while the device works."""
        if self.settles_everything:
            self._torch_xla.sync(wait=False)
            return
        materialise_in(outputs, "xla")

    def settle(self, outputs: object = None) -> None:
        """Materialise ``outputs`` (``None``, or after noted writes: everything recorded and held), then wait."""
        if outputs is None or self.settles_everything:
            self._torch_xla.sync(wait=False)
            self._wait()
        super().settle(outputs)

    def counters(self) -> Mapping[str, int]:
        """The compiler's counts, and ``UncachedCompile``: graphs that were not in the cache.

        ``CachedCompile`` moves with every cut and so is no sign of anything.
        """
        return {**super().counters(), "UncachedCompile": self._count("UncachedCompile")}

    def stages(self) -> Mapping[str, int]:
        """Recording, compiling, executing and transferring so far, as the bridge's own metrics have them.

        Recording is a part of the host's time; executing runs beside the host from the hand-over on.
        """
        times = {key: self._metric(name)[1] for key, name in _TIMES.items()}
        counts = {key: self._metric(name)[0] for key, name in _COUNTS.items()}
        return {**times, **counts}

    def involuntary_switches(self) -> int:
        """Of the whole process: the work runs on threads of XLA's own."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw

    def processor_times(self) -> tuple[int | None, int] | None:
        """``None``, and how long others have computed on this machine so far, in nanoseconds.

        XLA's threads are as many as the cores and take the processor from each other, so that hardly a step is without
        a switch and what its threads wait for is mostly themselves: only what others had is a loss.
        """
        others_ns = read_others_ns()
        return None if others_ns is None else (None, others_ns)

    def occupied_ns(self) -> int | None:
        """``None``: this thread sleeps while XLA's work, which is no waiting of the step's own."""
        return None

    def describe(self) -> Mapping[str, Scalar] | None:
        """The kind of hardware behind the bridge, and what of its memory the bridge tells."""
        runtime: Any = sys.modules["torch_xla"].runtime
        hardware = str(bridge()._xla_real_devices([str(self._device)])[0])
        kind = str(runtime.device_type() or hardware.partition(":")[0])
        found: dict[str, Scalar] = {"name": f"XLA on {kind} ({hardware})", "index": self._device.index or 0}
        return found

    def _wait(self) -> None:
        wait_for(self._device)

    def _count(self, name: str) -> int:
        return int(self._metrics.counter_value(name) or 0)

    def _metric(self, name: str) -> tuple[int, int]:
        """Samples and their sum; zeros where the bridge has not met such an event yet."""
        data = self._metrics.metric_data(name)
        return (0, 0) if data is None else (int(data[0]), int(data[1]))


_BUSY = (0, 1, 2, 5, 6, 7)
"""Which columns of the kernel's account are time computed: user, nice, system, interrupts of both kinds, stolen."""


def read_others_ns(account: Path = Path("/proc/stat")) -> int | None:
    """How long has this machine computed for others than this process? To one tick (10 ms) per core.

    ``None`` where the kernel keeps no such account.
    """
    try:
        columns = account.read_text().split("\n", 1)[0].split()[1:]
        ticks = sum(int(columns[index]) for index in _BUSY)
    except (OSError, ValueError, IndexError):
        return None
    return ticks * NS_PER_S // os.sysconf("SC_CLK_TCK") - time.process_time_ns()


def count_devices(_: object) -> int:
    """How many XLA devices are here? Without starting the bridge: one where it is installed, and all once it runs."""
    loaded: Any = sys.modules.get("torch_xla")
    if loaded is not None:
        return int(loaded.runtime.addressable_device_count())
    return int(find_spec("torch_xla") is not None)
