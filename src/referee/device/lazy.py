"""PyTorch's lazy tensors over TorchScript: a call records; work runs when its outputs are materialised."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from referee.device.barrier import wait_for
from referee.device.host import HostClocked
from referee.device.protocol import Settling
from referee.records.finding import Scalar

if TYPE_CHECKING:
    import torch


class LazyDevice(HostClocked):
    """The ``lazy`` device of torch itself, whose graphs run as TorchScript on the CPU.

    Settling materialises exactly the outputs given, and what was adopted: tensors that a step was seen to write to
    (parameters, an optimizer's state). Those are its outputs as well; left recorded, their graph would grow from call
    to call. Anything else stays recorded until it is needed or until :meth:`settle` is called without outputs, and a
    recorded result that nobody holds any longer never runs.
    """

    settling = Settling.LAZY
    # One settle costs some 20 µs here and runs the graph in one call: long enough against that, short against a slice.
    block_target_ns = 2_000_000

    def __init__(self, index: int = 0) -> None:
        super().__init__(f"lazy:{index}")
        import torch._lazy.metrics
        import torch._lazy.ts_backend

        backend: Any = torch._lazy.ts_backend
        if "lazy" not in _started:
            # A second initialisation of the same process is an error inside torch.
            backend.init()
            _started.add("lazy")
        self._device = self._torch.device("lazy", index)
        self._metrics: Any = torch._lazy.metrics
        self._adopted: dict[int, weakref.ref[torch.Tensor]] = {}

    def adopt(self, tensors: Iterable[torch.Tensor]) -> None:
        """Count ``tensors`` among the outputs of every step settled from now on, as long as they live."""
        for tensor in tensors:
            if tensor.device.type == "lazy":
                self._adopted[id(tensor)] = weakref.ref(tensor)

    def settle(self, outputs: object = None) -> None:
        """Materialise ``outputs`` (``None``: everything recorded that somebody holds), then wait."""
        if outputs is None:
            self._torch._lazy.mark_step(wait=True)
        elif self._adopted:
            alive = [tensor for reference in self._adopted.values() if (tensor := reference()) is not None]
            outputs = (outputs, alive)
        super().settle(outputs)

    def counters(self) -> Mapping[str, int]:
        """The compiler's counts and ``UncachedCompile``, graphs that were not in the cache.

        ``CachedCompile`` moves with every settle and so is no sign of anything.
        """
        uncached = self._metrics.counter_value("UncachedCompile")
        return {**super().counters(), "UncachedCompile": int(uncached or 0)}

    def describe(self) -> Mapping[str, Scalar] | None:
        """What it is: it has no hardware of its own."""
        return {"name": "lazy tensors over TorchScript, run on the CPU", "index": self._device.index}

    def _wait(self) -> None:
        wait_for(self._device)


_started: set[str] = set()
