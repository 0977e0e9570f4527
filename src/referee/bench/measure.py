"""How long does one call take? Warm-up, calibration, the headline clock, the other clocks, the guards: one record."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from referee.bench.beside import busy_beside, check_beside
from referee.bench.cached import check_computed
from referee.bench.calibrate import choose_calls, measure_overhead, with_settling
from referee.bench.clocks import SideClocks, headline_alone, read_clocks
from referee.bench.core_clock import ClockReader, check_clock, core_clock
from referee.bench.garbage import check_garbage, read_resident
from referee.bench.guards import (
    check_blocks,
    check_budget,
    check_counters,
    check_enqueue,
    check_executions,
    check_precision,
    check_waiting,
    check_warmup,
)
from referee.bench.interrupts import hold_interrupts
from referee.bench.kept import check_kept
from referee.bench.loop import quiet_collector, run_block
from referee.bench.plan import Plan, Progress, ProgressCallback, Step, no_progress
from referee.bench.proof import proof_findings, prove, proving_steps
from referee.bench.raised import step_raised
from referee.bench.recompiled import name_change
from referee.bench.sampling import Sampled, take_samples
from referee.bench.settling import settle_words
from referee.bench.stopping import CUT_SHORT, rules_of
from referee.bench.unrun import check_unrun
from referee.bench.variation import check_variation, varies
from referee.bench.waiting import Waited, much_waiting, read_occupied, waited_between
from referee.bench.warmup import FirstCall, WarmedUp, moved_counters, warm_up
from referee.bench.work import check_work, known_flop
from referee.device.protocol import Device, Settling, TellsStages
from referee.device.provenance import Source, collect, mark_machine
from referee.records.finding import Finding, Scalar, fatal
from referee.records.measurement import Measurement
from referee.records.provenance import Provenance, TensorSpec
from referee.stats.interval import median_interval
from referee.stats.summary import summarise
from referee.units import NS_PER_MS

_CALIBRATION_FRAC = 0.15
_PROVED_CALL_FRAC = 0.1
"""Longer calls are not proved, which takes a hundred of them: settled one by one, as they are, nothing escapes."""

_LONG_NS = NS_PER_MS
"""Blocks longer than this are rarely clean beside busy processes, so that they are asked what those had of them."""

_OF_THE_NUMBER = ("children-compute", "core-clock-moved")
"""Findings that say how a number is to be taken, and nothing where there is none."""


class Seen(Protocol):
    """What was observed of a step's inputs and outputs (see ``referee.device.observe``)."""

    @property
    def dtype(self) -> str:
        """The dtype the step computes in."""

    @property
    def shapes(self) -> Sequence[TensorSpec]:
        """The tensors that entered."""


@dataclass(frozen=True, kw_only=True)
class _Timed:
    """Everything that was timed, before it is judged."""

    warmed: WarmedUp
    main: Sampled
    side: SideClocks
    moved: dict[str, int]
    stages: dict[str, float] | None
    waited: Waited | None = None
    """What of the headline's blocks this process neither computed nor waited for a processor."""
    spent_ns: int = 0
    """What all of it took, first-time costs apart."""


