"""Which precision is faster here, by how much, and what do the casts cost? The step's own time, side by side.

Each precision has a comparison of its own with float32: a slow one takes no quads from the others. How long each lasts
follows from a pilot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from referee.bench.compare import COMPARED, Candidate, compare
from referee.bench.measure import Seen, measure
from referee.bench.plan import Plan, ProgressCallback, no_progress
from referee.device.host import load_torch
from referee.device.provenance import Source
from referee.precision.budget import USED_UP
from referee.precision.control import BF16, FLOAT32, FP16, TF32, Control, Setting, own_scaler
from referee.precision.pilot import (
    Pilot,
    Price,
    may_use_one_thread,
    one_thread_finding,
    price_of,
    threads_for,
    try_step,
)
from referee.precision.recorder import CastEvent
from referee.precision.subject import Subject, restored
from referee.records.compare import Comparison
from referee.records.finding import Finding, Scalar
from referee.records.measurement import Measurement
from referee.records.provenance import Provenance
from referee.units import NS_PER_MS, NS_PER_S, format_ns

if TYPE_CHECKING:
    from referee.device.protocol import Device

PRECISION_KEYS = (
    *COMPARED,
    "dtype",
    "switches.autocast",
    "switches.autocast_site",
    "switches.float32_matmul_precision",
    "switches.tf32_matmul",
    "switches.tf32_cudnn",
)
"""What may differ between two precisions of one step."""

_CAST_BUDGET_NS = 300 * NS_PER_MS
_ALONE_BUDGET_NS = 2 * NS_PER_S
_MOST_CAST_BYTES = 1 << 30
"""Casts of more than this are timed in part, and the time is scaled up by the bytes."""

_SEVERAL = frozenset({"few-samples", "not-comparable"})
"""Findings that each comparison has of its own; any other is said once for all of them."""


def settings_for(device: Device, *, names: Sequence[str] = ("bfloat16", "float16")) -> tuple[Setting, ...]:
    """Float32, TF32 where the device has it, and the low precisions asked for."""
    torch = load_torch()
    low = tuple(setting for setting in (BF16, FP16) if setting.name in names)
    tf32 = device.name.startswith("cuda") and torch.version.cuda and torch.cuda.get_device_capability()[0] >= 8
    return (FLOAT32, *((TF32,) if tf32 else ()), *low)


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """How is it timed: the device, when it must be over (device clock), and what provenance should say of the step."""

    device: Device
    until_ns: int
    seen: Seen | None = None
    target: Source | None = None
    method: Mapping[str, Scalar] = field(default_factory=dict)
    one_thread: bool = False
    """Time with one thread from the start; else only where the threads are disturbed."""
    progress: ProgressCallback = no_progress

    @property
    def left_ns(self) -> int:
        """What is left of the time."""
        return self.until_ns - self.device.now_ns()


@dataclass(frozen=True, kw_only=True)
class Timed:
    """One comparison with float32 for each precision that there was time for, or float32 measured alone."""

    comparisons: tuple[Comparison, ...] = ()
    alone: Measurement | None = None
    skipped: Mapping[str, str] = field(default_factory=dict)
    """By precision: why it was not compared."""
    ratios: Mapping[str, float] = field(default_factory=dict)
    """By precision: the pilot's ratio, single calls that nothing is promised of."""
    one_thread: bool = False
    findings: tuple[Finding, ...] = ()

    @property
    def provenance(self) -> Provenance | None:
        """Where this was timed, by the first that was; ``None`` where nothing was."""
        first = self.comparisons[0] if self.comparisons else self.alone
        return None if first is None else first.provenance


def time_settings(
    subject: Subject, settings: Sequence[Setting], *, conditions: Conditions, name: str = "", strict: bool = False
) -> Timed:
    """Compare each further setting with the first; fp16 training runs with a ``GradScaler``, as it would have to.

    One setting alone is measured. Where several threads compute and are disturbed, all is timed with one. ``strict``
    leaves out what there is no time to answer; else the time that there is is used. Where there is none, nothing is.
    The weights move while this runs (the optimizer is a part of the step) and are put back.
    """
    if conditions.left_ns <= 0:
        return Timed(skipped={setting.name: USED_UP for setting in settings[1:]}, one_thread=conditions.one_thread)
    threads = load_torch().get_num_threads()
    may_be_one = may_use_one_thread(conditions.device)
    found = _time(subject, settings, conditions=conditions, name=name, strict=strict)
    if found is None or (may_be_one and not conditions.one_thread and _too_few(found) and conditions.left_ns > 0):
        conditions = replace(conditions, one_thread=True)
        found = _time(subject, settings, conditions=conditions, name=name, strict=strict)
    assert found is not None  # one thread is timed, disturbed or not
    said = (one_thread_finding(threads),) if may_be_one and conditions.one_thread else ()
    return replace(found, one_thread=conditions.one_thread, findings=(*said, *found.findings))


def _too_few(found: Timed) -> bool:
    """Whether a comparison had its time and too few quads were undisturbed."""
    return any(pair.why.startswith("only ") for one in found.comparisons for pair in one.pairs)


