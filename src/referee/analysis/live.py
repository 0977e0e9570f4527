"""What does a live run say as a whole? The regime from trace and sweep together, and what to try."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Protocol

from referee.analysis.cpu import judge_cpu
from referee.analysis.host_alone import loader_frac, threads_and_cores
from referee.analysis.regime import NAMES_FRAC
from referee.records.finding import Finding
from referee.records.measurement import Measurement, Sweep
from referee.records.trace_report import TraceReport
from referee.records.verdict import Evidence, Remedy, Verdict
from referee.units import format_frac, format_ns, format_number

REPEAT_DIFFERS = log(1.1)
"""Two readings of one point that part by more than this, their intervals apart, are worth a word."""

SAME_POINT = log(1.25)
"""A sweep point whose time is within this factor of the measurement's is taken for the batch that was measured."""


class Seen(Protocol):
    """What an observation of one call tells."""

    @property
    def n_ops(self) -> int:
        """Operators below autograd in one call; 0 where they could not be watched."""

    @property
    def backward(self) -> bool | None:
        """Whether the step runs a backward pass; ``None`` where that could not be watched."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The verdict on a live run, the remedies ranked, and what limits both."""

    verdict: Verdict
    remedies: tuple[Remedy, ...]
    findings: tuple[Finding, ...] = ()


def judge_live(
    measurement: Measurement,
    *,
    sweep: Sweep | None,
    trace: TraceReport | None,
    seen: Seen | None = None,
    at: float | None = None,
    op_ns: float | None = None,
) -> Judged:
    """The regime of a live run: from the trace where it holds device rows, from the null experiment on the CPU.

    On an asynchronous device without device rows (no profiler for it) the enqueue clock and the sweep decide.
    ``at`` is the swept parameter's value that the measurement was made at (default: that of the point whose time is
    nearest to it). ``op_ns`` is a calibrated cost per operator, used on the CPU only.
    """
    at = _value_measured(measurement, sweep) if at is None else at
    findings = (_one_batch_size(),) if sweep is None else _check_repeat(measurement, sweep, at=at)
    if trace is not None and trace.totals.device_rows:
        verdict = _with_sweep(trace.verdict, sweep)
        return Judged(verdict=verdict, remedies=trace.remedies, findings=findings)
    verdict = judge_cpu(sweep, at=at, n_ops=seen.n_ops if seen is not None else None, op_ns=op_ns)
    if measurement.clocks.enqueue_ns is not None:
        verdict = _asynchronous(verdict, measurement)
    verdict = _waiting(verdict, measurement)
    loader = 0.0 if trace is None else loader_frac(trace.partition) or 0.0
    verdict = _loading(verdict, loader)
    remedies = live_remedies(verdict, measurement, sweep=sweep, at=at, seen=seen)
    return Judged(verdict=verdict, remedies=(*_loader_remedies(measurement, loader), *remedies), findings=findings)


def _waited_frac(measurement: Measurement) -> float:
    """The share of the time in which the step waited without computing, where that is enough to name the regime."""
    waits = next((finding for finding in measurement.findings if finding.code == "host-waits"), None)
    waited = 0.0 if waits is None else waits.evidence["waited_frac"]
    return float(waited) if isinstance(waited, int | float) else 0.0


def _waiting(verdict: Verdict, measurement: Measurement) -> Verdict:
    """A step that sleeps or waits for others is neither overhead nor arithmetic, whatever its time grows with."""
    waited = _waited_frac(measurement)
    if not waited:
        return verdict
    because = f"pause: during {format_frac(waited)} of the time the step waits without computing"
    evidence = Evidence(
        name="waiting without computing",
        value=waited,
        unit="frac",
        threshold="0.24, from which on it is a loss of its own",
        so="the step sleeps, or waits for input, a lock or another process",
    )
    return replace(verdict, regime="mixed", evidence=(evidence, *verdict.evidence), undecided_because=because)


def _loading(verdict: Verdict, loader: float) -> Verdict:
    """A step that stands in its data loader is neither overhead nor arithmetic either."""
    if loader < NAMES_FRAC:
        return verdict
    evidence = Evidence(
        name="share of the recorded steps in the data loader",
        value=loader,
        unit="frac",
        threshold=f"{NAMES_FRAC}, from which on it is a loss of its own",
        so="what the loader takes, neither a compiler nor a larger batch takes away",
    )
    because = f"loader: {format_frac(loader)} of the recorded steps pass in the data loader"
    return replace(verdict, regime="mixed", evidence=(evidence, *verdict.evidence), undecided_because=because)


