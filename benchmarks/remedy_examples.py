"""Does ``referee remedy`` find a gain where code written by hand does? The three examples, both ways in one run.

    python benchmarks/remedy_examples.py                    # or --example inference, one at a time

By hand means: the change written out as its documentation says, on a step built for it, and a plain loop of
``time.perf_counter`` that calls the two steps in turn. Nothing of Referee is in it. The last rows are planted changes
of dtype and of values, which must be rejected.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from referee.device.registry import open_device
from referee.records.remedy import FixTried
from referee.remedy.attempt import attempt
from referee.remedy.fix import Fix
from referee.remedy.fixes import fix_named, rewrite
from referee.target import Target, load_target
from referee.units import NS_PER_S

Step = Callable[[], Any]
FOLDER = Path(__file__).resolve().parents[1] / "examples"
REWRITE = f"{FOLDER / 'inference.py'}:with_inference_mode"
"""The example's own other way, as the user would name it with ``--with``."""
GAIN, LOSS = 0.98, 1.02
"""By hand a ratio between these two is neither: the plain loop is no better than that."""


def fused(step: Step) -> Step:
    """The optimizer built again as it was, fused; the step's closure is given the new one."""
    old = step.optimizer
    options = {k: v for k, v in old.defaults.items() if k in ("lr", "momentum", "betas", "eps", "weight_decay")}
    new = type(old)(step.model.parameters(), **options, fused=True)
    cell = next(c for c in step.__closure__ if c.cell_contents is old)
    cell.cell_contents = new
    return step


def compiled_model(step: Step) -> Step:
    """The model compiled in place, as for training."""
    step.model.compile()
    return step


def channels_last(step: Step) -> Step:
    """Weights and images laid out anew."""
    step.model.to(memory_format=torch.channels_last)
    for cell in step.__closure__:
        held = cell.cell_contents
        if isinstance(held, torch.Tensor) and held.dim() == 4:
            cell.cell_contents = held.contiguous(memory_format=torch.channels_last)
    return step


def inference_mode(step: Step) -> Step:
    """The step inside the mode."""

    def within() -> Any:
        with torch.inference_mode():
            return step()

    return within


def no_grad(step: Step) -> Step:
    """The step without its tape."""

    def within() -> Any:
        with torch.no_grad():
            return step()

    return within


def frozen(step: Step) -> Step:
    """No parameter asks for a gradient."""
    step.model.requires_grad_(False)
    return step


EXAMPLES: Mapping[str, tuple[str, int, Mapping[str, Callable[[Step], Step]]]] = {
    "transformer": ("train_step", 8, {"fused-optimizer": fused, "compile": compiled_model}),
    "convnet": ("train_step", 8, {"channels-last": channels_last, "fused-optimizer": fused}),
    "inference": (
        "without",
        8,
        {
            "inference-mode": inference_mode,
            "no-grad": no_grad,
            "freeze": frozen,
            "compile": torch.compile,
            REWRITE: lambda step: load_target(REWRITE, batch_size=8).step,
        },
    ),
}
PLANTED: Mapping[str, Callable[[Any], Any]] = {
    "planted: float64": lambda y: y.double(),
    "planted: 0.1 % off": lambda y: y * 1.001,
}


def loader(example: str) -> Callable[[], Target]:
    """Builds the example anew."""
    name, batch, _ = EXAMPLES[example]
    return lambda: load_target(f"{FOLDER / example}.py:{name}", batch_size=batch)


def by_hand(example: str, change: Callable[[Step], Step], *, seconds: float) -> float:
    """Time with the change / time without, from a plain loop."""
    load = loader(example)
    before, after = load().step, change(load().step)
    for step in (before, after) * 5:
        step()
    took: dict[int, list[float]] = {0: [], 1: []}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for number in (0, 1, 1, 0):
            start = time.perf_counter()
            (before, after)[number]()
            took[number].append(time.perf_counter() - start)
    return statistics.median(took[1]) / statistics.median(took[0])


def by_remedy(example: str, fix: Fix, *, seconds: float) -> FixTried:
    """What ``referee remedy`` says of the fix."""
    device = open_device("cpu")
    return attempt(fix, loader(example), device=device, budget_ns=round(seconds * NS_PER_S)).fixes[0]


def agree(hand: float, tried: FixTried) -> str:
    """A gain by hand must be found, and none may be found where the hand sees a loss."""
    if hand < GAIN:
        return "yes" if tried.gained else "**no**"
    return "**no**" if hand > LOSS and tried.gained else "yes"


def main() -> None:
    """Read the options, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--example", action="append", choices=list(EXAMPLES))
    parser.add_argument("--seconds", type=float, default=2.0, help="of timing, for each way")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print("| example | fix | by hand | referee remedy | interval | answer | agree |\n|---|---|---|---|---|---|---|")
    for example in args.example or list(EXAMPLES):
        for name, change in EXAMPLES[example][2].items():
            fix = fix_named(name) or rewrite(name, lambda: load_target(REWRITE, batch_size=8))
            torch.compiler.reset()
            hand = by_hand(example, change, seconds=args.seconds)
            torch.compiler.reset()
            tried = by_remedy(example, fix, seconds=args.seconds)
            ratio = "–" if tried.measured_ratio is None else f"{tried.measured_ratio:.3f}"
            interval = "–" if tried.ci_low is None else f"{tried.ci_low:.3f} to {tried.ci_high:.3f}"
            answer = tried.answer or tried.why_not
            row = (example, name.rpartition("/")[2], f"{hand:.3f}", ratio, interval, answer, agree(hand, tried))
            print(f"| {' | '.join(row)} |", flush=True)
        for name, spoil in PLANTED.items():
            fix = Fix(
                name=name,
                title=name,
                how="",
                attacks="",
                apply=lambda loaded, _, spoil=spoil: lambda: spoil(loaded.step()),
            )
            tried = by_remedy(example, fix, seconds=args.seconds)
            rejected = tried.outputs_match is False and tried.measured_ratio is None
            print(f"| {example} | {name} | – | – | – | {tried.why_not} | {'yes' if rejected else '**no**'} |")


if __name__ == "__main__":
    main()
