"""How fast is ``referee trace`` on a large file, beside reading its bytes, a bare typed decode and other readers?

    python benchmarks/trace_speed.py TRACE.json [TRACE.json.gz ...] [--repeats 5] [--hta PYTHON] [--hta-repeats 1]

For each file a table of whole processes, interleaved and repeated: wall time (median and least), processor time, the
largest resident memory of one process; below it each figure beside its limit. ``--hta`` is an interpreter that has
HolisticTraceAnalysis installed. The files of the limits are made by tiling a recorded trace to a million events.
Every process runs once before it counts, so that all find their bytecode and the file in memory, as a second call does.
The last line says how much of two processors two busy processes got: a reader with a helper needs both.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

READ = """
import sys
with open(sys.argv[1], "rb") as file:
    while file.read(1 << 22):
        pass
"""
UNPACK = """
import sys
from isal import igzip
with igzip.open(sys.argv[1], "rb") as file:
    while file.read(1 << 22):
        pass
"""
DECODE = """
import gc, sys
import msgspec
from typing import Any

class Args(msgspec.Struct, gc=False):
    correlation: int = 0
    stream: Any = None

class Event(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str | None = None
    name: str = ""
    pid: Any = None
    tid: Any = None
    ts: float | int | str = 0
    dur: float | int = 0
    args: Args | None = None

class File(msgspec.Struct, gc=False):
    traceEvents: list[Event]

gc.disable()
data = open(sys.argv[1], "rb").read()
if data[:2] == bytes((0x1F, 0x8B)):
    from isal import igzip
    data = igzip.decompress(data)
print(len(msgspec.json.Decoder(File).decode(data).traceEvents))
"""
HTA = """
import os, shutil, sys, tempfile
from hta.trace_analysis import TraceAnalysis
with tempfile.TemporaryDirectory() as folder:
    TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=folder).get_temporal_breakdown(visualize=False)
"""


@dataclass(frozen=True)
class Run:
    """One process: wall and processor seconds, peak memory of the process and of its helpers."""

    wall_s: float
    cpu_s: float
    peak_mb: float


def run(command: Sequence[str]) -> Run:
    """Run a command to its end; a wrapper process measures it, so that children of other runs do not count."""
    wrapper = (
        "import resource, subprocess, sys, time\n"
        "begin = time.perf_counter()\n"
        "status = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
        "wall = time.perf_counter() - begin\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(status, wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)\n"
    )
    # Installed packages have their bytecode beside them; some environments forbid a source checkout to write its own.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    answer = subprocess.run(
        [sys.executable, "-S", "-c", wrapper, *command], capture_output=True, text=True, check=True, env=environment
    )
    status, wall, cpu, peak = answer.stdout.split()
    if int(status) != 0:
        raise SystemExit(f"{' '.join(command)[:200]} ended with status {status}")
    return Run(float(wall), float(cpu), float(peak))


BARE, FULL, LEAN, RIVAL = "bare typed decode, 8 fields", "referee trace", "referee trace --lean", "HTA"
AGAIN = "referee trace --cache, again"
LIMITS = (
    ("full verdict / bare decode", "×", 1.5, lambda m: m[FULL].wall_s / m[BARE].wall_s),
    ("full verdict, peak memory", "MB", 700.0, lambda m: m[FULL].peak_mb),
    ("--lean, peak memory", "MB", 150.0, lambda m: m[LEAN].peak_mb),
)
LEAST_OVER_HTA = 12.0


def contestants(path: Path, hta: str | None, cache: str) -> dict[str, list[str]]:
    """Name → command."""
    python, file = sys.executable, str(path)
    trace = [python, "-m", "referee", "trace", file, "--json", os.devnull]
    commands = {"read the bytes": [python, "-S", "-c", READ, file]}
    if path.suffix == ".gz":
        commands["unpack alone"] = [python, "-c", UNPACK, file]
    commands |= {
        BARE: [python, "-c", DECODE, file],
        FULL: trace,
        LEAN: [*trace, "--lean"],
        AGAIN: [*trace, "--cache", cache],
    }
    if hta:
        commands[RIVAL] = [hta, "-c", HTA, file]
    return commands


def compare(path: Path, *, repeats: int, hta: str | None, hta_repeats: int) -> None:
    """Print the table of one file, and its figures beside their limits."""
    runs: dict[str, list[Run]] = {}
    with tempfile.TemporaryDirectory() as cache:
        commands = contestants(path, hta, cache)
        runs |= {name: [] for name in commands}
        for repeat in range(repeats + 1):
            for name, command in commands.items():
                if name == RIVAL and not 1 <= repeat <= hta_repeats:
                    continue
                found = run(command)
                if repeat:
                    runs[name].append(found)
    middle = {name: _middle(found) for name, found in runs.items()}
    print(f"\n{path.name}: {path.stat().st_size / 1e6:.1f} MB, {repeats} interleaved repeats")
    print(f"{'':30}{'wall s':>9}{'least':>9}{'cpu s':>9}{'peak MB':>9}{'× decode':>10}")
    for name, found in runs.items():
        wall, least = middle[name].wall_s, min(r.wall_s for r in found)
        over = wall / middle[BARE].wall_s
        print(f"{name:30}{wall:9.2f}{least:9.2f}{middle[name].cpu_s:9.2f}{middle[name].peak_mb:9.0f}{over:10.2f}")
    for name, unit, limit, figure in LIMITS:
        value = figure(middle)
        print(f"{name:30}{value:9.2f} {unit:3} limit {limit:6.1f}   {'met' if value <= limit else 'NOT MET'}")
    if hta:
        value = middle[RIVAL].wall_s / middle[FULL].wall_s
        verdict = "met" if value >= LEAST_OVER_HTA else "NOT MET"
        print(f"{'times faster than HTA':30}{value:9.2f} ×   limit {LEAST_OVER_HTA:6.1f}   {verdict}")


def _middle(runs: Sequence[Run]) -> Run:
    """The medians of the times, and the largest memory."""
    return Run(
        wall_s=statistics.median(r.wall_s for r in runs),
        cpu_s=statistics.median(r.cpu_s for r in runs),
        peak_mb=max(r.peak_mb for r in runs),
    )


def processors() -> float:
    """How many processors two busy processes get: the processor time of both over the wall time."""
    code = "import time\nend = time.perf_counter() + 0.5\nwhile time.perf_counter() < end: pass\n"
    code += "print(time.process_time())"
    begin = time.perf_counter()
    busy = [subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE) for _ in range(2)]
    used = sum(float(process.communicate()[0]) for process in busy)
    return used / (time.perf_counter() - begin)


def main() -> None:
    """Parse the command line and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--hta", metavar="PYTHON", help="an interpreter with HolisticTraceAnalysis")
    parser.add_argument("--hta-repeats", type=int, default=1, help="it takes some 20 times as long as the others")
    args = parser.parse_args()
    for path in args.traces:
        compare(path, repeats=args.repeats, hta=args.hta, hta_repeats=args.hta_repeats)
    print(f"\nprocessors that two busy processes get: {processors():.2f}")


if __name__ == "__main__":
    main()
