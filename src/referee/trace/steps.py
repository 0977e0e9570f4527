"""Where are the steps? The profiler's own step rows on the host, else annotations that read like steps, else none."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from referee.records.finding import Finding
from referee.trace.columns import NONE, BoolColumn, IntColumn, Kind, RowNumbers, Rows, Step, Trace
from referee.trace.nesting import top_level

_STEP_WORD = re.compile(
    r"(?i)(?:^|[^a-z])(?:train|eval|decode|prefill)?[ _]?(?:step|iteration|iter|batch)(?:[^a-z]|$)|"
    r"^execute_(?:\d+_)?context_\d+\(.*\)_generation_\d+\("
)
"""Annotations that read like steps; the last ones are how inference servers (vLLM) name one pass over a batch."""
_NOT_A_STEP = re.compile(r"Optimizer\.|nccl:|gloo:|##")
"""Annotations that torch writes itself, and its optimizers' ``Optimizer.step#…``."""
_NUMBER = re.compile(r"\d+")
MIN_REPEATS = 2
"""An annotation must repeat on one thread before it is taken for a step: one alone may be anything."""
_WHOLE_FRAC = 0.9
"""A step with this share of the others' operators is whole: the last few may belong to what follows it."""
MIN_STEPS_TO_JUDGE = 3
"""With fewer steps there is no usual duration to hold the first and the last one against."""


def find_steps(rows: Rows, *, names: Sequence[str]) -> tuple[tuple[Step, ...], str]:
    """The steps in order of start, and where they were taken from (``Trace.steps_from``)."""
    marked = rows.of(Kind.STEP)
    if len(marked):
        return as_steps(rows, marked, names=names), "profiler-steps"
    repeated = _step_like(rows, names=names)
    if len(repeated):
        return as_steps(rows, repeated, names=names), "annotations"
    return (), "none"


def as_steps(rows: Rows, chosen: RowNumbers, *, names: Sequence[str]) -> tuple[Step, ...]:
    """Rows as steps, in order of start; a first or last one that recording cut off is marked."""
    walls = rows.end_ns[chosen] - rows.start_ns[chosen]
    cut = _cut_at_edges(walls, operators=_operators_in(rows, chosen))
    return tuple(
        Step(
            name=names[rows.name[row]],
            start_ns=int(rows.start_ns[row]),
            end_ns=int(rows.end_ns[row]),
            row=int(row),
            cut=bool(is_cut),
        )
        for row, is_cut in zip(chosen, cut, strict=True)
    )


def believe_record(trace: Trace, iterations: Collection[int]) -> Trace:
    """The trace without doubts about the steps of ``iterations``, which its capture saw complete, however short."""
    complete = {f"ProfilerStep#{number}" for number in iterations}
    doubted = {step.name for step in trace.steps if step.cut and step.name in complete}
    if not doubted:
        return trace
    steps = tuple(replace(step, cut=False) if step.name in doubted else step for step in trace.steps)
    findings = tuple(
        found for found in trace.findings if found.code != "cut-step" or found.evidence.get("step") not in doubted
    )
    return replace(trace, steps=steps, findings=findings)


def _operators_in(rows: Rows, chosen: RowNumbers) -> IntColumn:
    """How many operators begin within each of ``chosen``."""
    starts = rows.start_ns[rows.of(Kind.OPERATOR)]
    return np.searchsorted(starts, rows.end_ns[chosen]) - np.searchsorted(starts, rows.start_ns[chosen])


def _cut_at_edges(walls: IntColumn, *, operators: IntColumn) -> BoolColumn:
    """Whether the first and the last step are too short to be whole: under half of the median of the others.

    A step that is short but issued as many operators as the others is whole: the others were disturbed.
    """
    cut = np.zeros(len(walls), np.bool_)
    if len(walls) >= MIN_STEPS_TO_JUDGE:
        for edge in (0, len(walls) - 1):
            short = 2 * walls[edge] < np.median(np.delete(walls, edge))
            fewer = operators[edge] < _WHOLE_FRAC * np.median(np.delete(operators, edge))
            cut[edge] = short and (fewer or not operators.any())
    return cut


def _step_like(rows: Rows, *, names: Sequence[str]) -> RowNumbers:
    """The rows of the annotation that repeats most among those whose name says step, iteration or batch.

    Names count as equal when they differ in numbers only. Rows inside another of their kind do not count.
    """
    annotations = rows.of(Kind.ANNOTATION)
    shapes: dict[str, list[int]] = {}
    for code in np.unique(rows.name[annotations]):
        text = names[code]
        if _STEP_WORD.search(text) and not _NOT_A_STEP.match(text):
            shapes.setdefault(_NUMBER.sub("#", text), []).append(int(code))
    best = np.empty(0, np.int64)
    for codes in shapes.values():
        chosen = annotations[np.isin(rows.name[annotations], codes)]
        for thread in np.unique(rows.thread[chosen]):
            own = chosen[rows.thread[chosen] == thread]
            own = own[top_level(rows.thread[own], rows.start_ns[own], rows.end_ns[own])]
            if len(own) >= MIN_REPEATS and len(own) > len(best):
                best = own
    return best


def step_of(steps: Sequence[Step], times: IntColumn) -> IntColumn:
    """For each time: the position of the step it lies in, of several the last to start; :data:`NONE` for none."""
    result = np.full(len(times), NONE, np.int64)
    order = np.argsort(times, kind="stable")
    ordered = times[order]
    for position in sorted(range(len(steps)), key=lambda index: steps[index].start_ns):
        first, last = np.searchsorted(ordered, (steps[position].start_ns, steps[position].end_ns), side="left")
        result[order[first:last]] = position
    return result


def step_findings(steps: Sequence[Step]) -> tuple[Finding, ...]:
    """What should be known about the steps: none marked, overlapping, cut."""
    if not steps:
        return (
            Finding(
                code="no-steps",
                severity="info",
                message="The trace marks no steps, so figures per step cannot be given.",
                hint="Record with a profiler schedule and call prof.step(), or name an annotation with --step.",
            ),
        )
    findings = []
    overlapping = sum(later.start_ns < earlier.end_ns for earlier, later in pairwise(steps))
    if overlapping:
        findings.append(
            Finding(
                code="overlapping-steps",
                severity="warning",
                message=f"{overlapping} of {len(steps)} steps begin before the one before them ends: "
                "work launched in both counts for the one that began last.",
                evidence={"overlapping": overlapping, "steps": len(steps)},
            )
        )
    for step in steps:
        if step.cut:
            findings.append(
                Finding(
                    code="cut-step",
                    severity="info",
                    message=f"{step.name}, at the edge of the trace, is under half as long as the others: "
                    "it counts as cut off.",
                    evidence={"step": step.name, "start_ns": step.start_ns, "end_ns": step.end_ns},
                )
            )
    return tuple(findings)
