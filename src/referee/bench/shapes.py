"""How long does a request take when requests come in many shapes? Single settled calls, shapes mixed as in service.

The order is random by the shares, because a shape that is called again and again keeps its own data in the caches, its
own kernels chosen and its own graph current, and a service never sees that.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

from referee.bench.cached import check_computed
from referee.bench.calibrate import Overhead, measure_overhead, with_settling
from referee.bench.guards import check_counters
from referee.bench.loop import Block, quiet_collector, run_block
from referee.bench.plan import MIN_BLOCKS, Plan, Progress, ProgressCallback, no_progress
from referee.bench.raised import step_raised
from referee.bench.sampling import MIN_CLEAN
from referee.bench.settling import settle_words
from referee.bench.sweep import Built
from referee.bench.warmup import WarmedUp, moved_counters, warm_up
from referee.device.protocol import Device
from referee.device.provenance import MachineMark, collect, mark_machine
from referee.errors import OptionError
from referee.records.finding import Finding, fatal
from referee.records.provenance import Provenance
from referee.records.shapes import ShapePoint, ShapeSet, Tail
from referee.stats.tail import tail_of

_REPORT_CALLS = 64


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One shape: the step on inputs of it, and its share of the requests (any positive weight)."""

    built: Built
    share: float = 1.0


def measure_shapes(
    shapes: Mapping[str, Shape],
    *,
    device: Device,
    plan: Plan | None = None,
    name: str = "step",
    seed: int = 0,
    progress: ProgressCallback = no_progress,
) -> ShapeSet:
    """Warm each shape up, then call them in random order by their shares, settled each time, until the budget ends.

    Anything compiled once all shapes are warm is a fatal finding: a service would pay for it at any request. Where a
    finding is fatal there are no percentiles. An interrupt keeps the calls that were made, and so does what a step
    raises once there are some; before that it passes through.
    """
    plan = Plan() if plan is None else plan
    if not shapes:
        raise OptionError("A set of shapes needs at least one.")
    if any(not 0 < shape.share < inf for shape in shapes.values()):
        raise OptionError("Each shape needs a share above zero, and one that has an end.")
    mark = mark_machine()
    labels, weights = list(shapes), [shape.share for shape in shapes.values()]
    with quiet_collector():
        warmed, own = _warm_up_each(shapes, device=device, plan=plan, progress=progress)
        before = device.counters()
        taken, stop_reason, raised = _call_mixed(
            shapes, labels, weights, device=device, plan=plan, seed=seed, progress=progress
        )
        moved = moved_counters(before, device.counters())
        found = tuple(f for label in labels for f in _of_shape(label, shapes[label], device=device, again=not raised))
    points = tuple(
        ShapePoint(
            label=label,
            share_frac=shape.share / sum(weights),
            tail=_tail(own[label], [block for which, block in taken if which == label]),
            warmup=warmed[label].record,
            provenance=_provenance(shape.built, device=device, plan=plan, warmed=warmed[label], mark=mark),
        )
        for label, shape in shapes.items()
    )
    times = [own[label].settled_per_call(block) for label, block in taken]
    clean = [ns for ns, (_, block) in zip(times, taken, strict=True) if block.switches == 0]
    everything = tail_of(times)
    mixture = tail_of(clean)
    findings = (
        *check_counters(moved),
        *found,
        *raised,
        *_too_few(mixture),
        *_interrupted(stop_reason, calls=len(taken)),
    )
    refused = bool(fatal(findings))
    return ShapeSet(
        name=name,
        points=tuple(replace(point, tail=None) for point in points) if refused else points,
        mixture=None if refused else mixture,
        preempted_frac=1 - len(clean) / len(times) if times else 0.0,
        p99_all_ns=None if everything is None or refused else everything.p99_ns,
        stop_reason=stop_reason,
        seed=seed,
        provenance=points[0].provenance,
        findings=findings,
    )


def _warm_up_each(
    shapes: Mapping[str, Shape], *, device: Device, plan: Plan, progress: ProgressCallback
) -> tuple[dict[str, WarmedUp], dict[str, Overhead]]:
    """Each shape warm, and what timing one call of it costs by itself."""
    overhead = measure_overhead(device)
    warmed: dict[str, WarmedUp] = {}
    own: dict[str, Overhead] = {}
    for label, shape in shapes.items():
        progress(Progress(stage=f"warm-up of {label}", frac=len(warmed) / len(shapes)))
        warmed[label] = warm_up(shape.built.step, device=device, plan=plan, first=shape.built.first)
        own[label] = with_settling(overhead, shape.built.step, device=device, calls=1)
    return warmed, own