def _time(
    subject: Subject, settings: Sequence[Setting], *, conditions: Conditions, name: str, strict: bool
) -> Timed | None:
    """As :func:`time_settings`; ``None`` where the threads are disturbed and could be made one."""
    device = conditions.device
    with restored(subject), threads_for(one=conditions.one_thread):
        if len(settings) == 1:
            return Timed(alone=_alone(subject, settings[0], conditions=conditions, name=name))
        pilots = _pilots(subject, settings, conditions)
        if may_use_one_thread(device) and any(pilot.disturbed for pilot in pilots.values()):
            return None
        base = pilots[settings[0].name]
        comparisons: list[Comparison] = []
        skipped: dict[str, str] = {}
        for place, setting in enumerate(settings[1:], 1):
            if setting.name not in pilots:
                skipped[setting.name] = USED_UP
                continue
            price = price_of(base, pilots[setting.name], device=device)
            most_ns = conditions.left_ns // (len(settings) - place)
            if most_ns <= 0:
                skipped[setting.name] = USED_UP
                continue
            if strict and price.least_ns > most_ns:
                skipped[setting.name] = f"an answer takes {format_ns(price.whole_ns)}, more than is left of --budget"
                continue
            pair = (settings[0], setting)
            comparisons.append(_compare(subject, pair, conditions=conditions, name=name, price=price, most_ns=most_ns))
    return Timed(
        comparisons=tuple(comparisons),
        skipped=skipped,
        ratios={name: pilot.ns / max(1, base.ns) for name, pilot in pilots.items() if pilot is not base},
        findings=_said_once(comparisons),
    )


def _pilots(subject: Subject, settings: Sequence[Setting], conditions: Conditions) -> dict[str, Pilot]:
    """By setting: what a few calls showed; only of the first, the base, where the time is up."""
    found: dict[str, Pilot] = {}
    for setting in settings:
        if found and conditions.left_ns <= 0:
            break
        step = in_setting(subject, setting)
        found[setting.name] = try_step(step, device=conditions.device, until_ns=conditions.until_ns)
    return found


def _said_once(comparisons: Sequence[Comparison]) -> tuple[Finding, ...]:
    found: dict[object, Finding] = {}
    for finding in (finding for one in comparisons for finding in one.findings):
        found.setdefault(finding.message if finding.code in _SEVERAL else finding.code, finding)
    return tuple(found.values())


def _alone(subject: Subject, setting: Setting, *, conditions: Conditions, name: str) -> Measurement:
    return measure(
        in_setting(subject, setting),
        device=conditions.device,
        plan=Plan(budget_ns=_ALONE_BUDGET_NS, clocks=("settled_amortised",)),
        name=name,
        observation=conditions.seen,
        target=conditions.target,
        method=conditions.method,
        progress=conditions.progress,
    )


def _compare(
    subject: Subject, pair: tuple[Setting, Setting], *, conditions: Conditions, name: str, price: Price, most_ns: int
) -> Comparison:
    share = min(1.0, max(0, most_ns) / price.whole_ns)
    plan = Plan(
        budget_ns=max(NS_PER_MS, int(share * price.budget_ns)),
        warmup_ns=max(NS_PER_MS, int(share * price.warmup_ns)),
        clocks=("settled_amortised",),
    )
    return compare(
        [_candidate(subject, setting, conditions) for setting in pair],
        device=conditions.device,
        plan=plan,
        name=name,
        ignoring=PRECISION_KEYS,
        progress=conditions.progress,
    )


def _candidate(subject: Subject, setting: Setting, conditions: Conditions) -> Candidate:
    return Candidate(
        name=setting.name,
        step=in_setting(subject, setting),
        observation=conditions.seen,
        target=conditions.target,
        method=conditions.method,
        switches={
            "autocast": "off" if setting.autocast is None else f"{subject.device_type} {setting.autocast}",
            "autocast_site": "nowhere" if setting.autocast is None else "inside the step",
        },
    )


def in_setting(subject: Subject, setting: Setting) -> Callable[[], object]:
    """The step as it would be written in ``setting``."""
    trains = bool(subject.optimizers)
    scaler = own_scaler(subject.device_type) if setting.autocast == "float16" and trains else None
    control = Control(
        setting,
        device_type=subject.device_type,
        own_sites=subject.own_sites,
        scaler=scaler,
    )
    step = subject.step
    return lambda: control.call(step)


def time_casts(casts: Sequence[CastEvent], *, device: Device, progress: ProgressCallback = no_progress) -> float | None:
    """How long do these casts take, one after the other, outside of the step? Nanoseconds; ``None`` without casts.

    Each reads memory of the shape and strides that was cast. Inside the step a cast may find its input in the cache
    or not; here it is as warm as a loop over all of them leaves it.
    """
    torch = load_torch()
    chosen, share = _within(casts)
    if not chosen:
        return 0.0 if not casts else None
    pairs = [(_like(torch, cast, device), getattr(torch, cast.target)) for cast in chosen]

    def all_casts() -> Any:
        for source, target in pairs:
            made = source.to(target)
        return made

    with torch.no_grad():
        found = measure(
            all_casts, device=device, plan=Plan(budget_ns=_CAST_BUDGET_NS, clocks=("settled_amortised",)), name="casts"
        )
    return None if found.median_ns is None else found.median_ns / share


def _within(casts: Sequence[CastEvent]) -> tuple[list[CastEvent], float]:
    """The casts up to :data:`_MOST_CAST_BYTES`, and their share of all bytes."""
    total = sum(cast.nbytes for cast in casts)
    chosen, used = [], 0
    for cast in casts:
        if used + cast.nbytes > _MOST_CAST_BYTES:
            break
        chosen.append(cast)
        used += cast.nbytes
    return chosen, used / total if total else 1.0


def _like(torch: Any, cast: CastEvent, device: Device) -> Any:
    kind = "cpu" if device.name == "cpu" else device.name
    made = torch.empty_strided(cast.shape, cast.stride, dtype=getattr(torch, cast.source), device=kind)
    return made.normal_() if made.is_floating_point() and 0 not in cast.stride else made.fill_(1)
