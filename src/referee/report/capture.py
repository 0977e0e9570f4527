"""What was recorded? One capture as a document."""

from __future__ import annotations

from statistics import median

from referee.records.capture import Capture, CaptureFile, Recording, SchedulePlan
from referee.records.document import Block, Column, Document, Fact, Facts, Heading, Headline, Table
from referee.report.findings import alarm_blocks, finding_blocks
from referee.report.provenance import provenance_blocks
from referee.report.wording import context_lines, plural
from referee.units import format_bytes, format_count, format_ns, format_range_ns, format_ratio


def compose_capture(capture: Capture) -> Document:
    """The capture as a document: the files first, then the schedule and the cost of recording."""
    return Document(
        title=capture.name,
        blocks=(
            capture_headline(capture),
            *alarm_blocks(capture.findings),
            *capture_blocks(capture),
            *finding_blocks(capture.findings),
            *provenance_blocks(capture.provenance),
        ),
    )


def capture_headline(capture: Capture) -> Headline:
    """How much was recorded, of what was run and planned."""
    recorded = sum(len(file.iterations) for file in capture.files)
    return Headline(
        figure=plural(len(capture.files), "trace file") if capture.files else "Nothing recorded",
        sentence=f"{plural(recorded, 'iteration')} recorded of {capture.iterations_run:,} run. {_planned(capture)}",
        context=context_lines(capture.provenance),
        tone="bad" if not recorded else "warn" if alarm_blocks(capture.findings) else "good",
    )


def _planned(capture: Capture) -> str:
    plan = capture.plan
    if plan.steps:
        return f"The plan names {plural(len(plan.steps), 'iteration')}, each with {plan.active:,} recorded."
    if not plan.repeat:
        return f"The schedule repeats cycles of {plural(plan.active, 'active iteration')} without end."
    return f"The schedule planned {plural(plan.repeat * plan.active, 'active iteration')}."


def capture_blocks(capture: Capture) -> tuple[Block, ...]:
    """The files, the schedule, and what recording cost."""
    blocks = (Heading(text="Recording"), Facts(facts=_facts(capture)))
    return (Heading(text="Files"), _files(capture), *blocks) if capture.files else blocks


def recording_blocks(recording: Recording | None) -> tuple[Block, ...]:
    """How a trace was recorded, from the record beside it; nothing where there is none."""
    if recording is None:
        return ()
    of = f"of {plural(recording.iterations_run, 'iteration')} run"
    if recording.traces > 1:
        of += f"; {plural(recording.iterations_recorded, 'iteration')} in all {recording.traces:,} traces"
    holds = Fact(label="Iterations", value=_iterations(recording.iterations), note=of)
    return Heading(text="Recording"), Facts(facts=(holds, *_facts(recording)))


def _facts(recording: Capture | Recording) -> tuple[Fact, ...]:
    also = Fact(label="Also recorded", value=recording.options.words())
    return (_plan(recording.plan), also, *_cost(recording))


def _files(capture: Capture) -> Table:
    columns = (
        Column(title="File", fit="shorten"),
        Column(title="Iterations", fit="shorten"),
        Column(title="Size", align="right"),
        Column(title="Events", align="right", priority=2),
        Column(title="Operators", align="right", priority=3),
        Column(title="Device rows", align="right", priority=2),
        Column(title="Lost", align="right", priority=3),
        Column(title="Beside it", fit="shorten", priority=4),
    )
    return Table(columns=columns, rows=tuple(_file(file) for file in capture.files))


def _file(file: CaptureFile) -> tuple[str, ...]:
    whole = file.integrity
    counts = ("–",) * 4
    if whole is not None:
        lost = "not told" if whole.lost is None else format_count(whole.lost)
        counts = (format_count(whole.events), format_count(whole.ops), format_count(whole.device_rows), lost)
    return (
        file.path,
        _iterations(file.iterations),
        format_bytes(file.size_bytes),
        *counts,
        ", ".join(file.beside) or "–",
    )


def _iterations(numbers: tuple[int, ...]) -> str:
    """``5 to 7`` for a run of numbers, else the list."""
    if len(numbers) > 2 and numbers == tuple(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers)) or "none"


def _plan(plan: SchedulePlan) -> Fact:
    if plan.steps:
        named = _iterations(plan.steps)
        return Fact(label="Schedule", value=f"iterations {named}", note=f"warm up {plan.warmup}, record {plan.active}")
    cycle = f"wait {plan.wait}, warm up {plan.warmup}, record {plan.active}"
    times = "until stopped" if not plan.repeat else plural(plan.repeat, "time")
    first = "; the first cycle does not wait" if plan.skip_first_wait else ""
    return Fact(label="Schedule", value=f"skip {plan.skip}, then {cycle}", note=times + first)


def _cost(capture: Capture | Recording) -> tuple[Fact, ...]:
    """What recording did to the steps: their time with and without it, and the calibrated cost of one operator row."""
    facts = []
    if capture.step_ns:
        typical = median(capture.step_ns)
        spread = f"{format_range_ns(min(capture.step_ns), max(capture.step_ns))}, host wall time"
        facts.append(Fact(label="Recorded steps", value=f"median {format_ns(typical)} each", note=spread))
        if capture.unprofiled_step_ns:
            ratio = format_ratio(typical / capture.unprofiled_step_ns)
            note = f"unprofiled step {format_ns(capture.unprofiled_step_ns)}"
            facts.append(Fact(label="Recorded to unrecorded", value=ratio, note=note))
    if capture.cost is not None:
        cost = capture.cost
        note = f"{format_range_ns(cost.low_ns, cost.high_ns)}, calibrated with {cost.options.words()} recorded"
        facts.append(Fact(label="Cost of a recorded row", value=format_ns(cost.per_row_ns), note=note))
    return tuple(facts)