def _of_shape(label: str, shape: Shape, *, device: Device, again: bool) -> tuple[Finding, ...]:
    """What was found of one shape, by its label. ``again``: its step may be called once more."""
    built, computed = shape.built, tuple[Finding, ...]()
    try:
        if again:
            computed = check_computed(built.step, built.observation, device=device, severity="warning")
    except (Exception, SystemExit, KeyboardInterrupt):  # noqa: BLE001 - calls of ours, after the percentiles
        pass
    return tuple(
        replace(finding, message=f"{label}: {finding.message}", evidence={"shape": label, **finding.evidence})
        for finding in (*built.findings, *computed)
    )


def _call_mixed(
    shapes: Mapping[str, Shape],
    labels: list[str],
    weights: list[float],
    *,
    device: Device,
    plan: Plan,
    seed: int,
    progress: ProgressCallback,
) -> tuple[list[tuple[str, Block]], str, tuple[Finding, ...]]:
    """The blocks in their order, each with its shape, why that ended, and what was raised if that did."""
    draw = random.Random(seed)
    taken: list[tuple[str, Block]] = []
    start_ns = device.now_ns()
    try:
        while len(taken) < plan.max_blocks:
            label = draw.choices(labels, weights)[0]
            taken.append((label, run_block(shapes[label].built.step, device=device, calls=1)))
            used = (device.now_ns() - start_ns) / plan.budget_ns
            if used >= 1 and len(taken) >= MIN_CLEAN:
                return taken, "budget", ()
            if len(taken) % _REPORT_CALLS == 0:
                progress(Progress(stage="calling the shapes in turn", frac=min(1.0, used), blocks=len(taken)))
    except KeyboardInterrupt:
        if not taken:
            raise
        return taken, "interrupted", ()
    except (Exception, SystemExit) as error:  # the user's code: anything can come out
        if len(taken) < MIN_BLOCKS:
            raise
        return taken, "raised", (step_raised(error, blocks=len(taken), where=f"at {label}"),)
    return taken, "blocks", ()


def _tail(overhead: Overhead, blocks: list[Block]) -> Tail | None:
    return tail_of([overhead.settled_per_call(block) for block in blocks if block.switches == 0])


def _provenance(built: Built, *, device: Device, plan: Plan, warmed: WarmedUp, mark: MachineMark) -> Provenance:
    seen = built.observation
    return collect(
        device,
        dtype="not read" if seen is None else seen.dtype,
        shapes=() if seen is None else tuple(seen.shapes),
        method={
            "clock": "settled_per_call",
            "settle": settle_words(device, seen),
            "warmup": f"{'steady' if warmed.record.steady else 'limit reached'} after {warmed.record.calls} calls",
            "calls_per_block": 1,
            "budget_ns": plan.budget_ns,
            "cache_state": "mixed with the other shapes",
            "gc": "disabled in the timed window",
            "statistic": "percentiles of clean calls",
            **built.method,
        },
        target=built.target,
        before=mark,
        switches=built.switches,
        devices=getattr(seen, "devices", ()),
    )


def _too_few(mixture: Tail | None) -> tuple[Finding, ...]:
    if mixture is None:
        return (
            Finding(
                code="no-clean-block",
                severity="fatal",
                message="Every call was preempted: the undisturbed times are not in these samples.",
                hint="Measure on a machine with an idle core.",
            ),
        )
    if mixture.p99_high_ns is not None:
        return ()
    return (
        Finding(
            code="few-samples",
            severity="warning",
            message=f"{mixture.n:,} calls do not bound the 99th percentile; it takes {mixture.calls_for_p99:,}.",
            evidence={"n": mixture.n, "wanted": mixture.calls_for_p99, "level": mixture.level},
            hint="Give a longer --budget.",
        ),
    )


def _interrupted(stop_reason: str, *, calls: int) -> tuple[Finding, ...]:
    if stop_reason != "interrupted":
        return ()
    return (
        Finding(
            code="interrupted",
            severity="warning",
            message=f"Interrupted after {calls:,} calls: the percentiles stand on those.",
            evidence={"calls": calls},
        ),
    )
