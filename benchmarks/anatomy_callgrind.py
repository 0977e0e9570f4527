"""Do instruction counts rank the stages as the clock does? callgrind over the same pairs, operator by operator.

    python benchmarks/anatomy_callgrind.py [--set commonest|held-out|later] [--shape 64x64] [--repeats 5]

Every side of every pair runs a fixed number of times under valgrind, which counts instructions and not time, and is
timed in some fresh processes. The two largest stages should be the same set, and the ranks agree. Valgrind has no
AVX-512 and counts each byte of a string instruction, so the kernels of ATen, MKL, oneDNN and the C library are pinned
to AVX2 without string copies on both sides (:data:`SAME_CODE`). The clock's processes lie where `referee anatomy` lies.

A stage of a thousand instructions takes 60 ns or 200, by what they are: callgrind therefore simulates caches and
branches and counts atomic instructions as well, and the stages are also held against the cycles that KCachegrind
estimates from these (:data:`CYCLES`). What agrees by cycles and not by instructions was not measured wrong.

The commonest are those of the table of operators that one training step of a transformer layer and of a small
convolutional network with Adam and clipped gradients calls most, counted below autograd; held out are the next ten,
and later ones the ten after (equal counts in the order of the table). Operators that cannot take the shape get
arguments of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from measuring import machine, print_table

COMMONEST = (
    "aten.view",
    "aten.add_.Tensor",
    "aten.sqrt",
    "aten.div.Tensor",
    "aten.transpose.int",
    "aten.mm",
    "aten.mul.Tensor",
    "aten.add.Tensor",
    "aten.clone",
    "aten.bmm",
)
HELD_OUT = (
    "aten.sum.dim_IntList",
    "aten.addmm",
    "aten.expand",
    "aten.select.int",
    "aten.relu",
    "aten.clamp",
    "aten._log_softmax",
    "aten.native_layer_norm",
    "aten.convolution",
    "aten.stack",
)
LATER = (
    "aten.permute",
    "aten.embedding",
    "aten.gelu",
    "aten.empty.memory_format",
    "aten.sub.Tensor",
    "aten.pow.Tensor_Scalar",
    "aten.neg",
    "aten.exp",
    "aten.log",
    "aten.rsqrt",
)
SETS = {"commonest": COMMONEST, "held-out": HELD_OUT, "later": LATER}

SAME_CODE = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX512VL:glibc.cpu.x86_rep_movsb_threshold=1073741824"
    ":glibc.cpu.x86_rep_stosb_threshold=1073741824",
}

COUNTS = ("--cache-sim=yes", "--branch-sim=yes", "--collect-bus=yes")
CYCLES = {
    "Ir": 1,
    **dict.fromkeys(("Bcm", "Bim", "I1mr", "D1mr", "D1mw"), 10),
    "Ge": 20,
    **dict.fromkeys(("ILmr", "DLmr", "DLmw"), 100),
}
"""Cycles by event: the weights of KCachegrind's cycle estimation (its ``CEst``), for instructions, mispredicted
branches, misses of the first caches, atomic instructions and misses of the last cache."""

TURNS = 60
MIN_RANK, MIN_AGREE_FRAC = 0.7, 0.8

Events: TypeAlias = dict[str, float]


def ladders(operators: Sequence[str], shape: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
    """The ladder of each operator, ready to be run."""
    import torch

    from referee.anatomy.arguments import Wish, make_arguments
    from referee.anatomy.operator import find_operator
    from referee.anatomy.prepare import Request, prepare
    from referee.anatomy.probe import NoProbe, load_probe
    from referee.anatomy.stages import build_ladder
    from referee.errors import RefereeError

    torch.set_num_threads(1)
    probe = load_probe()
    if isinstance(probe, NoProbe):
        raise SystemExit(probe.why)
    for name in operators:
        request = Request(operator=find_operator(name), wish=Wish(shapes=(shape,)))
        try:
            arguments = make_arguments(request.operator, request.wish)
        except RefereeError:  # it needs tensors of other shapes
            request = Request(operator=request.operator)
            arguments = make_arguments(request.operator, request.wish)
        prepared = prepare(request, arguments, probe.module)
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


def events(operators: Sequence[str], shape: tuple[int, ...]) -> dict[str, dict[str, Events]]:
    """What callgrind counts of each stage per call, by operator."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["valgrind", "--tool=callgrind", "--collect-atstart=no", *COUNTS]
        words += [f"--callgrind-out-file={folder}/out.%p", sys.executable, __file__, "--count"]
        # Children are forked to try arguments in: each process has dumps of its own.
        process, order = _child([*words, *_options(operators, shape)])
        counts = [_totals(Path(folder) / f"out.{process}.{number}") for number in range(1, len(order) + 1)]
    found: dict[str, dict[str, Events]] = {}
    for (name, stage, side), counted in zip(order, counts, strict=True):
        of = found.setdefault(name, {}).setdefault(stage, {})
        for event, number in counted.items():
            of[event] = of.get(event, 0.0) + (number if side == "upper" else -number) / TURNS
    return found