def measure(
    step: Step,
    *,
    device: Device,
    plan: Plan | None = None,
    name: str = "step",
    first: FirstCall | None = None,
    observation: Seen | None = None,
    target: Source | None = None,
    method: Mapping[str, Scalar] | None = None,
    switches: Mapping[str, Scalar] | None = None,
    findings: Sequence[Finding] = (),
    fresh: Callable[[], Step] | None = None,
    prepare: Callable[[], None] | None = None,
    progress: ProgressCallback = no_progress,
) -> Measurement:
    """Measure ``step`` on ``device`` as ``plan`` says (default: :class:`Plan`).

    ``first`` is the step's first call, where it has been made before (:func:`~referee.bench.warmup.first_call`).
    ``observation`` gives dtype and shapes for the provenance; without it they are "not read". ``method`` adds or
    replaces keys of the provenance's method section (how the inputs were filled, for example), ``switches`` those of
    its switches (what was observed inside the step); ``target`` names what was measured and its file. ``findings``
    come first in the record; a fatal one among them or among Referee's own leaves the headline empty. ``fresh``
    returns the step on inputs not used before: with it the work is proved to run (:mod:`referee.bench.proof`), outside
    of the budget, for calls of up to a tenth of it. ``prepare`` (a cache flush, for example) runs before each timed
    call, outside of the time; blocks are then single calls, and the caller says in ``method`` what it is.

    An interrupt (Ctrl-C) once blocks exist gives the record of what there is, with ``stop_reason`` "interrupted";
    before that it is raised again. So does what the step raises: before there is a block it passes through, with a note
    of how far the warm-up had come.
    """
    plan = Plan() if plan is None else plan
    before = mark_machine()
    with quiet_collector():
        busy_before = busy_beside(device, children=None if first is None else first.children_frac)
        resident_bytes, start_ns = read_resident(device), device.now_ns()
        timed = _time(step, device=device, plan=plan, first=first, prepare=prepare, progress=progress)
        with hold_interrupts() as held:
            timed = replace(timed, spent_ns=device.now_ns() - start_ns - timed.warmed.once_ns)
            busy_after = busy_beside(device)
        if held.interrupted:
            timed = replace(timed, main=replace(timed.main, stop_reason="interrupted"))
        proved = _prove(step, timed, device=device, plan=plan, fresh=fresh, seen=observation)
        with hold_interrupts() as held:
            beside = check_beside(busy_before, busy_after, waits=much_waiting(timed.waited))
            kept = check_kept(observation, calls=_calls(timed))
            garbage = () if kept else check_garbage(resident_bytes, device=device, calls=_calls(timed))
            provenance = collect(
                device,
                **_observed(observation),
                method={
                    **_method(timed, device=device, plan=plan, seen=observation),
                    **_parameters(target),
                    **(method or {}),
                },
                target=target,
                before=before,
                switches={**_casts(observation), **(switches or {})},
            )
            given = (*findings, *kept, *garbage, *beside, *proved)
            found = _record(
                timed, name=name, plan=plan, device=device, provenance=provenance, given=given, seen=observation
            )
    if held.interrupted:
        return replace(found, stop_reason="interrupted", findings=(*found.findings, _interrupted(len(found.clean))))
    return name_change(found, step=step, device=device)


def _time(
    step: Step,
    *,
    device: Device,
    plan: Plan,
    first: FirstCall | None,
    prepare: Callable[[], None] | None,
    progress: ProgressCallback,
) -> _Timed:
    begin_ns = device.now_ns()
    overhead = measure_overhead(device)
    warmed = warm_up(
        step, device=device, plan=plan, progress=progress, spent_ns=device.now_ns() - begin_ns, first=first
    )
    # First-time costs are not the budget's: a compile of ten seconds must not leave three blocks.
    end_ns = begin_ns + warmed.once_ns + plan.budget_ns
    target_ns = plan.block_target_ns or device.block_target_ns
    progress(Progress(stage="calibrating", frac=0.0))
    until_ns = device.now_ns() + int(_CALIBRATION_FRAC * plan.budget_ns)
    calls = 1
    if prepare is None and not varies(warmed.series_ns, device=device):
        calls = choose_calls(step, device=device, target_ns=target_ns, until_ns=until_ns, one_ns=warmed.one_ns)
    overhead = with_settling(overhead, step, device=device, calls=calls)
    if calls > 1:
        run_block(step, device=device, calls=calls)  # the first block of its size pays for its own memory
    before, entered, waiting = device.counters(), _stages(device), read_occupied(device)
    side_ns = int(_side_share(plan, device=device, calls=calls) * plan.budget_ns)
    main_until_ns = end_ns - side_ns
    main = take_samples(
        step,
        device=device,
        calls=calls,
        overhead=overhead,
        rules=rules_of(plan, until_ns=main_until_ns),
        until_ns=main_until_ns,
        prepare=prepare,
        long=plan.subtract_stolen and calls == 1 and warmed.one_ns > _LONG_NS and _on_host(device),
        clock=ClockReader(device),
        progress=progress,
    )
    moved = moved_counters(before, device.counters())
    stages = _stages_per_call(entered, _stages(device), main=main)
    waited = waited_between(waiting, read_occupied(device))
    if main.stop_reason in CUT_SHORT:
        return _Timed(warmed=warmed, main=main, side=headline_alone(main), moved=moved, stages=stages, waited=waited)
    until_ns = min(end_ns, device.now_ns() + side_ns)
    try:
        side = read_clocks(step, device=device, plan=plan, main=main, until_ns=until_ns, progress=progress)
    except KeyboardInterrupt:
        main = replace(main, stop_reason="interrupted")
        side = headline_alone(main)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code: anything can come out
        main = replace(main, stop_reason="raised", raised=error)
        side = headline_alone(main)
    return _Timed(warmed=warmed, main=main, side=side, moved=moved, stages=stages, waited=waited)


