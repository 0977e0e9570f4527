"""What should the reader know before he believes the number? Findings: a closed set of codes, each with evidence.

A finding is never a free-form warning: its ``code`` is listed in :data:`CODES` with what it means, its ``evidence``
holds the figures that triggered it, and its ``hint`` says what would mend it here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["info", "warning", "fatal"]
"""``info``: worth knowing. ``warning``: limits what the number may be used for. ``fatal``: no headline number."""

Scalar = str | int | float | bool | None
"""What evidence and provenance values are made of."""

CODES: dict[str, str] = {
    # measuring
    "unsettled": "the clock stopped before the work had run",
    "disturbed": "the median and the low end of the blocks part: something else ran on these cores",
    "no-clean-block": "every block was preempted: no estimate of the undisturbed time exists",
    "varying-calls": "the calls of a side differ by themselves: median calls are compared, and not pairs of blocks",
    "slow-calls": "some calls take so much longer than the median that they are a large part of the time",
    "core-clock-moved": "the core changed its clock while it was measured",
    "drifting": "the time of a call moves one way through the whole measurement",
    "watched": "something watches every line, call or operator of the step: its cost is in the time",
    "switch-set": "the step sets a switch that holds for everything that runs after it in this process",
    "parameter-unused": "the step does the same work at every value of the parameter that is swept",
    "switches-differ": "the values of a sweep were not measured under the same switches",
    "computes-elsewhere": "the step computes on a device that the clock does not wait for",
    "few-samples": "too few samples for an interval at the stated level",
    "budget-exhausted": "the wall-clock budget ended before the interval was narrow enough",
    "not-steady": "the warm-up ended without the series becoming steady",
    "one-batch-size": "one batch size alone is not a benchmark",
    "enqueue-blocked": "the step synchronises inside or fills the launch queue, so the enqueue clock means nothing",
    "recompiled": "something was compiled inside the timed window",
    "counter-moved": "a counter that must stand still moved inside the timed window",
    "zero-inputs": "every input is all zeros",
    "odd-values": "infinities, NaN or subnormal numbers, with which computing takes another time than with data",
    "not-compiled": "compiled code is held by the step, and none of it runs",
    "no-output": "the step returned no tensor, so there is nothing of its own to settle on",
    "inputs-mutated": "the step changed its inputs while it was measured",
    "no-fit": "neither law explains the sweep",
    "interrupted": "the user interrupted: what was measured until then is kept",
    "step-raised": "the step raised: what was measured until then is kept",
    "point-failed": "a value of the sweep could not be measured: the others are kept",
    "part-missing": "a later part of the job failed: the parts before it are kept",
    "repeat-differs": "the same point, measured twice in one run, reads differently",
    "host-waits": "the step spends its time waiting without computing: a sleep, input, a lock or another process",
    "children-compute": "child processes compute during the timed blocks, and the step does not wait for them",
    "other-code": "a process that should run one revision's code imports it from elsewhere",
    "not-comparable": "the sides differ in more than what is being compared",
    "layouts-differ": "inputs of the same shapes lie in memory in another order on the two sides",
    "outputs-differ": "the sides return tensors of other shapes or dtypes: they may not compute the same",
    "part-kept": "a first call runs operators that a repeated one finds done",
    "work-did-not-run": "the timed calls did less than one settled call on fresh inputs does",
    "work-not-proved": "one call cannot be told from settling alone, so nothing proves that the work ran",
    "work-dropped": "operators are recorded that no output needs: a recording device does not run them with it",
    "repeats-merged": "operators that the step records several times are run, and so timed, once",
    "repeats-recorded": "operators are recorded several times, and whether they are merged cannot be told",
    "cached-result": "a repeated call costs far less than one on fresh inputs: its result is kept somewhere",
    "above-peak": "the time implies more operations or bytes per second than the chip can do",
    "flat-in-work": "the time does not grow although the work does",
    "cache-state": "the caches were not in the state that was asked for",
    "memory-not-read": "memory could not be read",
    # capture
    "nothing-recorded": "the schedule recorded no iteration",
    "no-operators": "iterations were recorded, and no operator in them",
    "no-device-activity": "device activity was requested but the file holds no device row",
    "step-missing": "fewer iterations were recorded than planned",
    "not-checked": "a capture could not be read back, so its integrity is not known",
    "events-lost": "the profiler itself reports events that it lost",
    "large-capture": "the planned capture is larger than viewers open, or than memory allows",
    "memory-invalid": "recording shapes kept tensors alive, so memory figures of this capture are too high",
    "counts-doubled": "operators were recorded once for each level that dispatched them: they are counted twice",
    "step-guessed": "what counts as one iteration of the script was inferred, not named",
    "cost-unknown": "what the profiler itself costs could not be told from nothing, so it is not corrected for",
    "script-stopped": "the script was stopped, or could not be, when everything planned was recorded",
    "script-exited": "the script ended with an exit status of its own",
    "capture-replaced": "an earlier capture of the same name in the same folder was replaced",
    "capture-cut": "the process ended in the middle of a capture",
    # precision
    "half-weights": "trainable weights are kept in float16",
    "epsilon-vanishes": "the optimizer's epsilon is zero in the dtype of the weights",
    "read-to-first-update": "a step with several optimizers is read up to the first update alone",
    "loss-not-finite": "the loss is infinite or no number in float32 already",
    "gradients-not-finite": "gradients are infinite or no numbers in float32 already",
    "gradients-vanish": "gradients that float32 has are zero in an fp16 backward",
    "activations-overflow": "activations exceed fp16's largest number",
    "operator-overflows": "an operator of an fp16 forward makes infinities of what float32 has as numbers",
    "precision-wrong": "gradients or outputs in a low precision are further from the exact ones than zeros",
    "gradients-zero": "every gradient is zero in float32 already",
    "scaler-for-nothing": "a GradScaler where nothing can underflow",
    "unscaled-twice": "gradients are divided by the loss scale twice in one step",
    "fp16-without-scaler": "an fp16 backward whose loss nobody has scaled",
    "scaler-not-updated": "scaler.step without scaler.update",
    "loss-not-scaled": "scaler.step on gradients of a loss that was not scaled",
    "scale-collapsed": "the loss scale has fallen to 0",
    "scale-low": "the loss scale is 1 or below",
    "updated-between-steps": "the scaler was updated between a backward and the step on its gradients",
    "update-without-step": "scaler.update without gradients that went through the scaler",
    "closure-with-scaler": "scaler.step is given a closure",
    "penalty-of-scaled-gradients": "gradients asked for of a scaled loss enter a loss with the scale in them",
    "clip-before-unscale": "gradients are clipped while they carry the loss scale",
    "loop-in-autocast": "the optimizer's step runs inside autocast",
    "backward-in-autocast": "backward is called inside autocast",
    "step-with-scaled-gradients": "the optimizer steps with gradients that carry the loss scale",
    "over-budget": "more time was taken than the budget allows: what no answer does without takes longer",
    "scheduler-on-skipped-step": "the learning-rate scheduler moved on although the step was skipped",
    "autocast-without-dtype": "autocast without a dtype, which differs by device",
    "steps-skipped": "the scaler skipped steps",
    "does-not-run": "the step raises in a low precision, for a reason that is known",
    "raises-elsewhere": "a call that autocast refuses on another device",
    "differs-elsewhere": "calls whose results have another dtype under autocast on another device",
    "low-weights": "weights are kept in fewer bits than float32",
    "state-stands-still": "a tensor kept in few bits is updated in place by less than its last place resolves",
    "wide-inputs": "data in more bits than the weights widens what it meets",
    "wide-weights": "weights are kept in more bits than float32",
    "autocast-without-effect": "autocast converts nothing of the step",
    "casts-outlive-update": "an autocast region goes on computing with casts of weights from before an update",
    "cast-cache-unsafe": "autocast's cache of weight casts loses gradients on this torch",
    # anatomy
    "no-probe": "no compiler or no build of it: the stages that need compiled code are missing",
    "inference-tensor": "a tensor made in inference mode is where a gradient or an in-place update is needed",
    "graph-held": "something kept between steps holds the graphs of earlier ones",
    "results-kept": "the step keeps tensors that earlier calls made, more with each call",
    "gradient-unused": "parameters get gradients that no optimizer of the step uses",
    "no-gradient": "a backward leaves parameters that want a gradient without one",
    "saved-overwritten": "a tensor that was saved for backward is written to in place afterwards",
    "backward-never-runs": "tensors are saved for a backward pass that does not run",
    "remainder-large": "the stages do not add up to the whole",
    "cold-not-taken": "the call is too long for its stages to be told amid other operators within the budget",
    "dearer-behind-kernel": "a long kernel leaves the caches cold, and what stands around it takes longer",
    # traces
    "not-cached": "the trace was read, but could not be kept for the next time",
    "truncated": "the file ends in the middle: what is there was read",
    "damaged": "packed data is damaged: what came before was read",
    "bad-checksum": "packed data does not match its checksum, or ends before it",
    "trailing-bytes": "other bytes follow the end of the trace and were left out",
    "too-deep": "values nested too deeply to be read were left out",
    "unread-keys": "what stands beside the list of events is not valid JSON",
    "unreadable": "one file of several could not be read",
    "repaired": "the text was not valid JSON and was repaired",
    "skipped-events": "events could not be read and were left out",
    "unpaired-events": "begin or end events have no counterpart",
    "unusable-times": "events have a start or a duration that is no time",
    "no-steps": "the trace marks no steps",
    "large-trace": "parts of the analysis that read every row's arguments were left out of a large trace",
    "no-device-rows": "the trace holds no device row",
    "no-kernel-rows": "the trace holds device rows, but no kernel among them",
    "few-device-rows": "a single device row has no window to speak of",
    "lost-device-rows": "at least half of the launches have no device row",
    "launch-without-rows": "calls of a launch family have no device row",
    "unmatched-backward": "backward operators have no forward operator in the file, or the other way round",
    "unlinked-rows": "device rows have no launch in the file",
    "unseen": "the device waited although its next row was queued: work that was not recorded, or awaited elsewhere",
    "different-operators": "traces that were to differ in one parameter do not run the same operators",
    "uniform-change": "everything on the device, or on the host, changed by about the same factor",
    "no-noise": "too few steps to know how they scatter",
    "ranks-differ": "the ranks of one job are not in one regime",
    "ranks-missing": "not all ranks of the job are here",
    "ranks-wait": "a rank waits for another in most collectives",
    "would-wait": "on a device the host would wait in operators that hand a value or a shape to Python",
    "long-lead": "the step has a long host lead before its first device row",
    "negative-duration": "rows have negative durations",
    "duplicate-correlation": "several launches share one correlation id",
    "rows-before-launch": "device rows start before their launch: the clocks are skewed",
    "launch-blocking": "launch calls return only once their kernels have ended",
    "queue-full": "launches stood before a full queue: the host was ahead of the device",
    "linked-by-flows": "device rows carry no ids and were tied to their calls by the file's arrows",
    "rows-late": "every device row starts equally late after its launch, on an idle device: the clocks may be skewed",
    "stream-overlap": "device rows of one stream overlap",
    "zero-duration": "device rows have no duration",
    "stray-rows": "a few device rows that cannot be believed lie far from all others and set the window",
    "profiler-overhead": "the profiler's own work takes a share of the window",
    "unknown-category": "rows of a category that is not known were kept but not interpreted",
    "overlapping-steps": "steps overlap",
    "replay-doubtful": "the replay of a trace does not reproduce it, or does not answer to change",
    "host-takes-over": "the device is busy nearly all the time, and a faster one would leave the host as the limit",
    "cut-step": "a step is cut off by the edge of the trace",
}
"""Every code a finding may carry, and what it means."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing the reader should know: ``code`` of :data:`CODES`, one sentence, its figures, and the mend."""

    code: str
    severity: Severity
    message: str
    evidence: Mapping[str, Scalar] = field(default_factory=dict)
    hint: str = ""

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise ValueError(f"{self.code!r} is not a finding code: add it to records.finding.CODES with its meaning")


def fatal(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Those findings that forbid a headline number."""
    return tuple(f for f in findings if f.severity == "fatal")
