"""What lies behind the verdict? The tables of a trace report, each short, each under its own heading."""

from __future__ import annotations

from collections.abc import Sequence

from referee.records.document import Bar, Bars, Block, Column, Curve, Fact, Facts, Heading, Plot, Table
from referee.records.tables import Blocker, GapRow, MemoryTimeline, OperatorRow, Owner, SyncSite
from referee.records.trace_report import TopKernel, TraceReport
from referee.report.wording import plural
from referee.units import format_bytes, format_count, format_frac, format_ns, format_number, format_rate

_MOST_ROWS = 10


def deep_blocks(report: TraceReport) -> tuple[Block, ...]:
    """Roofs, operators, launches, gaps, synchronising places, graphs, memory and the critical path, where known."""
    return (
        *_roofs(report.top_kernels),
        *_operators(report.operators),
        *_launches(report),
        *_gaps(report.gaps),
        *_sites(report.sync_sites),
        *_graphable(report),
        *_path(report),
        *_memory(report.memory),
    )


def _roofs(kernels: Sequence[TopKernel]) -> tuple[Block, ...]:
    known = [kernel for kernel in kernels if kernel.roof or kernel.occupancy_frac is not None][:_MOST_ROWS]
    if not known:
        return ()
    columns = (
        Column(title="Device row", fit="shorten"),
        Column(title="Roof"),
        Column(title="Limit"),
        Column(title="Of roof", align="right"),
        Column(title="FLOP/B", align="right", priority=3),
        Column(title="FLOP/s", align="right", priority=3),
        Column(title="Bytes/s", align="right", priority=3),
        Column(title="Blocks per SM", align="right", priority=2),
        Column(title="Tail", align="right", priority=2),
        Column(title="Occupancy", align="right", priority=2),
    )
    rows = tuple(
        (
            kernel.name.removeprefix("void "),
            kernel.roof or "–",
            kernel.limit or "–",
            _frac(kernel.of_roof_frac),
            "–" if kernel.flop_per_byte is None else format_number(kernel.flop_per_byte),
            "–" if kernel.flop_per_s is None else format_rate(kernel.flop_per_s, "FLOP"),
            "–" if kernel.bytes_per_s is None else format_rate(kernel.bytes_per_s, "B"),
            "–" if kernel.blocks_per_sm is None else format_number(kernel.blocks_per_sm),
            _frac(kernel.tail_frac),
            _frac(kernel.occupancy_frac),
        )
        for kernel in known
    )
    caption = (
        "Roof: which side of the device's ridge. Limit: latency where both roofs are far or a wave is not filled. "
        "Tail: empty places in the last wave."
    )
    return Heading(text="What limits the kernels"), Table(columns=columns, rows=rows, caption=caption)


def _operators(operators: Sequence[OperatorRow]) -> tuple[Block, ...]:
    if not operators:
        return ()
    columns = (
        Column(title="Operator", fit="shorten"),
        Column(title="Count", align="right"),
        Column(title="Host self", align="right"),
        Column(title="Host total", align="right", priority=2),
        Column(title="Device self", align="right"),
        Column(title="Device total", align="right", priority=2),
    )
    rows = tuple(
        (
            row.name,
            format_count(row.count),
            format_ns(row.host_self_ns),
            format_ns(row.host_total_ns),
            format_ns(row.device_self_ns),
            format_ns(row.device_total_ns),
        )
        for row in operators[:_MOST_ROWS]
    )
    caption = "Self times add up; totals hold what other operators inside did, so they do not."
    if len(operators) > _MOST_ROWS:
        caption += f" The first {_MOST_ROWS} of {len(operators):,}."
    return Heading(text="Operators"), Table(columns=columns, rows=rows, caption=caption)


def host_operator_blocks(operators: Sequence[OperatorRow]) -> tuple[Block, ...]:
    """Operators by their own time on the host, of a trace without device work."""
    if not operators:
        return ()
    own_ns = sum(row.host_self_ns for row in operators)
    ordered = sorted(operators, key=lambda row: -row.host_self_ns)[:_MOST_ROWS]
    columns = (
        Column(title="Operator", fit="shorten"),
        Column(title="Count", align="right"),
        Column(title="Self", align="right"),
        Column(title="Of these", align="right", priority=2),
        Column(title="Total", align="right", priority=2),
    )
    rows = tuple(
        (
            row.name,
            format_count(row.count),
            format_ns(row.host_self_ns),
            format_frac(row.host_self_ns / own_ns) if own_ns else "–",
            format_ns(row.host_total_ns),
        )
        for row in ordered
    )
    caption = "Self times add up; totals hold what other operators inside did, so they do not."
    if len(operators) > len(ordered):
        caption += f" The first {len(ordered)} of {len(operators):,}."
    return Heading(text="Operators"), Table(columns=columns, rows=rows, caption=caption)


def _launches(report: TraceReport) -> tuple[Block, ...]:
    stats = report.launch_stats
    if stats is None:
        return ()
    short = f"{format_count(stats.short_kernels)} of {format_count(stats.kernels)}"
    facts = (
        Fact(
            label="Launch calls",
            value=format_count(stats.launches),
            note=f"median {format_ns(stats.median_call_ns)}, 95th percentile {format_ns(stats.p95_call_ns)}, "
            f"{format_ns(stats.total_call_ns)} in all",
        ),
        Fact(label="Kernels per launch", value=format_number(stats.kernels_per_launch)),
        Fact(
            label="Shorter than a launch",
            value=f"{short} kernels",
            note=f"{format_ns(stats.short_kernels_ns)} in all; held against the median launch call",
        ),
    )
    return Heading(text="Launches"), Facts(facts=facts)


