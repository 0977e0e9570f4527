"""What is one operator's call made of? Stages, dispatch path and tape; and the same questions for a whole step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from referee.records.finding import Finding, Scalar
from referee.records.provenance import Provenance

SMALL_NS = 50.0
"""Stages below this are printed as "< 50 ns". Two processes, one of them beside busy ones, agreed within 10 % on 139
of 141 stages above it, and on 34 of 51 below."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One part of a call: how much longer it takes when it goes one layer further, with the interval at ``ci_level``.

    ``ns`` is hot (a loop of nothing else), ``cold_ns`` amid a mix of other operators. Negative differences are kept.
    """

    name: str
    ns: float
    cold_ns: float | None
    ci_low_ns: float
    ci_high_ns: float
    cold_low_ns: float | None = None
    cold_high_ns: float | None = None
    meaning: str = ""
    layer: str = ""
    """Which of the seven layers it belongs to."""
    n: int | None = None
    """How many blocks the hot figure is from."""

    @property
    def small(self) -> bool:
        """Whether it is too small to be resolved."""
        return abs(self.ns) < SMALL_NS


def bound_ns(low_ns: float | None, high_ns: float | None) -> float | None:
    """What a stage with this interval is surely below, in nanoseconds, where no figure can be given.

    That is where the interval holds zero and reaches beyond :data:`SMALL_NS`; ``None`` elsewhere.
    """
    if low_ns is None or high_ns is None or not low_ns <= 0 <= high_ns:
        return None
    farthest = max(-low_ns, high_ns)
    return farthest if farthest >= SMALL_NS else None


@dataclass(frozen=True, kw_only=True)
class PathEntry:
    """One dispatch key of a call, in order of priority: what is registered there, and whether the call visits it."""

    key: str
    kernel: str
    """``kernel``, ``fallback``, ``composite``, ``fallthrough`` or ``none``."""
    visited: bool
    note: str = ""
    source: str = ""
    """Where the kernel was registered, as torch names it."""


@dataclass(frozen=True, kw_only=True)
class ModePath:
    """The kernels that a call meets in one mode, as ``add.Tensor@AutogradCPU``; predicted, and seen by a witness."""

    mode: str
    predicted: tuple[str, ...]
    witnessed: tuple[str, ...] | None = None
    """What recording kernels saw in a child process; ``None`` where none was asked for or it could not run."""
    open_ended: bool = False
    """Whether the last of them is code that decides by itself what is called next (a batching rule, Python)."""
    gradients_equal: bool | None = None
    why_not: str = ""

    @property
    def agrees(self) -> bool | None:
        """Whether the witness saw what was predicted, as far as that goes."""
        if self.witnessed is None:
            return None
        compared = self.witnessed[: len(self.predicted)] if self.open_ended else self.witnessed
        return compared == self.predicted


@dataclass(frozen=True, kw_only=True)
class SavedTensor:
    """One tensor that a node keeps for backward; ``bytes`` counts storage that nothing before it in the tape held."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    view_bytes: int
    bytes: int
    role: Literal["activation", "parameter", "input"]
    version: int | None = None
    saved_version: int | None = None


@dataclass(frozen=True, kw_only=True)
class TapeNode:
    """One node that the forward pass left behind, in the order in which backward would run it."""

    number: int
    name: str
    next: tuple[int, ...]
    """Numbers of the nodes that its gradients go to."""
    saved: tuple[SavedTensor, ...] = ()
    variable: str = ""
    """For a node that accumulates: which leaf."""


@dataclass(frozen=True, kw_only=True)
class Tape:
    """What a forward pass built for a backward pass, whether or not one runs.

    ``saved_bytes`` counts each storage once and leaves out parameters; ``naive_bytes`` is the plain sum over saved
    tensors, which counts views and shared storage again and again. ``nodes`` may be the first of more: ``node_count``
    is how many there are. ``unread_nodes`` may keep something that torch does not show, and that no sum holds.
    """

    nodes: tuple[TapeNode, ...]
    edges: int
    accumulators: int
    saved_tensors: int
    saved_bytes: int
    parameter_bytes: int
    naive_bytes: int
    compiled_nodes: int = 0
    why_empty: str = ""
    node_count: int | None = None
    """``None`` in files that were written without it: as many as are listed."""
    unread_nodes: int = 0

    @property
    def size(self) -> int:
        """How many nodes there are, whether or not each is listed."""
        return len(self.nodes) if self.node_count is None else self.node_count


