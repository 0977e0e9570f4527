"""What carries the verdict? Five steps in a fixed order, each with its figure, its threshold, and what follows.

Timeline, then the host against the device, then kernels per step, then the null experiment, then utilisation.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median

from referee.analysis.host_alone import host_evidence
from referee.analysis.idle import sum_idle
from referee.analysis.loss_evidence import behind_the_loss
from referee.analysis.regime import (
    BUSY_FRAC,
    CLEAR_PER_OP_FRAC,
    NAMES_FRAC,
    Decision,
    decide,
    decide_by_clocks,
    what_is_missing,
)
from referee.analysis.shares import without_first_time
from referee.analysis.study import Study
from referee.records.finding import CODES
from referee.records.verdict import Evidence, Verdict
from referee.units import format_count, format_frac, format_ns

DEEP_QUEUE = 10
"""A median wait in the queue of this many median kernels means that the host is far ahead."""


def judge(study: Study) -> Verdict:
    """The verdict on a trace, with its evidence; rows that cannot be believed are set aside."""
    if study.judged is not study:
        verdict = judge(study.judged)
        return replace(verdict, evidence=(_set_aside(study), *verdict.evidence))
    decision = decide(study.trace, study.totals, study.shares)
    if study.totals.device_rows == 0:
        return Verdict(
            regime=decision.regime,
            evidence=_without_device(study),
            undecided_because=decision.because,
            would_change=_would_change(study, decision),
        )
    steps = (
        *_timeline(study),
        _host_against_device(study),
        _kernels_per_step(study),
        _null_experiment(study),
        _utilisation(study),
    )
    return Verdict(
        regime=decision.regime,
        evidence=steps,
        undecided_because=decision.because,
        would_change=_would_change(study, decision),
    )


def _set_aside(study: Study) -> Evidence:
    before, after = study.totals.window_ns, study.judged.totals.window_ns
    return Evidence(
        name="timeline: rows far from all others, set aside",
        value=int(study.stray.size),
        unit="rows",
        so=f"the window is {format_ns(before)} with them and {format_ns(after)} without",
    )


COLD_FRAC = 0.05
"""First-time costs of this share of the window are worth a second verdict without them."""


def judge_warm(study: Study) -> Verdict | None:
    """The verdict on what remains when first-time costs are taken out of the window; ``None`` where they are small."""
    study = study.judged
    if what_is_missing(study.trace, study.totals) is not None or study.shares.frac("first-time costs") < COLD_FRAC:
        return None
    shares = without_first_time(study.shares)
    decision = decide_by_clocks(shares)
    cold_ns = study.shares.window_ns - shares.window_ns
    first = shares.losses[0]
    evidence = (
        Evidence(
            name="timeline: taken out as first-time costs",
            value=cold_ns,
            unit="ns",
            threshold=format_frac(COLD_FRAC),
            so=f"{format_ns(shares.window_ns)} remain",
        ),
        Evidence(name="timeline: busy share of what remains", value=shares.busy_frac, unit="frac"),
        Evidence(
            name=f"timeline: largest loss, {first.name}",
            value=first.frac,
            unit="frac",
            threshold=format_frac(NAMES_FRAC),
            so=format_ns(first.ns),
        ),
    )
    return Verdict(
        regime=decision.regime,
        evidence=evidence,
        undecided_because=decision.because,
        would_change="a trace of steps that are already warm",
    )


def _without_device(study: Study) -> tuple[Evidence, ...]:
    totals = study.totals
    so = (
        "the host launched work, and none of it is in the file: device activity was not recorded"
        if totals.launches
        else "there is nothing to say about a device: a CPU run, or a capture without device activity"
    )
    return (
        Evidence(name="timeline: device rows", value=0, threshold="2", so=so),
        Evidence(
            name="timeline: launches without a device row",
            value=totals.launches_without_device_rows,
            threshold=f"half of {format_count(totals.launches)}" if totals.launches else "",
        ),
        Evidence(
            name="host: time inside operators",
            value=totals.self_cpu_ns,
            unit="ns",
            so=f"{format_count(totals.ops)} operators, {format_count(totals.ops_aten_top)} of aten at the top",
        ),
        *host_evidence(study),
    )


def _timeline(study: Study) -> tuple[Evidence, ...]:
    shares = study.shares
    first, second = shares.losses[:2]
    busy = Evidence(
        name="timeline: busy share of the window",
        value=shares.busy_frac,
        unit="frac",
        threshold=f"{format_frac(BUSY_FRAC)}, if no loss reaches {format_frac(NAMES_FRAC)}",
        so=f"{format_ns(study.totals.busy_ns)} of {format_ns(study.totals.window_ns)}; "
        f"idle {format_ns(study.totals.idle_ns)}",
    )
    if not first.ns:
        return (busy,)
    largest = Evidence(
        name=f"timeline: largest loss, {first.name}",
        value=first.frac,
        unit="frac",
        threshold=format_frac(NAMES_FRAC)
        + (f", clear from {format_frac(CLEAR_PER_OP_FRAC)}" if first.name == "per-op" else ""),
        so=f"{format_ns(first.ns)}; next is {second.name} with {format_frac(second.frac)}"
        if second.ns
        else f"{format_ns(first.ns)}; no other loss",
    )
    return busy, largest, *_charged(study), *behind_the_loss(study)


def _charged(study: Study) -> tuple[Evidence, ...]:
    """What the losses hold beyond the causes of idle time, where that is what names the regime."""
    charged, shares, per_op_ns = sum_idle(study.charged), study.shares, study.idle.host_starved.per_op_ns
    if shares.ns("synchronised") == study.idle.synchronised_ns and shares.ns("per-op") == per_op_ns:
        return ()
    lead_ns = charged.synchronised_ns - study.idle.synchronised_ns
    latency_ns = study.idle.other_ns + study.idle.dependency_ns - charged.other_ns - charged.dependency_ns
    return (
        Evidence(
            name="timeline: charged beyond the gap behind each wait and launch",
            value=(lead_ns + latency_ns) / max(study.totals.window_ns, 1),
            unit="frac",
            so=f"lead that waits took from the host: {format_ns(lead_ns)} of later gaps, synchronised and not what the "
            f"causes call them; latency of late launches above the median: {format_ns(latency_ns)}, per-op. The causes "
            "alone would name another regime",
        ),
    )


def _host_against_device(study: Study) -> Evidence:
    law = study.law
    name = "host against device: N_ops × t_cpu over Σ t_gpu"
    if law.host_ns is None or not law.device_ns:
        return Evidence(name=name, value=None, so="no launches in the file: the host's side is not known")
    ratio = law.host_ns / law.device_ns
    parts = f"{format_ns(law.host_ns)} against {format_ns(law.device_ns)}"
    if law.t_cpu_ns is not None:
        parts = f"{law.n_ops:,} × {format_ns(law.t_cpu_ns)} = {parts}"
    if ratio < 1:
        so = f"{parts}: the device is the longer side"
    elif study.idle.host_starved_ns < 0.1 * study.totals.window_ns:
        so = f"{parts}: the host is the longer side only because full queues and waits hold it up"
    else:
        so = f"{parts}: the host is the longer side"
    return Evidence(name=name, value=ratio, unit="ratio", threshold="1", so=so)


def _kernels_per_step(study: Study) -> Evidence:
    totals, queue = study.totals, study.queue
    kernels = [step.kernels for step in study.steps if step.kernels]
    value: float = median(kernels) if kernels else totals.kernels
    words = [] if totals.median_kernel_ns is None else [f"median kernel {format_ns(totals.median_kernel_ns)}"]
    if totals.graph_launches:
        one = totals.graph_launches == 1
        words.append(f"{totals.graph_launches:,} graph launch{' replays' if one else 'es replay'} many kernels each")
    if queue.median_ns is not None:
        depth = ""
        if totals.median_kernel_ns is not None:
            deep = queue.median_ns >= DEEP_QUEUE * totals.median_kernel_ns
            depth = ": most work is queued long before it runs" if deep else ": the queue holds little"
        words.append(f"median wait in the queue {format_ns(queue.median_ns)}{depth}")
    return Evidence(
        name="kernels per step" if kernels else "kernels in the window",
        value=int(value) if float(value).is_integer() else value,
        unit="kernels",
        so="; ".join(words),
    )


def _null_experiment(study: Study) -> Evidence:
    return Evidence(
        name="null experiment",
        value=None,
        threshold="time against batch size",
        so="one trace is one batch size, and that alone is never a benchmark: "
        "sweep it here, or give the traces of several batch sizes together",
    )


def _utilisation(study: Study) -> Evidence:
    figures = study.utilisation
    others = [
        f"{name} {format_frac(frac)}"
        for name, frac in (("SM-weighted", figures.sm_weighted_frac), ("useful", figures.useful_frac))
        if frac is not None
    ]
    so = "any kernel counts as full use, however small it is"
    return Evidence(
        name="utilisation: any kernel resident",
        value=figures.any_kernel_frac,
        unit="frac",
        so=f"{so}; {', '.join(others)}" if others else so,
    )


def _would_change(study: Study, decision: Decision) -> str:
    """What would have to be otherwise for another verdict."""
    if decision.regime == "cannot-tell":
        wanted = {
            "rows-before-launch": "a trace in which the clocks of host and device agree",
            "rows-late": "a trace in which the clocks of host and device agree",
            "no-device-rows": "a trace recorded with device activity, on a machine that has a device",
            "lost-device-rows": "a trace in which the launches have their device rows",
            "truncated": "the whole file: it ends before the device rows that its launches should have",
            "damaged": "the whole file: it breaks before the device rows that its launches should have",
            "duplicate-correlation": "a trace in which every launch has a correlation id of its own",
            "no-kernel-rows": "rows that are known to be kernels",
            "few-device-rows": "a longer recording",
            "unseen": "a trace that also holds what the device was waiting for",
            "unlinked-rows": "a trace that also holds the launches of its device rows",
        }
        return wanted.get(decision.because or "", CODES.get(decision.because or "", ""))
    first = study.shares.losses[0]
    if decision.regime == "compute-bound" and not first.ns:
        return f"a loss of at least {format_frac(NAMES_FRAC)} of the window; there is none now"
    if decision.regime == "compute-bound":
        return (
            f"a loss of at least {format_frac(NAMES_FRAC)} of the window; the largest now is {first.name} "
            f"with {format_frac(first.frac)}"
        )
    if first.frac >= NAMES_FRAC:
        spare_ns = round(first.ns - NAMES_FRAC * study.shares.window_ns)
        return (
            f"{first.name} below {format_frac(NAMES_FRAC)} of the window, "
            f"which takes at least {format_ns(max(spare_ns, 0))} off it"
        )
    return f"at least {format_frac(BUSY_FRAC)} of the window busy, or one loss above {format_frac(NAMES_FRAC)}"