def _gaps(gaps: Sequence[GapRow]) -> tuple[Block, ...]:
    if not gaps:
        return ()
    columns = (
        Column(title="At", align="right"),
        Column(title="Idle", align="right"),
        Column(title="Largest cause"),
        Column(title="Who had the host", fit="shorten"),
        Column(title="Ended by", fit="shorten", priority=2),
    )
    rows = tuple(
        (
            format_ns(gap.start_ns),
            format_ns(gap.length_ns),
            f"{gap.cause} {format_ns(gap.cause_ns)}",
            owner_words(gap.owner),
            gap.ended_by.removeprefix("void "),
        )
        for gap in gaps[:_MOST_ROWS]
    )
    return Heading(text="The longest gaps"), Table(columns=columns, rows=rows)


def owner_words(owner: Owner) -> str:
    """Who it was, the most telling first: the Python line, the operator, the annotation."""
    return " in ".join(filter(None, (owner.operator, owner.python, owner.annotation))) or "nothing recorded"


def _sites(sites: Sequence[SyncSite]) -> tuple[Block, ...]:
    if not sites:
        return ()
    columns = (
        Column(title="Call", fit="shorten"),
        Column(title="Made by", fit="shorten"),
        Column(title="Count", align="right"),
        Column(title="Waited", align="right"),
        Column(title="Idle behind it", align="right"),
    )
    rows = tuple(
        (
            site.call,
            owner_words(site.owner),
            format_count(site.count),
            format_ns(site.wait_ns),
            format_ns(site.idle_ns),
        )
        for site in sites[:_MOST_ROWS]
    )
    return Heading(text="Places that wait for the device"), Table(columns=columns, rows=rows)


def _graphable(report: TraceReport) -> tuple[Block, ...]:
    graphable = report.graphable
    if graphable is None:
        return ()
    facts = [
        Fact(
            label="Stretches without a wait",
            value=format_count(graphable.regions),
            note=f"{format_count(graphable.launches_inside)} of {plural(graphable.launches, 'launch', 'launches')} lie "
            f"in one; the longest has {format_count(graphable.longest)}",
        )
    ]
    facts += [
        Fact(label=_BLOCKER_WORDS.get(blocker.kind, blocker.kind), value=blocker.name, note=_blocker(blocker))
        for blocker in graphable.blockers[:_MOST_ROWS]
    ]
    return Heading(text="What a captured graph could replay"), Facts(facts=tuple(facts))


_BLOCKER_WORDS = {"wait": "Ended by a wait", "copy": "Ended by a copy", "shape": "Shapes change"}


def _blocker(blocker: Blocker) -> str:
    owner = owner_words(blocker.owner)
    where = "" if owner in ("nothing recorded", blocker.name) else f", {owner}"
    return f"{plural(blocker.count, 'time')}{where}"


def _path(report: TraceReport) -> tuple[Block, ...]:
    path = report.critical_path
    if path is None or not path.length_ns:
        return ()
    parts = (
        ("host rows", path.host_ns),
        ("host, between rows", path.gap_ns),
        ("launch latency", path.launch_ns),
        ("device rows", path.device_ns),
        ("order: queues, waits, hand-overs", path.order_ns),
    )
    bars = tuple(
        Bar(label=name, frac=ns / path.length_ns, text=f"{format_frac(ns / path.length_ns)} {format_ns(ns)}")
        for name, ns in parts
        if ns
    )
    caption = f"{format_ns(path.length_ns)} through {plural(path.rows, 'row')}; replaying the unchanged graph gives "
    caption += f"{format_ns(path.replayed_ns)} for {format_ns(path.recorded_ns)} recorded."
    rows = tuple(
        (owner.name.removeprefix("void "), format_ns(owner.ns), format_count(owner.rows))
        for owner in path.owners[:_MOST_ROWS]
    )
    columns = (
        Column(title="On the path", fit="shorten"),
        Column(title="Time", align="right"),
        Column(title="Rows", align="right"),
    )
    return Heading(text="The critical path"), Bars(bars=bars, caption=caption), Table(columns=columns, rows=rows)


def _memory(memory: MemoryTimeline | None) -> tuple[Block, ...]:
    if memory is None:
        return ()
    curve = Curve(
        label="allocated",
        xs=tuple(point.time_ns / 1e6 for point in memory.points),
        ys=tuple(float(point.allocated_bytes) for point in memory.points),
    )
    caption = f"Peak {format_bytes(memory.peak_bytes)} at {format_ns(memory.peak_time_ns)}; " + plural(
        memory.events, "event"
    )
    caption += "." if memory.from_start else ", relative to the first one."
    if memory.driver_calls:
        caption += f" {plural(memory.driver_calls, 'call')} reached the driver, {format_ns(memory.driver_ns)} in all."
    plot = Plot(
        curves=(curve,),
        x_label="ms into the trace",
        y_label="bytes on the device",
        y_unit="bytes",
        log_x=False,
        log_y=False,
        caption=caption,
    )
    return Heading(text="Device memory"), plot


def _frac(frac: float | None) -> str:
    return "–" if frac is None else format_frac(frac)
