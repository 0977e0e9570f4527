"""What would autocast do on a device that is not here? The forward pass run again on fake tensors of that device.

Every tensor that enters a call from outside is replaced by a fake one of the same shape and dtype on the other device;
calls then compute shapes and dtypes only, under that device's autocast. It ends where the first backward would begin:
backward on a fake CUDA tensor aborts a CPU build of torch; what it would do is derived from forward's dtypes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from referee.device.host import load_torch
from referee.device.watching import tensors_in
from referee.precision.control import BackwardReached, autocast_state
from referee.precision.errors import first_sentence
from referee.precision.fakes import Fakes
from referee.precision.intercept import Intercepts
from referee.precision.place import module_stack
from referee.precision.recorder import CallEvent, CallRecorder, CastEvent, OpRecorder, Recording
from referee.precision.subject import Subject, restored
from referee.precision.tape import Tape, backward_dtypes, derived_casts
from referee.records.finding import Finding
from referee.records.precision import DeviceDifference

_GUARDED = ("contiguous", "copy_", "cuda")
"""Methods that ask for the device's guard before anything else, which a build without that device does not have."""

_ITEMS = ("__getitem__", "__setitem__")
"""Those of them that Python keeps a slot of the class for, which it does not clear again when they are taken away: a
tensor whose class once had them is a sequence, and ``torch.tensor([a])`` fails. Only the class of fake tensors gets
them."""

_INSTEAD = {"binary_cross_entropy": "Use binary_cross_entropy_with_logits (BCEWithLogitsLoss) on the logits instead."}


@dataclass(frozen=True, kw_only=True)
class Elsewhere:
    """The recording on the other device, and why it ended early, if it did."""

    device_type: str
    recording: Recording
    tape: Tape
    stopped: str = ""
    banned: str = ""
    """The call that autocast refuses there."""
    left_out: str = ""
    """Which functions of the user's own did not run there, and why."""


def record_elsewhere(subject: Subject, device_type: str, dtype: str) -> Elsewhere:
    """Record the step's forward pass as ``device_type`` would run it under autocast to ``dtype``.

    The step's own autocast regions, where it has some, are taken over with ``dtype``.
    """
    torch = load_torch()
    found = Recording(device_type)
    stopped = banned = ""
    tape = Tape(merges=True)
    fakes = Fakes(torch, device_type, tape)

    def reached(tensors: Any, *args: Any, **kwargs: Any) -> None:
        tape.losses += tensors_in(tensors)
        raise BackwardReached

    with restored(subject), Intercepts() as on, module_stack(subject.module_names) as stack:
        on.replace(torch.autograd, "backward", reached)
        functions = _Functions(found, tape, fakes)
        on.replace_attribute(torch.autograd.Function, "apply", functions.apply())
        if subject.own_sites:
            _mirror(on, torch, subject.device_type, device_type, getattr(torch, dtype), tape)
        items = {name: fakes.detour(getattr(torch.Tensor, name)) for name in _ITEMS}
        instead = {getattr(torch.Tensor, name): call for name, call in items.items()}
        calls = CallRecorder(found, stack, substitute=fakes.substitute, instead=instead)
        try:
            around = nullcontext() if subject.own_sites else autocast_state(device_type, getattr(torch, dtype))
            for name in _GUARDED:
                on.replace_attribute(torch.Tensor, name, fakes.detour(getattr(torch.Tensor, name)))
            for name, call in items.items():
                on.replace_attribute(fakes.kind, name, call)
            with around, fakes.mode, calls, OpRecorder(found, stack, tape=tape):
                tape.returned(subject.step())
        except BackwardReached:
            pass
        except Exception as error:  # noqa: BLE001 - user code on fake tensors: anything; it is shown as the reason
            stopped = first_sentence(error)
            if "unsafe to autocast" in str(error):
                banned, stopped = getattr(_raising(found.calls), "name", ""), ""
    return Elsewhere(
        device_type=device_type,
        recording=found,
        tape=tape,
        stopped=stopped,
        banned=banned,
        left_out=functions.words(),
    )


