"""Does the number hold beside busy processes? Fresh processes, quiet and loaded, against the quiet floor.

    python benchmarks/measuring_load.py --processes 20
    python benchmarks/measuring_load.py --processes 20 --append load.jsonl --seconds 100   # again until complete

Each fresh process measures one operation with Referee's defaults, and after it with torch.utils.benchmark, timeit and
pytest-benchmark. It lies where `referee bench` lies (always at the same addresses; `--layout random`: as the system
draws them). The reference is the median of the quiet floors. States are taken in turn, and one operation behind the
other, so that all states of an operation see the same few minutes.

Each row is judged twice. In nanoseconds, as the clock on the wall says: there the processes also differ by how fast
their core ran, which is the neighbours' doing on the same chip. And at one core clock: each figure is brought to the
core clock that was the median of the quiet processes, by the chain of instructions that Referee reads between the
blocks (`core_clock.chain_ns` of its record). The first table says how far the core clock itself lay apart.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

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
    spread,
    verdict,
)

TOLERANCE = 0.03
MEDIAN_TOLERANCE = 0.04
MISSED = 1
"""Of twenty processes so many may lie outside."""
MOST_SPREAD = 1.06
MOST_WALL_S = 0.6
_CHILD_S = 8.0
"""A process beside four busy ones takes about so long."""

_TEST = """
import measuring_load

def test_step(benchmark):
    benchmark(measuring_load.SHARED["step"])
"""
SHARED: dict[str, Any] = {}
"""What pytest-benchmark's test times: it runs in this process, on the same step as the others."""


def child(operation: str, *, layout: Literal["fixed", "random"]) -> None:
    """Measure once, placed as the command would be, and print the figures as JSON."""
    from referee.cli.layout import start_again

    start_again(layout, ["bench"])
    import torch

    import referee.bench.measure
    from referee.device.registry import open_device

    began = time.perf_counter()
    torch.set_num_threads(1)
    step = make_operation(operation)
    found = referee.bench.measure.measure(step, device=open_device("cpu"))
    wall = time.perf_counter() - began
    clock = found.core_clock
    print(
        json.dumps(
            {
                "floor": found.floor_ns,
                "at_one_clock": clock and {"floor": clock.floor_ns, "median": clock.median_ns},
                "chain": clock and clock.chain_ns,
                "median": found.median_ns,
                "codes": [finding.code for finding in found.findings],
                "clean": sum(found.clean) / len(found.clean),
                "layout": found.provenance.value("method.address_layout"),
                "wall": wall,
                **other_harnesses(step),
            }
        )
    )


def other_harnesses(step: Callable[[], object]) -> dict[str, float]:
    """What the others say of the same step in the same process, in nanoseconds."""
    import timeit

    from torch.utils import benchmark

    timer = benchmark.Timer("step()", globals={"step": step}).blocked_autorange()
    loops, total = timeit.Timer("step()", globals={"step": step}).autorange()
    return {"torch": timer.median * 1e9, "timeit": total / loops * 1e9, "pytest": pytest_benchmark_ns(step)}


def pytest_benchmark_ns(step: Callable[[], object]) -> float:
    """The median that pytest-benchmark's fixture reads with its defaults."""
    import pytest

    sys.modules.setdefault("measuring_load", sys.modules[__name__])
    SHARED["step"] = step
    with tempfile.TemporaryDirectory() as folder:
        test, out = Path(folder, "test_step.py"), Path(folder, "out.json")
        test.write_text(_TEST)
        options = [
            str(test),
            "-q",
            "--no-header",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "-c",
            "/dev/null",
            "--import-mode=importlib",
        ]
        silent = io.StringIO()
        with contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
            status = pytest.main([*options, f"--rootdir={folder}", f"--benchmark-json={out}"])
        if status != 0:
            raise SystemExit(f"pytest-benchmark did not run: is it installed?\n{silent.getvalue()}")
        return float(json.loads(out.read_text())["benchmarks"][0]["stats"]["median"]) * 1e9


