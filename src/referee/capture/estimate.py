"""How large would this capture be? A probe of a few recorded steps, and its figures carried over to the plan."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from referee.capture.derived import memory_timelines
from referee.capture.export import compress
from referee.capture.rows import decode
from referee.capture.schedule import Cycle, Plan
from referee.capture.torch_window import TorchWindow
from referee.device.protocol import Device
from referee.records.capture import CaptureEstimate, CaptureOptions
from referee.records.finding import Finding
from referee.units import format_bytes

_MEMORY_PER_EVENT_BYTES = 1400
_MEMORY_PER_EVENT_WITH_SHAPES_BYTES = 3000
"""What the profiler holds per event until the file is written: 1,320–1,380 bytes on traces of 19,000 to 512,000 events
of a training step, and up to 3,300 with shapes (torch 2.13, resident memory of a fresh process)."""
_READ_BACK_PER_EVENT_BYTES = 600
"""What reading the file back for its integrity takes per event, beside the text itself."""
_LARGE_RAW_BYTES = 300 * 1024**2
"""Viewers that load the whole file begin to fail between 256 MB and 900 MB of JSON."""
_COMFORTABLE_RAW_BYTES = 100 * 1024**2
_MEMORY_FRAC = 0.5
"""More than half of what is free is asking for the out-of-memory killer: the step itself needs room too."""


@dataclass(frozen=True, kw_only=True)
class SizeModel:
    """What one recorded step adds to a file, and what a file holds anyway. ``held_bytes`` are tensors kept alive."""

    options: CaptureOptions
    events_per_step: float
    raw_bytes_per_step: float
    file_bytes_per_step: float
    held_bytes_per_step: float
    fixed_events: float
    fixed_raw_bytes: float
    fixed_file_bytes: float


@dataclass(frozen=True, kw_only=True)
class _Size:
    events: int
    raw_bytes: int
    file_bytes: int
    allocated_bytes: int


def probe_size(step: Callable[[], object], *, device: Device, options: CaptureOptions) -> SizeModel:
    """Record one step, then three, and take the difference for two. Runs ``step`` seven times (nine with shapes)."""
    device.settle(step())
    one, three = (_record(step, device=device, options=options, steps=steps) for steps in (1, 3))
    held = 0.0
    if options.shapes or options.flops:
        # Every operand stays alive until the file is written, so all that a step allocates is held.
        memory = CaptureOptions(memory=True)
        held = float(_record(step, device=device, options=memory, steps=1).allocated_bytes)
    events, raw, file = (
        max(0.0, (getattr(three, name) - getattr(one, name)) / 2) for name in ("events", "raw_bytes", "file_bytes")
    )
    return SizeModel(
        options=options,
        events_per_step=events,
        raw_bytes_per_step=raw,
        file_bytes_per_step=file,
        held_bytes_per_step=held,
        fixed_events=max(0.0, one.events - events),
        fixed_raw_bytes=max(0.0, one.raw_bytes - raw),
        fixed_file_bytes=max(0.0, one.file_bytes - file),
    )


def _record(step: Callable[[], object], *, device: Device, options: CaptureOptions, steps: int) -> _Size:
    window = TorchWindow(Cycle(warmup_from=0, first=1, end=1 + steps), device_name=device.name, options=options)
    window.start(0)
    for _ in range(1 + steps):
        device.settle(step())
        window.step()
    window.stop()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "probe.json"
        window.export(path)
        text = path.read_bytes()
    window.release()
    file = decode(text)
    return _Size(
        events=len(file.events) if file is not None else text.count(b'"ph":'),
        raw_bytes=len(text),
        file_bytes=len(compress(text)),
        allocated_bytes=0 if file is None else sum(line.allocated_bytes for line in memory_timelines(file)),
    )


def estimate_capture(
    plan: Plan, *, iterations: int | None, model: SizeModel, available_bytes: int | None = None
) -> CaptureEstimate:
    """What would ``plan`` leave behind in a run of ``iterations``? Nothing is executed.

    ``available_bytes`` is the memory that is free (:func:`free_memory_bytes`). Raises
    :class:`~referee.errors.OptionError` for a plan that would record nothing.
    """
    dry = plan.dry_run(plan.length(iterations))
    recorded, files = sum(map(len, dry.recorded)), len(dry.recorded)
    longest = max(map(len, dry.recorded))
    estimate = CaptureEstimate(
        files=files,
        recorded=recorded,
        events=round(files * model.fixed_events + recorded * model.events_per_step),
        raw_bytes=round(files * model.fixed_raw_bytes + recorded * model.raw_bytes_per_step),
        file_bytes=round(files * model.fixed_file_bytes + recorded * model.file_bytes_per_step),
        memory_bytes=_memory(model, longest),
    )
    return replace(estimate, findings=_judge(estimate, model, longest=longest, available_bytes=available_bytes))


def _memory(model: SizeModel, steps: int) -> int:
    """The most that one cycle of ``steps`` takes: the events, the tensors held, the text, and reading it back."""
    with_shapes = model.options.shapes or model.options.flops
    per_event = _MEMORY_PER_EVENT_WITH_SHAPES_BYTES if with_shapes else _MEMORY_PER_EVENT_BYTES
    events = model.fixed_events + steps * model.events_per_step
    text = model.fixed_raw_bytes + steps * model.raw_bytes_per_step
    return round(events * (per_event + _READ_BACK_PER_EVENT_BYTES) + text + steps * model.held_bytes_per_step)


def _judge(
    estimate: CaptureEstimate, model: SizeModel, *, longest: int, available_bytes: int | None
) -> tuple[Finding, ...]:
    raw = model.fixed_raw_bytes + longest * model.raw_bytes_per_step
    too_much = available_bytes is not None and estimate.memory_bytes > _MEMORY_FRAC * available_bytes
    if raw <= _LARGE_RAW_BYTES and not too_much:
        return ()
    return (
        Finding(
            code="large-capture",
            severity="warning",
            message=f"The planned capture holds about {estimate.events:,} events: {format_bytes(raw)} of JSON in the "
            f"largest file, and {format_bytes(estimate.memory_bytes)} of memory until it is written.",
            evidence={
                "events": estimate.events,
                "largest_raw_bytes": round(raw),
                "memory_bytes": estimate.memory_bytes,
                "available_bytes": available_bytes,
            },
            hint=_advice(model, longest=longest, available_bytes=available_bytes),
        ),
    )


def _advice(model: SizeModel, *, longest: int, available_bytes: int | None) -> str:
    """How many active iterations fit, and which options to leave out."""
    fitting = longest
    while fitting > 1 and (
        model.fixed_raw_bytes + fitting * model.raw_bytes_per_step > _COMFORTABLE_RAW_BYTES
        or (available_bytes is not None and _memory(model, fitting) > _MEMORY_FRAC * available_bytes)
    ):
        fitting -= 1
    heavy = [name for name in ("stacks", "shapes", "memory", "flops") if getattr(model.options, name)]
    without = f", without {', '.join(heavy)}" if heavy else ""
    return f"Take active={fitting}{without}."


def free_memory_bytes() -> int | None:
    """The memory that can be had without swapping, as the kernel reckons; ``None`` where it does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None
