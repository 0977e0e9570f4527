"""What does the profiler see of this step? Runs it along a plan and leaves trace files with their provenance."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from referee.capture.export import Place
from referee.capture.schedule import Plan
from referee.capture.session import Session, collect_provenance
from referee.device.protocol import Device, Settling
from referee.device.provenance import Source
from referee.errors import OptionError, RefereeError, StepError
from referee.records.capture import Capture, CaptureOptions
from referee.records.finding import Scalar
from referee.records.provenance import TensorSpec
from referee.units import NS_PER_MS

DEFAULT_PLAN = Plan.of(skip=0, wait=1, warmup=2, active=3, repeat=1)
"""Three recorded iterations tell a steady step from an odd one; two warm-ups pay the profiler's first-time costs."""

_UNTIMED_CALLS = 3
"""The first call of a training step allocates the optimizer's state, the second may still compile or autotune."""
_FEWEST_TIMED, _MOST_TIMED = 5, 200


def capture(
    step: Callable[[], object],
    *,
    device: Device,
    dtype: str,
    shapes: tuple[TensorSpec, ...],
    out_dir: str | os.PathLike[str],
    name: str,
    plan: Plan = DEFAULT_PLAN,
    iterations: int | None = None,
    options: CaptureOptions = CaptureOptions(),  # noqa: B008  # frozen
    target: Source | None = None,
    switches: Mapping[str, Scalar] | None = None,
    timing_budget_ns: int = 200 * NS_PER_MS,
    calibrate: bool = True,
    on_iteration: Callable[[int, int], None] | None = None,
) -> Capture:
    """Record ``step`` along ``plan``, one file per cycle, ``<name>.<cycle>.pt.trace.json.gz`` in ``out_dir``.

    ``iterations`` is how often the step runs (default: until the plan is complete). The step is also timed without the
    profiler, so that the profiler's share can be told although the machine drifts: half of ``timing_budget_ns`` before,
    half after, and in between while the plan waits (0: not at all). With ``calibrate`` its cost is measured too
    (:mod:`referee.capture.cost`). ``on_iteration(done, of)`` is called after each iteration. ``dtype``, ``shapes``,
    ``target`` and ``switches`` (as observed inside the step) go into the provenance.

    Raises :class:`~referee.errors.OptionError` for a plan that would record nothing, and
    :class:`~referee.errors.StepError` if the step raises; what was recorded until then is saved, as it is on
    ``KeyboardInterrupt``.
    """
    length = plan.length(iterations)
    provenance = collect_provenance(
        device, plan=plan, options=options, dtype=dtype, shapes=shapes, target=target, switches=switches
    )
    session = Session(
        plan,
        device=device,
        place=Place(folder=Path(out_dir), name=check_name(name)),
        options=options,
        provenance=provenance,
        calibrate=calibrate,
    )
    return _record(
        step, session, device=device, length=length, timing_budget_ns=timing_budget_ns, on_iteration=on_iteration
    )


def _record(
    step: Callable[[], object],
    session: Session,
    *,
    device: Device,
    length: int,
    timing_budget_ns: int,
    on_iteration: Callable[[int, int], None] | None,
) -> Capture:
    """Time the step, record it, take the second pass for memory if one is needed, time it again; close the session."""
    samples: list[float] = []
    try:
        samples += time_unprofiled(step, device=device, budget_ns=timing_budget_ns // 2, untimed=_UNTIMED_CALLS)
        waited = _run(step, session, device=device, length=length, on_iteration=on_iteration)
        if timing_budget_ns > 0:
            samples += waited
        session.record_memory_alone(step)
        samples += time_unprofiled(step, device=device, budget_ns=timing_budget_ns // 2)
    except KeyboardInterrupt as stopped:
        session.close(unprofiled_ns=samples, ended_by="it was interrupted")
        stopped.add_note(session.saved_words())
        raise
    except RefereeError:
        session.recorder.abandon()
        raise
    except Exception as error:
        session.close(unprofiled_ns=samples, ended_by="the step raised")
        raise StepError(
            f"The step raised {type(error).__name__} {_when(session, length=length)}: {error}.",
            hint=session.saved_words(),
        ) from error
    return session.close(unprofiled_ns=samples)


def _when(session: Session, *, length: int) -> str:
    """Which iteration runs now, in words; before and after those of the plan the step runs without a number."""
    done = session.recorder.iteration
    if session.in_second_pass:
        return f"in iteration {done + session.further}, in the second pass, for memory without shapes"
    if not session.recorder.begun:
        return "while it was timed without the profiler, before iteration 0"
    if done >= length:
        return f"while it was timed without the profiler, after iteration {done - 1}"
    return f"in iteration {done} (the first is iteration 0)"


def _run(
    step: Callable[[], object],
    session: Session,
    *,
    device: Device,
    length: int,
    on_iteration: Callable[[int, int], None] | None,
) -> list[float]:
    """Run the iterations; the times of those in which the plan waits, where a call's own time is the step's."""
    recorder = session.recorder
    lazy = device.settling is Settling.LAZY
    waited: list[float] = []
    cold = True
    recorder.begin()
    for done in range(1, length + 1):
        waiting, begun = recorder.waiting, device.now_ns()
        outputs = step()
        if lazy:
            # Otherwise the work is only written down here, and runs in whichever iteration is settled next.
            device.settle(outputs)
        del outputs
        if waiting and not cold and device.settling is not Settling.ASYNCHRONOUS:
            waited.append(device.now_ns() - begun)
        # Writing a file sweeps the caches, so the first iteration after it is no typical one.
        cold = not waiting
        recorder.step()
        if on_iteration is not None:
            on_iteration(done, length)
    recorder.finish()
    return waited


def time_unprofiled(step: Callable[[], object], *, device: Device, budget_ns: int, untimed: int = 0) -> list[float]:
    """How long does one step take without the profiler? Settled times per call, or block means where queueing counts.

    On a synchronous or lazy device each call is timed and settled by itself; on an asynchronous one calls are queued
    back to back, as in the capture, and one settle ends the block. Stops at ``budget_ns``, after at least 5 calls.
    """
    if budget_ns <= 0:
        return []
    for _ in range(untimed):
        device.settle(step())
    per_block = 5 if device.settling is Settling.ASYNCHRONOUS else 1
    samples: list[float] = []
    begun = device.now_ns()
    while len(samples) * per_block < _MOST_TIMED:
        start = device.now_ns()
        for _ in range(per_block):
            outputs = step()
        device.settle(outputs)
        now = device.now_ns()
        samples.append((now - start) / per_block)
        if now - begun >= budget_ns and len(samples) * per_block >= _FEWEST_TIMED:
            break
    return samples


def check_name(name: str) -> str:
    """``name`` if files can be called so; raises :class:`~referee.errors.OptionError` otherwise."""
    if not name or name.startswith(".") or any(mark in name for mark in "/\\\0"):
        raise OptionError(f"{name!r} cannot name a capture.", hint="Use letters, digits, dots and dashes.")
    return name
