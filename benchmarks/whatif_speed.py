"""How long does a replay of a million moments take? Beside its limit of 3 s.

python benchmarks/whatif_speed.py
"""

from __future__ import annotations

import time

from referee.graph.build import build_graph
from referee.graph.path import schedule
from referee.testing import Workload, simulate
from referee.whatif.tighten import tighten

LIMIT_S = 3.0
STEPS, OPS = 10, 17_000
ROUNDS = 3


def main() -> None:
    """Build a graph from a simulated trace and replay it."""
    trace = simulate(Workload(steps=STEPS, ops=OPS), seed=1).trace
    began = time.perf_counter()
    graph = tighten(build_graph(trace), trace)
    built_s = time.perf_counter() - began
    took = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        schedule(graph)
        took.append(time.perf_counter() - began)
    print("| moments | edges | built | replayed, each round | limit |\n|---|---|---|---|---|")
    rounds = ", ".join(f"{seconds:.2f} s" for seconds in took)
    print(f"| {len(graph):,} | {graph.kind.size:,} | {built_s:.2f} s | {rounds} | {LIMIT_S:g} s |")


if __name__ == "__main__":
    main()
