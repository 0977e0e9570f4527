"""What do recorded traces say to the claims about diagnosing: utilisation, questions, gaps, totals?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from referee.errors import CannotTell
from referee.graph.calls import WAITS, calls_named
from referee.graph.work import work_by_device
from referee.lab.claims.diagnosing import FEW_NS
from referee.lab.laboratory import Laboratory, Part, Reading, Recorded, counted, many
from referee.lab.over_traces import over_traces, typical
from referee.stats.summary import FloatArray
from referee.trace.columns import CALL_KINDS, Kind
from referee.units import format_frac, format_ns, format_ratio

_NEARLY_ALL = 0.9
"""What reads as near 100 %."""

_THOUSANDS = 1_000
_HOSTS = frozenset({"launch-bound", "input-bound", "sync-bound", "cold"})
"""Regimes in which the device waits for the host."""


def any_against_weighted(lab: Laboratory) -> Reading:
    """D1."""

    def one(recorded: Recorded) -> float | None:
        use = recorded.report.utilisation
        return use.any_kernel_frac / use.sm_weighted_frac if use.any_kernel_frac and use.sm_weighted_frac else None

    values = [(recorded, one(recorded)) for recorded in lab.recorded]
    found = over_traces(values, "grid sizes and the number of multiprocessors")
    used = [recorded.report.utilisation for recorded, value in values if value is not None]
    shares = [use.any_kernel_frac for use in used if use.any_kernel_frac is not None]
    weighted = [use.sm_weighted_frac for use in used if use.sm_weighted_frac is not None]
    sampled = sum(use.any_kernel_peak_frac is not None for use in used)
    note = f"{_largest_gap(values)}{_many_short(lab.recorded)}" + (
        f"Any kernel {format_frac(float(np.median(shares)))} of the window in the median, weighted "
        f"{format_frac(float(np.median(weighted)))}: medians over traces, as the number is, so that they need not "
        f"divide to it; {sampled} of these traces are longer than one period of 1/6 s."
    )
    return replace(found, note=note)


def _largest_gap(values: Sequence[tuple[Recorded, float | None]]) -> str:
    """The trace with a high reading that says least: nearly all of the window with any kernel, weighted the least."""
    uses = [(recorded.name, recorded.report.utilisation) for recorded, ratio in values if ratio is not None]
    high = [
        (use.sm_weighted_frac, use.any_kernel_frac, name)
        for name, use in uses
        if use.sm_weighted_frac is not None and use.any_kernel_frac is not None and use.any_kernel_frac >= _NEARLY_ALL
    ]
    if not high:
        return f"None of these traces has a kernel in {format_frac(_NEARLY_ALL)} of its window. "
    weighted, shown, name = min(high)
    return (
        f"{len(high)} of these traces have a kernel in {format_frac(_NEARLY_ALL)} of the window or more; the one of "
        f"them with the least weighted share has {format_frac(shown)} and {format_frac(weighted)} ({name}). "
    )


def _many_short(traces: Sequence[Recorded]) -> str:
    """The traces that are nearest to a thousand tiny kernels, with both shares of each."""
    near = [
        (one.name, one.report.utilisation)
        for one in traces
        if one.report.totals.kernels >= _THOUSANDS and (one.report.totals.median_kernel_ns or 0) <= FEW_NS[1]
    ]
    told = [
        f"{name} {format_frac(use.any_kernel_frac)} against {format_frac(use.sm_weighted_frac)}"
        for name, use in near
        if use.any_kernel_frac is not None and use.sm_weighted_frac is not None
    ]
    if not told:
        return ""
    return f"With a thousand kernels or more, of at most {format_ns(FEW_NS[1])} in the median: {', '.join(told)}. "


def questions(lab: Laboratory) -> Reading:
    """D2. Timeline, self totals, kernels per step, occupancy; the null experiment is none that a trace answers."""
    answers = [_answered(recorded) for recorded in lab.recorded if recorded.report.totals.device_rows]
    if not answers:
        raise CannotTell("None of the traces has a device row.")
    counts = {name: sum(given[name] for given in answers) for name in answers[0]}
    lacking = [f"{name} in {len(answers) - count}" for name, count in counts.items() if count < len(answers)]
    whole = sum(all(given.values()) for given in answers)
    note = f"{whole} of {len(answers)} traces answer all four. "
    note += f"What is lacking: {', '.join(lacking)}{_twice(answers)}." if lacking else "Nothing is lacking."
    names = tuple(recorded.name for recorded in lab.recorded if recorded.report.totals.device_rows)
    taken = f"{len(answers)} traces (counted)" if len(answers) > 1 else "one trace (counted)"
    found = replace(counted(whole / len(answers), **counts), note=note, sources=names, taken=taken)
    if not lacking:
        return found
    where = f"{_listed(lacking)} of {len(answers)} traces"
    return replace(found, teaches=f"Look what the file holds before it is asked: here there is no {where}.")


def _twice(answers: Sequence[dict[str, bool]]) -> str:
    """How many traces lack more than one, so that what is lacking adds to more than the traces that lack something."""
    several = sum(list(given.values()).count(False) > 1 for given in answers)
    some = sum(not all(given.values()) for given in answers)
    lack = "lacks" if some == 1 else "lack"
    return f"; {many(some, 'trace')} {lack} something, {several} of them more than one thing" if several else ""


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', no '.join(words[:-1])} and no {words[-1]}"


def _answered(recorded: Recorded) -> dict[str, bool]:
    """Which of the four questions one trace answers."""
    report = recorded.report
    return {
        "device window": report.totals.window_ns > 0,
        "pair of self totals": None not in (report.totals.self_cpu_ns, report.totals.self_device_ns),
        "kernel in a step": any(step.kernels for step in report.steps or ()),
        "occupancy": report.utilisation.occupancy_frac is not None,
    }


def gaps(lab: Laboratory) -> Reading:
    """D3. The gaps of launch-bound traces; and whether such gaps, or such kernels, are found in these alone."""
    bound = [recorded for recorded in lab.recorded if recorded.report.verdict.regime == "launch-bound"]
    if not bound:
        raise CannotTell("None of the traces has a launch-bound window.")
    found = typical([(recorded, _gaps(recorded)) for recorded in bound], "a gap in a launch-bound window")
    kernels = over_traces([(recorded, recorded.report.totals.median_kernel_ns) for recorded in bound], "a kernel")
    part = Part(
        name="the median kernel of launch-bound traces",
        value=kernels.value,
        low=kernels.low,
        high=kernels.high,
        claimed_low=FEW_NS[0],
        claimed_high=FEW_NS[1],
    )
    known = [recorded for recorded in lab.recorded if recorded.report.verdict.regime != "cannot-tell"]
    with_gaps = [one for one in known if (between := _gaps(one)).size and _few(float(np.median(between)))]
    with_kernels = [
        one
        for one in known
        if one.report.totals.kernels >= _THOUSANDS and _few(float(one.report.totals.median_kernel_ns or 0))
    ]
    counts = sorted(recorded.report.totals.kernels for recorded in bound)
    note = (
        f"The launch-bound traces hold {counts[0]:,} to {counts[-1]:,} kernels, of {format_ns(kernels.value)} in the "
        f"median{_all_short(counts[-1])}. {_by_regime('a median gap of 1 to 10 µs', with_gaps)} "
        f"{_by_regime('a thousand kernels or more, of 1 to 10 µs in the median', with_kernels)}"
    )
    parts = (
        part,
        _bound("launch-bound among all traces with a median gap of 1 to 10 µs", with_gaps),
        _bound("launch-bound among all traces with a thousand kernels or more, of 1 to 10 µs", with_kernels),
    )
    return replace(found, note=note, parts=parts)


def _all_short(most: int) -> str:
    """Whether none of the launch-bound traces could show the second mark."""
    few = f", and none of them has {_THOUSANDS:,}: a launch-bound trace with the second mark was not there to be tried"
    return few if most < _THOUSANDS else ""


def _gaps(recorded: Recorded) -> FloatArray:
    """The gaps between the end of all device work and the next start."""
    between = [work.busy[0][1:] - work.busy[1][:-1] for work in work_by_device(recorded.trace)]
    known = [np.asarray(gap, dtype=np.float64) for gap in between]
    return np.concatenate(known) if known else np.empty(0)


def _few(ns: float) -> bool:
    return FEW_NS[0] <= ns <= FEW_NS[1]


def _bound(name: str, traces: Sequence[Recorded]) -> Part:
    """Of these traces the share that is launch-bound."""
    part = Part(name=name, claimed_low=1.0, claimed_high=1.0, unit="frac", counted=True)
    if not traces:
        return part
    share = sum(recorded.report.verdict.regime == "launch-bound" for recorded in traces) / len(traces)
    return replace(part, value=share, low=share, high=share)


def _by_regime(what: str, traces: Sequence[Recorded]) -> str:
    """How many traces have something, and what limits them."""
    if not traces:
        return f"No trace has {what}."
    regimes = Counter(recorded.report.verdict.regime for recorded in traces)
    parts = ", ".join(f"{count} {regime}" for regime, count in regimes.most_common())
    return f"{len(traces)} of all traces with a known regime {'has' if len(traces) == 1 else 'have'} {what}: {parts}."


def totals(lab: Laboratory) -> Reading:
    """D4. Of the traces whose host total is the larger and whose regime is one: how many the host limits."""
    larger = [
        recorded
        for recorded in lab.recorded
        if recorded.report.totals.self_cpu_ns is not None
        and recorded.report.totals.self_device_ns
        and recorded.report.totals.self_cpu_ns > recorded.report.totals.self_device_ns
    ]
    decided = [one for one in larger if one.report.verdict.regime not in ("cannot-tell", "mixed")]
    if not decided:
        raise CannotTell("In none of the traces is the CPU total larger than the GPU total, with a regime known.")
    against = [one for one in decided if one.report.verdict.regime not in _HOSTS]
    found = counted(1 - len(against) / len(decided), traces=len(decided), against=len(against))
    note = f"The host limits {len(decided) - len(against)} of {len(decided)}. "
    note += f"{len(larger) - len(decided)} more, mixed or not to be told, are left out."
    if against:
        note += f" Not so: {'; '.join(_why_not(one) for one in against)}."
        note += " How much each of these counts for is not tested: the totals add up what was done at the same time."
    names = tuple(recorded.name for recorded in decided)
    return replace(found, note=note, sources=names, taken=f"{len(decided)} traces (counted)")


def _why_not(recorded: Recorded) -> str:
    """What one trace whose host total is the larger was doing instead of waiting for the host."""
    sums, verdict = recorded.report.totals, recorded.report.verdict
    times = (sums.self_cpu_ns or 0) / (sums.self_device_ns or 1)
    busy = sums.busy_ns / sums.window_ns if sums.window_ns else 0.0
    return (
        f"{recorded.name} is {verdict.regime}, its device busy for {format_frac(busy)} of the window, though its host "
        f"total is {format_ratio(times)} the device's: {_mechanism(recorded)}"
    )


def _mechanism(recorded: Recorded) -> str:
    """How a host total can be the larger while the device limits: waits in it, several threads, work at the same time.

    Waits are the calls that wait for the device, as the profiler books them; threads those that ran operators or calls.
    """
    rows, sums = recorded.trace.rows, recorded.report.totals
    waits = calls_named(recorded.trace, WAITS)
    waited_ns = int((rows.end_ns[waits] - rows.start_ns[waits]).sum())
    host_ns = sum_ns if (sum_ns := sums.self_cpu_ns) else 1
    threads = np.unique(rows.thread[rows.of(Kind.OPERATOR, *CALL_KINDS)]).size
    words = []
    if waited_ns:
        words.append(f"{format_frac(waited_ns / host_ns)} of the host total are calls that wait for the device")
    if threads > 1:
        words.append(f"it is spread over {threads} threads")
    if sums.busy_ns + host_ns > sums.window_ns:
        over_ns = sums.busy_ns + host_ns - sums.window_ns
        both = "threads with one another or with the device" if threads > 1 else "host and device"
        words.append(
            f"with the device's busy time it exceeds the window by {format_ns(over_ns)}, {both} being at work at once"
        )
    return ", ".join(words) or "what makes it so is not seen in the file"
