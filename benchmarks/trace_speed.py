"""How fast is ``referee trace`` on a large file, beside reading its bytes, a bare typed decode and other readers?

    python benchmarks/trace_speed.py TRACE.json [TRACE.json.gz ...] [--repeats 5] [--hta PYTHON]

For each file a table of whole processes, interleaved and repeated: wall time (median and least), processor time, the
largest resident memory of one process. ``--hta`` is an interpreter that has HolisticTraceAnalysis installed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
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
    answer = subprocess.run([sys.executable, "-S", "-c", wrapper, *command], capture_output=True, text=True, check=True)
    status, wall, cpu, peak = answer.stdout.split()
    if int(status) != 0:
        raise SystemExit(f"{' '.join(command)[:200]} ended with status {status}")
    return Run(float(wall), float(cpu), float(peak))


def contestants(path: Path, hta: str | None) -> dict[str, list[str]]:
    """Name → command."""
    python, file = sys.executable, str(path)
    commands = {
        "read the bytes": [python, "-S", "-c", READ, file],
        "bare typed decode, 8 fields": [python, "-c", DECODE, file],
        "referee trace, full verdict": [python, "-m", "referee", "trace", file, "--json", os.devnull],
    }
    if path.suffix == ".gz":
        commands["unpack alone"] = [python, "-c", UNPACK, file]
    if hta:
        commands["HTA, parse and breakdown"] = [hta, "-c", HTA, file]
    return commands


def compare(path: Path, *, repeats: int, hta: str | None) -> None:
    """Print the table of one file."""
    commands = contestants(path, hta)
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    for repeat in range(repeats):
        for name, command in commands.items():
            if "HTA" in name and repeat >= 2:
                continue
            runs[name].append(run(command))
    bare = statistics.median(r.wall_s for r in runs["bare typed decode, 8 fields"])
    print(f"\n{path.name}: {path.stat().st_size / 1e6:.1f} MB, {repeats} interleaved repeats")
    print(f"{'':32}{'wall s':>9}{'least':>9}{'cpu s':>9}{'peak MB':>9}{'× decode':>10}")
    for name, found in runs.items():
        wall = statistics.median(r.wall_s for r in found)
        least = min(r.wall_s for r in found)
        cpu = statistics.median(r.cpu_s for r in found)
        peak = max(r.peak_mb for r in found)
        print(f"{name:32}{wall:9.2f}{least:9.2f}{cpu:9.2f}{peak:9.0f}{wall / bare:10.2f}")


def main() -> None:
    """Parse the command line and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--hta", metavar="PYTHON", help="an interpreter with HolisticTraceAnalysis")
    args = parser.parse_args()
    for path in args.traces:
        compare(path, repeats=args.repeats, hta=args.hta)


if __name__ == "__main__":
    main()
