"""What does the trace say? One report that reads as one answer: verdict, reasons, where time went, what to try."""

from __future__ import annotations

from collections import Counter

from referee.records.document import (
    Bar,
    Bars,
    Block,
    Column,
    Document,
    Fact,
    Facts,
    Heading,
    Paragraph,
    Table,
)
from referee.records.trace_report import Loss, StepReport, Timeline, Totals, TraceReport
from referee.report.capture import recording_blocks
from referee.report.findings import alarm_blocks, finding_blocks
from referee.report.provenance import provenance_blocks
from referee.report.tables import deep_blocks, host_operator_blocks
from referee.report.verdict import gain_words, reasoning_blocks, remedy_blocks, verdict_headline, verdict_sentence
from referee.report.wording import context_lines, plural
from referee.units import format_count, format_frac, format_ns

_MOST_STEPS = 12
_MOST_KERNELS = 12

_STEP_SOURCES = {"profiler-steps": "the profiler's steps", "named": "the step that was named"}


def compose_trace(report: TraceReport) -> Document:
    """The report as a document."""
    return Document(
        title=report.source,
        blocks=(
            verdict_headline(report.verdict, trace=report, context=trace_context(report)),
            *alarm_blocks(report.findings),
            *reasoning_section(report),
            *trace_blocks(report),
            Heading(text="What to try"),
            *remedy_blocks(report.remedies),
            *recording_blocks(report.recording),
            *finding_blocks(report.findings),
            *(provenance_blocks(report.provenance) if report.provenance else ()),
        ),
    )


def trace_context(report: TraceReport) -> tuple[str, ...]:
    """What was read: devices and rows; chip, dtype, shapes and method as far as they lie beside the trace."""
    totals = report.totals
    named = Counter(device.name or f"device {device.device} (not named)" for device in report.devices)
    devices = " · ".join(f"{count} × {name}" if count > 1 else name for name, count in named.items()) or "no device"
    rows = f"{plural(totals.device_rows, 'device row')}, {plural(totals.kernels, 'kernel')}, " + plural(
        len(report.steps), "step"
    )
    if report.provenance is not None:
        return (*context_lines(report.provenance), f"{devices} · {rows}")
    return (
        f"{devices} · {rows}",
        "dtype, shapes and method: no provenance lies beside this file; times are the profiler's own",
    )


def reasoning_section(report: TraceReport) -> tuple[Block, ...]:
    """Why this verdict, under one heading; nothing where the verdict brings no evidence."""
    blocks = reasoning_blocks(report.verdict)
    return (Heading(text="Why"), *blocks) if blocks else ()


def trace_blocks(report: TraceReport) -> tuple[Block, ...]:
    """Where the time went: the warm remainder, the window, the law, utilisation, devices, steps, kernels, losses."""
    if report.totals.window_ns <= 0:
        return (*_window(report), *_steps(report), *host_operator_blocks(report.operators))
    return (
        *_warm(report),
        *_window(report),
        *_law(report),
        *_utilisation(report),
        *_devices(report),
        *_steps(report),
        *_kernels(report),
        *_losses(report),
        *deep_blocks(report),
    )


def _warm(report: TraceReport) -> tuple[Block, ...]:
    """What the verdict would be without the first-time costs, with the figures that carry it."""
    if report.warm is None:
        return ()
    regime = report.warm.regime
    words = f"Without the first-time costs: {regime}. {verdict_sentence(report.warm, report, of='what remains')}"
    return Heading(text="The warm remainder"), Paragraph(text=words), *reasoning_blocks(report.warm)


