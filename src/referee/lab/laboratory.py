"""What does an experiment have at hand? A device and a clock, pairs in turn, and traces that others recorded.

Experiments ask for these and for nothing else of the machine, so that a test can put a device or an operator with a
planted cost in their place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from referee.anatomy.dissect import dissect
from referee.anatomy.mix import Mix, make_mix
from referee.anatomy.timing import Pair, Timed, time_pairs
from referee.bench.measure import measure
from referee.bench.plan import Plan
from referee.device.chip import read_machine_state
from referee.device.graph_replay import capture_graph
from referee.device.host import load_torch
from referee.device.protocol import Device
from referee.device.registry import open_device
from referee.errors import CannotTell
from referee.lab.key_set import KeySet, time_key_sets
from referee.records.anatomy import Anatomy
from referee.records.estimate import Estimate
from referee.records.finding import Scalar
from referee.records.measurement import Measurement
from referee.records.trace_report import TraceReport
from referee.trace.columns import Trace
from referee.units import NS_PER_MS, format_frac, format_ns

PLAN = Plan(budget_ns=300 * NS_PER_MS, min_ns=150 * NS_PER_MS)


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """One trace that somebody recorded, and the report on it."""

    name: str
    trace: Trace
    report: TraceReport


@dataclass(frozen=True, kw_only=True)
class Part:
    """One figure that a claim states beside its main one: what came out for it, and where it lies if the claim is true.

    ``value`` and its interval are ``None`` where it could not be measured.
    """

    name: str
    claimed_low: float
    claimed_high: float
    value: float | None = None
    low: float | None = None
    high: float | None = None
    unit: str = "ns"
    counted: bool = False
    below: str = ""
    above: str = ""
    """What may be the reason where the figure lies outside."""

    @classmethod
    def exact(cls, name: str, value: float, *, claimed: float, unit: str) -> Part:
        """A figure without scatter, and the one value that the claim states."""
        return cls(name=name, value=value, low=value, high=value, claimed_low=claimed, claimed_high=claimed, unit=unit)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What an experiment found: a number with its interval, and what else is worth knowing."""

    value: float
    low: float
    high: float
    note: str = ""
    figures: Mapping[str, Scalar] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    taken: str = ""
    """How often: ``812 blocks of 40 calls``."""
    untested: Mapping[str, str] = field(default_factory=dict)
    """Parts of the claim that this run left untested, each with the reason, where that is not so of every run."""
    teaches: str = ""
    """What it teaches, where that is a matter of the figures."""
    each: tuple[tuple[str, float], ...] = ()
    """The number of each trace, where the reading is the median over them."""


_RECORDED_STEPS = 50
_STEP = "lab step "
WAITED, ACTIVE = 2, 3
"""Steps that the schedule tried here leaves out, and steps that it records."""


def _recorded_steps_ns(step: Callable[[], object], device: Device) -> list[int]:
    """Settled calls of ``step`` one by one while torch's profiler records the host; the first ones are left out."""
    torch = load_torch()
    times: list[int] = []
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # else it writes to standard error
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        for _ in range(2 * _RECORDED_STEPS):
            start_ns = device.now_ns()
            device.settle(step())
            times.append(device.now_ns() - start_ns)
    return times[_RECORDED_STEPS:]


def _scheduled_steps(step: Callable[[], object]) -> tuple[int, ...]:
    """The numbers of the steps that torch's profiler records under a schedule which leaves out the first two."""
    profiler = load_torch().profiler
    plan = profiler.schedule(wait=1, warmup=WAITED - 1, active=ACTIVE, repeat=1)
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    names: list[str] = []

    def keep(recording: Any) -> None:
        names.extend(str(event.name) for event in recording.events())

    activities = [profiler.ProfilerActivity.CPU]
    with profiler.profile(activities=activities, schedule=plan, on_trace_ready=keep) as recording:
        for number in range(WAITED + ACTIVE):
            with profiler.record_function(f"{_STEP}{number}"):
                step()
            recording.step()
    return tuple(sorted({int(name.removeprefix(_STEP)) for name in names if name.startswith(_STEP)}))


def _listed(operator: str, device: str) -> bool:
    """Whether autocast on ``device`` (``CPU``, ``CUDA``) has a kernel of its own for an operator, in any overload."""
    torch = load_torch()
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    schemas = torch._C._jit_get_schemas_for_operator(f"aten::{operator}")
    names = (f"{schema.name}.{schema.overload_name}".rstrip(".") for schema in schemas)
    known = (name for name in names if torch._C._dispatch_has_kernel(name))
    return any(has(name, f"Autocast{device}") for name in known)


def _cpu_mhz() -> float | None:
    found = read_machine_state().get("cpu_mhz")
    return float(found) if isinstance(found, int | float) else None


def _replaying(step: Callable[[], object], device: str) -> Callable[[], object]:
    return capture_graph(step, device=device)


