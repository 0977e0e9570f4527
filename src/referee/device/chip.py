"""What processor is this, and what state is it in? Read from Linux's own files; what is not there is left out.

Nothing here needs torch. Constant facts are read once per process, the state each time it is asked for.
"""

from __future__ import annotations

import functools
import os
import platform
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from referee.records.finding import Scalar

_CPU = Path("/sys/devices/system/cpu")
_NODES = Path("/sys/devices/system/node")

CALIBRATION_LOOPS = 10_000
_CALIBRATION_RUNS = 5
"""The fastest of five runs of some 1 ms each: short enough to fit between two slices of the scheduler."""


def read_text(path: Path) -> str | None:
    """The stripped text of a small file, or ``None`` where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def affinity() -> tuple[int, ...]:
    """The logical cores that this process may run on."""
    return tuple(sorted(os.sched_getaffinity(0)))


@functools.cache
def constant_chip() -> Mapping[str, Scalar]:
    """The chip keys that cannot change while the process lives."""
    found: dict[str, Scalar | None] = {
        "model": _model(),
        "architecture": platform.machine() or None,
        "physical_cores": _physical_cores(),
        "logical_cores": os.cpu_count(),
        "calibration_ns": calibrate(),
        "l2_cache_bytes": _cache_bytes(2),
        "l3_cache_bytes": _cache_bytes(3),
        "memory_bytes": _memory_bytes(),
    }
    return _known(found)


def read_chip() -> Mapping[str, Scalar]:
    """All chip keys except those that torch knows (the threads in use)."""
    cores = affinity()
    placed: dict[str, Scalar | None] = {
        "affinity": format_cores(cores),
        "numa_node": _numa_nodes(cores),
        "cgroup_cpus": _quota(),
    }
    return {**constant_chip(), **_known(placed)}


def read_machine_state() -> Mapping[str, Scalar]:
    """Load, frequency, governor and turbo as they are now."""
    found: dict[str, Scalar | None] = {
        "load_1min": _load(),
        "governor": read_text(_CPU / "cpu0" / "cpufreq" / "scaling_governor"),
        "cpu_mhz": _mhz(),
        "turbo": _turbo(),
        "host": platform.node() or None,
        "user": _user(),
    }
    return _known(found)


def calibrate() -> int:
    """How many nanoseconds does a fixed single-threaded pure-Python loop take here? The fastest of a few runs."""
    best = None
    for _ in range(_CALIBRATION_RUNS):
        value = 0
        start_ns = time.perf_counter_ns()
        for i in range(CALIBRATION_LOOPS):
            value = (value * 31 + i) & 0xFFFF
        elapsed_ns = time.perf_counter_ns() - start_ns
        best = elapsed_ns if best is None else min(best, elapsed_ns)
    assert best is not None
    return best


def throttled_periods() -> int | None:
    """In how many scheduling periods was this process's control group stopped at its quota so far?"""
    for folder in _cgroup_folders():
        text = read_text(folder / "cpu.stat")
        for line in (text or "").splitlines():
            name, _, value = line.partition(" ")
            if name == "nr_throttled":
                return int(value)
    return None


def format_cores(cores: Iterable[int]) -> str:
    """``0-3,8`` as the kernel writes lists of cores."""
    parts: list[str] = []
    run: list[int] = []
    for core in [*sorted(cores), None]:
        if run and core != run[-1] + 1:
            parts.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
            run = []
        if core is not None:
            run.append(core)
    return ",".join(parts)


def parse_cores(text: str) -> frozenset[int]:
    """The cores in the kernel's list ``0-3,8``."""
    cores: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cores.update(range(int(first), int(last or first) + 1))
    return frozenset(cores)


def _known(found: Mapping[str, Scalar | None]) -> dict[str, Scalar]:
    return {key: value for key, value in found.items() if value is not None}


def _cpuinfo() -> list[dict[str, str]]:
    """One table per logical core of ``/proc/cpuinfo``."""
    blocks = (read_text(Path("/proc/cpuinfo")) or "").split("\n\n")
    return [
        {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in block.splitlines())}
        for block in blocks
        if block.strip()
    ]


