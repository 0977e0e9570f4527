"""How well does the calibrated cost of the profiler explain what it costs? And what does waiting cost?

    python benchmarks/profiler_cost.py [ROUNDS [OPTION ...]]

The cost per host row is calibrated on a chain of 1,000 adds and applied to steps it has never seen: the corrected
profiled step over the unprofiled one should be 1.00; within 15 % is the target. The second table is the time that a
capture's ``step()`` takes while the plan waits, beside an empty method call.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from referee.capture import Capture, Plan, capture
from referee.capture.cost import corrected_step_ns
from referee.device.registry import open_device
from referee.records.capture import CaptureOptions
from referee.units import NS_PER_MS, format_ns

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
STEPS = [
    ("transformer", "train_step", 8),
    ("transformer", "train_step", 2),
    ("convnet", "train_step", 8),
    ("convnet", "train_step", 2),
    ("convnet", "infer", 4),
    ("inference", "without", 8),
    ("inference", "with_inference_mode", 8),
]
PLAN = Plan.of(wait=0, warmup=2, active=20, repeat=1)


def load(file: str, name: str) -> Callable[..., Any]:
    """The factory ``name`` of an example."""
    spec = importlib.util.spec_from_file_location(file, EXAMPLES / f"{file}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def agreement(rounds: int, options: CaptureOptions) -> None:
    """Corrected and uncorrected profiled step over the unprofiled one, for each example."""
    print(f"\noptions: {options.words()}")
    print(f"{'step':32}{'unprofiled':>12}{'cost/row':>10}{'uncorrected':>13}{'corrected':>11}  within 15 %")
    for file, name, batch in STEPS:
        step = load(file, name)(batch_size=batch)
        found: list[tuple[float, float, float, float]] = []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as folder:
                record = capture(
                    step, device=open_device("cpu"), dtype="float32", shapes=(), out_dir=folder, name="t", plan=PLAN,
                    options=options, timing_budget_ns=400 * NS_PER_MS,
                )  # fmt: skip
            corrected, alone = corrected_step_ns(record), record.unprofiled_step_ns
            assert corrected is not None
            assert alone is not None
            assert record.cost is not None
            found.append((alone, record.cost.per_row_ns, median(record.step_ns) / alone, corrected / alone))
        alone, cost, raw, ratio = (median(column) for column in zip(*found, strict=True))
        hits = sum(abs(row[3] - 1) <= 0.15 for row in found)
        label = f"{file}:{name} b={batch}"
        print(f"{label:32}{format_ns(alone):>12}{format_ns(cost):>10}{raw:13.3f}{ratio:11.3f}  {hits} of {rounds}")


def waiting(calls: int = 200_000) -> None:
    """What ``step()`` costs while the plan waits."""

    class Nothing:
        def step(self) -> None:
            """Nothing."""

    def timed(call: Callable[[], None]) -> float:
        best = float("inf")
        for _ in range(5):
            begun = time.perf_counter_ns()
            for _ in range(calls):
                call()
            best = min(best, (time.perf_counter_ns() - begun) / calls)
        return best

    with tempfile.TemporaryDirectory() as folder:
        waits = Capture(out_dir=folder, name="w", plan=Plan.of(wait=10**9, warmup=0, active=1), calibrate=False)
        waits._session.recorder.begin()
        print(f"\nwaiting: {format_ns(timed(waits.step))} a step; an empty method: {format_ns(timed(Nothing().step))}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    agreement(count, CaptureOptions(**dict.fromkeys(sys.argv[2:], True)))
    waiting()
