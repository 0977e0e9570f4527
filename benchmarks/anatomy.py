"""Do the stages hold? Agreement of two processes, one beside busy ones; planted costs; the first run and the next.

    python benchmarks/anatomy.py stability --operators 12
    python benchmarks/anatomy.py planted
    python benchmarks/anatomy.py start

``stability`` runs pairs of fresh processes, one of each pair beside two busy processes, and compares stage by stage.
``planted`` puts a cost of 300 ns into one layer of an operator and looks where it appears. ``start`` times the first
run with an empty cache and the next ones.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import repeat
from typing import Any

from measuring import busy, machine, median, print_table

OPERATORS = (
    "aten.add.Tensor",
    "aten.mul.Tensor",
    "aten.relu",
    "aten.mm",
    "aten.sum",
    "aten.cat",
    "aten._softmax",
    "aten.native_layer_norm",
    "aten.clamp",
    "aten.index_select",
    "aten.mul_.Tensor",
    "aten.exp",
)

STAGE_FRAC, STAGE_NS, WHOLE_FRAC = 0.10, 25.0, 0.05
PLANT_NS = 300.0
REPEATS = 3


def anatomy(operator: str, *, budget: str = "700ms") -> dict[str, Any]:
    """One fresh process."""
    words = [sys.executable, "-m", "referee", "anatomy", operator, "--json", "-", "--no-progress", "--budget", budget]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def stability(operators: int) -> None:
    """Each operator in a quiet and in a loaded process: stage by stage, and the whole."""
    rows, beyond, stages = [], 0, 0
    for operator in OPERATORS[:operators]:
        quiet = anatomy(operator)
        with busy(2):
            loaded = anatomy(operator)
        worst = ("", 0.0, 0.0)
        for a, b in zip(quiet["stages"], loaded["stages"], strict=True):
            stages += 1
            difference = abs(a["ns"] - b["ns"])
            outside = difference > max(STAGE_FRAC * abs(a["ns"]), STAGE_NS)
            beyond += outside
            if difference > worst[1]:
                worst = (a["name"], difference, a["ns"])
        whole = loaded["whole_ns"] / quiet["whole_ns"] - 1
        remainders = [found["remainder_ns"] / found["whole_ns"] for found in (quiet, loaded)]
        rows.append(
            (
                operator,
                quiet["whole_ns"],
                f"{whole:+.1%}",
                *(f"{r:+.1%}" for r in remainders),
                worst[0],
                worst[1],
                worst[2],
            )
        )
    print_table(
        f"quiet against busy 2: {beyond} of {stages} stages differ by more than max(10 %, 25 ns)",
        ("operator", "whole ns", "whole", "rest quiet", "rest busy", "worst stage", "differs ns", "of ns"),
        rows,
    )


def planted() -> None:
    """A cost planted in one layer must appear in the stage of that layer and in no other."""
    import torch

    from referee.anatomy.dissect import dissect
    from referee.anatomy.probe import NoProbe, load_probe
    from referee.device.registry import open_device

    torch.set_num_threads(1)
    device, probe = open_device("cpu"), load_probe()
    if isinstance(probe, NoProbe):
        raise SystemExit(probe.why)
    module = probe.module
    turns = _turns(module)

    def ladder(autocast: bool) -> dict[str, float]:
        found = dissect("aten.bmm", device=device, cold=False, autocast=autocast, budget_ns=500_000_000)
        return {**{stage.name: stage.ns for stage in found.stages}, "whole": found.whole_ns or 0.0}

    rows = []
    layers = {
        "dispatch: AutogradCPU": ("AutogradCPU", False),
        "kernel": ("CPU", False),
        "dispatch: autocast": ("AutocastCPU", True),
    }
    for stage, (key, autocast) in layers.items():
        plant = module.Plant("aten::bmm", "", key)
        rows.append(_planted_row(f"{key} kernel", stage, partial(ladder, autocast), plant.set, turns))
        plant.remove()
    rows.append(_planted_row("allocator", "output allocation", partial(ladder, False), module.plant_allocator, turns))
    print_table(
        f"{PLANT_NS:.0f} ns planted in one layer of aten.bmm, medians of {REPEATS} pairs",
        ("planted in", "stage", "rose ns", "whole rose", "most in another", "which"),
        rows,
    )


def _planted_row(
    where: str, stage: str, ladder: Callable[[], dict[str, float]], plant: Callable[[int], None], turns: int
) -> tuple[object, ...]:
    """Ladders without and with the cost in turn, so that a slow moment falls on both."""
    taken: list[dict[str, float]] = []
    for _ in range(REPEATS):
        plant(0)
        before = ladder()
        plant(turns)
        after = ladder()
        taken.append({name: after[name] - before[name] for name in before})
    plant(0)
    rose = {name: median([one[name] for one in taken]) for name in taken[0]}
    others = {name: ns for name, ns in rose.items() if name not in (stage, "whole")}
    most = max(others, key=lambda name: abs(others[name]))
    return where, stage, rose[stage], rose["whole"], others[most], most


def _turns(module: Any) -> int:
    """How many turns of the probe's idle loop take the time to be planted, its fences included: it is a short one."""

    def call_ns(turns: int) -> float:
        samples = []
        for _ in range(60):
            begun = time.perf_counter_ns()
            for _ in repeat(None, 500):
                module.spin(turns)
            samples.append((time.perf_counter_ns() - begun) / 500)
        return sorted(samples)[15]

    nothing, short, long = call_ns(0), call_ns(100), call_ns(500)
    fences = short - nothing - 100 * (long - short) / 400
    return round((PLANT_NS - fences) / ((long - short) / 400))


def start(states: tuple[int, ...] = (0, 2)) -> None:
    """The first run, which compiles, and the next two, quiet and beside busy processes."""
    rows = []
    for neighbours in states:
        with tempfile.TemporaryDirectory() as folder, busy(neighbours):
            os.environ["REFEREE_CACHE"] = folder
            took = []
            for _ in range(3):
                begun = time.perf_counter()
                anatomy("aten.add.Tensor")
                took.append(time.perf_counter() - begun)
            rows.append((f"busy {neighbours}", took[0], median(took[1:])))
    print_table("referee anatomy aten.add.Tensor", ("state", "first s", "then s"), rows)


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("stability", "planted", "start"))
    parser.add_argument("--operators", type=int, default=len(OPERATORS))
    options = parser.parse_args()
    print(machine())
    if options.what == "stability":
        stability(options.operators)
    elif options.what == "planted":
        planted()
    else:
        start()


if __name__ == "__main__":
    main()