class _Functions:
    """Functions with a backward of their own, whose forward runs where gradients are off: the tape is told of them.

    They are given fakes alone, weights included. A forward that cannot run on fakes (it reads values) is run here, on
    ones of the same shapes, for the shapes and dtypes of its results; its calls are then not a part of the recording.
    """

    def __init__(self, found: Recording, tape: Tape, fakes: Fakes) -> None:
        self._found, self._tape, self._fakes = found, tape, fakes
        self.run_here: dict[str, str] = {}
        """By name: why the forward did not run on fakes."""

    def apply(self) -> Any:
        """What stands for ``torch.autograd.Function.apply``."""
        plain = load_torch().autograd.Function.apply.__func__

        def apply(kind: Any, *args: Any, **kwargs: Any) -> Any:
            given, named = self._substituted(list(args)), self._substituted(kwargs)
            begun = len(self._found.calls)
            outer = self._found.current, self._found.explicit
            try:
                result = plain(kind, *given, **named)
            except Exception as error:  # noqa: BLE001 - user code on fake tensors: anything can come out
                del self._found.calls[begun:]
                self._found.current, self._found.explicit = outer
                self.run_here[kind.__name__] = first_sentence(error)
                result = self._here(plain, kind, given, named)
            with load_torch()._C.DisableTorchFunction():  # reading a tensor is no call of the step's
                self._tape.opaque(kind.__name__, (given, tuple(named.values())), result, call=self._found.current)
            return result

        return classmethod(apply)

    def _here(self, plain: Any, kind: Any, args: Any, kwargs: Any) -> Any:
        torch = load_torch()
        from torch.utils._python_dispatch import _disable_current_modes

        with _disable_current_modes(), torch._C.DisableTorchFunction():
            result = plain(kind, *_ones(torch, args), **_ones(torch, kwargs))
        return self._substituted(result)

    def _substituted(self, value: Any) -> Any:
        # Outside of a call that the recorder has taken over, making a fake would be recorded itself.
        with load_torch()._C.DisableTorchFunction():
            return self._fakes.substitute(value)

    def words(self) -> str:
        """Which ran here instead, as a part of the reason why not all is compared."""
        return "; ".join(
            f"{name}.forward does not run there ({why}), so it is left out and its results are taken as they are here"
            for name, why in self.run_here.items()
        )


def _ones(torch: Any, value: Any) -> Any:
    """``value`` with real tensors of ones on the CPU in place of its tensors."""
    if isinstance(value, torch.Tensor):
        return torch.ones(tuple(value.shape), dtype=value.dtype)
    if isinstance(value, (list, tuple)):
        return type(value)(_ones(torch, item) for item in value)
    if isinstance(value, dict):
        return {key: _ones(torch, item) for key, item in value.items()}
    return value


def _mirror(on: Intercepts, torch: Any, here: str, there: str, dtype: Any, tape: Tape) -> None:
    """The step's own regions for the device here switch autocast there on and off."""
    states: list[Any] = []

    def enter(context: Any, args: Any, kwargs: Any) -> None:
        if context.device == here:
            states.append((torch.is_autocast_enabled(there), torch.get_autocast_dtype(there)))
            torch.set_autocast_enabled(there, context._enabled)
            torch.set_autocast_dtype(there, dtype)

    def leave(context: Any, args: Any, result: Any) -> None:
        if context.device == here and states:
            enabled, before = states.pop()
            torch.set_autocast_enabled(there, enabled)
            torch.set_autocast_dtype(there, before)
            tape.region += not states

    on.wrap(torch.autocast, "__enter__", before=enter)
    on.wrap(torch.autocast, "__exit__", after=leave)


def differences(here: Recording, there: Elsewhere) -> tuple[tuple[DeviceDifference, ...], str]:
    """Calls whose results have other dtypes there, and why the comparison is not complete, if it is not.

    Both recordings run the same code, so their calls correspond one to one. Where they do not, the code itself asks
    for the device, or a part of it did not run there: what corresponds before and after is compared all the same.
    """
    names: Counter[tuple[str, str, str, str]] = Counter()
    forward, last = _forward(here), _raising(there.recording.calls)
    pairs, apart = _corresponding(forward, there)
    stopped = f"the forward pass could not be followed there: {there.stopped}" if there.stopped else ""
    reason = "; ".join(words for words in (there.left_out or apart, stopped) if words)
    for ours, theirs in pairs:
        if theirs is last and (there.banned or there.stopped):
            break
        if _result(ours) != _result(theirs):
            names[ours.name, ours.module, _result(ours), _result(theirs)] += 1
    rows = [
        DeviceDifference(call=name, place=place, here=a, there=b, device=there.device_type, count=count)
        for (name, place, a, b), count in names.items()
    ]
    if there.banned and last is not None:
        rows.append(
            DeviceDifference(
                call=there.banned,
                place=last.module,
                here=_result(forward[last.number]) if last.number < len(forward) else "",
                there="raises: unsafe to autocast",
                device=there.device_type,
                count=1,
            )
        )
    return tuple(rows), reason


def _raising(calls: Sequence[CallEvent]) -> CallEvent | None:
    """The call that ended a forward by raising: leaving a region without gradients is one more call after it."""
    return next((call for call in reversed(calls) if call.name != "_set_grad_enabled"), None)