def _totals(path: Path) -> dict[str, int]:
    """The totals of one dump, by event."""
    names: list[str] = []
    for line in path.read_text().splitlines():
        if line.startswith("events:"):
            names = line.split()[1:]
        if line.startswith(("totals:", "summary:")):
            return dict(zip(names, map(int, line.split()[1:]), strict=False))  # zeros at the end are left out
    raise SystemExit(f"{path.name} holds no total")


def _options(operators: Sequence[str], shape: tuple[int, ...]) -> list[str]:
    return ["--operators", ",".join(operators), "--shape", "x".join(map(str, shape))]


def _child(words: Sequence[str]) -> Any:
    """The last line that a process of the same code paths prints."""
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **SAME_CODE})
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return json.loads(done.stdout.strip().splitlines()[-1])


def clock(operators: Sequence[str], shape: tuple[int, ...]) -> None:
    """The same stages by the clock, in this process; printed."""
    from referee.anatomy.timing import time_pairs
    from referee.cli.layout import start_again
    from referee.device.registry import open_device

    start_again("fixed", ["anatomy", operators[0]])
    device = open_device("cpu")
    found = {}
    for name, ladder in ladders(operators, shape):
        costs = time_pairs([step.pair for step in ladder.steps], device=device, budget_ns=600_000_000)
        found[name] = {cost.name: cost.hot.point for cost in costs}
    print(json.dumps(found))


def nanoseconds(operators: Sequence[str], shape: tuple[int, ...], repeats: int) -> list[dict[str, dict[str, float]]]:
    """The stages by the clock in each of some fresh processes."""
    words = [sys.executable, __file__, "--clock", *_options(operators, shape)]
    return [_child(words) for _ in range(repeats)]


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


def agree(times: Mapping[str, float], others: Mapping[str, float]) -> tuple[float, bool]:
    """The rank correlation, and whether it is high enough with the same two largest."""
    rank = spearman(list(times.values()), [others[stage] for stage in times])
    return rank, rank >= MIN_RANK and set(largest(times)[:2]) == set(largest(others)[:2])


def largest(of: Mapping[str, float]) -> list[str]:
    """The three largest stages, the largest first."""
    return sorted(of, key=of.__getitem__, reverse=True)[:3]


def judged(
    name: str, counted: Mapping[str, Events], timed: Mapping[str, Sequence[float]]
) -> tuple[bool, bool, list[Any]]:
    """Whether instructions and cycles agree with the clock, and the operator's line."""
    times = {stage: statistics.median(taken) for stage, taken in timed.items()}
    instructions = {stage: counted[stage]["Ir"] for stage in times}
    cycles = {stage: sum(CYCLES.get(event, 0) * number for event, number in counted[stage].items()) for stage in times}
    by_instructions, by_cycles = agree(times, instructions), agree(times, cycles)
    tops = [", ".join(f"{stage} {of[stage]:.0f}" for stage in largest(of)) for of in (times, instructions, cycles)]
    rates = sorted(instructions[stage] / times[stage] for stage in largest(times))
    line = [name, *_cells(by_instructions), *_cells(by_cycles), *tops, f"{rates[0]:.0f} to {rates[-1]:.0f}"]
    return by_instructions[1], by_cycles[1], line


def _cells(of: tuple[float, bool]) -> tuple[float, str]:
    return of[0], "yes" if of[1] else "NO"


def main() -> None:
    """Count, time, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", choices=tuple(SETS), default="commonest")
    parser.add_argument("--operators", help="others than those of the set, with commas between them")
    parser.add_argument("--shape", default="64x64", help="of all tensors, as 64x64")
    parser.add_argument("--repeats", type=int, choices=range(2, 11), default=5, metavar="2..10")
    parser.add_argument("--count", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--clock", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    chosen = options.operators.split(",") if options.operators else SETS[options.set]
    shape = tuple(map(int, options.shape.split("x")))
    if options.count or options.clock:
        (count if options.count else clock)(chosen, shape)
        return
    print(machine())
    counted, timed = events(chosen, shape), nanoseconds(chosen, shape, options.repeats)
    lines = [judged(n, counted[n], {s: [one[n][s] for one in timed] for s in counted[n]}) for n in chosen]
    by_instructions, by_cycles = sum(line[0] for line in lines), sum(line[1] for line in lines)
    print_table(
        f"{options.shape}, rank correlation at least {MIN_RANK} and the same two largest: by instructions in "
        f"{by_instructions} of {len(chosen)}, by estimated cycles in {by_cycles}",
        (
            "operator",
            "rank, instructions",
            "agree",
            "rank, cycles",
            "agree",
            "three largest by clock, ns",
            "by instructions",
            "by cycles",
            "instructions per ns",
        ),
        [line[2] for line in lines],
    )
    if by_instructions < MIN_AGREE_FRAC * len(chosen):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
