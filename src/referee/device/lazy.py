"""PyTorch's lazy tensors over TorchScript: a call records; work runs when its outputs are materialised."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from referee.device.barrier import materialise_in, wait_for
from referee.device.host import HostClocked
from referee.device.protocol import Settling
from referee.errors import DeviceMissing
from referee.records.finding import Scalar

if TYPE_CHECKING:
    import torch


class LazyDevice(HostClocked):
    """The ``lazy`` device of torch itself, whose graphs run as TorchScript on the CPU.

    Settling materialises exactly the outputs given, as long as no step was seen to write in place. A tensor that is
    written to (a parameter, an optimizer's state) is a view of an inner tensor that Python cannot reach: materialising
    the view leaves the inner one recorded, and its graph grows, and is compiled anew, from call to call. So after
    :meth:`note_writes` every settle materialises everything that is recorded and still held. A recorded result that
    nobody holds any longer never runs.

    Recorded together, equal calls are computed once but for their last operator, and calls that differ are one graph
    that nobody's program has: so a loop hands each call's graph over (:meth:`hand_over`), as ``mark_step`` does behind
    each step. It is run before that returns, and the cost of handing over, some 10 µs a call, is in the time.
    """

    settling = Settling.LAZY
    # One settle costs some 20 µs here and runs the graph in one call: long enough against that, short against a slice.
    block_target_ns = 2_000_000

    def __init__(self, index: int = 0) -> None:
        super().__init__(f"lazy:{index}")
        if "torch_xla" in sys.modules:
            # Both are built on one set of lazy tensors: with torch_xla loaded, these lose their shapes.
            raise DeviceMissing(
                "No device lazy in this process: torch_xla is loaded, and torch has room for one lazy backend.",
                hint="Measure on the two in processes of their own.",
            )
        import torch._lazy.metrics
        import torch._lazy.ts_backend

        backend: Any = torch._lazy.ts_backend
        if "lazy" not in _started:
            # A second initialisation of the same process is an error inside torch; a notebook may have made the first.
            with _started_before():
                backend.init()
            _started.add("lazy")
        self._device = self._torch.device("lazy", index)
        self._metrics: Any = torch._lazy.metrics
        self.settles_everything = False

    def note_writes(self, tensors: Iterable[torch.Tensor]) -> None:
        """A step writes to ``tensors`` in place: from now on every settle materialises whatever is recorded."""
        if any(tensor.device.type == "lazy" for tensor in tensors):
            self.settles_everything = True

    def hand_over(self, outputs: object) -> None:
        """Cut the graph of ``outputs`` and run it, as a user's ``mark_step`` does."""
        if self.settles_everything:
            self._torch._lazy.mark_step(wait=False)
            return
        materialise_in(outputs, "lazy")

    def settle(self, outputs: object = None) -> None:
        """Materialise ``outputs`` (``None``, or after noted writes: everything recorded and held), then wait."""
        if outputs is None or self.settles_everything:
            self._torch._lazy.mark_step(wait=True)
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


@contextmanager
def _started_before() -> Iterator[None]:
    """Pass over what torch raises where the user's own code has started the backend; anything else is raised."""
    try:
        yield
    except RuntimeError as error:
        if "multiple backend fallbacks" not in str(error):
            raise


_started: set[str] = set()


def is_started() -> bool:
    """Whether the lazy backend of torch itself has been started in this process."""
    return bool(_started)
