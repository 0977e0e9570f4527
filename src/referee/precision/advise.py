"""Which precision for this step? All questions asked in order, within a budget: the whole of ``referee precision``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from referee.bench.measure import Seen
from referee.bench.plan import ProgressCallback, no_progress
from referee.device.provenance import Source, collect
from referee.precision.audit import cast_shapes, idle_findings
from referee.precision.budget import Clock
from referee.precision.elsewhere import elsewhere_findings
from referee.precision.findings import range_findings, static_findings, watch_step
from referee.precision.overflow import overflow_findings
from referee.precision.pays import Sizes, Step, look_for_size
from referee.precision.pilot import threads_for
from referee.precision.reading import Reading, read_step
from referee.precision.refused import refusal_findings
from referee.precision.rows import timing_rows
from referee.precision.standing import standing_findings
from referee.precision.subject import Subject, make_subject
from referee.precision.timing import Conditions, Timed, settings_for, time_casts, time_settings
from referee.precision.trust import trust_findings
from referee.precision.verdict import judge
from referee.precision.weights import other_words
from referee.records.finding import Finding, Scalar
from referee.records.precision import PaysFrom, PrecisionReport, PrecisionTiming
from referee.records.provenance import Provenance
from referee.units import NS_PER_S

if TYPE_CHECKING:
    from referee.device.protocol import Device

__all__ = ["BUDGET_NS", "Sizes", "advise"]

BUDGET_NS = 40 * NS_PER_S
"""Wall clock for everything, of which no more is taken than the answers need. What reading the step needs is taken
whatever the budget; the rest is left out when it is used up."""

_TIMING_FRAC = 0.8
"""By when, as a share of the budget, the comparison at the step's own batch size is to be done."""


def advise(
    step: Step,
    *,
    device: Device,
    name: str = "step",
    model: Any = None,
    optimizer: Any = None,
    low: Sequence[str] = ("bfloat16", "float16"),
    budget_ns: int = BUDGET_NS,
    spent_ns: int = 0,
    seen: Seen | None = None,
    own_sites: bool = False,
    target: Source | None = None,
    method: Mapping[str, Scalar] | None = None,
    findings: Sequence[Finding] = (),
    sizes: Sizes | None = None,
    stage: Callable[[str], None] = lambda _: None,
    announce: Callable[[Finding], None] = lambda _: None,
    progress: ProgressCallback = no_progress,
) -> PrecisionReport:
    """Answer for ``step`` on ``device``: audit, ranges, scaler, timing, verdict. The step's state is put back.

    ``low`` are the low precisions considered; the first that runs is the one audited. Of ``budget_ns``, ``spent_ns``
    are used already. ``own_sites`` says that the step enters autocast itself. With ``sizes`` it is found out from which
    batch size a lower precision pays. ``stage`` is told what is being done, ``announce`` of wrong use when it comes up.
    What the step raises as it stands passes through; what it raises in a low precision is the reason why that one is
    left out.
    """
    clock = Clock(device, budget_ns, spent_ns)
    kind = device.name.partition(":")[0]
    subject = make_subject(step, device_type=kind, model=model, optimizer=optimizer, own_sites=own_sites)
    stage("wrong use")
    misused = watch_step(subject, announce)
    known = read_step(subject, low, clock=clock, stage=stage)
    conditions = Conditions(
        device=device,
        until_ns=clock.at(_TIMING_FRAC),
        seen=seen,
        target=target,
        method=method or {},
        progress=progress,
    )
    priced = _price(subject, known, low=low, sizes=sizes, conditions=conditions, clock=clock, stage=stage, name=name)
    return _compose(
        subject,
        known,
        priced,
        name=name,
        provenance=priced.timed.provenance or _untimed(conditions),
        findings=(*findings, *misused, *_told(subject, known, priced), *clock.findings()),
    )


