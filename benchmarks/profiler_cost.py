"""How well does the calibrated cost of the profiler explain what it costs? And what does waiting cost?

    python benchmarks/profiler_cost.py [--rounds N] [--steps WORD] [--options OPTION …] [--busy N] [--threads N]

The cost is calibrated on a chain of 1,000 adds, anew in each round, and applied to steps that take no part in the
calibration. When the chain's make was chosen (which operators lie amid the adds, and how many), the first eleven steps
were looked at; those of ``UNSEEN`` were written afterwards, and nothing was chosen by them. Profiled and unprofiled
iterations take turns (eight cycles of one capture), so that a machine that drifts drifts for both. Corrected profiled
over unprofiled step should be 1.00; within 15 % is the limit. ``--busy`` runs that many processes in an endless loop
beside it. The last line is the time that a capture's ``step()`` takes while the plan waits, beside an empty method.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

import torch
from profiler_cost_steps import STEPS, Step

from referee.capture import Capture, Plan, capture
from referee.capture.cost import correction_ratio, lower_quartile
from referee.device.registry import open_device
from referee.records.capture import Capture as Record
from referee.records.capture import CaptureOptions
from referee.units import NS_PER_MS, format_ns

LIMIT_FRAC = 0.15
PLAN = Plan.of(wait=6, warmup=1, active=5, repeat=8)


def take(step: Step, options: CaptureOptions) -> Record:
    """One capture with its own calibration."""
    with tempfile.TemporaryDirectory() as folder:
        return capture(
            step, device=open_device("cpu"), dtype="float32", shapes=(), out_dir=folder, name="t", plan=PLAN,
            options=options, timing_budget_ns=20 * NS_PER_MS,
        )  # fmt: skip


def agreement(rounds: int, steps: dict[str, Callable[[], Step]], options: CaptureOptions) -> None:
    """Uncorrected and corrected profiled step over the unprofiled one, round by round."""
    print(f"options: {options.words()}; limit {1 - LIMIT_FRAC:.2f} to {1 + LIMIT_FRAC:.2f}")
    heads = f"{'step':26}{'unprofiled':>11}{'row':>8}{'node':>8}{'mark':>9}{'raw':>7}"
    print(f"{heads}  corrected / unprofiled, round by round")
    within = total = 0
    for name, build in steps.items():
        step = build()
        records = [take(step, options) for _ in range(rounds)]
        ratios = [correction_ratio(record) or 0.0 for record in records]
        costs = [record.cost for record in records if record.cost is not None]
        alone = median(lower_quartile(record.unprofiled_ns) for record in records)
        raw = median(lower_quartile(record.step_ns) / lower_quartile(record.unprofiled_ns) for record in records)
        hits = sum(abs(ratio - 1) <= LIMIT_FRAC for ratio in ratios)
        within, total = within + hits, total + rounds
        fields = ("per_row_ns", "per_backward_ns", "per_step_ns")
        row, node, mark = (format_ns(median(getattr(cost, field) for cost in costs)) for field in fields)
        listed = " ".join(f"{ratio:.3f}" for ratio in ratios)
        print(
            f"{name:26}{format_ns(alone):>11}{row:>8}{node:>8}{mark:>9}{raw:7.3f}  {listed}  {hits} of {rounds}",
            flush=True,
        )
    print(f"within {LIMIT_FRAC:.0%}: {within} of {total}")


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
        print(f"waiting: {format_ns(timed(waits.step))} a step; an empty method: {format_ns(timed(Nothing().step))}")


def _spin() -> None:
    while True:
        pass


@contextmanager
def busy(count: int) -> Iterator[None]:
    """That many processes in an endless loop."""
    spinning = [multiprocessing.get_context("spawn").Process(target=_spin, daemon=True) for _ in range(count)]
    for process in spinning:
        process.start()
    try:
        yield
    finally:
        for process in spinning:
            process.terminate()
            process.join()


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", default="", help="only those whose name holds this")
    parser.add_argument("--options", nargs="*", default=[], help="shapes, stacks, memory, flops, modules")
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    steps = {name: build for name, build in STEPS.items() if args.steps in name}
    with busy(args.busy):
        agreement(args.rounds, steps, CaptureOptions(**dict.fromkeys(args.options, True)))
        waiting()


if __name__ == "__main__":
    main()
