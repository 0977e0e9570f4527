"""What can be asked? Each edit says how the times in a dependency graph change, at its careful and its hopeful end.

An edit only changes how long edges take, or takes a dependency away; starts follow from the replay. Edits multiply or
clear weights, so that their order does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from referee.errors import OptionError
from referee.graph.build import EdgeKind, Graph
from referee.trace.columns import NONE, BoolColumn, IntColumn, Kind, Trace

End = Literal["low", "high"]
"""``low``: the hopeful end (least time); ``high``: the careful one."""

Weights = npt.NDArray[np.float64]

DROPPED = -float(1 << 62)
"""The weight of a dependency that is no longer there: it never decides a start."""

FIXED_KERNEL_NS = 1_500.0
"""What a kernel keeps on a faster chip at the careful end: start and drain of even an empty one take 1 to 2 µs."""
REPLAY_KERNEL_NS = 1_300.0
"""What one kernel of a replayed graph costs between kernels at the careful end."""
CLOCK_SAG = 0.9
"""A chip at full load clocks lower than its peak: at the careful end this much of the promised speed-up arrives."""
LOW_PRECISION_GAIN = (2.0, 1.2)
"""How much faster matrix kernels get in half the bytes: twice where memory is the limit, little where small."""

_GRAPHED = re.compile(r"(cuda|cu|hip)\w*(LaunchKernel|LaunchCooperative|Memcpy\w*Async|Memset\w*Async)", re.I)
_WAITS = re.compile(r"Synchronize", re.I)
_MATRIX = re.compile(r"gemm|cutlass|xmma|wgmma|conv|cijk_", re.I)
_LOW = re.compile(r"f16|bf16|half|bfloat|h16816|s8|e4m3", re.I)
_POINTWISE = re.compile(r"elementwise|pointwise|triton_poi|vectorized", re.I)
_COLLECTIVE = re.compile(r"nccl|rccl|all_?reduce|all_?gather|reduce_?scatter", re.I)


@dataclass(frozen=True, eq=False)
class Subject:
    """A graph and the trace that it was built from, with the masks that edits share."""

    trace: Trace
    graph: Graph

    @cached_property
    def host(self) -> BoolColumn:
        """Time of the host: inside rows and between them."""
        return np.isin(self.graph.kind, (EdgeKind.HOST, EdgeKind.GAP, EdgeKind.THREAD))

    @cached_property
    def owner_kind(self) -> IntColumn:
        """The kind of the row that an edge's time belongs to; :data:`NONE` without one."""
        owner = self.graph.owner
        kinds = self.trace.rows.kind[np.maximum(owner, 0)].astype(np.int64)
        found: IntColumn = np.where(owner == NONE, NONE, kinds)
        return found

    def named(self, pattern: re.Pattern[str]) -> BoolColumn:
        """Edges whose owner's name matches."""
        owner = self.graph.owner
        rows = np.unique(owner[owner != NONE])
        fits = np.array([bool(pattern.search(self.trace.name_of(int(row)))) for row in rows], dtype=bool)
        found: BoolColumn = np.isin(owner, rows[fits]) if rows.size else np.zeros(owner.size, dtype=bool)
        return found

    def device(self, *kinds: Kind) -> BoolColumn:
        """Device rows' own time, of these kinds or of all."""
        mask: BoolColumn = self.graph.kind == EdgeKind.DEVICE
        if kinds:
            mask = mask & np.isin(self.owner_kind, [int(kind) for kind in kinds])
        return mask


Apply = Callable[[Subject, Weights, End], Weights]


@dataclass(frozen=True)
class Edit:
    """One change: its name, how it changes the weights, and on what assumptions."""

    name: str
    apply: Apply
    basis: str


def device_speed(factor: float) -> Edit:
    """A device ``factor`` times as fast."""
    _positive("--device-speed", factor)

    def apply(subject: Subject, weights: Weights, end: End) -> Weights:
        mask = subject.device(Kind.KERNEL, Kind.MEMSET, Kind.DEVICE_OTHER)
        own = weights[mask]
        if end == "low":
            return _with(weights, mask, own / factor)
        real = 1 + (factor - 1) * CLOCK_SAG if factor > 1 else factor
        fixed = np.minimum(own, FIXED_KERNEL_NS)
        return _with(weights, mask, fixed + (own - fixed) / real)

    basis = (
        f"kernels take 1/{factor:g} of their time; at the careful end 1.5 µs of each stay and {CLOCK_SAG:.0%} of the "
        "gain arrives, so that small kernels gain less; copies keep their time"
    )
    return Edit(f"device-speed {factor:g}", apply, basis)


