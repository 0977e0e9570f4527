"""What does measuring add? The self-test, and an empty callable through other harnesses beside it.

python benchmarks/measuring_overhead.py
"""

from __future__ import annotations

import timeit

import torch
from measuring import machine, print_table
from torch.utils import benchmark

from referee.bench.selftest import run_selftest
from referee.device.registry import open_device


def main() -> None:
    """Print the self-test and the other harnesses' readings."""
    torch.set_num_threads(1)
    print(machine())
    found = run_selftest(device=open_device("cpu"))
    print_table(
        f"Self-test: {'passed' if found.passed else 'failed'}; subtracted per empty call {found.overhead_ns:.1f} ns, "
        f"a spin's own shell {found.shell_ns:.0f} ns",
        ["timed", "says of itself ns", "measured ns", "apart ns", "allowed ns", "within"],
        [[r.name, r.own_ns, r.measured_ns, r.error_ns, r.limit_ns, r.passed] for r in found.rows],
    )

    def empty() -> None:
        return None

    loops, total = timeit.Timer("f()", globals={"f": empty}).autorange()
    timer = benchmark.Timer("f()", globals={"f": empty}).blocked_autorange()
    print_table(
        "An empty callable elsewhere",
        ["harness", "ns a call"],
        [["timeit", total / loops * 1e9], ["torch.utils.benchmark", timer.median * 1e9]],
    )


if __name__ == "__main__":
    main()