def _window(report: TraceReport) -> tuple[Block, ...]:
    if report.totals.window_ns > 0:
        return Heading(text="Where the window went"), idle_bars(report), Facts(facts=_counts(report))
    totals = report.totals
    return (
        Heading(text="What the file holds"),
        Paragraph(text="No device row that lasts, so there is no window to divide and no law to hold it against."),
        Facts(
            facts=(
                Fact(label="Operators", value=format_count(totals.ops), note=_operator_note(totals)),
                Fact(label="Time in operators", value=format_ns(totals.self_cpu_ns)),
                Fact(label="Runtime calls", value=format_count(totals.runtime_calls)),
                Fact(label="Launches", value=format_count(totals.launches), note=_launch_note(totals)),
            )
        ),
    )


def idle_bars(report: TraceReport) -> Bars:
    """What ran and every cause of idle time as parts of the window; the causes sum to idle exactly."""
    totals, idle, starved = report.totals, report.idle, report.idle.host_starved
    causes = (
        ("host-starved, per-op", starved.per_op_ns),
        ("host-starved, loader", starved.loader_ns),
        ("host-starved, allocator", starved.allocator_ns),
        ("host-starved, one-off", starved.one_off_ns),
        ("host-starved, pause", starved.pause_ns),
        ("synchronised", idle.synchronised_ns),
        ("dependency", idle.dependency_ns),
        ("other", idle.other_ns),
    )
    parts = [*_busy_parts(report), *causes]
    none = [name.removeprefix("host-starved, ") for name, ns in causes if not ns]
    caption = (
        f"Window {format_ns(totals.window_ns)}{_added(report)} = busy {format_ns(totals.busy_ns)} + idle "
        f"{format_ns(totals.idle_ns)}; "
        "the causes sum to idle exactly."
    )
    if none and len(none) < len(causes):
        caption += f" Zero: {', '.join(none)}."
    window = totals.window_ns
    bars = (
        Bar(label=name, frac=ns / window, text=_share(ns, window), hue=hue)
        for hue, (name, ns) in enumerate(parts)
        if ns
    )
    return Bars(bars=tuple(bars), caption=caption, stacked=True)


def _added(report: TraceReport) -> str:
    """That a figure adds up over devices, where there are several."""
    count = len(report.devices)
    return f", added over {count} devices," if count > 1 else ""


def _busy_parts(report: TraceReport) -> tuple[tuple[str, int], ...]:
    """Busy time by what ran, where computation and the exposed rest sum to it; else all of it as the first part."""
    timeline = report.timeline
    parts = (
        ("busy, computation", timeline.computation_ns),
        ("busy, exposed copies", timeline.exposed_copy_ns),
        ("busy, exposed collectives", timeline.exposed_communication_ns),
    )
    if sum(ns for _, ns in parts) == report.totals.busy_ns:
        return parts
    return (("busy", report.totals.busy_ns), *((name, 0) for name, _ in parts[1:]))


def _share(ns: int, window_ns: int) -> str:
    """A part of the window in two columns: ``57.3 %   13.8 ms``."""
    return f"{format_frac(ns / window_ns):>7} {format_ns(ns):>9}"


def _within_device(timeline: Timeline) -> str:
    """How much of the exposed copies no link carried, where any did not."""
    return f" ({format_ns(timeline.local_copy_ns)} of them within a device)" if timeline.local_copy_ns else ""


def _counts(report: TraceReport) -> tuple[Fact, ...]:
    totals, timeline, queue = report.totals, report.timeline, report.queue
    facts = [
        Fact(
            label="Busy",
            value=format_ns(totals.busy_ns),
            note=f"union over {plural(totals.streams, 'stream')}; sum of rows {format_ns(totals.sum_ns)}",
        ),
        Fact(
            label="Of busy",
            value=f"computation {format_ns(timeline.computation_ns)}",
            note=f"exposed copies {format_ns(timeline.exposed_copy_ns)}{_within_device(timeline)}, "
            f"exposed communication {format_ns(timeline.exposed_communication_ns)}",
        ),
        Fact(
            label="Kernels",
            value=format_count(totals.kernels),
            note=f"median {format_ns(totals.median_kernel_ns)}" if totals.median_kernel_ns is not None else "",
        ),
        Fact(label="Launches", value=format_count(totals.launches), note=_launch_note(totals)),
        Fact(
            label="Operators",
            value=format_count(totals.ops),
            note=_operator_note(totals),
        ),
    ]
    if queue.median_ns is not None:
        facts.append(
            Fact(
                label="Queue delay",
                value=f"median {format_ns(queue.median_ns)}",
                note=f"95th percentile {format_ns(queue.p95_ns)} over {plural(queue.rows, 'launch', 'launches')}; "
                f"bare latency {format_ns(queue.latency_ns)}"
                + (", assumed: too few rows show it" if queue.latency_assumed else ""),
            )
        )
    if report.idle.unseen_ns:
        facts.append(
            Fact(
                label="Unseen",
                value=format_ns(report.idle.unseen_ns),
                note="gaps over 50 µs although the next row was queued; part of dependency or other",
            )
        )
    return tuple(facts)