def _stages(device: Device) -> Mapping[str, int]:
    return device.stages() if isinstance(device, TellsStages) else {}


def _stages_per_call(before: Mapping[str, int], after: Mapping[str, int], *, main: Sampled) -> dict[str, float] | None:
    """What the backend's own account says that one call of the headline's blocks went into."""
    calls = sum(block.calls for block in main.blocks)
    return {name: (after[name] - before[name]) / calls for name in before} or None


def _is_long(timed: _Timed, plan: Plan) -> bool:
    """Whether a call is so long that nothing is proved by repeating it."""
    return timed.warmed.one_ns > _PROVED_CALL_FRAC * plan.budget_ns


def _prove(
    step: Step, timed: _Timed, *, device: Device, plan: Plan, fresh: Callable[[], Step] | None, seen: Seen | None
) -> tuple[Finding, ...]:
    """Prove that the work runs, where there is what to hold it against and the calls are not too long."""
    quick = not _is_long(timed, plan) and timed.main.stop_reason not in CUT_SHORT
    proved = _prove_runs(step, timed, device=device, fresh=fresh, seen=seen) if quick else ()
    return *proved, *check_unrun(seen, device=device, prove=quick)


def _prove_runs(
    step: Step, timed: _Timed, *, device: Device, fresh: Callable[[], Step] | None, seen: Seen | None
) -> tuple[Finding, ...]:
    try:
        steps, proved = proving_steps(step, fresh, device=device), tuple[Finding, ...]()
        if steps is not None:
            proof = prove(step, device=device, fresh=steps, seen=seen)
            proved = proof_findings(proof, device=device, anew=fresh is not None)
        return proved or check_computed(step, seen, device=device, severity="warning")
    except KeyboardInterrupt:
        return ()  # the number stands; that it was not proved is no reason to lose it
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a step built anew may raise where this one did not
        return (step_raised(error, blocks=len(timed.main.blocks), where="on fresh inputs"),)


def _calls(timed: _Timed) -> int:
    """How many calls were made, those of the side clocks apart."""
    return timed.warmed.record.calls + sum(block.calls for block in timed.main.blocks)


def _synchronous(device: Device) -> bool:
    return device.settling is Settling.SYNCHRONOUS


def _on_host(device: Device) -> bool:
    """Whether what takes the processor takes it from the work: recorded work may run on this machine's cores too."""
    return device.settling is not Settling.ASYNCHRONOUS


def _side_share(plan: Plan, *, device: Device, calls: int) -> float:
    """The share of the budget for the clocks beside the headline."""
    synchronous = device.settling is Settling.SYNCHRONOUS
    single = calls > 1 and ("settled_per_call" in plan.clocks or ("enqueue" in plan.clocks and not synchronous))
    marked = device.settling is Settling.ASYNCHRONOUS and "device" in plan.clocks
    return plan.side_frac * (single + marked)


def _observed(seen: Seen | None) -> dict[str, Any]:
    """What the provenance takes from what was observed of the step."""
    return {
        "dtype": "not read" if seen is None else seen.dtype,
        "shapes": () if seen is None else tuple(seen.shapes),
        "devices": getattr(seen, "devices", ()),
        "threads": getattr(seen, "threads", None),
    }


def _parameters(target: Source | None) -> dict[str, Scalar]:
    """The values in force of the target's parameters, or a statement's setup, so that it can be measured again."""
    stated: dict[str, Scalar] = {}
    # Texts that are there and empty: only defaults are in force that no text stands for, and leaving them out is right.
    texts = getattr(target, "texts", None)
    values = getattr(target, "values", None) if texts is None else texts
    if values:
        stated["parameters"] = json.dumps({name: str(value) for name, value in values.items()})
    if getattr(target, "statement", False):
        stated["setup"] = str(getattr(target, "setup", ""))
    return stated


