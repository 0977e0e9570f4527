"""How often is the same called different, and a difference missed? A/A trials and planted slow-downs.

    python benchmarks/measuring_compare.py --trials 200

A/A: the same object on both sides, and separately built twins. Slow-downs are planted by call count (100 against 101
or 103 calls), on either side at random.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable

import torch
from measuring import busy, machine, make_operation, print_table, repeated

import referee.bench.compare
from referee.bench.compare import Candidate
from referee.bench.plan import Plan
from referee.device.protocol import Device
from referee.device.registry import open_device
from referee.units import NS_PER_S

Pair = Callable[[random.Random], tuple[Callable[[], object], Callable[[], object], float]]


def same_object(operation: str) -> Pair:
    """A against itself."""
    step = make_operation(operation)
    return lambda _: (step, step, 1.0)


def twins(operation: str) -> Pair:
    """Two that were built separately, anew for each trial."""
    return lambda _: (make_operation(operation), make_operation(operation), 1.0)


def planted(operation: str, *, base: int, more: int) -> Pair:
    """``base`` calls against ``more``, the longer one on a side drawn by chance."""
    one = make_operation(operation)
    short, long = repeated(one, base), repeated(one, more)

    def draw(random_: random.Random) -> tuple[Callable[[], object], Callable[[], object], float]:
        if random_.random() < 0.5:
            return short, long, more / base
        return long, short, base / more

    return draw


def trials(pair: Pair, *, count: int, budget_s: float, device: Device) -> dict[str, object]:
    """Answers of so many comparisons, and the worst estimate."""
    random_ = random.Random(1)
    answers: Counter[str] = Counter()
    wrong, worst = 0, 0.0
    began = time.perf_counter()
    for _ in range(count):
        a, b, ratio = pair(random_)
        found = referee.bench.compare.compare(
            [Candidate(name="a", step=a), Candidate(name="b", step=b)],
            device=device,
            plan=Plan(budget_ns=int(budget_s * NS_PER_S)),
        )
        truth = "slower" if ratio > 1 else "faster" if ratio < 1 else "same"
        answers["right" if found.answer == truth else found.answer] += 1
        wrong += found.answer in ("slower", "faster") and found.answer != truth
        if found.ratio is not None:
            worst = max(worst, abs(found.ratio / ratio - 1))
    return {
        "right": answers["right"],
        "cannot tell": answers["cannot-tell"],
        "other": sum(answers.values()) - answers["right"] - answers["cannot-tell"],
        "false or wrong sign": wrong,
        "worst estimate": f"{worst:.2%}",
        "s a trial": (time.perf_counter() - began) / count,
    }


def main() -> None:
    """Run the trials state by state and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--busy", default="0,2,4")
    options = parser.parse_args()
    torch.set_num_threads(1)
    device = open_device("cpu")
    print(machine())
    rows = []
    for neighbours in map(int, options.busy.split(",")):
        cases: list[tuple[str, Pair, int, float]] = [
            ("add A/A, same object, 1 s", same_object("add"), options.trials, 1.0),
            ("Linear A/A, same object, 1 s", same_object("linear"), options.trials, 1.0),
            ("add A/A, twins, 1 s", twins("add"), options.trials, 1.0),
            ("Linear A/A, twins, 1 s", twins("linear"), options.trials, 1.0),
            ("Linear A/A, same object, 5 s", same_object("linear"), max(1, options.trials // 10), 5.0),
            ("add, +3 %, 1 s", planted("add", base=100, more=103), options.trials // 2, 1.0),
            ("add, +1 %, 2 s", planted("add", base=100, more=101), options.trials // 2, 2.0),
        ]
        with busy(neighbours):
            for name, pair, count, budget_s in cases:
                if count:
                    found = trials(pair, count=count, budget_s=budget_s, device=device)
                    rows.append([f"busy {neighbours}", name, count, *found.values()])
                    columns = ["state", "case", "trials", *found]
    print_table("Comparison", columns, rows)


if __name__ == "__main__":
    main()