@dataclass(frozen=True, kw_only=True)
class _Priced:
    """What the precisions take, side by side and by batch size, and what the casts do."""

    timed: Timed
    casts_ns: float | None
    rows: tuple[PrecisionTiming, ...]
    pays: tuple[PaysFrom, ...]


def _price(
    subject: Subject,
    known: Reading,
    *,
    low: Sequence[str],
    sizes: Sizes | None,
    conditions: Conditions,
    clock: Clock,
    stage: Callable[[str], None],
    name: str,
) -> _Priced:
    """Time what there is time for."""
    stage("timing")
    clock.timing_begins()
    device = conditions.device
    settings = [setting for setting in settings_for(device, names=low) if setting.name not in known.refusals]
    timed = time_settings(subject, settings, conditions=conditions, name=name)
    casts_ns = None if clock.is_up else _casts_ns(known, timed, device=device)
    rows = _rows(known, timed, casts_ns)
    stage("batch sizes")
    conditions = replace(conditions, until_ns=clock.at(1.0), one_thread=timed.one_thread)
    pays = () if sizes is None else look_for_size(subject, settings, rows, timed, sizes=sizes, conditions=conditions)
    return _Priced(timed=timed, casts_ns=casts_ns, rows=rows, pays=pays)


def _compose(
    subject: Subject,
    known: Reading,
    priced: _Priced,
    *,
    name: str,
    provenance: Provenance,
    findings: tuple[Finding, ...],
) -> PrecisionReport:
    """The report, with the verdict that follows from what was read and priced."""
    return PrecisionReport(
        name=name,
        verdict=judge(
            timing=priced.rows,
            gradients=known.ranges,
            activations=known.activations,
            autocast=known.audited,
            kept=other_words(subject),
        ),
        autocast=None if known.audited is None else replace(known.audited, casts_ns=priced.casts_ns),
        gradients=known.ranges,
        activations=known.activations,
        scaler=known.scaler,
        timing=priced.rows,
        pays_from=priced.pays,
        provenance=provenance,
        findings=findings,
    )


def _told(subject: Subject, known: Reading, priced: _Priced) -> Iterator[Finding]:
    """What the step's weights, ranges, casts, errors and times tell."""
    ranges = known.ranges
    lost_frac = None if ranges is None else ranges.lost_updates_bf16_frac
    yield from static_findings(subject, trained=ranges is not None, lost_frac=lost_frac)
    yield from refusal_findings(known.refusals, device_type=subject.device_type)
    yield from known.not_finite
    yield from range_findings(ranges, known.activations, not_finite=bool(known.not_finite))
    yield from standing_findings(known.standing)
    yield from overflow_findings(known.overflow, device_type=subject.device_type)
    if known.audited is not None:
        yield from elsewhere_findings(known.audited.elsewhere)
        if other_words(subject) != "float64":
            yield from idle_findings(known.audited)
    yield from trust_findings(priced.rows)
    yield from priced.timed.findings


def _casts_ns(known: Reading, timed: Timed, *, device: Device) -> float | None:
    """What the casts of the audited precision cost, timed with as many threads as the step was."""
    if known.recorded is None:
        return None
    with threads_for(one=timed.one_thread):
        return time_casts(cast_shapes(known.recorded.recording.casts), device=device)


def _rows(known: Reading, timed: Timed, casts_ns: float | None) -> tuple[PrecisionTiming, ...]:
    """The precisions side by side."""
    return timing_rows(
        timed,
        known.errors,
        audited=known.audited.dtype if known.audited else "",
        casts_ns=casts_ns,
        failed={name: refusal.why for name, refusal in known.refusals.items()},
        why_no_errors=known.why_no_errors,
    )


def _untimed(conditions: Conditions) -> Provenance:
    """The provenance of an answer in which nothing was timed."""
    seen = conditions.seen
    return collect(
        conditions.device,
        dtype="not read" if seen is None else seen.dtype,
        shapes=() if seen is None else tuple(seen.shapes),
        method={**conditions.method, "clock": "none: not timed"},
        target=conditions.target,
    )
