"""Is the replay to be believed? What its own tests show, and why a busy trace does not answer to a faster device.

A trace whose device works nearly all the time should gain from a faster one. Where its replay does not, the longest
chain of the halved replay says why: either the host's own recorded work takes over, which is an answer, or time of
which the record does not say what it waited for, which is a doubt.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from referee.graph.build import SLACK_NS, EdgeKind, Graph
from referee.graph.path import chain_to, schedule
from referee.graph.work import MOST_LATENCY_NS
from referee.records.finding import Finding
from referee.records.whatif import Response
from referee.trace.columns import BoolColumn, Trace
from referee.units import NS_PER_MS, format_frac
from referee.whatif.edits import Subject
from referee.whatif.tighten import device_moments, long_calls

WORST_REPLAY_FRAC = 0.05
"""A replay that is further than this from the record predicts nothing."""
RESPONSE_SLACK = 0.03
BUSY_FRAC = 0.95
BUSY_RESPONSE = 0.6
"""Where the device works 95 % of its window, halving its times must bring the whole to this or less."""
PAUSE_NS = 2 * NS_PER_MS
"""Time without a host row is Python's as far as this; longer, the host waited for something that was not recorded."""

_HOST, _DEVICE = "host work", "device rows"
_UNEXPLAINED = {
    "calls": "launch calls that take longer than usual, which a full queue would explain",
    "pauses": "stretches of 2 ms and more in which no host row is recorded, or between one thread's rows and another's",
    "waits": "calls that went on waiting after the last row recorded had ended: rows are missing",
    "late": "rows that started later than anything recorded explains",
}


@dataclass(frozen=True)
class Halved:
    """The longest chain with the device's times halved, by what takes its time; shares of the unchanged window."""

    shares: dict[str, float]

    @property
    def unexplained_frac(self) -> float:
        """Time of which the record does not say what it waited for."""
        return sum(self.shares[what] for what in _UNEXPLAINED)

    @property
    def worst(self) -> str:
        """The largest part of it, in words."""
        return _UNEXPLAINED[max(_UNEXPLAINED, key=lambda what: self.shares[what])]


def doubts(error_frac: float, response: Response, busy_frac: float | None, halved: Halved | None) -> list[Finding]:
    """Why the answer should not be believed, or what limits it. ``halved`` is asked for where :func:`is_stiff`."""
    found = []
    if abs(error_frac) > WORST_REPLAY_FRAC:
        message = (
            f"Replaying without an edit is {100 * error_frac:+.1f} % off the record: predictions are worth no more."
        )
        found.append(_doubt(message, replay_error_frac=error_frac))
    if abs(response.all_half - 0.5) > RESPONSE_SLACK:
        found.append(_doubt("Halving every time does not halve the replay.", all_half=response.all_half))
    if is_stiff(response, busy_frac) and busy_frac is not None and halved is not None:
        found.append(_stiff(response, busy_frac, halved))
    return found


def is_stiff(response: Response, busy_frac: float | None) -> bool:
    """Whether the device is busy nearly all the time and half its times do not bring the whole to 0.6."""
    return busy_frac is not None and busy_frac >= BUSY_FRAC and response.device_half > BUSY_RESPONSE


def longest_halved(subject: Subject) -> Halved:
    """Replay with every device row in half its time, and take the longest chain apart."""
    graph, trace = subject.graph, subject.trace
    base = schedule(graph)
    starts, ends = device_moments(graph)
    base_ns = max(1, int(base.time_ns[ends].max() - base.time_ns[starts].min()))
    weights = np.where(subject.device(), graph.weight_ns / 2, graph.weight_ns)
    halved_ns = np.rint(subject.followed(weights)).astype(np.int64)
    plan = schedule(graph, weight_ns=halved_ns)
    edges = chain_to(graph, plan, int(ends[np.argmax(plan.time_ns[ends])]))
    # What lies before the first device row is not in the window.
    edges = edges[plan.time_ns[graph.target[edges]] > int(plan.time_ns[starts].min())]
    kinds = _sorted_out(graph, trace)
    shares = {what: float(halved_ns[edges[mask[edges]]].sum()) / base_ns for what, mask in kinds.items()}
    return Halved(shares)


def _sorted_out(graph: Graph, trace: Trace) -> dict[str, BoolColumn]:
    """For every edge what its time is."""
    kind, ns = graph.kind, graph.weight_ns
    calls = np.zeros(kind.size, dtype=bool)
    calls[long_calls(graph, trace)] = True
    found = {
        "calls": calls,
        "pauses": ((kind == EdgeKind.GAP) | (kind == EdgeKind.THREAD)) & (ns >= PAUSE_NS),
        "waits": (kind == EdgeKind.WAIT) & (ns > MOST_LATENCY_NS),
        "late": ((kind == EdgeKind.STREAM) & (ns > SLACK_NS)) | ((kind == EdgeKind.LAUNCH) & (ns > MOST_LATENCY_NS)),
        _DEVICE: (kind == EdgeKind.DEVICE) | (kind == EdgeKind.ROOM),
    }
    found[_HOST] = ~np.logical_or.reduce(list(found.values()))
    return found


def _stiff(response: Response, busy_frac: float, halved: Halved) -> Finding:
    figures = {
        "busy_frac": busy_frac,
        "device_half": response.device_half,
        "device_gone": response.device_gone,
        **{f"{what.replace(' ', '_')}_frac": share for what, share in halved.shares.items()},
    }
    busy = f"The device is busy {format_frac(busy_frac)} of its window, yet in half its time the whole takes "
    if response.device_half - halved.unexplained_frac > BUSY_RESPONSE:
        message = (
            f"{busy}{response.device_half:.3f} of it: the host takes over. Its own path alone takes "
            f"{response.device_gone or 0:.2f}, and device rows on the longest chain {halved.shares[_DEVICE]:.2f}."
        )
        return Finding(
            code="host-takes-over",
            severity="info",
            message=message,
            evidence=figures,
            hint="A faster device needs less work on the host to pay: --graph, --host-speed, --no-sync beside it.",
        )
    message = (
        f"{busy}{response.device_half:.3f} of it. {format_frac(halved.unexplained_frac)} of the window, on the "
        f"longest chain, is time of which the record does not say what it waited for, most of all {halved.worst}."
    )
    return _doubt(message, **figures)


def _doubt(message: str, **evidence: float | None) -> Finding:
    return Finding(
        code="replay-doubtful",
        severity="warning",
        message=message,
        evidence=evidence,
        hint="Believe measured remedies only: referee remedy.",
    )