@dataclass(frozen=True, kw_only=True)
class ModeCost:
    """The same call in one grad mode: its time, what it kept for backward, and its peak."""

    mode: Literal["grad", "no_grad", "inference_mode"]
    ns: float | None
    ci_low_ns: float | None
    ci_high_ns: float | None
    saved_bytes: int | None = None
    peak_bytes: int | None = None
    nodes: int | None = None
    allocations: int | None = None
    """Requests for memory that one call makes."""
    intermediates: int | None = None
    """Tensors with memory of their own that its operators return: what eager mode materialises."""
    compiles: int | None = None
    """Frames that the first call in this mode compiled, the modes before it being warm."""
    why_not: str = ""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Another way to ask for the same work, timed beside the first of its group."""

    group: str
    name: str
    ns: float | None
    extra_ns: float | None
    """Against the first of the group; ``None`` for it, for a part of another way and for what could not be timed."""
    ci_low_ns: float | None = None
    ci_high_ns: float | None = None
    note: str = ""
    n: int | None = None
    """How many blocks it is from."""


@dataclass(frozen=True, kw_only=True)
class Anatomy:
    """What one operator's call is made of here (schema ``referee.anatomy/1``).

    ``whole_ns`` is timed on its own. ``remainder_ns`` is the whole less all stages: what no stage explains, and what
    does not add up. ``unseparated`` says in words which layers could not be told apart for this operator, and why.
    """

    op: str
    entry: str
    """The expression whose time is the whole."""
    mode: str
    whole_ns: float | None
    whole_cold_ns: float | None
    whole_ci_low_ns: float | None
    whole_ci_high_ns: float | None
    ci_level: float
    stages: tuple[Stage, ...]
    remainder_ns: float | None
    remainder_low_ns: float | None
    remainder_high_ns: float | None
    per_tensor_ns: float | None
    """What each further tensor argument adds to a call that computes nothing."""
    dispatch_path: tuple[PathEntry, ...]
    tape: Tape | None
    provenance: Provenance
    unseparated: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    """The operators that a composite one calls, in order."""
    modes: tuple[ModeCost, ...] = ()
    variants: tuple[Variant, ...] = ()
    paths: tuple[ModePath, ...] = ()
    probe: Mapping[str, Scalar] | None = None
    """How the stages were reached: the compiled probe and its build, or Python alone."""
    per_tensor_low_ns: float | None = None
    """The lower end of the interval of ``per_tensor_ns``, in nanoseconds; ``None`` where that was not timed."""
    per_tensor_high_ns: float | None = None
    """The upper end."""
    findings: tuple[Finding, ...] = ()
    schema: str = "referee.anatomy/1"


@dataclass(frozen=True, kw_only=True)
class SurveyRow:
    """One operator of a survey: its whole and the sum of each layer, or why there is no ladder."""

    op: str
    entry: str = ""
    kind: str = ""
    """What sort of operator it is: view, in-place, list, reduction, random, factory, indexing, pointwise, or other."""
    whole_ns: float | None = None
    remainder_ns: float | None = None
    layers: Mapping[str, float] | None = None
    stages: int = 0
    refused: str = ""


@dataclass(frozen=True, kw_only=True)
class AnatomySurvey:
    """The ladders of all operators of a namespace, coarsely (schema ``referee.anatomy-survey/1``)."""

    namespace: str
    rows: tuple[SurveyRow, ...]
    took_ns: int
    provenance: Provenance
    findings: tuple[Finding, ...] = ()
    schema: str = "referee.anatomy-survey/1"
