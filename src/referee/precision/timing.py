"""Which precision is faster here, by how much, and what do the casts cost? The step's own time, side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from referee.bench.compare import COMPARED, Candidate, compare
from referee.bench.measure import Seen, measure
from referee.bench.plan import Plan, ProgressCallback, no_progress
from referee.device.host import load_torch
from referee.device.provenance import Source
from referee.precision.control import BF16, FLOAT32, FP16, TF32, Control, Setting, own_scaler
from referee.precision.recorder import CastEvent
from referee.precision.subject import Subject, restored
from referee.records.compare import Comparison
from referee.records.finding import Scalar
from referee.records.measurement import Measurement
from referee.units import NS_PER_MS

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
_MOST_CAST_BYTES = 1 << 30
"""Casts of more than this are timed in part, and the time is scaled up by the bytes."""


def settings_for(device: Device, *, names: Sequence[str] = ("bfloat16", "float16")) -> tuple[Setting, ...]:
    """Float32, TF32 where the device has it, and the low precisions asked for."""
    torch = load_torch()
    low = tuple(setting for setting in (BF16, FP16) if setting.name in names)
    tf32 = device.name.startswith("cuda") and torch.version.cuda and torch.cuda.get_device_capability()[0] >= 8
    return (FLOAT32, *((TF32,) if tf32 else ()), *low)


def time_settings(
    subject: Subject,
    settings: Sequence[Setting],
    *,
    device: Device,
    plan: Plan,
    seen: Seen | None = None,
    target: Source | None = None,
    method: Mapping[str, Scalar] | None = None,
    name: str = "",
    progress: ProgressCallback = no_progress,
) -> Comparison | Measurement:
    """Compare the settings, whole steps interleaved; fp16 training runs with a ``GradScaler``, as it would have to.

    One setting alone is measured. The weights move while this runs (the optimizer is a part of the step) and are put
    back.
    """
    with restored(subject):
        if len(settings) == 1:
            return measure(
                in_setting(subject, settings[0]),
                device=device,
                plan=plan,
                name=name,
                observation=seen,
                target=target,
                method=method,
                progress=progress,
            )
        return compare(
            [replace(_candidate(subject, setting, seen), target=target, method=method or {}) for setting in settings],
            device=device,
            plan=plan,
            name=name,
            ignoring=PRECISION_KEYS,
            progress=progress,
        )


def _candidate(subject: Subject, setting: Setting, seen: Seen | None) -> Candidate:
    return Candidate(
        name=setting.name,
        step=in_setting(subject, setting),
        observation=seen,
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
