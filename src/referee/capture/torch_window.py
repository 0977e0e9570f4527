"""How does torch.profiler record one cycle? The only place that starts, steps, stops and exports it.

One ``torch.profiler.profile`` per cycle instead of one with a schedule: so nothing of it runs while the plan waits
(its own ``step()`` opens a ``record_function`` in every iteration), and no events of one cycle can reach the file of
another. Only documented names are used, and ``step_num``, so that ``ProfilerStep#k`` carries the iteration's number.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

from referee.capture.schedule import Cycle
from referee.errors import UserError
from referee.records.capture import CaptureOptions

_DEVICE_ACTIVITIES = {"cuda": "CUDA", "xpu": "XPU", "mtia": "MTIA", "hpu": "HPU"}


def device_activity(device_name: str) -> str | None:
    """The profiler activity that records rows of this device; ``None`` where the profiler has none for it."""
    return _DEVICE_ACTIVITIES.get(device_name.partition(":")[0])


class TorchWindow:
    """One ``torch.profiler`` session over one cycle."""

    def __init__(self, cycle: Cycle, *, device_name: str, options: CaptureOptions) -> None:
        import torch
        from torch.profiler import ProfilerAction, ProfilerActivity

        # Kineto reports each start and stop on standard error unless told otherwise before its first session.
        os.environ.setdefault("KINETO_LOG_LEVEL", "6")
        if torch.autograd._profiler_enabled():
            raise UserError(
                "Another torch profiler is running already, and only one can run at a time.",
                hint="Take the other one out of the script for this run.",
            )
        activities = [ProfilerActivity.CPU]
        named = device_activity(device_name)
        if named is not None and hasattr(ProfilerActivity, named):
            activities.append(getattr(ProfilerActivity, named))
        self._torch = torch
        self._profile: Any = torch.profiler.profile(
            activities=activities,
            # The first iteration is not known to torch yet when it asks for 0, so whatever lies before warms up.
            schedule=lambda k: (
                ProfilerAction.RECORD if k >= cycle.first or cycle.warmup_from == cycle.first else ProfilerAction.WARMUP
            ),
            record_shapes=options.shapes,
            profile_memory=options.memory,
            with_stack=options.stacks,
            with_flops=options.flops,
        )

    def start(self, iteration: int) -> None:
        """Switch on; ``iteration`` begins now."""
        self._profile.step_num = iteration
        with warnings.catch_warnings():
            # Said again, and with the mend, by the finding no-device-activity.
            warnings.filterwarnings("ignore", message=".*CUDA is not available, disabling CUDA profiling.*")
            self._profile.start()

    def step(self) -> None:
        """The iteration has ended and the next begins."""
        self._profile.step()

    def stop(self) -> None:
        """Switch off. Waits for the device, as the profiler does by itself."""
        self._profile.stop()

    def export(self, path: Path) -> None:
        """Write the events as uncompressed JSON to ``path``, whose name must end in ``.json``."""
        self._profile.export_chrome_trace(os.fspath(path))

    def release(self) -> None:
        """Let go of the events and of every tensor that recording shapes has kept alive."""
        self._profile = None
