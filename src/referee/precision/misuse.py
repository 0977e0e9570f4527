"""Which call is used wrongly just now? Follows the loss scale through backward, unscaling, clipping and steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from referee.device.host import load_torch
from referee.errors import RefereeError
from referee.precision.asked import AskedWatch
from referee.precision.clipping import ClipWatch
from referee.precision.intercept import Intercepts
from referee.precision.place import parameter_name, user_line
from referee.precision.reach import found_infinite, parameters_of, walk
from referee.precision.regions import RegionWatch
from referee.precision.scales import tell_end, tell_scale
from referee.precision.seen import Held, ScalerLog, Seen
from referee.precision.stale import mark_stale, still_stale, tell_stale
from referee.precision.unguarded import is_unguarded, tell_unguarded
from referee.precision.weights import half_weight_finding

OnCollapse = Literal["raise", "announce"]

_MOST_SCALED = 256
"""Scaled losses that are remembered within one step."""


class ScaleCollapsed(RefereeError, ArithmeticError):
    """The loss scale is 0: one more step would write NaN into the weights."""


class Watcher:
    """Keeps, per set of parameters, what their gradients have gone through in this step, and speaks up."""

    def __init__(self, seen: Seen, *, on_collapse: OnCollapse) -> None:
        self.seen, self.on_collapse = seen, on_collapse
        self.torch = load_torch()
        self.held: dict[int, Held] = {}
        """By ``id`` of a parameter."""
        self.scaled: dict[Any, float] = {}
        """Graph nodes of losses that a scaler has multiplied, with the scale, until it is updated; the latest ones."""
        self.live_scale: float | None = None
        self.skipped_last = False
        self.in_scaler_step = 0
        self.steps_before = 0
        self.running: list[tuple[list[Any], float]] = []
        """What the backwards that are running reach, and the scale they carry; the innermost last."""
        self.regions = RegionWatch(seen)
        self.clips = ClipWatch(seen, self.held)
        self.asked = AskedWatch(seen, self.scaled)

    def install(self, on: Intercepts) -> None:
        """Put every interception in place."""
        torch = self.torch
        scalers = torch.amp.GradScaler
        on.wrap(scalers, "scale", after=self.after_scale)
        on.wrap(scalers, "unscale_", before=self.before_unscale, after=self.after_unscale)
        on.wrap(scalers, "step", before=self.before_scaler_step, after=self.after_scaler_step, failed=self.step_failed)
        on.wrap(scalers, "update", after=self.after_update, failed=self.update_failed)
        on.wrap(
            torch.autograd,
            "backward",
            before=self.before_backward,
            after=self.after_backward,
            failed=self.backward_failed,
        )
        on.wrap(torch.autograd, "grad", before=self.before_grad)
        self.regions.install(on)
        self.clips.install(on)
        self.asked.install(on)
        on.hook_steps(before=self.before_step, after=self.after_step)
        on.wrap_schedulers(self.before_scheduler)

    # Scaling --------------------------------------------------------------------------------------------------------

    def after_scale(self, scaler: Any, args: Sequence[Any], result: Any) -> None:
        """A loss was multiplied by the scale."""
        if not scaler.is_enabled():
            return
        self.live_scale = float(scaler.get_scale())
        given = result if isinstance(result, (list, tuple)) else [result]
        losses = [t for t in given if isinstance(t, self.torch.Tensor) and t.grad_fn is not None]
        for tensor in losses:
            self.scaled[tensor.grad_fn] = self.live_scale
        while len(self.scaled) > _MOST_SCALED:  # a loop that never updates would keep every graph
            del self.scaled[next(iter(self.scaled))]
        self.check_use(scaler, losses)

    def check_use(self, scaler: Any, losses: list[Any]) -> None:
        """Is there anything in this loop that a scaler helps?"""
        kind = scaler._device
        if "float16" in self.regions.low_dtypes:
            return
        if "bfloat16" in self.regions.low_dtypes:
            self.seen.tell(
                "scaler-for-nothing",
                "GradScaler is used with bf16, which has float32's range (1e-38 to 3e38): it scales for nothing and "
                "reads back from the device at every step",
                hint="Remove the scaler.",
                device=kind,
            )
        elif kind == "cpu" and all(leaf.dtype != self.torch.float16 for leaf in walk(losses)[0]):
            self.seen.tell(
                "scaler-for-nothing",
                "GradScaler is used on the CPU without fp16 autocast: there is nothing that it could save",
                hint="Remove the scaler.",
                device=kind,
            )

    def before_backward(self, owner: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Which scale do the gradients that are about to be made carry?"""
        tensors = args[0] if args else kwargs.get("tensors")
        losses = [tensors] if isinstance(tensors, self.torch.Tensor) else list(tensors or [])
        leaves, nodes = walk(losses)
        # The scaled loss itself, or anything made of it: a mean over accumulated batches, a sum of losses.
        # Kept for later backwards: several losses may be scaled before the first of them is gone back through.
        # A backward within a backward (a checkpoint) goes on with what the outer one has brought down.
        outer = self.running[-1][1] if self.running else 1.0
        scale = next((scale for node, scale in reversed(self.scaled.items()) if node in nodes), outer)
        self.running.append((leaves, scale))
        self.asked.check(nodes)
        self.check_region("backward")
        given = args[1] if len(args) > 1 else kwargs.get("grad_tensors")
        unguarded = scale == 1.0 and given is None and is_unguarded(losses, leaves, low=self.regions.low_dtypes)
        for parameter in leaves:
            held = self.held.setdefault(id(parameter), Held())
            if held.backwards and held.scale != scale and 1.0 in (held.scale, scale):
                self.check_sum(parameter, held)
            held.stale = held.stale and still_stale(parameter)
            held.backwards += 1
            held.unscaled = 0
            held.scale = scale
            held.unguarded = unguarded

    def before_grad(self, owner: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Gradients are asked for without leaving them at the parameters."""
        self.check_region("torch.autograd.grad")

    def check_region(self, name: str) -> None:
        """Does a backward run inside autocast?"""
        if self.regions.contexts:
            self.seen.tell(
                "backward-in-autocast",
                f"{name} is called inside autocast",
                hint="End the autocast region before backward: it follows the dtypes that forward recorded.",
                severity="info",
            )

    def check_sum(self, parameter: Any, held: Held) -> None:
        """Gradients with the scale and without are about to be added up; zeros and none at all have no scale."""
        if parameter.grad is None or not bool(parameter.grad.any()):
            return
        if held.unscaled:
            self.seen.tell(
                "step-with-scaled-gradients",
                "A backward adds gradients that carry the loss scale to those that were unscaled already",
                hint="Call scaler.unscale_(optimizer) once, after the last backward of the step.",
                scale=self.live_scale,
            )
        else:
            self.seen.tell(
                "loss-not-scaled",
                "Gradients of a loss that was scaled and of one that was not are added up: the scaler divides both",
                hint="Call scaler.scale(loss).backward() for every loss of the step.",
                scale=self.live_scale,
            )

    def after_backward(self, owner: Any, args: Sequence[Any], result: Any) -> None:
        """The gradients are there."""
        self.clips.gradients_made(self.running.pop()[0])

    def backward_failed(self, owner: Any) -> None:
        """Backward raised: there are no gradients to speak of."""
        self.running.pop()

    def before_unscale(self, scaler: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Unscaling twice, or unscaling what is float16."""
        optimizer = args[0] if args else kwargs.get("optimizer")
        if not scaler.is_enabled() or optimizer is None:
            return
        parameters = parameters_of(optimizer)
        log = self.seen.scalers.get(id(scaler))
        if log is not None and id(optimizer) in log.waiting and not self.in_scaler_step:
            self.note_no_update("unscale_")
        if not self.in_scaler_step:
            tell_stale(self.seen, self.held, parameters, scale=float(scaler.get_scale()))
        halves = [p for p in parameters if p.grad is not None and p.grad.dtype == self.torch.float16]
        if halves and not self.in_scaler_step:
            self.note_halves(halves)
        again = [p for p in parameters if self.held.get(id(p), Held()).unscaled]
        if again:
            scale = float(scaler.get_scale())
            self.seen.tell(
                "unscaled-twice",
                f"The gradients are divided by the scale twice in one step: they become {scale:g} times too small",
                hint="Unscale once per step, by hand or by the scaler, and always through the same optimizer object: a "
                "wrapper and the optimizer inside it count as two.",
                scale=scale,
                parameters=len(again),
            )

    def after_unscale(self, scaler: Any, args: Sequence[Any], result: Any, kwargs: dict[str, Any]) -> None:
        """The gradients carry no scale any more."""
        if not scaler.is_enabled():
            return
        parameters = parameters_of(args[0] if args else kwargs["optimizer"])
        self.clips.forget(parameters)
        for parameter in parameters:
            held = self.held.setdefault(id(parameter), Held())
            held.unscaled += 1
            held.scale = 1.0

    def before_scaler_step(self, scaler: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """A step through the scaler: is the scale alive, was the loss scaled, are the gradients fit?"""
        if not scaler.is_enabled():
            return
        optimizer = args[0] if args else kwargs["optimizer"]
        if len(args) > 1 or "closure" in kwargs:
            self.note_closure()
        log = self.seen.scalers.setdefault(id(scaler), ScalerLog())
        log.steps += 1
        log.line = user_line()
        if id(optimizer) in log.waiting:
            self.note_no_update("step")
        # One scaler may step several optimizers before it is updated once.
        log.waiting.add(id(optimizer))
        parameters = parameters_of(optimizer)
        tell_stale(self.seen, self.held, parameters, scale=self.live_scale)
        # From here on the gradients are the scaler's, or those of an optimizer that unscales them itself.
        self.clips.forget(parameters)
        halves = [p for p in parameters if p.grad is not None and p.grad.dtype == self.torch.float16]
        if halves:
            self.note_halves(halves)
        never = [p for p in parameters if p.grad is not None and self.never_scaled(p)]
        if never:
            self.seen.tell(
                "loss-not-scaled",
                "scaler.step is called on gradients of a loss that was not scaled: they are divided by the scale all "
                "the same",
                hint="Call scaler.scale(loss).backward().",
                scale=self.live_scale,
                parameters=len(never),
            )
        if scaler._scale is not None and float(scaler.get_scale()) == 0:
            self.collapse()
        self.in_scaler_step += 1
        self.steps_before = self.seen.steps

    def never_scaled(self, parameter: Any) -> bool:
        """Whether the gradient comes from a loss that was not scaled (scale 1 is a scale like any other)."""
        held = self.held.get(id(parameter))
        return held is not None and held.backwards > 0 and held.unscaled == 0 and held.scale == 1.0 != self.live_scale

    def note_no_update(self, name: str) -> None:
        """A scaler is used again and was not updated."""
        self.seen.tell(
            "scaler-not-updated",
            f"scaler.{name} is called after scaler.step without scaler.update in between, which torch refuses: the "
            "scale would never adapt",
            hint="Call scaler.update() once at the end of every iteration.",
        )

    def note_closure(self) -> None:
        """An optimizer that calls its closure several times, each time with other gradients."""
        self.seen.tell(
            "closure-with-scaler",
            "scaler.step is given a closure, which torch does not support: it unscales and checks gradients once, and "
            "a closure makes others",
            hint="Use bf16 without a scaler, or an optimizer that needs no closure.",
        )

    def note_halves(self, halves: list[Any]) -> None:
        """Float16 gradients, which the scaler refuses."""
        named = parameter_name(halves[0]) or f"shape {tuple(halves[0].shape)}"
        found = half_weight_finding(len(halves), named)
        line = user_line()
        message = f"{found.message.rstrip('.')} ({line})." if line else found.message
        self.seen.note(replace(found, message=message, evidence={"line": line, **found.evidence}))

    def after_scaler_step(self, scaler: Any, args: Sequence[Any], result: Any, kwargs: dict[str, Any]) -> None:
        """Was the step made, or skipped?"""
        if not scaler.is_enabled():
            return
        optimizer = args[0] if args else kwargs["optimizer"]
        self.in_scaler_step -= 1
        self.clips.step_ended()
        self.skipped_last = self.seen.steps == self.steps_before or found_infinite(scaler, optimizer)
        log = self.seen.scalers[id(scaler)]
        log.skipped += self.skipped_last
        if self.skipped_last:
            log.skip_line = log.skip_line or log.line
        for parameter in parameters_of(optimizer):
            self.held.pop(id(parameter), None)

    def step_failed(self, scaler: Any) -> None:
        """The scaler raised: what it would have done is not known."""
        if scaler.is_enabled():
            self.in_scaler_step -= 1
            # Whether an update would have followed is not known either.
            self.seen.scalers[id(scaler)].waiting.clear()

    def after_update(self, scaler: Any, args: Sequence[Any], result: Any) -> None:
        """The scale has moved."""
        if not scaler.is_enabled():
            return
        log = self.seen.scalers.setdefault(id(scaler), ScalerLog())
        log.waiting.clear()
        self.scaled.clear()
        mark_stale(self.held.values())
        log.scales.append(float(scaler.get_scale()))
        tell_scale(self.seen, log)

    def update_failed(self, scaler: Any) -> None:
        """Torch refuses an update for which no gradients were looked at."""
        if not scaler._per_optimizer_states:
            self.seen.tell(
                "update-without-step",
                "scaler.update is called and no gradients were unscaled or stepped through the scaler since the last "
                "update, which torch refuses",
                hint="Call scaler.step(optimizer), not optimizer.step(): it unscales what was not unscaled yet. An "
                "iteration that only accumulates has no scaler.update().",
            )

    def collapse(self) -> None:
        """The step that would write NaN: stop it."""
        if self.on_collapse == "raise":
            raise ScaleCollapsed(
                "The loss scale is 0, and this step would write NaN into the weights.",
                hint="Gradients overflow at every scale: look for infinities in the loss, or use bf16.",
            )

    # Steps, schedulers ------------------------------------------------------------------------------------------------

    def before_step(self, optimizer: Any) -> None:
        """An optimizer is about to change weights."""
        self.seen.steps += 1
        if self.regions.contexts:
            self.seen.tell(
                "loop-in-autocast",
                "The optimizer's step runs inside autocast: the region holds the whole loop, not forward and loss",
                hint="Wrap forward and loss only.",
            )
            self.regions.before_update()
        if self.in_scaler_step:
            return
        scaled = [self.held[id(p)].scale for p in parameters_of(optimizer) if id(p) in self.held]
        carried = [scale for scale in scaled if scale != 1.0]
        if carried:
            self.seen.tell(
                "step-with-scaled-gradients",
                f"The optimizer steps with gradients that still carry the loss scale of {carried[0]:g}",
                hint="Call scaler.step(optimizer), which unscales and skips what overflowed.",
                scale=carried[0],
            )
        elif any(self.held[id(p)].unguarded for p in parameters_of(optimizer) if id(p) in self.held):
            tell_unguarded(self.seen, parameters_of(optimizer))

    def after_step(self, optimizer: Any) -> None:
        """The step is made: the next one begins."""
        self.skipped_last = False
        self.clips.step_ended()
        if not self.in_scaler_step:
            for parameter in parameters_of(optimizer):
                self.held.pop(id(parameter), None)

    def before_scheduler(self, scheduler: Any) -> None:
        """A learning-rate scheduler moves on although the step was skipped."""
        if self.skipped_last:
            self.seen.tell(
                "scheduler-on-skipped-step",
                "The learning-rate scheduler moves on although the scaler skipped the step",
                hint="Call scheduler.step() only if scaler.get_scale() did not fall in scaler.update().",
            )

    def close(self) -> None:
        """Findings that only the whole shows."""
        tell_end(self.seen)