def _operator_note(totals: Totals) -> str:
    return f"{totals.ops_top:,} at the top, {totals.ops_aten_top:,} of aten at the top"


def _launch_note(totals: Totals) -> str:
    named = (
        (totals.launches_without_device_rows, "without a device row"),
        (totals.graph_launches, "of graphs"),
        (totals.device_rows_without_launch, "device rows without a launch"),
    )
    return ", ".join(f"{count:,} {words}" for count, words in named if count) or (
        "each with a device row" if totals.launches else ""
    )


def _law(report: TraceReport) -> tuple[Block, ...]:
    law = report.law
    per_op = f"{plural(law.n_ops, 'op')} × {format_ns(law.t_cpu_ns)}" if law.t_cpu_ns is not None else "not known"
    facts = (
        Fact(label="Host, N_ops × t_cpu", value=format_ns(law.host_ns), note=per_op),
        Fact(label="Device, Σ t_gpu", value=format_ns(law.device_ns)),
        Fact(label="The larger: the law", value=format_ns(law.predicted_ns)),
        Fact(label="Measured window", value=format_ns(law.measured_ns)),
        Fact(label="Residual", value=format_ns(law.residual_ns), note=law.residual),
    )
    return Heading(text="The law: t_step ≈ max(N_ops × t_cpu, Σ t_gpu)"), Facts(facts=facts)


def _utilisation(report: TraceReport) -> tuple[Block, ...]:
    figures = report.utilisation
    named = (
        ("any kernel", figures.any_kernel_frac),
        *((("any kernel, busiest 1/6 s", peak),) if (peak := figures.any_kernel_peak_frac) is not None else ()),
        ("SM-weighted", figures.sm_weighted_frac),
        ("useful", figures.useful_frac),
    )
    if all(frac is None for _, frac in named):
        return ()
    bars = tuple(
        Bar(label=name, frac=frac or 0.0, text="not known" if frac is None else format_frac(frac))
        for name, frac in named
    )
    caption = "Three figures that disagree on purpose; the first is what nvidia-smi samples."
    return Heading(text="Utilisation"), Bars(bars=bars, caption=caption)


def _devices(report: TraceReport) -> tuple[Block, ...]:
    if len(report.devices) < 2:
        return ()
    rows = tuple(
        (
            str(device.device),
            device.name or "not named",
            format_count(device.kernels),
            format_ns(device.busy_ns),
            format_ns(device.idle_ns),
            format_ns(device.window_ns),
            format_frac(device.busy_ns / device.window_ns) if device.window_ns else "–",
        )
        for device in report.devices
    )
    columns = (
        Column(title="Device", align="right"),
        Column(title="Name", priority=3, fit="shorten"),
        Column(title="Kernels", align="right", priority=2),
        Column(title="Busy", align="right"),
        Column(title="Idle", align="right", priority=2),
        Column(title="Window", align="right"),
        Column(title="Share busy", align="right"),
    )
    return Heading(text="Devices"), Table(columns=columns, rows=rows, caption="Totals above add over devices.")