def main() -> None:
    """Run the processes and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=20)
    parser.add_argument("--ops", default="add,linear")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--layout", choices=("fixed", "random"), default="fixed", help="addresses of the processes")
    add_slice_arguments(parser)
    options = parser.parse_args()
    if options.child:
        child(options.child, layout=options.layout)
        return
    store, operations, states = Store(options.append), options.ops.split(","), options.states.split(",")
    if not options.table:
        print(machine())
        run(store, operations, states, options)
    for operation in operations:
        report(operation, {state: store.of(op=operation, state=state, layout=options.layout) for state in states})


def run(store: Store, operations: list[str], states: list[str], options: argparse.Namespace) -> None:
    """Fresh processes, states in turn, until each case has as many as wanted or the slice is over."""
    slice_ = Slice(options.seconds)
    for operation in operations:
        for turn in range(options.processes):
            for state in states:
                if len(store.of(op=operation, state=state, layout=options.layout)) > turn:
                    continue
                if slice_.over(next_s=_CHILD_S):
                    return
                words = [sys.executable, __file__, "--child", operation, "--layout", options.layout]
                with busy(STATES[state]):
                    done = subprocess.run(words, capture_output=True, text=True, check=True)
                found = json.loads(done.stdout.splitlines()[-1])
                if found["layout"] != options.layout:
                    raise SystemExit(f"This system gives {found['layout']} addresses: add --layout {found['layout']}.")
                store.add(op=operation, state=state, **found)


def report(operation: str, taken: dict[str, list[dict[str, Any]]]) -> None:
    """Errors against the quiet floor, state by state, each figure beside its limit."""
    quiet = [one for one in taken.get("quiet", []) if one["floor"]]
    if not quiet:
        return
    at_one = {
        state: [_at_clock(one, median([q["chain"] for q in quiet])) for one in ones] for state, ones in taken.items()
    }
    clocks = [
        [state, len(ones), spread([one["chain"] for one in ones if one["chain"]])] for state, ones in taken.items()
    ]
    print_table(f"{operation}: how far the core's clock lay apart", ["state", "processes", "slowest/fastest"], clocks)
    _table(f"{operation}, in nanoseconds", taken)
    _table(f"{operation}, at one core clock", at_one)
    reference = median([one["floor"] for one in quiet])
    keys = ("floor", "median", "torch", "timeit", "pytest")
    print_table(
        f"{operation}: off the quiet floor in nanoseconds, median and worst",
        ["state", "Referee floor", "Referee median", "torch Timer", "timeit", "pytest-benchmark"],
        [[state, *(_off(ones, key, reference) for key in keys)] for state, ones in taken.items() if ones],
    )


def _at_clock(one: dict[str, Any], chain_ns: float) -> dict[str, Any]:
    """The floor and the median of one process, as on a core that takes ``chain_ns`` for the chain."""
    return {**one, **{key: ns * chain_ns / one["chain"] for key, ns in (one["at_one_clock"] or {}).items()}}


def _table(title: str, taken: dict[str, list[dict[str, Any]]]) -> None:
    """Each figure beside its limit, against the median of the quiet floors."""
    reference = median([one["floor"] for one in taken["quiet"] if one["floor"]])
    rows: list[list[object]] = []
    for state, results in taken.items():
        floors = [one["floor"] for one in results if one["floor"]]
        if not floors:
            continue
        within = sum(abs(floor / reference - 1) <= TOLERANCE for floor in floors)
        flagged = [one for one in results if "disturbed" in one["codes"] or one["median"] is None]
        calm = max((abs(one["median"] / reference - 1) for one in results if one not in flagged), default=0.0)
        wall = max(one["wall"] for one in results)
        wanted = len(results) - MISSED * len(results) // 20
        rows += [
            [state, "floor within 3 %", f"{within}/{len(results)}", f">= {wanted}", verdict(within >= wanted)],
            [state, "max/min of floors", spread(floors), f"<= {MOST_SPREAD}", verdict(spread(floors) <= MOST_SPREAD)],
            [state, "worst unflagged median", f"{calm:.1%}", "<= 4 %", verdict(calm <= MEDIAN_TOLERANCE)],
            [state, "  disturbed", f"{len(flagged)}", "", ""],
            [state, "longest answer s", wall, f"<= {MOST_WALL_S}", verdict(wall <= MOST_WALL_S)],
        ]
    print_table(f"{title}: quiet floor {reference:,.0f} ns", ["state", "what", "figure", "limit", "verdict"], rows)


def _off(results: list[dict[str, Any]], key: str, reference: float) -> str:
    errors = [abs(one[key] / reference - 1) for one in results if one.get(key)]
    return f"{median(errors):.1%} / {max(errors):.1%}" if errors else "-"


if __name__ == "__main__":
    main()