def _loader_remedies(measurement: Measurement, loader: float) -> Sequence[Remedy]:
    if loader < NAMES_FRAC:
        return ()
    return (
        Remedy(
            name="Load the next batch while this one is computed",
            attacks="the data loader",
            how="DataLoader(…, num_workers=4, persistent_workers=True, prefetch_factor=4), iterated once and not anew "
            "in each step",
            low_ns=0.0,
            high_ns=loader * measurement.median_ns if measurement.median_ns else None,
            basis="the share of the recorded steps in the data loader",
        ),
    )


def _check_repeat(measurement: Measurement, sweep: Sweep, *, at: float | None) -> tuple[Finding, ...]:
    """The batch that was measured is a point of the sweep too: did both read the same?"""
    point = next((p for p in sweep.points if p.value == at), None)
    if point is None or not point.median_ns or not measurement.median_ns or not isinstance(point.ci_low_ns, float):
        return ()
    apart = point.ci_low_ns > (measurement.ci_high_ns or 0.0) or (point.ci_high_ns or 0.0) < (
        measurement.ci_low_ns or 0.0
    )
    ratio = point.median_ns / measurement.median_ns
    if not apart or abs(log(ratio)) < REPEAT_DIFFERS:
        return ()
    return (
        Finding(
            code="repeat-differs",
            severity="warning",
            message=f"At {sweep.parameter} {format_number(point.value)} the sweep reads {format_ns(point.median_ns)} "
            f"where the measurement reads {format_ns(measurement.median_ns)}: the machine changed in between.",
            evidence={"sweep_ns": point.median_ns, "measurement_ns": measurement.median_ns, "ratio": ratio},
            hint="Take neither for good; run again when the machine is quiet.",
        ),
    )


def _value_measured(measurement: Measurement, sweep: Sweep | None) -> float | None:
    """The swept value at which the headline number was measured: the point whose time is nearest to it."""
    if sweep is None or not measurement.median_ns:
        return None
    points = [p for p in sweep.points if p.median_ns]
    if not points:
        return None
    nearest = min(points, key=lambda p: abs(log(float(p.median_ns or 1.0) / float(measurement.median_ns or 1.0))))
    far = abs(log(float(nearest.median_ns or 1.0) / measurement.median_ns)) > SAME_POINT
    return None if far else nearest.value


def _one_batch_size() -> Finding:
    return Finding(
        code="one-batch-size",
        severity="warning",
        message="One batch size alone is not a benchmark: whether the time would grow with it is not known.",
        hint="Let the target declare batch_size, so that it can be swept.",
    )


def _with_sweep(verdict: Verdict, sweep: Sweep | None) -> Verdict:
    """The trace's verdict with the null experiment that was made beside it in the place of the missing one."""
    if sweep is None:
        return verdict
    fit = sweep.fit
    made = Evidence(
        name="null experiment",
        value=fit.knee,
        unit=sweep.parameter,
        threshold="the knee: below it the host, above it the device sets the time",
        so=f"law {fit.law}" + (f"; {fit.why_no_knee}" if fit.knee is None else f", knee at {format_number(fit.knee)}"),
    )
    evidence = tuple(made if step.name == "null experiment" else step for step in verdict.evidence)
    return replace(verdict, evidence=evidence)


HOST_LIMITS_FRAC = 0.9
"""Enqueue at this share of the amortised time: the host sets the pace."""
DEVICE_LIMITS_FRAC = 0.5
"""Enqueue at this share or less: the device does."""


def _asynchronous(verdict: Verdict, measurement: Measurement) -> Verdict:
    """Without device rows: enqueue time against settled time names the slower side, if enqueueing was not blocked."""
    enqueue_ns, settled_ns = measurement.clocks.enqueue_ns, measurement.clocks.settled_amortised_ns
    blocked = any(finding.code == "enqueue-blocked" for finding in measurement.findings)
    if not enqueue_ns or not settled_ns or blocked:
        return verdict
    frac = enqueue_ns / settled_ns
    evidence = Evidence(
        name="host against device: enqueue over settled, amortised",
        value=frac,
        unit="frac",
        threshold=f"host from {HOST_LIMITS_FRAC}, device up to {DEVICE_LIMITS_FRAC}",
    )
    steps = (evidence, *verdict.evidence)
    if frac >= HOST_LIMITS_FRAC:
        return replace(verdict, regime="launch-bound", evidence=steps, undecided_because=None)
    if frac <= DEVICE_LIMITS_FRAC:
        return replace(verdict, regime="compute-bound", evidence=steps, undecided_because=None)
    return replace(
        verdict,
        regime="mixed",
        evidence=steps,
        undecided_because="the host's and the device's time are near each other",
    )


