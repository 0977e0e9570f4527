"""How often is the same called different, and a difference missed? A/A trials and planted slow-downs.

    python benchmarks/measuring_compare.py
    python benchmarks/measuring_compare.py --append compare.jsonl --seconds 100   # again until complete

A/A: the same object on both sides, and separately built twins, anew for each trial. Slow-downs are planted by call
count, on a side drawn by chance: 100 calls against 103 or 101 of the tiny add; 33 against 34 (+3.03 %) and 100 against
101 of a Linear(64, 64). Linear(512, 512), 33 against 34, is a step of 12 ms: it shows what long steps come to.
Beside them stands how far apart two readings of the same object are in torch.utils.benchmark, timeit and
pytest-benchmark, one after the other, as one compares with them.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from measuring import (
    STATES,
    Slice,
    Store,
    add_slice_arguments,
    busy,
    machine,
    make_operation,
    median,
    print_table,
    repeated,
    verdict,
)
from measuring_load import other_harnesses

import referee.bench.compare
from referee.bench.compare import Candidate
from referee.bench.plan import Plan
from referee.device.registry import open_device
from referee.units import NS_PER_S

Step = Callable[[], object]
Kind = Literal["same", "twins", "planted"]


@dataclass(frozen=True)
class Case:
    """One row of the table: what is compared, for how long, how often, and what must come of it."""

    name: str
    kind: Kind
    op: str
    budget_s: float
    trials: int
    states: tuple[str, ...]
    base: int = 1
    more: int = 1
    most_false: float = 0.0
    """Of the trials, at most this share called different (A/A)."""
    least_right: dict[str, float] | None = None
    """Of the trials, at least this share answered rightly, by state; ``None``: no limit is set."""
    worst: float | None = None
    """No estimate may be further from the truth."""

    def draw(self, chance: random.Random) -> tuple[Step, Step, float]:
        """Two sides and the true ratio of B to A."""
        one = make_operation(self.op)
        if self.kind == "same":
            return one, one, 1.0
        if self.kind == "twins":
            return one, make_operation(self.op), 1.0
        short, long = repeated(one, self.base), repeated(one, self.more)
        if chance.random() < 0.5:
            return short, long, self.more / self.base
        return long, short, self.base / self.more


BOTH, ALL = ("quiet", "busy 2"), ("quiet", "busy 2", "busy 4")


def _cases() -> list[Case]:
    cases = []
    for op in ("add", "linear"):
        same = {"quiet": 0.8, "busy 2": 0.8}
        cases += [
            Case(f"{op} A/A", "same", op, 1.0, 200, BOTH, most_false=0.01, least_right=same, worst=0.01),
            Case(f"{op} A/A twins", "twins", op, 1.0, 200, BOTH, most_false=0.05),
            Case(f"{op} A/A 5 s", "same", op, 5.0, 20, BOTH, most_false=0.01, least_right=same, worst=0.01),
        ]
    three, one = {"quiet": 0.95, "busy 2": 0.95, "busy 4": 0.85}, {"quiet": 0.9, "busy 2": 0.9}
    for op, base in (("add", 100), ("small", 33)):
        more = base + max(1, base * 3 // 100)
        cases += [
            Case(f"{op} +3 %", "planted", op, 1.0, 100, ALL, base=base, more=more, least_right=three),
            Case(f"{op} +1 %", "planted", op, 2.0, 100, BOTH, base=100, more=101, least_right=one),
        ]
    cases.append(Case("linear +3 % (12 ms)", "planted", "linear", 1.0, 20, ALL, base=33, more=34))
    return cases


def trial(case: Case, *, seed: int) -> dict[str, Any]:
    """One comparison: the answer, the true one, and how far the estimate was off."""
    a, b, ratio = case.draw(random.Random(seed))
    began = time.perf_counter()
    found = referee.bench.compare.compare(
        [Candidate(name="a", step=a), Candidate(name="b", step=b)],
        device=open_device("cpu"),
        plan=Plan(budget_ns=int(case.budget_s * NS_PER_S)),
    )
    return {
        "answer": found.answer,
        "truth": "slower" if ratio > 1 else "faster" if ratio < 1 else "same",
        "off": None if found.ratio is None else found.ratio / ratio - 1,
        "floor": found.pairs[0].floor_frac,
        "quads": found.pairs[0].clean_quads,
        "s": time.perf_counter() - began,
    }


def others(op: str) -> dict[str, float]:
    """How much longer the second of two readings of the same object is, by other harnesses."""
    step = make_operation(op)
    first, second = other_harnesses(step), other_harnesses(step)
    return {name: second[name] / first[name] - 1 for name in first}


def run(store: Store, cases: list[Case], options: argparse.Namespace) -> None:
    """Trials in turn, case by case and state by state, until all are there or the slice is over."""
    slice_ = Slice(options.seconds)
    for turn in range(max([case.trials for case in cases] + [options.others])):
        for state in options.states.split(","):
            due = [case for case in cases if state in case.states and turn < min(case.trials, options.trials)]
            due = [case for case in due if len(store.of(case=case.name, state=state)) <= turn]
            compared = [
                op for op in ("add", "linear") if len(store.of(others=op, state=state)) <= turn < options.others
            ]
            if not due and not compared:
                continue
            with busy(STATES[state]):
                for case in due:
                    if slice_.over(next_s=case.budget_s):
                        return
                    store.add(case=case.name, state=state, **trial(case, seed=turn))
                for op in compared:
                    if slice_.over(next_s=10.0):
                        return
                    store.add(others=op, state=state, **others(op))


def report(store: Store, cases: list[Case], states: list[str]) -> None:
    """Each case in each state, every figure beside its limit."""
    rows = []
    for case in cases:
        for state in (state for state in case.states if state in states):
            found = store.of(case=case.name, state=state)
            if found:
                rows.append([state, case.name, *_judged(case, state, found)])
    columns = ["state", "case", "trials", "right", "limit", "cannot tell", "false", "limit", "wrong sign"]
    print_table("Comparison", [*columns, "worst estimate", "limit", "s", "verdict"], rows)
    rows = []
    for op in ("add", "linear"):
        for state in states:
            read = store.of(others=op, state=state)
            own = [abs(row["off"]) for row in store.of(case=f"{op} A/A", state=state) if row["off"] is not None]
            if read and own:
                named = [[abs(row[name]) for row in read] for name in ("torch", "timeit", "pytest")]
                rows.append([state, op, *(f"{median(off):.1%} / {max(off):.1%}" for off in (own, *named))])
    if rows:
        title = "The same object twice: how far apart, median and worst"
        print_table(title, ["state", "op", "Referee", "torch Timer", "timeit", "pytest-benchmark"], rows)


def _judged(case: Case, state: str, found: list[dict[str, Any]]) -> list[object]:
    answers = Counter("right" if row["answer"] == row["truth"] else row["answer"] for row in found)
    count, right = len(found), answers["right"]
    called = sum(row["answer"] in ("slower", "faster") for row in found)
    false = called if case.kind != "planted" else 0
    wrong = called - right if case.kind == "planted" else 0
    worst = max((abs(row["off"]) for row in found if row["off"] is not None), default=0.0)
    least = None if case.least_right is None else case.least_right.get(state)
    holds = false <= case.most_false * count and wrong == 0
    holds = holds and (least is None or right >= least * count) and (case.worst is None or worst <= case.worst)
    return [
        count,
        right,
        "" if least is None else f">= {least * count:.0f}",
        answers["cannot-tell"],
        "" if case.kind == "planted" else false,
        "" if case.kind == "planted" else f"<= {case.most_false * count:.0f}",
        wrong if case.kind == "planted" else "",
        f"{worst:.2%}",
        "" if case.worst is None else f"<= {case.worst:.0%}",
        sum(row["s"] for row in found) / count,
        verdict(holds),
    ]


def main() -> None:
    """Run the trials and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=200, help="most trials of a case")
    parser.add_argument("--others", type=int, default=3, help="readings of the other harnesses, by state and operation")
    parser.add_argument("--cases", help="only those whose name contains this")
    add_slice_arguments(parser)
    options = parser.parse_args()
    torch.set_num_threads(1)
    store, cases = Store(options.append), _cases()
    if options.cases is not None:
        cases = [case for case in cases if options.cases in case.name]
    if not options.table:
        print(machine())
        run(store, cases, options)
    report(store, cases, options.states.split(","))


if __name__ == "__main__":
    main()
