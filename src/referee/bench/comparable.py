"""May these sides be compared? What forbids it is found before a quad is taken, and called by its own name.

Each side is made ready with the switches in force that its own factory left, and these are put back before the next
one is. What is wrong with a side alone (its result is kept, it compiles at every call) comes before what differs
between two of them, because that is what would have to be mended first.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from referee.bench.cached import check_computed
from referee.bench.calibrate import Overhead, measure_overhead
from referee.bench.guards import check_counters, check_waiting
from referee.bench.loop import run_block
from referee.bench.plan import Plan, ProgressCallback
from referee.bench.proof import proof_findings, prove, proving_steps
from referee.bench.sides import Candidate, Ready, prepare
from referee.bench.waiting import Waited, read_occupied, waited_between
from referee.bench.warmup import is_compilation, moved_counters
from referee.device.protocol import Device
from referee.device.provenance import MachineMark
from referee.device.state import kept_state, restore
from referee.records.finding import Finding, fatal
from referee.records.provenance import (
    NOT_READ,
    Difference,
    Provenance,
    TensorSpec,
    describe_shapes,
    differences,
    ignoring_path,
)
from referee.units import NS_PER_MS

_PROVED_CALL_FRAC = 0.005
"""Longer calls than this share of the budget are not proved to run: that takes a hundred of them, on each side."""

_WATCHED_NS = 20 * NS_PER_MS
"""So long a side is watched for waiting, or for one call: many times what a reading of the account takes."""

_UNSEEN = (NOT_READ, "none seen", "no inputs seen")
"""Values that say that nothing was seen, and not that there is something else."""


def make_ready(
    candidates: Sequence[Candidate],
    *,
    device: Device,
    plan: Plan,
    before: MachineMark,
    progress: ProgressCallback,
) -> list[Ready]:
    """Each candidate warm on its own device, with what is wrong with it alone, under the switches of its own."""
    ready: list[Ready] = []
    overheads: dict[int, Overhead] = {}
    with kept_state() as session:
        for candidate in candidates:
            if candidate.state is not None:
                candidate.state.put()
            where = candidate.device or device
            overhead = overheads[id(where)] if id(where) in overheads else measure_overhead(where)
            overheads[id(where)] = overhead
            side = prepare(candidate, device=where, plan=plan, overhead=overhead, before=before, progress=progress)
            side.faults = (*side.faults, *_faults(side, plan=plan))
            if not fatal(side.faults):
                side.faults = (*side.faults, *check_waiting(_watch_waiting(side), compared=True))
            ready.append(side)
            restore(session)
    _give_switches(ready)
    return ready


def _give_switches(ready: Sequence[Ready]) -> None:
    """Where sides hold different switches each puts its own in force before its blocks, and a call follows untimed."""
    states = [side.candidate.state for side in ready if side.candidate.state is not None]
    paths = {difference.path for state in states[1:] for difference in states[0].moved(state)}
    if len(states) < len(ready) or not paths:
        return
    for side in ready:
        side.switched, side.primed = tuple(sorted(paths)), True


def _faults(side: Ready, *, plan: Plan) -> tuple[Finding, ...]:
    """Does this side compile at every call, or does its work not run?"""
    device = side.device
    before = device.counters()
    run_block(side.candidate.step, device=device, calls=side.calls)
    moved = {name: by for name, by in moved_counters(before, device.counters()).items() if is_compilation(name)}
    if moved or side.faults:
        return check_counters(moved)
    seen = side.candidate.observation
    computed = check_computed(side.candidate.step, seen, device=device, severity="fatal")
    if computed:
        return computed
    fresh = side.candidate.fresh
    steps = proving_steps(side.candidate.step, fresh, device=device)
    if steps is None or side.call_ns > _PROVED_CALL_FRAC * plan.budget_ns:
        return ()
    try:
        proof = prove(side.candidate.step, device=device, fresh=steps, seen=seen)
        return proof_findings(proof, device=device, anew=fresh is not None)
    except (Exception, SystemExit):  # noqa: BLE001 - built anew it may raise where this one did not: nothing is proved
        return ()


def _watch_waiting(side: Ready) -> Waited | None:
    """What of its time a side waits, in blocks of its own before the others come between them."""
    device = side.device
    before = read_occupied(device)
    if before is None:
        return None
    until_ns = before.now_ns + _WATCHED_NS
    while True:
        run_block(side.candidate.step, device=device, calls=side.calls)
        if device.now_ns() >= until_ns:
            return waited_between(before, read_occupied(device))


def what_differs(a: Provenance, b: Provenance, *, ignoring: Collection[str]) -> tuple[Difference, ...]:
    """The keys that must match and do not; what was not seen or not read on one side is not held against the other."""
    found = differences(a, b, ignoring=ignoring)
    return tuple(difference for difference in found if difference.a not in _UNSEEN and difference.b not in _UNSEEN)


def check_outputs(ready: Sequence[Ready], *, ignoring: Collection[str]) -> list[Finding]:
    """Do the sides return tensors of the same shapes and dtypes, where what enters may not differ either?"""
    if "shapes" in ignoring or "dtype" in ignoring:
        return []
    returned = [describe_shapes(_outputs(side), roles=("output",)) for side in ready]
    first = ready[0].candidate.name
    return [
        Finding(
            code="outputs-differ",
            severity="warning",
            message=f"{first} returns {returned[0]}, {side.candidate.name} {words}: they may not compute the same.",
            evidence={"a": first, "b": side.candidate.name, "a_returns": returned[0], "b_returns": words},
            hint="Let both return the same result, and compare the results once.",
        )
        for side, words in zip(ready[1:], returned[1:], strict=True)
        if _outputs(ready[0]) and _outputs(side) and words != returned[0]
    ]


def check_layouts(ready: Sequence[Ready], *, ignoring: Collection[str]) -> list[Finding]:
    """Do inputs of the same shapes lie in memory in the same order on all sides?"""
    if "shapes" in ignoring:
        return []
    layouts = [_layout(side) for side in ready]
    first = ready[0].candidate.name
    return [
        Finding(
            code="layouts-differ",
            severity="warning",
            message=f"The inputs of {first} and {side.candidate.name} have the same shapes and other strides: they lie "
            "in memory in another order.",
            evidence={"a": first, "b": side.candidate.name, "a_strides": layouts[0], "b_strides": layout},
            hint="If the layout is not what is compared, give both sides the same (contiguous(), memory_format).",
        )
        for side, layout in zip(ready[1:], layouts[1:], strict=True)
        if layouts[0]
        and layout
        and layout != layouts[0]  # what was not seen lies nowhere
        and not what_differs(ready[0].provenance, side.provenance, ignoring=ignoring)
    ]


def _layout(side: Ready) -> str:
    """The strides of the inputs, by shape."""
    inputs = sorted((spec.shape, spec.stride, spec.count) for spec in side.provenance.shapes if spec.role == "input")
    return " · ".join(f"{count} × {shape} by {stride}" for shape, stride, count in inputs)


def _outputs(side: Ready) -> Sequence[TensorSpec]:
    return tuple(getattr(side.candidate.observation, "outputs", ()))


def findings_of(ready: Sequence[Ready], *, ignoring: Collection[str]) -> list[Finding]:
    """What was found of each side alone, by its name; a switch that a side sets while it runs forbids the answer."""
    return [
        _judged(of_side(finding, side.candidate.name), ignoring=ignoring)
        for side in ready
        for finding in (*side.faults, *side.candidate.findings)
    ]


def of_side(finding: Finding, name: str) -> Finding:
    """The finding with the name of the side that it is about."""
    return replace(finding, message=f"{name}: {finding.message}", evidence={"side": name, **finding.evidence})


def _judged(named: Finding, *, ignoring: Collection[str]) -> Finding:
    """A switch that holds for the other side too forbids the answer, unless it is what may differ."""
    switches = [path for path in named.evidence if path != "side"]
    if named.code == "switch-set" and not all(ignoring_path(path, ignoring) for path in switches):
        return replace(
            named,
            severity="fatal",
            message=f"{named.message} They would hold for the other side too.",
            hint="Set them around the step with a context manager that puts them back, or --ignore them: then each "
            "side's own are put in force before its blocks.",
        )
    return named


def why_forbidden(a: str, b: str, forbidden: Sequence[Finding]) -> str:
    """Why has this pair no answer? What was found of it or of a side of it; else that another one was refused."""
    for finding in forbidden:
        if finding.evidence.get("b") == b or finding.evidence.get("side") in (a, b):
            return finding.message
    first = forbidden[0]
    if "b" in first.evidence or "side" in first.evidence:
        return f"not measured, because another side of this run was refused: {first.message}"
    return first.message
