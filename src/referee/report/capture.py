"""What was recorded? One capture as a document."""

from __future__ import annotations

from statistics import median

from referee.records.capture import Capture, SchedulePlan
from referee.records.document import Block, Column, Document, Fact, Facts, Heading, Headline, Table
from referee.report.measurement import finding_blocks
from referee.report.provenance import provenance_blocks
from referee.report.wording import context_lines, plural
from referee.units import format_bytes, format_count, format_ns, format_range_ns, format_ratio


def compose_capture(capture: Capture) -> Document:
    """The capture as a document: the files first, then the schedule and the cost of recording."""
    recorded = sum(len(file.iterations) for file in capture.files)
    files = plural(len(capture.files), "trace file")
    headline = Headline(
        figure=files if capture.files else "Nothing recorded",
        sentence=f"{plural(recorded, 'iteration')} recorded of {capture.iterations_run:,} run. {_planned(capture)}",
        context=context_lines(capture.provenance),
        tone="good" if recorded else "bad",
    )
    return Document(
        title=capture.name,
        blocks=(
            headline,
            *capture_blocks(capture),
            *finding_blocks(capture.findings),
            *provenance_blocks(capture.provenance),
        ),
    )


def _planned(capture: Capture) -> str:
    plan = capture.plan
    if not plan.repeat:
        return f"The schedule repeats cycles of {plural(plan.active, 'active iteration')} without end."
    return f"The schedule planned {plural(plan.repeat * plan.active, 'active iteration')}."


def capture_blocks(capture: Capture) -> tuple[Block, ...]:
    """The files, the schedule, and what recording cost."""
    blocks: list[Block] = []
    if capture.files:
        rows = tuple((file.path, _iterations(file.iterations), format_bytes(file.size_bytes)) for file in capture.files)
        columns = (
            Column(title="File", fit="shorten"),
            Column(title="Iterations", fit="shorten"),
            Column(title="Size", align="right"),
        )
        blocks += [Heading(text="Files"), Table(columns=columns, rows=rows)]
    return (*blocks, Heading(text="Recording"), Facts(facts=(_plan(capture.plan), *_cost(capture))))


def _iterations(numbers: tuple[int, ...]) -> str:
    """``5 to 7`` for a run of numbers, else the list."""
    if len(numbers) > 2 and numbers == tuple(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers)) or "none"


def _plan(plan: SchedulePlan) -> Fact:
    cycle = f"wait {plan.wait}, warm up {plan.warmup}, record {plan.active}"
    times = "until stopped" if not plan.repeat else plural(plan.repeat, "time")
    return Fact(label="Schedule", value=f"skip {plan.skip}, then {cycle}", note=times)


def _cost(capture: Capture) -> tuple[Fact, ...]:
    if not capture.step_ns:
        return (Fact(label="Recorded steps", value=format_count(0)),)
    typical = median(capture.step_ns)
    facts = [
        Fact(
            label="Recorded steps",
            value=f"median {format_ns(typical)} each",
            note=f"{format_range_ns(min(capture.step_ns), max(capture.step_ns))}, host wall time",
        )
    ]
    if capture.unprofiled_step_ns:
        facts.append(
            Fact(
                label="Cost of recording",
                value=format_ratio(typical / capture.unprofiled_step_ns),
                note=f"unprofiled step {format_ns(capture.unprofiled_step_ns)}",
            )
        )
    return tuple(facts)
