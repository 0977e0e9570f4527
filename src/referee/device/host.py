"""What do all real devices share? The host's clock, the scheduler's count, the compiler's counters."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from referee.device.barrier import settle_outputs
from referee.device.children import children_ns
from referee.device.compilers import compile_counters
from referee.device.protocol import Change, DeviceTimer, Settling
from referee.errors import PackageMissing
from referee.records.finding import Scalar


def load_torch() -> Any:
    """The torch module, or :class:`~referee.errors.PackageMissing` naming what would install it."""
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise PackageMissing.named("torch", need="Measuring a callable", extra="torch") from error
    return torch


def read_run_delay_ns(account: Path) -> int | None:
    """How long has a thread been ready to run without a processor? ``None`` where the kernel does not tell."""
    try:
        with open(account, "rb", buffering=0) as file:
            return int(file.read(64).split()[1])
    except (OSError, ValueError, IndexError):  # no such account, or the thread has just ended
        return None


class HostClocked:
    """A device whose times are read from this machine's monotonic clock."""

    settling = Settling.SYNCHRONOUS
    block_target_ns = 150_000
    """50 µs blocks bias the low quantiles by 3 %, 300 µs blocks are preempted twice as often (measured on a CPU)."""

    def __init__(self, name: str) -> None:
        self._torch = load_torch()
        self._name = name

    @property
    def name(self) -> str:
        """As a user writes it, with the index where the kind has one."""
        return self._name

    def now_ns(self) -> int:
        """The host's monotonic clock in nanoseconds."""
        return time.perf_counter_ns()

    def involuntary_switches(self) -> int:
        """Of this thread while torch computes with one thread, of the whole process otherwise."""
        who = resource.RUSAGE_THREAD if self._torch.get_num_threads() == 1 else resource.RUSAGE_SELF
        return resource.getrusage(who).ru_nivcsw

    def processor_times(self) -> tuple[int | None, int] | None:
        """How long this thread has computed so far, and how long it has waited for a processor, in nanoseconds.

        While several threads compute the first is ``None`` and the second is the sum over all threads of the process:
        each of them may hold up the others. ``None`` where the kernel keeps no such account.
        """
        if self._torch.get_num_threads() == 1:
            delay_ns = read_run_delay_ns(Path("/proc/thread-self/schedstat"))
            return None if delay_ns is None else (time.thread_time_ns(), delay_ns)
        delays = [read_run_delay_ns(task / "schedstat") for task in Path("/proc/self/task").glob("*")]
        known = [delay_ns for delay_ns in delays if delay_ns is not None]
        return (None, sum(known)) if known else None

    def occupied_ns(self) -> int | None:
        """How long this thread has computed or waited for a processor so far, in nanoseconds; while torch computes with
        several threads, how long the process has, over all of them.

        What is left of the time elapsed it has slept, or waited for input, a lock or another process. ``None`` where
        the kernel keeps no such account.
        """
        times = self.processor_times()
        if times is None:
            return None
        computed_ns, delayed_ns = times
        return delayed_ns + (time.process_time_ns() if computed_ns is None else computed_ns)

    def busy_frac(self, length_ns: int) -> float:
        """How much of a processor other threads of this process use while this one waits for ``length_ns``."""
        start_ns, used_ns = time.perf_counter_ns(), time.process_time_ns() - time.thread_time_ns()
        time.sleep(length_ns / 1e9)
        used_ns = time.process_time_ns() - time.thread_time_ns() - used_ns
        return used_ns / max(1, time.perf_counter_ns() - start_ns)

    def resident_bytes(self) -> int | None:
        """How much memory this process occupies; ``None`` where the kernel does not tell."""
        try:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
        except (OSError, ValueError, IndexError):
            return None
        return pages * resource.getpagesize()

    def children_ns(self) -> int:
        """How long child processes of this process have computed so far (:mod:`referee.device.children`)."""
        return children_ns()

    def settle(self, outputs: object = None) -> None:
        """Wait for every device that ``outputs`` live on, then for this one."""
        # What the outputs made us wait for need not be waited for again: a second synchronise is not free.
        if outputs is None or self._name not in settle_outputs(outputs):
            self._wait()

    def timer(self) -> DeviceTimer | None:
        """``None`` unless the backend has marks for its queue."""
        return None

    def counters(self) -> Mapping[str, int]:
        """What torch's compiler has counted in this process."""
        return compile_counters()

    def what_changes(self, step: Callable[[], object]) -> Change | None:
        """Which shape, dtype or Python value differs between a few further calls of ``step``?"""
        from referee.device.changes import find_change

        return find_change(step, self.settle)

    def hands_out_kept(self, step: Callable[[], object]) -> bool:
        """Whether ``step`` returns tensors that it neither made nor wrote to (:mod:`referee.device.repeats`)."""
        from referee.device.repeats import hands_out_kept

        return hands_out_kept(step)

    def describe(self) -> Mapping[str, Scalar] | None:
        """``None``: this device is the CPU, which the chip section describes."""
        return None

    def _wait(self) -> None:
        """Wait for whatever this device itself has queued."""
