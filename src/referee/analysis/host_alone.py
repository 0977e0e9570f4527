"""What can a trace without a device say of the host? The operators' own cost, and how many compute at once.

No regime follows: what does not grow with the batch is overhead, and one trace is one batch size.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from referee.analysis.regime import NAMES_FRAC
from referee.analysis.study import Study
from referee.records.finding import Scalar
from referee.records.trace_report import StepPartition
from referee.records.verdict import Evidence
from referee.trace.columns import Kind, Trace
from referee.trace.totals import top_rows
from referee.units import format_count, format_frac, format_ns

BARE = frozenset({"aten::as_strided", "aten::view", "aten::alias", "aten::_reshape_alias", "aten::_unsafe_view"})
"""Operators that compute nothing and call no other: what they take is what calling an operator costs at least."""
_CORES = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")


def host_evidence(study: Study) -> tuple[Evidence, ...]:
    """Per-op overhead against all time in operators, and threads inside operators against the cores."""
    if not study.totals.ops:
        return ()
    return (*_loader(study), _overhead(study), _threads(study))


def bare_cost_ns(trace: Trace) -> float | None:
    """The median time of an operator that computes nothing; ``None`` where the trace has none."""
    rows = trace.rows
    bare = np.fromiter((name in BARE for name in trace.names), dtype=bool, count=len(trace.names))
    found = rows.of(Kind.OPERATOR)
    found = found[bare[rows.name[found]]]
    return float(np.median(rows.end_ns[found] - rows.start_ns[found])) if found.size else None


def at_once(trace: Trace) -> int:
    """The most threads that are inside operators at one moment."""
    rows = trace.rows
    top = top_rows(rows, rows.of(Kind.OPERATOR))
    top = top[rows.end_ns[top] > rows.start_ns[top]]
    times = np.concatenate((rows.start_ns[top], rows.end_ns[top]))
    change = np.repeat((1, -1), top.size)
    # Where one ends as another starts, the end comes first.
    return int(np.cumsum(change[np.lexsort((change, times))]).max(initial=0))


def threads_and_cores(chip: Mapping[str, Scalar]) -> tuple[int, int] | None:
    """The threads that share one operator and the cores they may run on; ``None`` where provenance has not both.

    The cores are a list as the kernel writes it, ``0-3,8``.
    """
    threads, listed = chip.get("threads"), chip.get("affinity")
    if not isinstance(threads, int) or not isinstance(listed, str) or not _CORES.fullmatch(listed):
        return None
    bounds = [[int(bound) for bound in part.split("-")] for part in listed.split(",")]
    return threads, sum(part[-1] - part[0] + 1 for part in bounds)


def loader_frac(steps: Sequence[StepPartition]) -> float | None:
    """The share of the steps in which the loop stood in the data loader; ``None`` without steps."""
    length_ns = sum(step.length_ns for step in steps)
    return sum(step.loader_ns for step in steps) / length_ns if length_ns else None


def _loader(study: Study) -> tuple[Evidence, ...]:
    """Where the steps went beside operators, if a good part of it did: a loader's workers are no operators."""
    steps = study.partition
    frac, length_ns = loader_frac(steps), sum(step.length_ns for step in steps)
    inside = sum(step.cpu_ns for step in steps)
    rest = sum(step.other_ns for step in steps)
    if frac is None or not frac:
        return ()
    return (
        Evidence(
            name="host: share of the steps in the data loader",
            value=frac,
            unit="frac",
            threshold=format_frac(NAMES_FRAC),
            so=f"{format_frac(inside / length_ns)} inside operators, {format_frac(rest / length_ns)} in neither: "
            "Python, and what nobody records",
        ),
    )


def _overhead(study: Study) -> Evidence:
    totals, cost_ns = study.totals, bare_cost_ns(study.trace)
    name = "host: per-op overhead, at least, of the time inside operators"
    if cost_ns is None or not totals.self_cpu_ns:
        return Evidence(
            name=name, value=None, so="no operator here computes nothing, so what calling one costs is not known"
        )
    least_ns = min(totals.ops * cost_ns, float(totals.self_cpu_ns))
    return Evidence(
        name=name,
        value=least_ns / totals.self_cpu_ns,
        unit="frac",
        so=f"{format_count(totals.ops)} × {format_ns(cost_ns)}, what an operator that computes nothing takes here = "
        f"{format_ns(least_ns)}; how much of the rest is arithmetic, a sweep of the batch size tells",
    )


def _threads(study: Study) -> Evidence:
    most = at_once(study.trace)
    provenance = study.trace.provenance
    known = None if provenance is None else threads_and_cores(provenance.chip)
    if known is None:
        threshold, so = "", "how many threads share one operator, and how many cores there are, is not in the file"
    else:
        threads, cores = known
        threshold = f"{cores} cores"
        so = f"{most} × {threads} threads of an operator: " + (
            f"more than the cores, so they wait for one another; torch.set_num_threads({max(1, cores // most)})"
            if most * threads > cores
            else "no more than the cores"
        )
    return Evidence(name="host: threads inside operators at once", value=most, threshold=threshold, so=so)
