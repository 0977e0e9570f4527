"""What has a scaler's scale come to? Said at each update, and of all steps together at the end."""

from __future__ import annotations

from referee.precision.seen import ScalerLog, Seen


def tell_scale(seen: Seen, log: ScalerLog) -> None:
    """The scale of the latest update: no scale at all, or none that lifts anything?"""
    scale = log.scales[-1]
    if scale == 0:
        seen.tell(
            "scale-collapsed",
            "The loss scale has fallen to 0: the next step without an infinity would write NaN into the weights",
            hint="Stop here. The gradients overflow at every scale, so they are infinite or NaN before it: look "
            "for the first layer that makes them, or use bf16.",
            severity="fatal",
            skipped=log.skipped,
            steps=log.steps,
        )
    elif scale <= 1 and log.skipped:
        seen.tell(
            "scale-low",
            f"The loss scale has fallen to {scale:g}: it no longer lifts any gradient",
            hint="Gradients overflow without any scaling: look for infinities in the loss, or use bf16.",
            scale=scale,
            skipped=log.skipped,
            steps=log.steps,
        )
    elif scale <= 1:
        seen.tell(
            "scale-low",
            f"The loss scale is {scale:g} from the start: it lifts no gradient, and only rises every growth_interval "
            "steps",
            hint="Leave init_scale at its default of 2**16: a step or two that are skipped bring it down where it has "
            "to be lower.",
            scale=scale,
            skipped=0,
            steps=log.steps,
        )


def tell_end(seen: Seen) -> None:
    """Findings that only the whole shows."""
    for log in seen.scalers.values():
        if log.waiting and not log.scales and log.steps:
            seen.tell(
                "scaler-not-updated",
                "scaler.step was called and scaler.update never: the scale stays what it was",
                hint="Call scaler.update() once at the end of every iteration.",
                line=log.line,
                steps=log.steps,
            )
        if log.skipped:
            seen.tell(
                "steps-skipped",
                f"The scaler skipped {log.skipped} of {log.steps} steps",
                hint="A few at the start are normal: the scale starts high. More say that it cannot settle.",
                severity="info",
                line=log.skip_line,
                skipped=log.skipped,
                steps=log.steps,
                scale=log.scales[-1] if log.scales else None,
            )
