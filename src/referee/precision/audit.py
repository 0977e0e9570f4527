"""What does autocast do to this step? Operators by dtype, the casts it inserted, and why the rest stays float32."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from referee.precision.control import Control, Ends, Setting
from referee.precision.policy import Policies
from referee.precision.recorder import CAST, CallEvent, CastEvent, OpEvent, Recording, recording
from referee.precision.subject import Subject, restored
from referee.precision.tape import Tape
from referee.records.finding import Finding
from referee.records.precision import AutocastAudit, AutocastOp, CastGroup

LOW = frozenset({"float16", "bfloat16"})
_MOST_MODULES = 4


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The recording of one forward and backward under autocast, and what follows from it."""

    setting: Setting
    recording: Recording
    tape: Tape
    ops: tuple[AutocastOp, ...]
    groups: tuple[CastGroup, ...]
    kept: int

    @property
    def casts(self) -> int:
        """Casts that autocast inserted, and those that backward makes because of them."""
        return sum(group.count for group in self.groups if group.who != "explicit")


def audit(subject: Subject, setting: Setting, *, policies: Policies) -> Audit:
    """Record the step once under ``setting``; weights and everything else are put back."""
    with restored(subject):
        for parameter in subject.parameters():
            parameter.grad = None
        tape = Tape()
        control = Control(
            setting,
            device_type=subject.device_type,
            own_sites=subject.own_sites,
            ends=Ends(before_update=True),
            on_loss=tape.losses.extend,
        )
        with recording(subject.device_type, subject.module_names, tape=tape) as found:
            control.call(subject.step)
    return Audit(
        setting=setting,
        recording=found,
        tape=tape,
        ops=_ops(found, policies),
        groups=group_casts(found.casts),
        kept=_kept(found),
    )


def group_casts(casts: Iterable[CastEvent]) -> tuple[CastGroup, ...]:
    """The casts by who asked, from and to, and of what; a repeat casts the same weight to the same dtype again."""
    counts: Counter[tuple[str, ...]] = Counter()
    moved: Counter[tuple[str, ...]] = Counter()
    repeats: Counter[tuple[str, ...]] = Counter()
    seen: set[tuple[int, str]] = set()
    for cast in casts:
        of = "gradient" if cast.backward else "weight" if cast.weight else "activation"
        key = (cast.who, "backward" if cast.backward else "forward", of, cast.source, cast.target)
        counts[key] += 1
        moved[key] += cast.nbytes
        if of == "weight" and (cast.tensor, cast.target) in seen:
            repeats[key] += 1
        seen.add((cast.tensor, cast.target))
    return tuple(
        CastGroup(
            who=key[0],
            phase=key[1],
            of=key[2],
            source=key[3],
            target=key[4],
            count=count,
            repeats=repeats[key],
            bytes=moved[key],
        )
        for key, count in counts.most_common()
    )


def _ops(found: Recording, policies: Policies) -> tuple[AutocastOp, ...]:
    casts_of: Counter[int] = Counter(c.call for c in found.casts if c.who == "autocast" and c.call is not None)
    ops_of: Counter[int] = Counter(op.call for op in found.ops if op.call is not None and op.op != CAST and not op.view)
    counts: Counter[tuple[object, ...]] = Counter()
    casts: Counter[tuple[object, ...]] = Counter()
    modules: dict[tuple[object, ...], dict[str, None]] = defaultdict(dict)
    calls: dict[tuple[object, ...], dict[str, None]] = defaultdict(dict)
    charged: set[int] = set()
    for op in found.ops:
        if op.op == CAST or op.view or not (op.inputs or op.output):
            continue
        key = (op.op, op.backward, op.inputs, op.output, _why(op, found, policies))
        counts[key] += 1
        if op.module:
            modules[key][op.module] = None
        if op.call is not None:
            calls[key][found.calls[op.call].name] = None
        # The casts of a call are charged to its first operator that computes.
        if op.call is not None and op.call not in charged and ops_of[op.call]:
            charged.add(op.call)
            casts[key] += casts_of[op.call]
    return tuple(
        AutocastOp(
            op=str(key[0]),
            phase="backward" if key[1] else "forward",
            inputs=tuple(key[2]),  # type: ignore[arg-type]
            output=str(key[3]),
            count=count,
            casts=casts[key],
            why=str(key[4]),
            modules=tuple(list(modules[key])[:_MOST_MODULES]),
            calls=tuple(list(calls[key])[:_MOST_MODULES]),
        )
        for key, count in counts.most_common()
    )


def _why(op: OpEvent, found: Recording, policies: Policies) -> str:
    """Why the operator ran in the dtype it ran in."""
    if op.backward:
        return "backward"
    call = found.calls[op.call] if op.call is not None else None
    if call is None or not call.autocast:
        return "outside"
    if call.explicit:
        return "explicit"
    return why_of_call(call, op.inputs, policies)


def why_of_call(call: CallEvent, given: tuple[str, ...], policies: Policies) -> str:
    """The reason, from what the call was given, what the operator was given, and autocast's policy for it."""
    policy = policies.of_call(call.name)
    low_in, low_op = LOW & set(call.inputs), LOW & set(given)
    if low_op and not low_in:
        return "lowered"
    if policy.startswith("lower") and low_op:
        return "lowered"
    if low_in and not low_op and given:
        return (
            "promotion"
            if policy == "promote" or ("float32" in call.inputs and not policy.startswith("float32"))
            else "policy"
        )
    if policy.startswith("float32") and "float32" in given:
        return "policy"
    if policy == "promote" and len(set(call.inputs)) > 1:
        return "promotion"
    return "inputs"


def _kept(found: Recording) -> int:
    """How often a weight entered a call that lowers it, and was not cast there: its cast had been kept."""
    first: dict[int, int] = {}
    casting: set[tuple[int, int]] = set()
    for cast in found.casts:
        if cast.weight and cast.who == "autocast" and cast.call is not None:
            first.setdefault(cast.tensor, cast.call)
            casting.add((cast.tensor, cast.call))
    lowering = {op.call for op in found.ops if op.call is not None and LOW & set(op.inputs)}
    return sum(
        (weight, call.number) not in casting
        for call in found.calls
        if call.autocast and call.number in lowering
        for weight in call.weights
        if first.get(weight, call.number) < call.number
    )


def cast_shapes(casts: Iterable[CastEvent]) -> list[CastEvent]:
    """The casts that autocast caused, backward's included: what is timed apart."""
    return [cast for cast in casts if cast.who != "explicit"]


def idle_findings(audited: AutocastAudit) -> Iterator[Finding]:
    """Does autocast have any effect on the step at all?"""
    if any(LOW & {*op.inputs, op.output} for op in audited.ops) or not audited.ops:
        return
    yield Finding(
        code="autocast-without-effect",
        severity="warning",
        message=f"Under {audited.dtype} autocast no operator of the step computes in {audited.dtype}: it changes "
        "nothing here, and what was timed beside float32 is float32.",
        evidence={"dtype": audited.dtype, "operators": sum(op.count for op in audited.ops)},
        hint="It lowers matrix products, convolutions and attention. Where the step has these, autocast is not in "
        "force there: it holds in the thread that enters it, for its own device and outside of regions that switch it "
        "off.",
    )
