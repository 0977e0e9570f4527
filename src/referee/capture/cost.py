"""What does the profiler itself cost, per row that it records? Calibrated on a chain of tiny operators, here and now.

The profiler's records are made on the thread that dispatches, so a step with many small operators becomes slower by
(host rows × cost per row). The chain is one of 1,000 adds amid a mix of other small operators, with its backward pass.
Adds alone, hot in every cache and without a tape, understate it twofold: 0.25 µs per row, where the example steps pay
0.3 to 0.8 µs and this chain 0.55 µs (torch 2.13, one thread; ``benchmarks/profiler_cost.py`` shows how well it fits).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter_ns
from typing import Any

from referee.capture.integrity import check_integrity
from referee.capture.rows import decode
from referee.capture.schedule import Cycle
from referee.capture.torch_window import TorchWindow
from referee.records.capture import Capture, CaptureOptions, ProfilerCost

CHAIN = 1000
"""Adds in the chain; with the other operators and the backward pass it has some 8,000 rows and takes 10 ms."""
_GROUPS = 50
ROUNDS = 9


def calibrate_cost(*, options: CaptureOptions) -> ProfilerCost:
    """The profiler's cost per host row with ``options``.

    Runs the chain with and without the profiler in turn, :data:`ROUNDS` times. About a second.
    """
    run = _chain()
    for _ in range(3):
        run()
    plain: list[int] = []
    profiled: list[int] = []
    rows = 0
    for _ in range(ROUNDS):
        plain.append(_timed(run))
        window = TorchWindow(Cycle(warmup_from=0, first=0, end=2), device_name="cpu", options=options)
        window.start(0)
        run()
        profiled.append(_timed(run))
        window.stop()
        rows = rows or _count_rows(window) // 2
        window.release()
    return cost_from(plain, profiled, rows=rows, options=options)


def option_costs() -> tuple[ProfilerCost, ...]:
    """What does each option cost here, beside the profiler alone (the first entry)? About ten seconds."""
    alone = CaptureOptions()
    each = (replace(alone, **{field.name: True}) for field in fields(CaptureOptions))
    return tuple(calibrate_cost(options=options) for options in (alone, *each))


def cost_from(
    plain_ns: Sequence[int], profiled_ns: Sequence[int], *, rows: int, options: CaptureOptions
) -> ProfilerCost:
    """The cost per row from paired times of a chain with ``rows`` rows: the difference of the lower quartiles.

    The lower quartile, because what else runs on the machine only ever adds, in episodes that a median does not
    survive. Low and high are the quartiles of the paired differences, widened to hold the point.
    """
    pairs = [(with_it - without) / rows for without, with_it in zip(plain_ns, profiled_ns, strict=True)]
    low, _, high = quantiles(pairs, n=4, method="inclusive")
    point = (_lower_quartile(profiled_ns) - _lower_quartile(plain_ns)) / rows
    return ProfilerCost(
        per_row_ns=point,
        low_ns=min(low, point),
        high_ns=max(high, point),
        chain=CHAIN,
        rounds=len(pairs),
        options=options,
    )


def _lower_quartile(times_ns: Sequence[int]) -> float:
    return quantiles(times_ns, n=4, method="inclusive")[0]


def corrected_step_ns(capture: Capture) -> float | None:
    """How long would the recorded step have taken without the profiler? Its median less (operator rows × cost).

    ``None`` where the cost was not calibrated, the file could not be read back, or no iteration was recorded.
    """
    checked = [file.integrity for file in capture.files if file.integrity is not None]
    if capture.cost is None or not capture.step_ns or len(checked) < len(capture.files):
        return None
    rows_per_step = sum(integrity.host_rows for integrity in checked) / len(capture.step_ns)
    return median(capture.step_ns) - rows_per_step * capture.cost.per_row_ns


def _timed(run: Callable[[], object]) -> int:
    begun = perf_counter_ns()
    run()
    return perf_counter_ns() - begun


def _count_rows(window: TorchWindow) -> int:
    """How many host rows the window holds, as the file would."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chain.json"
        window.export(path)
        file = decode(path.read_bytes())
    assert file is not None, "the chain has no name that could break its JSON"
    return check_integrity(file).host_rows


def _chain() -> Callable[[], object]:
    import torch
    from torch.nn import functional

    width = 8
    generator = torch.Generator().manual_seed(0)
    start, weight = (torch.randn(width, width, generator=generator).requires_grad_() for _ in range(2))
    other = torch.ones(width, width)

    def run() -> None:
        value: Any = start
        for _ in range(_GROUPS):
            for _ in range(CHAIN // _GROUPS):
                value = torch.add(value, other)
            value = functional.gelu(functional.layer_norm(value, (width,)) @ weight)
            value = torch.softmax(value, -1).transpose(0, 1).reshape(width, width)
            value = value * other - value.mean()
        value.sum().backward()
        start.grad = weight.grad = None

    return run