def _forward(here: Recording) -> list[CallEvent]:
    return [call for call in here.calls if call.name != "backward"]


def _corresponding(forward: Sequence[CallEvent], there: Elsewhere) -> tuple[list[tuple[CallEvent, CallEvent]], str]:
    """The calls here and there that are the same call, in order, and where the first has no counterpart, if so."""
    calls = there.recording.calls
    pairs = list(zip(forward, calls, strict=False))
    first = next(((a, b) for a, b in pairs if a.name != b.name), None)
    if first is None:
        return pairs, ""
    ours, theirs = ([(call.name, call.module) for call in side] for side in (forward, calls))
    blocks = SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks()
    pairs = [(forward[block.a + k], calls[block.b + k]) for block in blocks for k in range(block.size)]
    a, b = first
    return pairs, f"the code takes another way there: {b.name} instead of {a.name} in {a.module or 'it'}"


def derived_differences(here: Recording, tape: Tape, there: Elsewhere) -> tuple[tuple[DeviceDifference, ...], str]:
    """Calls whose backward would compute in other dtypes there, derived on both sides, and why that is not complete.

    Both are derived, so that like is held against like; here, tests hold it against the backward that ran.
    """
    if there.stopped or there.banned:
        return (), "the forward pass does not reach its loss there"
    if not there.tape.losses:
        return (), "" if not tape.losses else "no loss was seen there"
    ours, theirs = backward_dtypes(tape.reached()), backward_dtypes(there.tape.reached())
    found: Counter[tuple[str, str, str, str]] = Counter()
    for a, b in _corresponding(_forward(here), there)[0]:
        words = ours.get(a.number, ""), theirs.get(b.number, "")
        if all(words) and words[0] != words[1]:
            found[a.name, a.module, *words] += 1
    rows = tuple(
        DeviceDifference(call=name, place=place, here=a, there=b, device=there.device_type, count=count, derived=True)
        for (name, place, a, b), count in found.items()
    )
    return rows, "; ".join(_not_derived(here, tape, there, [number for number in ours if number not in theirs]))


def _not_derived(here: Recording, tape: Tape, there: Elsewhere, missing: Sequence[int]) -> Iterator[str]:
    """Why the backward there is not derived wholly; ``missing`` are calls that it reaches here and not there."""
    if there.tape.opaques:
        yield f"what the backward of {', '.join(there.tape.opaques)} casts is its own affair"
    if missing:
        calls = f"{len(missing)} call{'s' * (len(missing) > 1)} (first {here.calls[missing[0]].name})"
        if len(tape.losses) > 1:
            yield f"it is followed from the first of {len(tape.losses)} losses, which leaves out {calls}"
        else:
            yield f"{calls} cannot be traced from the loss there"


def casts_elsewhere(there: Elsewhere) -> list[CastEvent]:
    """Every cast there: forward's as recorded, backward's as derived (none where forward ended early)."""
    if there.stopped or there.banned:
        return list(there.recording.casts)
    return [*there.recording.casts, *derived_casts(there.tape.reached())]


def _result(call: CallEvent) -> str:
    return ", ".join(call.outputs)


def other_device(device_type: str) -> str | None:
    """The device to compare with: CUDA, and from CUDA the CPU; ``None`` where torch's fakes have no autocast for it."""
    return {"cpu": "cuda", "cuda": "cpu"}.get(device_type)


def elsewhere_findings(rows: Sequence[DeviceDifference]) -> tuple[Finding, ...]:
    """What would surprise on the other device: a call that raises there, reductions that return another dtype."""
    found = []
    for row in rows:
        where = f" in {row.place}" if row.place else ""
        if row.there.startswith("raises"):
            found.append(
                Finding(
                    code="raises-elsewhere",
                    severity="warning",
                    message=f"{row.call}{where} runs here and raises under autocast on {row.device}.",
                    evidence={"call": row.call, "device": row.device},
                    hint=_INSTEAD.get(row.call, "Compute it outside of autocast, in float32."),
                )
            )
    if differing := [row for row in rows if not row.derived and not row.there.startswith("raises")]:
        first = differing[0]
        kinds = "1 kind of call returns" if len(differing) == 1 else f"{len(differing)} kinds of call return"
        found.append(
            Finding(
                code="differs-elsewhere",
                severity="info",
                message=f"{kinds} another dtype under autocast on {first.device}, first "
                f"{first.call}: {first.here} here, {first.there} there.",
                evidence={"kinds": len(differing), "call": first.call, "device": first.device},
                hint="Results differ between this machine and that device: check tolerances there.",
            )
        )
    return tuple(found)
