"""How long does the step take when nothing is launched one by one? A CUDA graph of the step, as a step of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from referee.device.host import load_torch
from referee.errors import OptionError, StepError

WARMUP_CALLS = 3
"""Calls on a side stream before capturing, as torch's documentation asks: libraries allocate in the first ones."""


def capture_graph(step: Callable[[], object], *, device: str, pool: Any = None) -> Callable[[], object]:
    """A step that replays ``step`` as one CUDA graph and returns the (static) outputs of the capture.

    Every replay writes to the same memory and reads the inputs that the capture read; work that the step did on the
    host, or on streams that do not join the captured one, is not in it, so outputs must be compared with the eager
    step's before a replayed time is believed. Raises :class:`~referee.errors.StepError` with the first line of CUDA's
    own reason if the step cannot be captured (it synchronises, copies to pageable memory, allocates outside torch).
    """
    torch = load_torch()
    place = torch.device(device)
    if place.type != "cuda":
        raise OptionError(f"Graph replay needs a CUDA device, not {device}.")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(place):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARMUP_CALLS):
                step()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        try:
            with torch.cuda.graph(graph, pool=pool):
                outputs = step()
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__
            raise StepError(
                f"The step cannot be captured as a CUDA graph: {reason}.",
                hint="Remove what synchronises inside the step: item(), nonzero(), copies to the host.",
            ) from error

    def replay() -> object:
        graph.replay()
        return outputs

    return replay
