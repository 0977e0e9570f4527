"""What can be asked? Each edit says how the times in a dependency graph change, at its careful and its hopeful end.

An edit only changes how long edges take, or takes a dependency away; starts follow from the replay. Several are always
applied in the same order, whatever order they were asked for in: first what the work is, then how fast it is done.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from referee.errors import OptionError
from referee.graph.build import EdgeKind, Graph
from referee.graph.calls import COLLECTIVES, COPIES, GRAPH_LAUNCHES, LOCAL_COPIES, WAITS, named
from referee.graph.computing import computing_rows
from referee.trace.columns import NONE, BoolColumn, IntColumn, Kind, RowNumbers, Trace
from referee.trace.intervals import overlap_ns, union
from referee.whatif.chains import Chains, find_chains, host_of
from referee.whatif.room import follow_rows

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

_HANDS_OVER = re.compile(r"(cuda|cu|hip)\w*(LaunchKernel|LaunchCooperative|Memcpy\w*Async|Memset\w*Async)", re.I)
"""Calls that may hand over work without a row of their own: fills of nothing, and driver calls inside a launch."""
_MATRIX = re.compile(r"gemm|cutlass|xmma|wgmma|conv(?!ert)|cijk_", re.I)
_LOW = re.compile(
    r"f(?:p|loat)?16|s16816|half|bfloat|[hs]884|h1688|h16816|(?<![a-z])[sui]8|[^a-z]fp8|e4m3|e5m2|"
    r"cijk_(?:[a-z]+_[a-z]+_)?(?:b|h|f8|b8|i8)(?![a-z]*lk)",
    re.I,
)
"""Names of kernels in a low precision; AMD's begin with the dtype behind the layout: ``Cijk_Alik_Bljk_BBS_BH``."""
_POINTWISE = re.compile(r"elementwise|pointwise|triton_poi", re.I)
_TO_HOST = re.compile(r"DtoH|Device -> (?:Host|Pinned|Pageable)|DeviceToHost", re.I)


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

    @cached_property
    def kept_ns(self) -> IntColumn:
        """How much of each edge's time lies in a data loader's row, or in an operator that computes on the host: no
        edit of launches takes that away."""
        rows, time_ns = self.trace.rows, self.graph.time_ns
        stays = np.union1d(rows.of(Kind.LOADER), computing_rows(self.trace))
        begin_ns, end_ns = time_ns[self.graph.source], time_ns[self.graph.target]
        spans = union(rows.start_ns[stays], rows.end_ns[stays])
        return overlap_ns(begin_ns, np.maximum(begin_ns, end_ns), within=spans)

    @cached_property
    def carried(self) -> RowNumbers:
        """Copies over a link: those within a device are its own work."""
        copies = self.trace.rows.of(Kind.MEMCPY)
        return copies[~named(self.trace, copies, LOCAL_COPIES)]

    @cached_property
    def chains(self) -> Chains:
        """The runs of pointwise kernels."""
        kernels = self.trace.rows.of(Kind.KERNEL)
        return find_chains(self.trace, kernels[named(self.trace, kernels, _POINTWISE)])

    @cached_property
    def chained_host(self) -> BoolColumn:
        """Host time that only serves kernels which fusing takes away."""
        return host_of(self.graph, self.trace, self.chains.gone)

    def named(self, pattern: re.Pattern[str]) -> BoolColumn:
        """Edges whose owner's name matches."""
        owner = self.graph.owner
        found = np.zeros(owner.size, dtype=bool)
        owned = np.flatnonzero(owner != NONE)
        found[owned] = named(self.trace, owner[owned], pattern)
        return found

    @cached_property
    def launch_calls(self) -> BoolColumn:
        """Host time inside the calls that a captured graph replaces: launches by their link, except those that wait."""
        owner, trace = self.graph.owner, self.trace
        owned = np.flatnonzero(owner != NONE)
        row = owner[owned]
        kept = named(trace, row, GRAPH_LAUNCHES) | named(trace, row, WAITS) | named(trace, row, COPIES)
        found = np.zeros(owner.size, dtype=bool)
        found[owned] = named(trace, row, _HANDS_OVER) | (trace.links.is_launch[row] & ~kept)
        return found & self.host

    def of_rows(self, rows: RowNumbers) -> BoolColumn:
        """The device edges of these rows."""
        mask: BoolColumn = (self.graph.kind == EdgeKind.DEVICE) & np.isin(self.graph.owner, rows)
        return mask

    @cached_property
    def room(self) -> tuple[IntColumn, IntColumn]:
        """Edges of rows that waited for room on the device, and the edges of the rows that they waited for."""
        return follow_rows(self.graph)

    def followed(self, weights: Weights) -> Weights:
        """``weights`` in which such waits have become shorter, or longer, as the rows have."""
        room, device = self.room
        changed = weights.copy()
        changed[room] = self.graph.weight_ns[room] * (weights[device] / self.graph.weight_ns[device])
        return changed

    def device(self, *kinds: Kind) -> BoolColumn:
        """Device rows' own time, of these kinds or of all."""
        mask: BoolColumn = self.graph.kind == EdgeKind.DEVICE
        if kinds:
            mask = mask & np.isin(self.owner_kind, [int(kind) for kind in kinds])
        return mask