def _casts(observation: Seen | None) -> dict[str, Scalar]:
    """How many changes of dtype a call makes, where that was watched."""
    casts = getattr(observation, "casts", None)
    return {"casts_per_call": ", ".join(f"{count} {who}" for who, count in casts.items())} if casts else {}


def _method(timed: _Timed, *, device: Device, plan: Plan, seen: Seen | None) -> dict[str, Scalar]:
    warmup, main = timed.warmed.record, timed.main
    calls = main.blocks[0].calls
    ended = "steady" if warmup.steady else "limit reached"
    return {
        "clock": "settled_amortised",
        "settle": settle_words(device, seen),
        "warmup": f"{ended} after {warmup.calls} calls",
        "calls_per_block": calls,
        "block_target_ns": plan.block_target_ns or device.block_target_ns,
        "budget_ns": plan.budget_ns,
        "cache_state": "warm",
        "gc": "disabled in the timed window",
        "overhead_ns": main.overhead.per_call_ns(calls),
        "statistic": _statistic(main),
    }


def _statistic(main: Sampled) -> str:
    """What the headline is of the samples, and what a sample is."""
    calls = main.blocks[0].calls
    words = "median of blocks, less what other processes had" if main.corrected else "median of clean blocks"
    return words if calls == 1 else f"{words}, each the mean of {calls:,} calls"


def _record(
    timed: _Timed,
    *,
    name: str,
    plan: Plan,
    device: Device,
    provenance: Provenance,
    given: tuple[Finding, ...],
    seen: Seen | None,
) -> Measurement:
    main, side = timed.main, timed.side
    samples = main.settled_ns
    usable = samples[np.array(main.usable, dtype=bool)]
    summary = summarise(usable) if usable.size else None
    estimate = median_interval(usable, level=plan.level) if usable.size else None
    clock = None if much_waiting(timed.waited) else core_clock(main.clock, samples, usable=main.usable)
    findings = (
        *given,
        *check_blocks(main, summary=summary),
        *check_variation(usable, summary=summary, calls=main.blocks[0].calls, clock=clock),
        *check_counters(timed.moved),
        *check_executions(timed.stages),
        *check_warmup(timed.warmed),
        *check_clock(clock),
        *check_budget(timed.spent_ns, budget_ns=plan.budget_ns, call_ns=timed.warmed.one_ns),
        *check_precision(estimate, stop_reason=main.stop_reason, budget_ns=plan.budget_ns),
        *check_enqueue(side, device=device),
        *_cut_short(main),
        *check_waiting(timed.waited),
        *check_work(seen, None if estimate is None else estimate.point, device=device),
    )
    if fatal(findings):
        summary, estimate, clock = None, None, None
        findings = tuple(finding for finding in findings if finding.code not in _OF_THE_NUMBER)
    return Measurement(
        name=name,
        median_ns=None if estimate is None else estimate.point,
        ci_low_ns=None if estimate is None else estimate.low,
        ci_high_ns=None if estimate is None else estimate.high,
        iqr_ns=None if summary is None else summary.iqr,
        floor_ns=None if summary is None else summary.floor,
        p95_ns=None if summary is None else summary.p95,
        ci_level=plan.level,
        n=int(usable.size),
        n_eff=estimate.n_eff if estimate is not None else 0.0,
        blocks=len(main.blocks),
        stop_reason=main.stop_reason,
        clocks=side.clocks if estimate is not None else replace(side.clocks, settled_amortised_ns=None),
        naive_ns=side.naive_ns,
        warmup=timed.warmed.record,
        samples_ns=tuple(float(ns) for ns in samples),
        clean=main.clean,
        provenance=provenance,
        findings=findings,
        stages=timed.stages,
        flop=known_flop(seen),
        core_clock=clock,
    )


def _cut_short(main: Sampled) -> tuple[Finding, ...]:
    if main.raised is not None:
        return (step_raised(main.raised, blocks=len(main.blocks)),)
    return (_interrupted(len(main.blocks)),) if main.stop_reason == "interrupted" else ()


def _interrupted(blocks: int) -> Finding:
    return Finding(
        code="interrupted",
        severity="warning",
        message=f"Interrupted after {blocks:,} blocks: the number stands on what counts of those.",
        evidence={"blocks": blocks},
    )
