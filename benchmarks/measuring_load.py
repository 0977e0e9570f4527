"""Does the number hold beside busy processes? Fresh processes, quiet and loaded, against the quiet floor.

    python benchmarks/measuring_load.py --processes 20

Each fresh process measures one operation with Referee's defaults, and with torch.utils.benchmark and timeit beside it.
The reference is the median of the quiet floors. States are taken in turn, so that all see the same minutes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import Any

from measuring import busy, machine, make_operation, median, print_table, spread

STATES = {"quiet": 0, "busy 2": 2, "busy 4": 4}
TOLERANCE = 0.03
MEDIAN_TOLERANCE = 0.04


def child(operation: str) -> None:
    """Measure once and print the figures as JSON."""
    import timeit

    import torch
    from torch.utils import benchmark

    import referee.bench.measure
    from referee.device.registry import open_device

    torch.set_num_threads(1)
    began = time.perf_counter()
    step = make_operation(operation)
    found = referee.bench.measure.measure(step, device=open_device("cpu"))
    wall = time.perf_counter() - began
    timer = benchmark.Timer("step()", globals={"step": step}).blocked_autorange()
    loops, total = timeit.Timer("step()", globals={"step": step}).autorange()
    print(
        json.dumps(
            {
                "floor": found.floor_ns,
                "median": found.median_ns,
                "codes": [finding.code for finding in found.findings],
                "clean": sum(found.clean) / len(found.clean),
                "wall": wall,
                "torch": timer.median * 1e9,
                "timeit": total / loops * 1e9,
            }
        )
    )


def main() -> None:
    """Run the processes and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=20)
    parser.add_argument("--operations", default="add,linear")
    parser.add_argument("--child")
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return
    print(machine())
    for operation in options.operations.split(","):
        taken: dict[str, list[dict[str, Any]]] = {state: [] for state in STATES}
        for _ in range(options.processes):
            for state, count in STATES.items():
                with busy(count):
                    done = subprocess.run(
                        [sys.executable, __file__, "--child", operation], capture_output=True, text=True, check=True
                    )
                taken[state].append(json.loads(done.stdout.splitlines()[-1]))
        report(operation, taken)


def report(operation: str, taken: dict[str, list[dict[str, Any]]]) -> None:
    """Errors against the quiet floor, state by state."""
    reference = median([one["floor"] for one in taken["quiet"] if one["floor"]])
    rows = []
    for state, results in taken.items():
        floors = [one["floor"] for one in results if one["floor"]]
        errors = [abs(floor / reference - 1) for floor in floors]
        flagged = [one for one in results if "disturbed" in one["codes"] or one["median"] is None]
        calm = [one["median"] / reference - 1 for one in results if one not in flagged]
        rows.append(
            [
                state,
                f"{sum(e <= TOLERANCE for e in errors)}/{len(results)}",
                f"{max(errors, default=0):.1%}",
                spread(floors) if floors else "-",
                f"{len(flagged)}",
                f"{max((abs(e) for e in calm), default=0):.1%}",
                f"{max(one['wall'] for one in results):.2f}",
                f"{min(one['clean'] for one in results):.0%}",
                f"{max(abs(one['torch'] / reference - 1) for one in results):.0%}",
                f"{max(abs(one['timeit'] / reference - 1) for one in results):.0%}",
            ]
        )
    print_table(
        f"{operation}: quiet floor {reference:,.0f} ns",
        [
            "state",
            "floor within 3 %",
            "worst floor",
            "max/min",
            "disturbed",
            "worst unflagged median",
            "longest s",
            "least clean",
            "worst torch Timer",
            "worst timeit",
        ],
        rows,
    )


if __name__ == "__main__":
    main()
