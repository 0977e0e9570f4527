"""What comes out? The unedited replay against the record, how the replay answers to change, and each edit's range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from referee.errors import CannotTell
from referee.graph.build import Graph, build_graph
from referee.graph.path import schedule
from referee.graph.work import window_ns, work_by_device
from referee.records.whatif import EditResult, Response, WhatIf
from referee.trace.columns import IntColumn, Trace
from referee.whatif.doubts import doubts, is_stiff, longest_halved
from referee.whatif.edits import (
    DROPPED,
    Edit,
    End,
    Subject,
    Weights,
    device_speed,
    fewer_launches,
    fuse,
    graph_replay,
    hide_communication,
    host_speed,
    in_order,
    low_precision,
    no_sync,
    overlap_copies,
)
from referee.whatif.tighten import device_moments, tighten


def ask(trace: Trace, edits: Sequence[Edit]) -> WhatIf:
    """Answer each edit for ``trace``, and all of them together.

    Raises ``CannotTell`` where nothing can be replayed, or the device is not in the record.
    """
    graph = tighten(build_graph(trace), trace)
    if not len(graph):
        raise CannotTell(f"{trace.source} holds nothing that could be replayed.")
    if not device_moments(graph)[0].size:
        raise CannotTell(
            f"{trace.source} holds no device row: a replay of the host alone does not know what it would wait for.",
            hint="Record the device's activity too; what runs on a CPU is tried and measured by referee remedy.",
        )
    subject = Subject(trace, graph)
    weights = graph.weight_ns.astype(np.float64)
    recorded_ns = _window(graph, graph.time_ns)
    try:
        replayed_ns = _length(subject, weights)
    except ValueError as error:
        raise CannotTell(f"{trace.source} contradicts itself: {error}.") from error
    response = _response(subject, weights)
    busy_frac = _busy_frac(trace)
    halved = longest_halved(subject) if is_stiff(response, busy_frac) else None
    error_frac = replayed_ns / recorded_ns - 1 if recorded_ns else 0.0
    return WhatIf(
        source=trace.source,
        recorded_ns=recorded_ns,
        replayed_ns=replayed_ns,
        replay_error_frac=error_frac,
        busy_frac=busy_frac,
        response=response,
        edits=tuple(_answer(edit.name, edit.basis, [edit], subject, weights, replayed_ns) for edit in edits),
        together=None
        if len(edits) < 2
        else _answer(" and ".join(e.name for e in edits), "all of these at once", edits, subject, weights, replayed_ns),
        provenance=trace.provenance,
        findings=tuple(doubts(error_frac, response, busy_frac, halved)),
    )


def catalogue() -> tuple[Edit, ...]:
    """The edits that a ranking tries."""
    return (
        graph_replay(),
        device_speed(2.0),
        host_speed(2.0),
        no_sync(),
        fuse(),
        low_precision(),
        overlap_copies(),
        hide_communication(),
        fewer_launches(0.5),
    )


def ranked(answer: WhatIf) -> WhatIf:
    """The same answer with the edits that may gain most first, and none together: they exclude one another."""
    edits = sorted(answer.edits, key=lambda edit: (edit.step_ns, edit.name))
    return replace(answer, edits=tuple(edits), together=None)


def _length(subject: Subject, weights: Weights) -> int:
    """The replayed window."""
    plan = schedule(subject.graph, weight_ns=np.rint(subject.followed(weights)).astype(np.int64))
    return _window(subject.graph, plan.time_ns)


def _window(graph: Graph, time_ns: IntColumn) -> int:
    """From the first start to the last end of a device row."""
    starts, ends = device_moments(graph)
    return int(time_ns[ends].max() - time_ns[starts].min())


def _response(subject: Subject, weights: Weights) -> Response:
    base_ns = max(1, _length(subject, weights))

    def halved(mask: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> float:
        return _length(subject, np.where(mask, weights / 2, weights)) / base_ns

    return Response(
        all_half=halved(np.ones(weights.size, dtype=bool)),
        device_half=halved(subject.device()),
        host_half=halved(subject.host),
        device_gone=_length(subject, np.where(subject.device(), 0, weights)) / base_ns,
    )


def _answer(
    name: str, basis: str, edits: Sequence[Edit], subject: Subject, weights: Weights, replayed_ns: int
) -> EditResult:
    ends = [_end(edits, subject, weights, end) for end in ("low", "high")]
    low_ns, high_ns = min(ends), max(ends)
    base_ns = max(1, replayed_ns)
    return EditResult(
        name=name,
        step_ns=(low_ns + high_ns) / 2,
        low_ns=low_ns,
        high_ns=high_ns,
        basis=basis,
        gain_low_frac=1 - high_ns / base_ns,
        gain_high_frac=1 - low_ns / base_ns,
    )


def _end(edits: Sequence[Edit], subject: Subject, weights: Weights, end: End) -> float:
    for edit in in_order(edits):
        weights = edit.apply(subject, weights, end)
    assert bool(np.all((weights >= 0) | (weights == DROPPED)))
    return max(float(_length(subject, weights)), *(edit.floor(subject) for edit in edits))


def _busy_frac(trace: Trace) -> float | None:
    works = work_by_device(trace)
    window = window_ns(works)
    return sum(work.busy_ns for work in works) / window if window else None