def _steps(report: TraceReport) -> tuple[Block, ...]:
    steps = report.steps
    if not steps:
        return ()
    shown = steps
    caption = f"From {_STEP_SOURCES.get(report.steps_from, report.steps_from)}."
    if len(steps) > _MOST_STEPS:
        longest = sorted(steps, key=lambda step: -step.wall_ns)[:_MOST_STEPS]
        shown = tuple(step for step in steps if step in longest)[:_MOST_STEPS]
        caption += f" The {_MOST_STEPS} longest of {len(steps):,}; the JSON lists all."
    if not report.totals.device_rows:
        rows = tuple((step.name, format_ns(step.wall_ns), format_count(step.ops)) for step in shown)
        return Heading(text="Steps"), Table(columns=_HOST_STEP_COLUMNS, rows=rows, caption=caption)
    caption += " Busy is the device work that a step launched; in wall, what ran while it lasted."
    return Heading(text="Steps"), Table(columns=_STEP_COLUMNS, rows=tuple(map(_step, shown)), caption=caption)


_STEP_COLUMNS = (
    Column(title="Step", fit="shorten"),
    Column(title="Regime"),
    Column(title="Wall", align="right"),
    Column(title="Kernels", align="right", priority=2),
    Column(title="Ops", align="right", priority=3),
    Column(title="Busy", align="right"),
    Column(title="In wall", align="right", priority=2),
    Column(title="Lead idle", align="right", priority=2),
    Column(title="Tail idle", align="right", priority=3),
)
_HOST_STEP_COLUMNS = (
    Column(title="Step", fit="shorten"),
    Column(title="Wall", align="right"),
    Column(title="Ops", align="right"),
)


def _step(step: StepReport) -> tuple[str, ...]:
    return (
        step.name,
        step.regime or "–",
        format_ns(step.wall_ns),
        format_count(step.kernels),
        format_count(step.ops),
        format_ns(step.busy_ns),
        format_ns(step.busy_in_step_ns),
        format_ns(step.lead_idle_ns),
        format_ns(step.tail_idle_ns),
    )


def _kernels(report: TraceReport) -> tuple[Block, ...]:
    if not report.top_kernels:
        return ()
    total = report.totals.sum_ns
    rows = tuple(
        (
            kernel.name.removeprefix("void "),
            format_count(kernel.count),
            format_ns(kernel.sum_ns),
            format_frac(kernel.sum_ns / total) if total else "–",
            format_ns(kernel.median_ns),
        )
        for kernel in report.top_kernels[:_MOST_KERNELS]
    )
    columns = (
        Column(title="Device row", fit="shorten"),
        Column(title="Count", align="right"),
        Column(title="Sum", align="right"),
        Column(title="Of all", align="right", priority=2),
        Column(title="Median", align="right", priority=2),
    )
    return Heading(text="Where device time went"), Table(columns=columns, rows=rows)


def _losses(report: TraceReport) -> tuple[Block, ...]:
    losses = report.losses
    named = (
        ("Per-op CPU overhead", losses.per_op_overhead),
        ("Memory traffic between ops", losses.memory_traffic),
        ("Allocator work", losses.allocator),
    )
    return (
        Heading(text="The three losses of eager mode"),
        Facts(facts=tuple(_loss(name, loss) for name, loss in named)),
    )


def _loss(name: str, loss: Loss) -> Fact:
    if loss.recoverable_ns is None and loss.low_ns is None and loss.high_ns is None:
        return Fact(label=name, value="not priced", note=loss.basis.removeprefix("not priced: "))
    value = format_ns(loss.recoverable_ns) if loss.recoverable_ns is not None else gain_words(loss.low_ns, loss.high_ns)
    known = loss.recoverable_ns is not None and not (loss.low_ns == loss.high_ns == loss.recoverable_ns)
    bounds = f"{gain_words(loss.low_ns, loss.high_ns)}; " if known else ""
    return Fact(label=name, value=value, note=f"{bounds}basis: {loss.basis}")