def host_speed(factor: float) -> Edit:
    """A host ``factor`` times as fast."""
    _positive("--host-speed", factor)

    def apply(subject: Subject, weights: Weights, end: End) -> Weights:
        mask = subject.host if end == "low" else subject.host & (subject.graph.kind == EdgeKind.HOST)
        return _with(weights, mask, weights[mask] / factor)

    return Edit(
        f"host-speed {factor:g}", apply, "recorded rows at both ends, what lies between them at the hopeful one"
    )


def graph_replay() -> Edit:
    """The work replayed as captured graphs."""

    def apply(subject: Subject, weights: Weights, end: End) -> Weights:
        if end == "low":
            return _with(weights, subject.host, 0.0)
        calls = subject.host & subject.named(_GRAPHED)
        weights = _with(weights, calls, 0.0)
        launches = (subject.graph.kind == EdgeKind.LAUNCH) & (weights > REPLAY_KERNEL_NS)
        return _with(weights, launches, REPLAY_KERNEL_NS)

    basis = "hopeful: all host time between waits goes; careful: launch calls alone, 1.3 µs between kernels stay"
    return Edit("graph", apply, basis)


def fewer_launches(share: float) -> Edit:
    """A share of the launch calls removed."""
    if not 0 < share <= 1:
        raise OptionError(f"--fewer-launches {share:g}: this is no share between 0 and 1.")

    def apply(subject: Subject, weights: Weights, end: End) -> Weights:
        mask = subject.host & (subject.named(_GRAPHED) if end == "high" else np.ones(weights.size, dtype=bool))
        return _with(weights, mask, weights[mask] * (1 - share))

    return Edit(
        f"fewer-launches {share:g}", apply, "careful: the calls alone; hopeful: the host's path to them as well"
    )


def no_sync() -> Edit:
    """Calls that wait for the device removed."""

    def apply(subject: Subject, weights: Weights, end: End) -> Weights:
        waits = subject.graph.kind == EdgeKind.WAIT
        if end == "high":
            waits &= subject.named(_WAITS)
        return _with(weights, waits, DROPPED)

    return Edit("no-sync", apply, "careful: Synchronize calls alone; hopeful: copies that wait for their row as well")


def overlap_copies() -> Edit:
    """Copies hidden behind computation."""

    def apply(subject: Subject, weights: Weights, end: End) -> Weights:
        mask = subject.device(Kind.MEMCPY)
        return _with(weights, mask, 0.0 if end == "low" else weights[mask] * 0.5)

    return Edit("overlap-copies", apply, "hopeful: all copies hidden; careful: half of each")


def hide_communication() -> Edit:
    """Collectives hidden behind computation."""

    def apply(subject: Subject, weights: Weights, end: End) -> Weights:
        mask = subject.device() & subject.named(_COLLECTIVE)
        return _with(weights, mask, 0.0 if end == "low" else weights[mask] * 0.5)

    return Edit("hide-communication", apply, "hopeful: all collectives hidden; careful: half of each")


def low_precision() -> Edit:
    """Matrix kernels that are not in a low precision yet, in one."""

    def apply(subject: Subject, weights: Weights, end: End) -> Weights:
        mask = subject.device(Kind.KERNEL) & subject.named(_MATRIX) & ~subject.named(_LOW)
        return _with(weights, mask, weights[mask] / LOW_PRECISION_GAIN[0 if end == "low" else 1])

    return Edit("amp", apply, "matrix kernels by name, twice as fast at the hopeful end, 1.2 times at the careful one")


def fuse() -> Edit:
    """Pointwise kernels fused into their neighbours."""

    def apply(subject: Subject, weights: Weights, end: End) -> Weights:
        mask = subject.device(Kind.KERNEL) & subject.named(_POINTWISE)
        return _with(weights, mask, weights[mask] * (0.25 if end == "low" else 0.8))

    basis = "pointwise kernels by name: a quarter of their time stays at the hopeful end, 80 % at the careful one"
    return Edit("fuse", apply, basis)


def _with(weights: Weights, mask: BoolColumn, values: Weights | float) -> Weights:
    """``weights`` with others under ``mask``; a dependency that was dropped stays dropped."""
    changed = weights.copy()
    changed[mask] = values
    changed[weights == DROPPED] = DROPPED
    return changed


def _positive(option: str, factor: float) -> None:
    if not 0 < factor < float("inf"):
        raise OptionError(f"{option} {factor:g}: a speed is above zero.")