def live_remedies(
    verdict: Verdict, measurement: Measurement, *, sweep: Sweep | None, at: float | None, seen: Seen | None = None
) -> tuple[Remedy, ...]:
    """What to try after a live run, those that could recover most per call first, unpriced ones last."""
    found = [
        *_waiting_remedies(measurement),
        *_overhead_remedies(verdict, measurement, sweep=sweep, at=at, seen=seen),
        *_arithmetic_remedies(verdict, measurement),
    ]
    return tuple(sorted(found, key=lambda remedy: -1.0 if remedy.high_ns is None else -remedy.high_ns))


def _waiting_remedies(measurement: Measurement) -> Sequence[Remedy]:
    waited = _waited_frac(measurement)
    if not waited:
        return ()
    return (
        Remedy(
            name="Take the wait out of the step",
            attacks="waiting",
            how="referee profile TARGET --stacks",
            low_ns=0.0,
            high_ns=waited * measurement.median_ns if measurement.median_ns else None,
            basis="the share of the time without computing; load ahead, or time the part that computes",
        ),
    )


def _overhead_remedies(
    verdict: Verdict, measurement: Measurement, *, sweep: Sweep | None, at: float | None, seen: Seen | None
) -> Sequence[Remedy]:
    if verdict.regime not in ("overhead-bound", "mixed", "launch-bound", "cannot-tell"):
        return ()
    fixed_ns = _fixed_ns(sweep)
    if fixed_ns is not None:
        fixed_ns *= 1 - _waited_frac(measurement)  # no compiler shortens a sleep
    found = [
        Remedy(
            name="Compile the step, so that fewer operators are issued",
            attacks="per-op CPU overhead",
            how="step = torch.compile(step)",
            low_ns=0.0 if fixed_ns is not None else None,
            high_ns=fixed_ns,
            basis="at most what does not grow with the batch, per call",
        )
    ]
    batch = _larger_batch(sweep, at)
    if batch is not None:
        found.append(batch)
    trains = seen is not None and seen.backward
    if measurement.provenance.switches.get("grad_mode") == "grad" and not trains:
        found.append(
            Remedy(
                name="Leave out autograd where nothing is trained",
                attacks="per-op CPU overhead",
                how="with torch.inference_mode(): …",
                low_ns=None,
                high_ns=None,
                basis="each operator saves its node of the tape; only for inference",
            )
        )
    return found


def _fixed_ns(sweep: Sweep | None) -> float | None:
    """What does not grow with the batch, by the sweep's law."""
    if sweep is None or sweep.fit.host_ns is None:
        return None
    return max(0.0, sweep.fit.host_ns)


def _larger_batch(sweep: Sweep | None, at: float | None) -> Remedy | None:
    """Gain per call of the present batch, if items were processed at the best throughput of the sweep."""
    if sweep is None or at is None:
        return None
    points = {p.value: float(p.median_ns) for p in sweep.points if p.median_ns and p.value > 0}
    if at not in points:  # at the value to be told of there is no number, perhaps at none
        return None
    best = min(points, key=lambda value: points[value] / value)
    if best <= at:
        return None
    return Remedy(
        name=f"Use a larger {sweep.parameter}: {format_number(best)}",
        attacks="per-op CPU overhead",
        how=f"referee bench TARGET --batch-size {format_number(best)}",
        low_ns=0.0,
        high_ns=max(0.0, points[at] - points[best] / best * at),
        basis=f"time per item at {format_number(best)} as swept, per {format_number(at)} items",
    )


def _arithmetic_remedies(verdict: Verdict, measurement: Measurement) -> Sequence[Remedy]:
    if verdict.regime not in ("compute-bound", "mixed"):
        return ()
    found = [
        Remedy(
            name="Fuse operators, so that less memory is read and written",
            attacks="memory traffic between operators",
            how="step = torch.compile(step)",
            low_ns=None,
            high_ns=None,
            basis="arithmetic sets the time; only trying says what fused loops gain",
        ),
        Remedy(
            name="Compute in bfloat16 where the chip has instructions for it",
            attacks="arithmetic",
            how="with torch.autocast(device, dtype=torch.bfloat16): …",
            low_ns=None,
            high_ns=None,
            basis="only trying says; check the outputs",
        ),
    ]
    known = threads_and_cores(measurement.provenance.chip)
    if known is not None and known[0] != known[1]:
        threads, cores = known
        more = "more threads than cores wait for one another" if threads > cores else "cores are left unused"
        found.append(
            Remedy(
                name=f"Use {cores} threads instead of {threads}",
                attacks="arithmetic",
                how=f"torch.set_num_threads({cores})",
                low_ns=None,
                high_ns=None,
                basis=more,
            )
        )
    return found
