"""How does torch.profiler record one cycle? The only place that starts, steps, stops and exports it.

One ``torch.profiler.profile`` per cycle instead of one with a schedule: so nothing of it runs while the plan waits
(its own ``step()`` opens a ``record_function`` in every iteration), and no events of one cycle can reach the file of
another. Only documented names are used, and ``step_num``, so that ``ProfilerStep#k`` carries the iteration's number.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from referee.capture.modules import ModuleRanges
from referee.capture.schedule import Cycle
from referee.capture.sole import NoOther, refuse_second
from referee.capture.thread_end import LastAct
from referee.records.capture import CaptureOptions

_SNAPSHOT_ENTRIES = 100_000
"""Allocator events kept for the snapshot, as in torch's own tutorial on memory snapshots."""
_DEVICE_ACTIVITIES = {"cuda": "CUDA", "xpu": "XPU", "mtia": "MTIA", "hpu": "HPU"}


def quiet_kineto() -> None:
    """Keep Kineto from reporting each start and stop on standard error; heeded before its first session alone."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")


def device_activity(device_name: str) -> str | None:
    """The profiler activity that records rows of this device; ``None`` where the profiler has none for it."""
    return _DEVICE_ACTIVITIES.get(device_name.partition(":")[0])


class TorchWindow:
    """One ``torch.profiler`` session over one cycle."""

    def __init__(self, cycle: Cycle, *, device_name: str, options: CaptureOptions, looking: bool = False) -> None:
        """``looking``: look for a profiler that warms up somewhere in the process, too."""
        import torch
        from torch.profiler import ProfilerAction, ProfilerActivity

        quiet_kineto()
        refuse_second(looking=looking)
        self._others = NoOther()
        self._at_thread_end: LastAct | None = None
        activities = [ProfilerActivity.CPU]
        named = device_activity(device_name)
        if named is not None and hasattr(ProfilerActivity, named):
            activities.append(getattr(ProfilerActivity, named))
        self.options = options
        self.memory_growth_bytes: int | None = None
        """By how much resident memory grew from the first recorded iteration to the end; ``None`` until stopped."""
        self._torch, self._cycle, self._iteration = torch, cycle, cycle.warmup_from
        self._resident_bytes: int | None = None
        self._modules = ModuleRanges() if options.modules else None
        self._snapshots = options.memory and named == "CUDA" and torch.cuda.is_available()
        self._profile: Any = torch.profiler.profile(
            activities=activities,
            # torch asks for iteration 0 before it can be told the real number; a cycle never begins by being saved.
            schedule=lambda k: (
                ProfilerAction.RECORD if max(k, cycle.warmup_from) >= cycle.first else ProfilerAction.WARMUP
            ),
            record_shapes=options.shapes,
            profile_memory=options.memory,
            with_stack=options.stacks,
            with_flops=options.flops,
        )

    def start(self, iteration: int) -> None:
        """Switch on; ``iteration`` begins now."""
        self._iteration = iteration
        self._profile.step_num = iteration
        if self._modules is not None:
            self._modules.install()
        if self._snapshots:
            self._torch.cuda.memory._record_memory_history(max_entries=_SNAPSHOT_ENTRIES)
        with warnings.catch_warnings():
            # Said again, and with the mend, by the finding no-device-activity.
            warnings.filterwarnings("ignore", message=".*CUDA is not available, disabling CUDA profiling.*")
            self._profile.start()
        self._at_thread_end = LastAct(self._profile.stop)
        self._others.hold()
        self._mark_memory()

    def step(self) -> None:
        """The iteration has ended and the next begins."""
        self._iteration += 1
        self._mark_memory()
        self._profile.step()

    def stop(self) -> None:
        """Switch off. Waits for the device, as the profiler does by itself."""
        now = resident_bytes()
        if now is not None and self._resident_bytes is not None:
            self.memory_growth_bytes = now - self._resident_bytes
        if self._modules is not None:
            self._modules.remove()
        self._others.let_go()
        # If the thread that switched it on has ended, it has been switched off.
        if self._at_thread_end is None or self._at_thread_end.call_off():
            self._profile.stop()

    def _mark_memory(self) -> None:
        if self._iteration == self._cycle.first:
            self._resident_bytes = resident_bytes()

    def export(self, path: Path) -> None:
        """Write the events as uncompressed JSON to ``path``, whose name must not end in ``.gz``."""
        self._profile.export_chrome_trace(os.fspath(path))

    def flops(self) -> dict[str, int]:
        """Floating-point operations by operator name, for those operators whose formula torch knows."""
        counted: Counter[str] = Counter()
        for event in self._profile.events():
            if event.flops:
                counted[event.name] += event.flops
        return dict(counted)

    def save_snapshot(self, path: Path) -> bool:
        """Write the CUDA allocator's history to ``path`` if it was recorded; says whether it was."""
        if not self._snapshots:
            return False
        self._torch.cuda.memory._dump_snapshot(os.fspath(path))
        return True

    def release(self) -> None:
        """Let go of the events and of every tensor that recording shapes has kept alive; also where nobody stopped."""
        if self._modules is not None:
            self._modules.remove()
        self._others.let_go()
        self._profile = None
        if self._snapshots:
            self._torch.cuda.memory._record_memory_history(enabled=None)


def resident_bytes() -> int | None:
    """The resident memory of this process now; ``None`` where the kernel does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")