Apply = Callable[[Subject, Weights, End], Weights]


def _no_floor(_: Subject) -> float:
    return 0.0


@dataclass(frozen=True)
class Edit:
    """One change: its name, how it changes the weights, and on what assumptions.

    ``floor``: what the window takes at least, ns: work that is hidden behind other work still has to be done.
    """

    name: str
    apply: Apply
    basis: str
    floor: Callable[[Subject], float] = _no_floor


_ORDER = (
    "fuse",
    "amp",
    "overlap-copies",
    "hide-communication",
    "no-sync",
    "graph",
    "fewer-launches",
    "device-speed",
    "host-speed",
)


def in_order(edits: Sequence[Edit]) -> list[Edit]:
    """The edits in the order in which they are applied."""
    return sorted(edits, key=lambda edit: (_ORDER.index(edit.name.partition(" ")[0]), edit.name))


def device_speed(factor: float) -> Edit:
    """A device ``factor`` times as fast."""
    _positive("--device-speed", factor)

    def apply(subject: Subject, weights: Weights, end: End) -> Weights:
        mask = subject.device(Kind.KERNEL, Kind.MEMSET, Kind.DEVICE_OTHER) & ~_collectives(subject)
        own = weights[mask]
        if end == "low":
            return _with(weights, mask, own / factor)
        real = 1 + (factor - 1) * CLOCK_SAG if factor > 1 else factor
        fixed = np.minimum(own, FIXED_KERNEL_NS)
        return _with(weights, mask, fixed + (own - fixed) / real)

    basis = (
        f"kernels take 1/{factor:g} of their time; at the careful end 1.5 µs of each stay and {100 * CLOCK_SAG:.0f} % "
        "of the gain arrives, so that small kernels gain less; copies and collectives keep their time"
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
        graph = subject.graph
        if end == "low":
            kept = np.minimum(weights, subject.kept_ns)
            return _with(weights, subject.host, kept[subject.host])
        weights = _with(weights, subject.launch_calls, 0.0)
        launches = (graph.kind == EdgeKind.LAUNCH) & (weights > REPLAY_KERNEL_NS)
        weights = _with(weights, launches, REPLAY_KERNEL_NS)
        # Where the record has a gap between two kernels, that of a replayed graph stays, at most as long as it was.
        gap_ns = graph.time_ns[graph.target] - graph.time_ns[graph.source]
        gaps = (graph.kind == EdgeKind.STREAM) & ~graph.is_end[graph.target]
        least_ns = np.minimum(gap_ns[gaps], REPLAY_KERNEL_NS)
        return _with(weights, gaps, np.maximum(weights[gaps], least_ns))

    basis = (
        "hopeful: all host time between waits goes but that of data loaders and of what the host computes; careful: "
        "launch calls alone, 1.3 µs between kernels stay"
    )
    return Edit("graph", apply, basis)


def fewer_launches(share: float) -> Edit:
    """A share of the launch calls removed."""
    if not 0 < share <= 1:
        raise OptionError(f"--fewer-launches {share:g}: this is no share between 0 and 1.")

    def apply(subject: Subject, weights: Weights, end: End) -> Weights:
        mask = subject.launch_calls if end == "high" else subject.host
        kept = np.minimum(weights, subject.kept_ns)
        return _with(weights, mask, (kept + (weights - kept) * (1 - share))[mask])

    basis = "careful: the calls alone; hopeful: the host's path to them as well, but for loaders and its own computing"
    return Edit(f"fewer-launches {share:g}", apply, basis)


def no_sync() -> Edit:
    """Calls that wait for the device removed."""

    def apply(subject: Subject, weights: Weights, end: End) -> Weights:
        waits = subject.graph.kind == EdgeKind.WAIT
        calls = subject.named(WAITS)
        weights = _with(weights, subject.host & calls, 0.0)
        return _with(weights, waits & calls if end == "high" else waits, DROPPED)

    return Edit("no-sync", apply, "careful: Synchronize calls alone; hopeful: copies that wait for their row as well")


def overlap_copies() -> Edit:
    """Copies hidden behind computation: the host no longer waits inside the call, and they run on their own engine."""

    def apply(subject: Subject, weights: Weights, end: End) -> Weights:
        graph, trace = subject.graph, subject.trace
        copies = subject.carried
        mask = subject.of_rows(copies)
        weights = _with(weights, mask, 0.0 if end == "low" else weights[mask] * 0.5)
        if end == "high":
            copies = copies[~named(trace, copies, _TO_HOST)]
        calls = trace.links.launch_of[copies]
        waits = (graph.kind == EdgeKind.WAIT) & np.isin(graph.owner, calls[calls != NONE])
        return _with(weights, waits, DROPPED)

    basis = (
        "hopeful: all copies hidden, no call of one waits; careful: half of each, calls that copy to the host still "
        "wait; no shorter than the copies of one stream take together; Synchronize calls stay"
    )
    return Edit(
        "overlap-copies", apply, basis, lambda subject: _longest_stream(subject, subject.of_rows(subject.carried))
    )


def hide_communication() -> Edit:
    """Collectives hidden behind computation."""

    def apply(subject: Subject, weights: Weights, end: End) -> Weights:
        mask = _collectives(subject)
        return _with(weights, mask, 0.0 if end == "low" else weights[mask] * 0.5)

    basis = (
        "hopeful: all collectives hidden; careful: half of each; no shorter than those of one stream take together "
        "(what they wait for other ranks is in their time)"
    )
    return Edit("hide-communication", apply, basis, lambda subject: _longest_stream(subject, _collectives(subject)))


def _collectives(subject: Subject) -> BoolColumn:
    return subject.device(Kind.KERNEL) & subject.named(COLLECTIVES)


def _longest_stream(subject: Subject, mask: BoolColumn) -> float:
    """The most time that these device edges take on one stream, as recorded."""
    rows, owner = subject.trace.rows, subject.graph.owner[mask]
    took: dict[tuple[int, int], float] = {}
    for device, stream, ns in zip(
        rows.device[owner].tolist(), rows.stream[owner].tolist(), subject.graph.weight_ns[mask].tolist(), strict=True
    ):
        took[device, stream] = took.get((device, stream), 0.0) + ns
    return max(took.values(), default=0.0)


def low_precision() -> Edit:
    """Matrix kernels that are not in a low precision yet, in one."""

    def apply(subject: Subject, weights: Weights, end: End) -> Weights:
        mask = subject.device(Kind.KERNEL) & subject.named(_MATRIX) & ~subject.named(_LOW)
        return _with(weights, mask, weights[mask] / LOW_PRECISION_GAIN[0 if end == "low" else 1])

    basis = (
        "matrix kernels by name, twice as fast at the hopeful end, 1.2 times at the careful one; casts that autocast "
        "would insert are not counted"
    )
    return Edit("amp", apply, basis)


def fuse() -> Edit:
    """Runs of pointwise kernels on a stream made one kernel each."""

    def apply(subject: Subject, weights: Weights, end: End) -> Weights:
        graph, chains = subject.graph, subject.chains
        position = np.full(len(subject.trace.rows), NONE, dtype=np.int64)
        position[chains.rows] = np.arange(chains.rows.size)
        edges = np.flatnonzero(subject.of_rows(chains.rows))
        place = position[graph.owner[edges]]
        longest, whole = np.zeros(chains.chain.max(initial=0) + 1), np.zeros(chains.chain.max(initial=0) + 1)
        np.maximum.at(longest, chains.chain[place], weights[edges])
        np.add.at(whole, chains.chain[place], weights[edges])
        one = longest if end == "low" else (longest + whole) / 2
        weights = weights.copy()
        weights[edges] = np.where(chains.first[place], one[chains.chain[place]], 0.0)
        # What stood between the kernels of a run goes with them.
        between = (graph.kind == EdgeKind.STREAM) & np.isin(graph.row[graph.target], chains.gone)
        weights = _with(weights, between, 0.0)
        host = subject.chained_host & subject.launch_calls if end == "high" else subject.chained_host
        return _with(weights, host, 0.0)

    basis = (
        "runs of pointwise kernels by name that follow one another on a stream, taken to depend on nothing else; "
        "hopeful: a run takes what its longest kernel takes, and the operators of the others go; careful: half of the "
        "others' time stays, and their launch calls alone go"
    )
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
