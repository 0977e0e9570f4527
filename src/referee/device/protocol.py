"""What must a backend be able to do for a clock on it to be believed? The protocol every device file implements.

Three kinds of backend set three traps (:class:`Settling`), and one contract suite (``tests/device``) runs over all of
them, including two fakes with a virtual clock. Nothing above this layer knows torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal, Protocol, runtime_checkable

from referee.records.finding import Scalar


class Settling(Enum):
    """What a clock must do before it may stop."""

    SYNCHRONOUS = "synchronous"
    """The call returns when the work is done (CPU)."""
    ASYNCHRONOUS = "asynchronous"
    """The call queues work; wait for every device the outputs live on (CUDA, ROCm, XPU, MPS)."""
    LAZY = "lazy"
    """The call records work; materialise this candidate's own outputs, then wait (XLA, PyTorch's ``lazy``)."""


class DeviceTimer(Protocol):
    """A pair of marks in the device's own queue."""

    def start(self) -> None:
        """Put the first mark into the queue."""

    def stop(self) -> None:
        """Put the second mark into the queue."""

    def elapsed_ns(self) -> float:
        """Device time between the two marks in nanoseconds; waits for the second."""


class Device(Protocol):
    """One device to measure on. Times are integer nanoseconds of the clock that :meth:`now_ns` reads."""

    @property
    def name(self) -> str:
        """As a user writes it: ``cpu``, ``cuda:0``, ``lazy:0``, ``fake-async``."""

    @property
    def settling(self) -> Settling:
        """Which of the three traps this backend sets."""

    @property
    def block_target_ns(self) -> int:
        """How long a timed block should be, settling included: long against the clock and the cost of one settle,
        short against a scheduler's slice (150 µs on a CPU)."""

    def now_ns(self) -> int:
        """The host's monotonic clock (the virtual clock on a fake device)."""

    def settle(self, outputs: object = None) -> None:
        """Return only when the work behind ``outputs`` is done.

        ``outputs`` is whatever the step returned: a tensor or any nesting of tuples, lists, dicts and dataclasses with
        tensors in it. Every device they live on is awaited, and this device as well. On a lazy backend exactly these
        outputs are materialised, then awaited; with ``None`` everything recorded so far is. Never reads a value back.
        """

    def timer(self) -> DeviceTimer | None:
        """A new timer in this device's queue, or ``None`` where the backend has none."""

    def involuntary_switches(self) -> int:
        """How often the scheduler has taken the processor from us so far: of this thread while one thread computes,
        of the whole process otherwise. Cheap (about 1 µs); constant on a virtual clock."""

    def counters(self) -> Mapping[str, int]:
        """Counts that must stand still in a timed window (compilations, recompilations, graph breaks, lazy-graph
        cache misses), by name. Empty where the backend has none."""

    def describe(self) -> Mapping[str, Scalar] | None:
        """The accelerator section of the provenance, read now; ``None`` where this device is the CPU."""


@runtime_checkable
class NotesWrites(Protocol):
    """A device that settles more than the outputs once it is known that a step writes in place."""

    def note_writes(self, tensors: Iterable[object]) -> None:
        """A step writes to ``tensors`` in place."""


@runtime_checkable
class HandsOver(Protocol):
    """A recording device whose graph is cut after each call, as its users do after each step.

    Recorded together, equal calls would be one computation to its compiler; handed over one by one, each of them runs.
    """

    def hand_over(self, outputs: object) -> None:
        """Start the work behind ``outputs`` and return at once: this is no wait."""


@dataclass(frozen=True, kw_only=True)
class Repeat:
    """How much of a first call's work a repeated call does, and how many operators either ran, where they were seen."""

    again: Literal["all", "part", "none"]
    first_ops: int | None = None
    again_ops: int | None = None


@runtime_checkable
class SeesRepeats(Protocol):
    """A device that sees by other means than the time whether a repeated call does its work again."""

    def see_repeat(self, step: Callable[[], object], fresh: Callable[[], Callable[[], object]]) -> Repeat | None:
        """How much of what a step on fresh inputs does ``step`` does again; ``None`` where nothing shows it."""


@runtime_checkable
class SeesResults(Protocol):
    """A device that sees whether a call made or wrote what it returns, where no operator of it was seen."""

    def hands_out_kept(self, step: Callable[[], object]) -> bool:
        """Whether ``step`` returns tensors that were there before and that it does not write to; calls it thrice."""


@runtime_checkable
class TellsStages(Protocol):
    """A device whose backend keeps an account of what the time went into."""

    def stages(self) -> Mapping[str, int]:
        """Nanoseconds (``…_ns``) and counts so far, by stage; always the same keys, so that readings subtract."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """What differs from one call of a step to the next, in a sentence, and the figures behind it."""

    words: str
    evidence: Mapping[str, Scalar]


@runtime_checkable
class TellsChanges(Protocol):
    """A device that can say why a step was compiled again and again."""

    def what_changes(self, step: Callable[[], object]) -> Change | None:
        """What differs between a few further calls of ``step``; ``None`` where nothing that can be seen does."""