def _model() -> str | None:
    for core in _cpuinfo():
        # x86 says "model name", POWER "cpu", s390 "machine"; on Arm the kernel gives numbers only.
        for key in ("model name", "cpu", "machine", "Model"):
            if core.get(key):
                return core[key]
    return platform.processor() or None


def _physical_cores() -> int | None:
    found = set()
    for folder in _CPU.glob("cpu[0-9]*"):
        package = read_text(folder / "topology" / "physical_package_id")
        core = read_text(folder / "topology" / "core_id")
        if package is not None and core is not None:
            found.add((package, core))
    return len(found) or None


def _cache_bytes(level: int) -> int | None:
    for folder in sorted((_CPU / f"cpu{min(affinity())}" / "cache").glob("index*")):
        size = read_text(folder / "size")
        if size and read_text(folder / "level") == str(level) and read_text(folder / "type") != "Instruction":
            return parse_size(size)
    return None


def parse_size(text: str) -> int:
    """Bytes in ``1024K`` or ``32M``, as the kernel writes cache sizes."""
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1], 1)
    return int(text.rstrip("KMG")) * scale


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None


def _numa_nodes(cores: tuple[int, ...]) -> str | None:
    nodes = []
    for folder in _NODES.glob("node[0-9]*"):
        text = read_text(folder / "cpulist")
        if text and parse_cores(text) & set(cores):
            nodes.append(int(folder.name.removeprefix("node")))
    return format_cores(nodes) if nodes else None


def _cgroup_folders() -> list[Path]:
    """The folders of this process's control groups that may hold CPU limits, innermost first; versions 2 and 1."""
    folders: list[Path] = []
    for line in (read_text(Path("/proc/self/cgroup")) or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            roots = [Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")]
        elif "cpu" in controllers.split(","):
            roots = [Path("/sys/fs/cgroup") / controllers, Path("/sys/fs/cgroup/cpu")]
        else:
            continue
        for root in roots:
            inner = root / path.lstrip("/")
            # Limits of every enclosing group hold as well.
            folders += [inner, *(parent for parent in inner.parents if parent == root or root in parent.parents)]
    return [folder for folder in dict.fromkeys(folders) if folder.is_dir()]


def _quota() -> Scalar | None:
    """The tightest CPU quota in cores, ``none`` where no group has one, ``None`` where none can be read."""
    limits: list[float] = []
    seen = False
    for folder in _cgroup_folders():
        limit = _quota_of(folder)
        seen = seen or limit is not None
        if limit:
            limits.append(limit)
    if not seen:
        return None
    return round(min(limits), 3) if limits else "none"


def _quota_of(folder: Path) -> float | None:
    """Cores that this group may use; 0 for no limit; ``None`` where the group has no CPU controller."""
    text = read_text(folder / "cpu.max")
    if text is not None:
        quota, _, period = text.partition(" ")
        return 0.0 if quota == "max" else int(quota) / int(period or 100_000)
    quota_us = read_text(folder / "cpu.cfs_quota_us")
    period_us = read_text(folder / "cpu.cfs_period_us")
    if quota_us is None or period_us is None:
        return None
    return int(quota_us) / int(period_us) if int(quota_us) > 0 else 0.0


def _load() -> float | None:
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None


def _mhz() -> int | None:
    """The mean frequency of the cores we may run on, where the kernel tells it."""
    ours = set(affinity())
    speeds = [
        float(core["cpu MHz"])
        for core in _cpuinfo()
        if core.get("cpu MHz") and int(core.get("processor", "-1") or -1) in ours
    ]
    return round(sum(speeds) / len(speeds)) if speeds else None


def _turbo() -> bool | None:
    no_turbo = read_text(_CPU / "intel_pstate" / "no_turbo")
    if no_turbo is not None:
        return no_turbo == "0"
    boost = read_text(_CPU / "cpufreq" / "boost")
    return None if boost is None else boost == "1"


def _user() -> str | None:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a user id without a name, as in many containers
        return None
