"""What is in the caches before each call? Flushing and rotating, as stated *and verified* states.

A number taken in a loop is a warm one wherever the working set fits the cache. Two ways to make it cold: overwrite the
cache before each call (:class:`Flusher`), or let successive calls use different copies of everything they touch, more
of it in all than the cache holds (:func:`rotate`). Either can fail in silence (persisting lines survive an overwrite;
copies that share a tensor stay warm), so either is checked.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle
from math import ceil, prod
from typing import TYPE_CHECKING, Any

from referee.device.discover import discover
from referee.device.dtypes import parse_dtype
from referee.device.host import load_torch
from referee.device.protocol import Device
from referee.errors import EnvironmentLacks, OptionError
from referee.records.provenance import TensorSpec

if TYPE_CHECKING:
    import torch

Step = Callable[[], object]

FLUSH_FACTOR = 2
"""How many times the cache is overwritten: with pseudo-random replacement one pass leaves about a third in place."""

MOST_COPIES = 4_096
"""Building a copy and checking that it shares nothing takes up to a millisecond: more would be minutes of waiting."""

_CHECK_FRAC = 0.25
_CHECK_RUNS = 9
_COLD_RATIO = 1.1
"""A re-read of a quarter of the cache must take this much longer after a flush than before to be called cold."""


def cache_bytes(device: Device) -> int:
    """How large is the last cache before ``device``'s memory?

    Raises :class:`~referee.errors.EnvironmentLacks` where nothing tells: a flush of a guessed size proves nothing.
    """
    described = device.describe()
    if described is None:
        from referee.device.chip import constant_chip

        chip = constant_chip()
        size = chip.get("l3_cache_bytes") or chip.get("l2_cache_bytes")
    else:
        size = described.get("l2_cache_bytes")
    if not isinstance(size, int) or size <= 0:
        raise EnvironmentLacks(
            f"The cache size of {device.name} cannot be read, so its caches cannot be flushed for certain.",
            hint="Measure warm, and with inputs larger than any cache of such a device.",
        )
    return size


@dataclass(frozen=True, kw_only=True)
class FlushCheck:
    """Does a flush flush? Times to re-read ``read_bytes`` just after reading them, and after a flush in between."""

    read_bytes: int
    warm_ns: float
    flushed_ns: float

    @property
    def ratio(self) -> float:
        """Flushed over warm."""
        return self.flushed_ns / self.warm_ns

    @property
    def works(self) -> bool:
        """Whether the flush makes a difference that a cache would explain."""
        return self.ratio >= _COLD_RATIO


class Flusher:
    """Overwrites the last-level cache of one device. The buffer is made once: making it would be part of the number."""

    def __init__(self, device: Device, *, size_bytes: int | None = None) -> None:
        self._torch = load_torch()
        self._device = device
        self.cache_bytes = size_bytes if size_bytes is not None else cache_bytes(device)
        if self.cache_bytes < 1:
            raise OptionError("A cache to be flushed has at least one byte.")
        elements = ceil(FLUSH_FACTOR * self.cache_bytes / 4)
        self._buffer: torch.Tensor = self._torch.zeros(elements, dtype=self._torch.int32, device=device.name)
        device.settle(self._buffer)

    def flush(self) -> None:
        """Read and write the whole buffer. On an asynchronous device this is queued before whatever follows."""
        self._buffer.add_(1)

    def flush_and_wait(self) -> None:
        """Flush, and return when it is done: what is timed next does not contain it."""
        self.flush()
        self._device.settle(self._buffer)

    def check(self) -> FlushCheck:
        """Measure whether the flush works here, on a tensor of a quarter of the cache."""
        probe = self._torch.ones(
            max(1, int(_CHECK_FRAC * self.cache_bytes) // 4), dtype=self._torch.int32, device=self._device.name
        )
        warm, flushed = [], []
        for _ in range(_CHECK_RUNS):
            self._read_ns(probe)
            warm.append(self._read_ns(probe))
            self.flush_and_wait()
            flushed.append(self._read_ns(probe))
        return FlushCheck(
            read_bytes=probe.numel() * 4, warm_ns=statistics.median(warm), flushed_ns=statistics.median(flushed)
        )

    def _read_ns(self, probe: Any) -> int:
        start_ns = self._device.now_ns()
        self._device.settle(probe.sum())
        return self._device.now_ns() - start_ns


def working_set_bytes(shapes: Iterable[TensorSpec]) -> int:
    """How many bytes entered the step: the least it must read if nothing is cached."""
    return sum(spec.count * prod(map(abs, spec.shape)) * parse_dtype(spec.dtype).itemsize for spec in shapes)


def copies_needed(*, working_set: int, cache: int) -> int:
    """How many copies of ``working_set`` bytes hold each other out of a cache of ``cache`` bytes when used in turn?

    At least two; with one more copy than fits even a cache that forgets the oldest first has forgotten each copy when
    its turn comes again.
    """
    if working_set <= 0:
        raise OptionError("A step that reads nothing from outside has nothing to rotate.", hint="Measure it warm.")
    return max(2, ceil(FLUSH_FACTOR * cache / working_set) + 1)


@dataclass(frozen=True, kw_only=True)
class Rotation:
    """A step that uses another copy of its data in each call."""

    step: Step
    copies: int
    bytes_in_all: int


def rotate(make: Callable[[], Step], *, working_set: int, cache: int, limit_bytes: int | None = None) -> Rotation:
    """A step that calls separately built twins of itself in turn.

    ``make`` builds one twin (a target's ``rebuild().step``). Raises :class:`~referee.errors.OptionError` if two twins
    share a tensor, which then would stay in the cache under the label "cold", if the copies would take more than
    ``limit_bytes``, or if there would be more than :data:`MOST_COPIES`.
    """
    copies = copies_needed(working_set=working_set, cache=cache)
    if limit_bytes is not None and copies * working_set > limit_bytes:
        raise OptionError(
            f"Rotating needs {copies} copies of {working_set:,} bytes, more than the {limit_bytes:,} allowed.",
            hint="Flush the caches instead.",
        )
    if copies > MOST_COPIES:
        raise OptionError(
            f"Rotating {working_set:,} bytes out of a cache of {cache:,} needs {copies:,} copies, more than "
            f"{MOST_COPIES:,}.",
            hint="Flush the caches instead, or measure with larger inputs.",
        )
    steps = [make() for _ in range(copies)]
    _require_separate(steps)
    turn = cycle(steps)

    def step() -> object:
        return next(turn)()

    return Rotation(step=step, copies=copies, bytes_in_all=copies * working_set)


def _require_separate(steps: Sequence[Step]) -> None:
    """Refuse twins that share memory."""
    owner: dict[int, int] = {}
    for number, step in enumerate(steps):
        held = discover(step)
        module_tensors = [t for m in held.modules for t in (*m.parameters(), *m.buffers())]
        for tensor in (*held.tensors, *module_tensors):
            pointer = 0 if tensor.device.type in ("lazy", "xla", "meta") else tensor.data_ptr()
            if pointer and owner.setdefault(pointer, number) != number:
                raise OptionError(
                    f"The copies to be rotated share a tensor of shape {tuple(tensor.shape)}, which would stay cached.",
                    hint="Make all tensors inside the factory, or flush the caches instead.",
                )
