"""Do instruction counts rank the stages as the clock does? callgrind over the same pairs, operator by operator.

    python benchmarks/anatomy_callgrind.py [--shape 64x64]

Every side of every pair runs a fixed number of times under valgrind, which counts instructions and not time. The two
largest stages should be the same set, and the ranks agree. Needs valgrind; under it torch picks AVX2 kernels.

The operands hold 64 x 64 numbers. On 8 x 8 (``--shape 8x8``), where hardly a stage does any work, four of ten
operators fail: ``relu``, ``exp``, ``clamp`` and ``_softmax``. There the second and the third largest stage lie 1.1 to
1.4 apart by the clock, while one stage retires 1.3 to 2.6 times as many instructions per nanosecond as another (memory
for the output 12, the iterator's set-up 8, a softmax of 64 numbers 4): an order that is closer than that spread,
counting instructions cannot settle. Both are printed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from measuring import machine, print_table

OPERATORS = (
    "aten.add.Tensor",
    "aten.mul.Tensor",
    "aten.relu",
    "aten.mm",
    "aten.sum.dim_IntList",
    "aten.cat",
    "aten._softmax",
    "aten.clamp",
    "aten.index_select",
    "aten.exp",
)

TURNS = 60
MIN_RANK, MIN_AGREE = 0.7, 8


def shapes_of(name: str, shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """The shapes of its tensors: all the same, but for an index, which has one dimension."""
    return (shape, shape[:1]) if name == "aten.index_select" else (shape,)


def ladders(operators: Sequence[str], shape: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
    """The ladder of each operator, ready to be run."""
    import torch

    from referee.anatomy.arguments import Wish, make_arguments
    from referee.anatomy.operator import find_operator
    from referee.anatomy.prepare import Request, prepare
    from referee.anatomy.probe import NoProbe, load_probe
    from referee.anatomy.stages import build_ladder

    torch.set_num_threads(1)
    probe = load_probe()
    if isinstance(probe, NoProbe):
        raise SystemExit(probe.why)
    for name in operators:
        request = Request(operator=find_operator(name), wish=Wish(shapes=shapes_of(name, shape)))
        prepared = prepare(request, make_arguments(request.operator, request.wish), probe.module)
        yield name, build_ladder(prepared.subject, probe.module)


def count(operators: Sequence[str], shape: tuple[int, ...]) -> None:
    """Under callgrind: each side once, with a dump behind it; the order is printed."""
    import torch

    order: list[tuple[str, str, str]] = []
    for name, ladder in ladders(operators, shape):
        for step in ladder.steps:
            for side, timed in (("upper", step.pair.upper), ("lower", step.pair.lower)):
                loop = timed.loop()
                with timed.context():
                    loop(20)
                    torch._C._valgrind_toggle()
                    loop(TURNS)
                    torch._C._valgrind_toggle_and_dump_stats()
                order.append((name, step.pair.name, side))
    print(json.dumps([os.getpid(), order]))


def instructions(operators: Sequence[str], shape: tuple[int, ...]) -> dict[str, dict[str, float]]:
    """Instructions of each stage per call, by operator."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["valgrind", "--tool=callgrind", "--collect-atstart=no", f"--callgrind-out-file={folder}/out.%p"]
        child = [sys.executable, __file__, "--count", "--operators", ",".join(operators)]
        child += ["--shape", "x".join(map(str, shape))]
        done = subprocess.run([*words, *child], capture_output=True, text=True, env={**os.environ, "PYTHONMALLOC": ""})
        if done.returncode:
            raise SystemExit(done.stderr[-2000:])
        # Children are forked to try arguments in: each process has dumps of its own.
        process, order = json.loads(done.stdout.strip().splitlines()[-1])
        counts = [_total(Path(folder) / f"out.{process}.{number}") for number in range(1, len(order) + 1)]
    found: dict[str, dict[str, float]] = {}
    for (name, stage, side), instructions_ in zip(order, counts, strict=True):
        stages = found.setdefault(name, {})
        stages[stage] = stages.get(stage, 0.0) + (instructions_ if side == "upper" else -instructions_) / TURNS
    return found


def _total(path: Path) -> int:
    for line in path.read_text().splitlines():
        if line.startswith(("totals:", "summary:")):
            return int(line.split()[1])
    raise SystemExit(f"{path.name} holds no total")


def nanoseconds(operators: Sequence[str], shape: tuple[int, ...]) -> dict[str, dict[str, float]]:
    """The same stages by the clock."""
    from referee.anatomy.timing import time_pairs
    from referee.device.registry import open_device

    device = open_device("cpu")
    found = {}
    for name, ladder in ladders(operators, shape):
        costs = time_pairs([step.pair for step in ladder.steps], device=device, budget_ns=600_000_000)
        found[name] = {cost.name: cost.hot.point for cost in costs}
    return found


def ranks(values: Sequence[float]) -> list[int]:
    """The place of each value when they are put in order."""
    order = sorted(range(len(values)), key=lambda k: values[k])
    places = [0] * len(values)
    for place, k in enumerate(order):
        places[k] = place
    return places


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Rank correlation without ties."""
    n = len(first)
    squares = sum((a - b) ** 2 for a, b in zip(ranks(first), ranks(second), strict=True))
    return 1 - 6 * squares / (n * (n * n - 1))


def main() -> None:
    """Count, time, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operators", default=",".join(OPERATORS))
    parser.add_argument("--shape", default="64x64", help="of all tensors, as 64x64")
    parser.add_argument("--count", action="store_true")
    options = parser.parse_args()
    chosen = options.operators.split(",")
    shape = tuple(map(int, options.shape.split("x")))
    if options.count:
        count(chosen, shape)
        return
    print(machine())
    counted, timed = instructions(chosen, shape), nanoseconds(chosen, shape)
    rows, agree = [], 0
    for name in chosen:
        stages = [stage for stage in timed[name] if stage in counted[name]]
        by_clock, by_count = [timed[name][s] for s in stages], [counted[name][s] for s in stages]
        rank = spearman(by_clock, by_count)
        first = [sorted(stages, key=lambda s, of=of: -of[s])[:3] for of in (timed[name], counted[name])]
        good = rank >= MIN_RANK and set(first[0][:2]) == set(first[1][:2])
        agree += good
        words = [
            ", ".join(f"{s} {of[s]:.0f}" for s in top)
            for top, of in zip(first, (timed[name], counted[name]), strict=True)
        ]
        apart = [
            f"{of[top[1]] / max(of[top[2]], 1):.2f}"
            for top, of in zip(first, (timed[name], counted[name]), strict=True)
        ]
        rates = sorted(counted[name][stage] / timed[name][stage] for stage in first[0])
        rows.append(
            (name, rank, *words, " / ".join(apart), f"{rates[0]:.0f} to {rates[-1]:.0f}", "yes" if good else "NO")
        )
    print_table(
        f"{options.shape}: same two largest and rank correlation at least {MIN_RANK} in {agree} of {len(chosen)}"
        f" (limit {MIN_AGREE})",
        (
            "operator",
            "rank",
            "three largest by clock, ns",
            "three largest by instructions",
            "2nd to 3rd",
            "per ns",
            "agree",
        ),
        rows,
    )
    if agree < MIN_AGREE * len(chosen) / len(OPERATORS):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
