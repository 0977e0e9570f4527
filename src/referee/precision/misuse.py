"""Which call is used wrongly just now? Follows the loss scale through backward, unscaling, clipping and steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from referee.device.host import load_torch
from referee.errors import RefereeError
from referee.precision.intercept import Intercepts
from referee.precision.place import user_line
from referee.precision.reach import found_infinite, parameters_of, walk
from referee.precision.seen import Held, ScalerLog, Seen
from referee.precision.weights import half_weight_finding
from referee.records.finding import Finding, Scalar, Severity

OnCollapse = Literal["raise", "announce"]


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
        """Graph nodes of losses that a scaler has multiplied, with the scale, until the next backward."""
        self.live_scale: float | None = None
        self.skipped_last = False
        self.in_scaler_step = 0
        self.steps_before = 0
        self.clipped_scale: float | None = None
        self.contexts: list[Any] = []
        self.low_dtypes: dict[str, None] = {}

    def install(self, on: Intercepts) -> None:
        """Put every interception in place."""
        torch = self.torch
        scalers = torch.amp.GradScaler
        on.wrap(scalers, "scale", after=self.after_scale)
        on.wrap(scalers, "unscale_", before=self.before_unscale, after=self.after_unscale)
        on.wrap(scalers, "step", before=self.before_scaler_step, after=self.after_scaler_step, failed=self.step_failed)
        on.wrap(scalers, "update", after=self.after_update)
        on.wrap(torch.autograd, "backward", before=self.before_backward)
        for name in ("clip_grad_norm_", "clip_grad_value_"):
            on.wrap(torch.nn.utils, name, before=self.before_clip, after=self.after_clip)
        on.wrap(torch.autocast, "__init__", after=self.after_autocast_made)
        on.wrap(torch.autocast, "__enter__", before=self.on_enter)
        on.wrap(torch.autocast, "__exit__", after=self.on_leave)
        on.hook_steps(before=self.before_step, after=self.after_step)
        on.wrap_schedulers(self.before_scheduler)

    def note(
        self,
        code: str,
        message: str,
        *,
        hint: str,
        severity: Severity = "warning",
        also: Mapping[str, Scalar] | None = None,
        **evidence: Scalar,
    ) -> None:
        """One finding with the user's line."""
        line = user_line()
        place = f" ({line})" if line else ""
        self.seen.note(
            Finding(
                code=code,
                severity=severity,
                message=f"{message}{place}.",
                evidence={"line": line, **evidence, **(also or {})},
                hint=hint,
            )
        )

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
        self.check_use(scaler, losses)

    def check_use(self, scaler: Any, losses: list[Any]) -> None:
        """Is there anything in this loop that a scaler helps?"""
        kind = scaler._device
        if "float16" in self.low_dtypes:
            return
        if "bfloat16" in self.low_dtypes:
            self.note(
                "scaler-for-nothing",
                "GradScaler is used with bf16, which has float32's range (1e-38 to 3e38): it scales for nothing and "
                "reads back from the device at every step",
                hint="Remove the scaler.",
                device=kind,
            )
        elif kind == "cpu" and all(leaf.dtype != self.torch.float16 for leaf in walk(losses)[0]):
            self.note(
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
        scale = next((scale for node, scale in self.scaled.items() if node in nodes), 1.0)
        self.scaled.clear()
        if self.contexts:
            self.note(
                "backward-in-autocast",
                "backward is called inside autocast",
                hint="End the autocast region before backward: it follows the dtypes that forward recorded.",
                severity="info",
            )
        for parameter in leaves:
            held = self.held.setdefault(id(parameter), Held())
            held.backwards += 1
            held.unscaled = 0
            held.scale = scale

    def before_unscale(self, scaler: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Unscaling twice, or unscaling what is float16."""
        optimizer = args[0] if args else kwargs.get("optimizer")
        if not scaler.is_enabled() or optimizer is None:
            return
        parameters = parameters_of(optimizer)
        halves = [p for p in parameters if p.grad is not None and p.grad.dtype == self.torch.float16]
        if halves and not self.in_scaler_step:
            self.note_halves(halves)
        again = [p for p in parameters if self.held.get(id(p), Held()).unscaled]
        if again:
            scale = float(scaler.get_scale())
            self.note(
                "unscaled-twice",
                f"The gradients are divided by the scale twice in one step: they become {scale:g} times too small",
                hint="Unscale once per step, and always through the same optimizer object: a wrapper and the optimizer "
                "inside it count as two.",
                scale=scale,
                parameters=len(again),
            )

    def after_unscale(self, scaler: Any, args: Sequence[Any], result: Any) -> None:
        """The gradients carry no scale any more."""
        if not scaler.is_enabled() or not args:
            return
        for parameter in parameters_of(args[0]):
            held = self.held.setdefault(id(parameter), Held())
            held.unscaled += 1
            held.scale = 1.0

    def before_scaler_step(self, scaler: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """A step through the scaler: is the scale alive, was the loss scaled, are the gradients fit?"""
        if not scaler.is_enabled():
            return
        optimizer = args[0] if args else kwargs["optimizer"]
        log = self.seen.scalers.setdefault(id(scaler), ScalerLog())
        log.steps += 1
        if id(optimizer) in log.waiting:
            self.note(
                "scaler-not-updated",
                "scaler.step is called again without scaler.update in between: the scale never adapts",
                hint="Call scaler.update() once at the end of every iteration.",
            )
        # One scaler may step several optimizers before it is updated once.
        log.waiting.add(id(optimizer))
        parameters = parameters_of(optimizer)
        halves = [p for p in parameters if p.grad is not None and p.grad.dtype == self.torch.float16]
        if halves:
            self.note_halves(halves)
        never = [p for p in parameters if p.grad is not None and self.never_scaled(p)]
        if never:
            self.note(
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

    def note_halves(self, halves: list[Any]) -> None:
        """Float16 gradients, which the scaler refuses."""
        found = half_weight_finding(len(halves), f"shape {tuple(halves[0].shape)}")
        line = user_line()
        message = f"{found.message.rstrip('.')} ({line})." if line else found.message
        self.seen.note(replace(found, message=message, evidence={"line": line, **found.evidence}))

    def after_scaler_step(self, scaler: Any, args: Sequence[Any], result: Any) -> None:
        """Was the step made, or skipped?"""
        if not scaler.is_enabled():
            return
        self.in_scaler_step -= 1
        self.skipped_last = self.seen.steps == self.steps_before or found_infinite(scaler, args[0])
        log = self.seen.scalers[id(scaler)]
        log.skipped += self.skipped_last
        for parameter in parameters_of(args[0]):
            self.held.pop(id(parameter), None)

    def step_failed(self, scaler: Any) -> None:
        """The scaler raised: what it would have done is not known."""
        if scaler.is_enabled():
            self.in_scaler_step -= 1

    def after_update(self, scaler: Any, args: Sequence[Any], result: Any) -> None:
        """The scale has moved."""
        if not scaler.is_enabled():
            return
        log = self.seen.scalers.setdefault(id(scaler), ScalerLog())
        log.waiting.clear()
        scale = float(scaler.get_scale())
        log.scales.append(scale)
        if scale == 0:
            self.note(
                "scale-collapsed",
                "The loss scale has fallen to 0: the next step without an infinity would write NaN into the weights",
                hint="Stop here. The gradients overflow at every scale, so they are infinite or NaN before it: look "
                "for the first layer that makes them, or use bf16.",
                severity="fatal",
                skipped=log.skipped,
                steps=log.steps,
            )
        elif scale <= 1:
            self.note(
                "scale-low",
                f"The loss scale has fallen to {scale:g}: it no longer lifts any gradient",
                hint="Gradients overflow without any scaling: look for infinities in the loss, or use bf16.",
                scale=scale,
                skipped=log.skipped,
                steps=log.steps,
            )

    def collapse(self) -> None:
        """The step that would write NaN: stop it."""
        if self.on_collapse == "raise":
            raise ScaleCollapsed(
                "The loss scale is 0, and this step would write NaN into the weights.",
                hint="Gradients overflow at every scale: look for infinities in the loss, or use bf16.",
            )

    # Clipping, steps, schedulers ------------------------------------------------------------------------------------

    def before_clip(self, owner: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Do the gradients that are about to be clipped still carry a scale?"""
        given = args[0] if args else kwargs.get("parameters")
        if given is None or isinstance(given, Iterator):
            # Reading an iterator would take it from the caller; the parameters of a module come as one. All that is
            # known then is what carries a scale now. Where some gradients are unscaled, it may be those.
            held = [] if any(one.unscaled for one in self.held.values()) else list(self.held.values())
        else:
            parameters = [given] if isinstance(given, self.torch.Tensor) else list(given)
            held = [self.held[id(p)] for p in parameters if id(p) in self.held]
        # A scale of 0 is announced as what it is.
        self.clipped_scale = next((one.scale for one in held if one.scale not in (0.0, 1.0)), None)

    def after_clip(self, owner: Any, args: Sequence[Any], result: Any, kwargs: dict[str, Any]) -> None:
        """Gradients that carried the scale were clipped: what did that do to the update?"""
        scale = self.clipped_scale
        if scale is None:
            return
        said: dict[str, Scalar] = {"scale": scale}
        words = "what is clipped is not what the optimizer gets"
        limit = args[1] if len(args) > 1 else kwargs.get("max_norm")
        seen = float(result) if isinstance(result, self.torch.Tensor) else math.inf
        if isinstance(limit, (int, float)) and limit > 0 and math.isfinite(seen):
            shrunk = max(1.0, seen / limit) / max(1.0, seen / scale / limit)
            said.update(norm_seen=seen, norm=seen / scale, max_norm=float(limit), too_small_by=shrunk)
            words = f"clipping saw the norm {seen:.4g} instead of {seen / scale:.4g}"
            words += f", so the update is {shrunk:.4g} times too small" if shrunk > 1 else ""
        self.note(
            "clip-before-unscale",
            f"Gradients are clipped while they still carry the loss scale of {scale:g}: {words}",
            hint="Call scaler.unscale_(optimizer) before clipping.",
            also=said,
        )

    def before_step(self, optimizer: Any) -> None:
        """An optimizer is about to change weights."""
        self.seen.steps += 1
        if self.contexts:
            self.note(
                "loop-in-autocast",
                "The optimizer's step runs inside autocast: the region holds the whole loop, not forward and loss",
                hint="Wrap forward and loss only.",
            )
        if self.in_scaler_step:
            return
        scaled = [self.held[id(p)].scale for p in parameters_of(optimizer) if id(p) in self.held]
        carried = [scale for scale in scaled if scale != 1.0]
        if carried:
            self.note(
                "step-with-scaled-gradients",
                f"The optimizer steps with gradients that still carry the loss scale of {carried[0]:g}",
                hint="Call scaler.step(optimizer), which unscales and skips what overflowed.",
                scale=carried[0],
            )

    def after_step(self, optimizer: Any) -> None:
        """The step is made: the next one begins."""
        self.skipped_last = False
        if not self.in_scaler_step:
            for parameter in parameters_of(optimizer):
                self.held.pop(id(parameter), None)

    def before_scheduler(self, scheduler: Any) -> None:
        """A learning-rate scheduler moves on although the step was skipped."""
        if self.skipped_last:
            self.note(
                "scheduler-on-skipped-step",
                "The learning-rate scheduler moves on although the scaler skipped the step",
                hint="Call scheduler.step() only if scaler.get_scale() did not fall in scaler.update().",
            )

    # Autocast -------------------------------------------------------------------------------------------------------

    def after_autocast_made(self, context: Any, args: Sequence[Any], result: Any, kwargs: dict[str, Any]) -> None:
        """A context without a dtype means different things on different devices."""
        given = kwargs.get("dtype", args[1] if len(args) > 1 else None)
        # What was asked for, not what it became: autocast for CUDA switches itself off where there is none.
        enabled = kwargs.get("enabled", args[2] if len(args) > 2 else True)
        if given is not None or not enabled or context.fast_dtype is None:
            return
        word = str(context.fast_dtype).removeprefix("torch.")
        defaults = {kind: str(self.torch.get_autocast_dtype(kind)).removeprefix("torch.") for kind in ("cpu", "cuda")}
        self.note(
            "autocast-without-dtype",
            f"autocast is made without a dtype, which means {word} on {context.device}: {defaults['cpu']} on the CPU, "
            f"{defaults['cuda']} on CUDA",
            hint=f"Say which: torch.autocast({context.device!r}, dtype=torch.{word}).",
            severity="info",
            dtype=word,
            also={f"default_{kind}": name for kind, name in defaults.items()},
        )

    def on_enter(self, context: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """A region begins."""
        if context._enabled:
            self.contexts.append(context)
            self.low_dtypes[str(context.fast_dtype).removeprefix("torch.")] = None

    def on_leave(self, context: Any, args: Sequence[Any], result: Any) -> None:
        """A region ends."""
        if self.contexts and self.contexts[-1] is context:
            self.contexts.pop()

    def close(self) -> None:
        """Findings that only the whole shows."""
        for log in self.seen.scalers.values():
            if log.waiting and not log.scales and log.steps:
                self.note(
                    "scaler-not-updated",
                    "scaler.step was called and scaler.update never: the scale stays what it was",
                    hint="Call scaler.update() once at the end of every iteration.",
                    steps=log.steps,
                )
            if log.skipped:
                self.note(
                    "steps-skipped",
                    f"The scaler skipped {log.skipped} of {log.steps} steps",
                    hint="A few at the start are normal: the scale starts high. More say that it cannot settle.",
                    severity="info",
                    skipped=log.skipped,
                    steps=log.steps,
                    scale=log.scales[-1] if log.scales else None,
                )