@dataclass(frozen=True, kw_only=True)
class Laboratory:
    """A place to run experiments in. ``operators`` stands for ``torch``: a test may plant costs in its functions."""

    device: Device
    plan: Plan = PLAN
    recorded: Sequence[Recorded] = ()
    operators: Any = field(default_factory=load_torch)
    open: Callable[[str], Device] = open_device
    step: Callable[[Device], Callable[[], object]] | None = None
    """The step that the clocks are tried on, where it is not a matrix product."""
    take_apart: Callable[..., Anatomy] = dissect
    """The anatomy of one operator's call."""
    recorded_steps_ns: Callable[[Callable[[], object], Device], list[int]] = _recorded_steps_ns
    """What single steps take while the profiler records them."""
    scheduled_steps: Callable[[Callable[[], object]], tuple[int, ...]] = _scheduled_steps
    """The numbers, from 0, of the steps that the profiler records where a schedule leaves out the first."""
    listed: Callable[[str, str], bool] = _listed
    """Whether an operator is on the list of autocast for a kind of device."""
    mix: Callable[[], Mix] = make_mix
    """The other operators amid which a cold figure is taken."""
    key_sets: Callable[[Device, int], tuple[KeySet, ...]] = time_key_sets
    """What calls of one and of eight tensors take that compute nothing, made anew several times."""
    cpu_mhz: Callable[[], float | None] = _cpu_mhz
    """The clock of the core, where it can be read."""
    replaying: Callable[..., Callable[[], object]] = _replaying
    """A step as one CUDA graph."""
    kept: dict[str, Any] = field(default_factory=dict)
    """What several experiments need and one of them has made."""

    def anatomy(self) -> Anatomy:
        """One add on eight elements taken apart, its variants too, made once for all experiments."""
        if "anatomy" not in self.kept:
            budget_ns = 3 * self.plan.budget_ns
            self.kept["anatomy"] = self.take_apart(
                "add", device=self.device, shapes=((8,),), budget_ns=budget_ns, variants=True
            )
        found: Anatomy = self.kept["anatomy"]
        return found

    def time(self, step: Callable[[], object], *, device: Device | None = None) -> Measurement:
        """Measure ``step``; raises :class:`~referee.errors.CannotTell` where there is no number."""
        found = measure(step, device=device or self.device, plan=self.plan)
        if found.median_ns is None:
            why = next((f.message for f in found.findings if f.severity == "fatal"), "no block was undisturbed.")
            raise CannotTell(why)
        return found

    def pairs(self, pairs: Sequence[Pair], *, device: Device | None = None) -> tuple[Estimate, ...]:
        """What each pair's upper side costs beyond its lower, in nanoseconds, all timed in turn."""
        costs = time_pairs(pairs, device=device or self.device, budget_ns=self.plan.budget_ns)
        return tuple(cost.hot for cost in costs)

    def excess(self, upper: Timed, lower: Timed) -> Reading:
        """What ``upper`` takes longer than ``lower``, as a share of ``lower``.

        The difference is timed as a pair of its own, so that drift falls on both sides and its interval is narrow.
        Raises :class:`~referee.errors.CannotTell` where the lower may be nothing.
        """
        more, bottom = self.pairs((Pair("more", upper, lower), Pair("lower", lower)))
        if bottom.low <= 0:
            raise CannotTell("What it is held against cannot be told from nothing.")
        ends = [end / base for end in (more.low, more.high) for base in (bottom.low, bottom.high)]
        return Reading(
            value=more.point / bottom.point,
            low=min(ends),
            high=max(ends),
            figures={"lower_ns": bottom.point, "more_ns": more.point},
            taken=in_turn(more),
        )


def plus(reading: Reading, by: float) -> Reading:
    """The reading with ``by`` added."""
    return replace(reading, value=reading.value + by, low=reading.low + by, high=reading.high + by)


def estimated(estimate: Estimate, **figures: Scalar) -> Reading:
    """An estimate as a reading."""
    return Reading(value=estimate.point, low=estimate.low, high=estimate.high, figures=figures, taken=in_turn(estimate))


def in_turn(estimate: Estimate) -> str:
    """How often a pair was timed, in words."""
    return f"{estimate.n:,} blocks of each, in turn, worth {estimate.n_eff:,.0f} independent ones"


def spread(reading: Reading) -> str:
    """The interval of a share, in words."""
    return f"interval {format_frac(reading.low)} to {format_frac(reading.high)}"


def blocks_of(found: Measurement) -> str:
    """How often a measurement's headline was taken, in words, and how long a block lasts."""
    calls = found.provenance.value("method.calls_per_block")
    words = f"{found.n:,} blocks of {calls} call{'' if calls == 1 else 's'}"
    if found.median_ns is None or not isinstance(calls, int):
        return words
    return f"{words}, {format_ns(calls * found.median_ns)} each"


def counted(value: float, **figures: Scalar) -> Reading:
    """What was counted is exact: the interval is the number itself."""
    return Reading(value=float(value), low=float(value), high=float(value), figures=figures, taken="1 (counted)")


def share(checks: Mapping[str, bool]) -> Reading:
    """The share of checks that came out true, each named with its outcome."""
    true, false = (", ".join(name for name, held in checks.items() if held is way) for way in (True, False))
    words = [f"Came out so: {true}." if true else "", f"Came out otherwise: {false}." if false else ""]
    return replace(counted(sum(checks.values()) / len(checks), **checks), note=" ".join(filter(None, words)))


def many(count: int, noun: str) -> str:
    """``1 trace``, ``2 traces``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def told(*sentences: str) -> str:
    """Those sentences that say something, as one text."""
    return " ".join(filter(None, sentences))
