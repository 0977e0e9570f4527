"""What should the reader know of a capture before he believes its file? One function per question, all pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from referee.capture.schedule import Plan, nothing_recorded
from referee.errors import CannotTell
from referee.records.capture import CaptureFile, CaptureOptions, Integrity
from referee.records.finding import Finding, Scalar
from referee.units import format_bytes

_REPEATED_FRAC = 0.05
"""Of the operators of the example models at most 0.4 % lie in one of their own name, and 14 to 17 % under a mode."""


def judge_capture(
    plan: Plan,
    *,
    iterations_run: int,
    files: Sequence[CaptureFile],
    activity: str | None,
    options: CaptureOptions,
    ended_by: str = "",
    memory_path: str = "",
    unstepped_hint: str = "",
) -> tuple[Finding, ...]:
    """Everything that is to be said of a finished capture.

    ``activity`` is the device activity that was asked for (``CUDA``), if any; ``ended_by`` says in a few words what
    ended the run early, if anything did; ``memory_path`` is the timeline of a second pass for memory, if one was taken;
    ``unstepped_hint`` is the mend where no iteration was ever completed.
    """
    found: list[Finding] = []
    found += _nothing_recorded(plan, iterations_run, files, ended_by, unstepped_hint)
    found += _missing_steps(plan, iterations_run, files, ended_by)
    for file in files:
        if file.integrity is None:
            found.append(_unreadable(file))
            continue
        found += _marked_steps(file, file.integrity)
        found += _lost_rows(file, file.integrity)
        found += _doubled(file, file.integrity)
        found += _no_operators(file, file.integrity)
    if activity is not None:
        found += _no_device_rows(files, activity)
    found += _memory_invalid(files, options, memory_path)
    return tuple(found)


def cost_unknown(why: CannotTell) -> Finding:
    """The calibration gave no cost that can be told from nothing."""
    return Finding(
        code="cost-unknown",
        severity="warning",
        message=f"{why.message[:-1]}; so none is stored, and nothing is corrected for it.",
        hint=why.hint,
    )


def capture_cut(iterations_run: int) -> Finding:
    """What stands in the record until the capture is closed: it stays there if it never is."""
    return Finding(
        code="capture-cut",
        severity="warning",
        message=f"The process ended in the middle of this capture, after {_iterations(iterations_run)} at least; the "
        "files written until then are whole.",
        evidence={"iterations_run": iterations_run},
        hint="Record anew what is missing.",
    )


def capture_replaced(traces: int, *, folder: Path) -> Finding:
    """An earlier capture of this name gave way to this one."""
    return Finding(
        code="capture-replaced",
        severity="info",
        message=f"An earlier capture of this name in {folder} was replaced ({traces} trace{'s' * (traces != 1)}).",
        evidence={"traces": traces},
        hint="To keep both, write each into a folder of its own.",
    )


def _iterations(count: int) -> str:
    return f"{count} iteration{'' if count == 1 else 's'}"


def _nothing_recorded(
    plan: Plan, run: int, files: Sequence[CaptureFile], ended_by: str, unstepped_hint: str
) -> Iterable[Finding]:
    if files:
        return
    hint = f"Run at least {plan.first_recorded() + 1} iterations, or let the plan begin earlier."
    until = f" until {ended_by}" if ended_by else ""
    message = (
        nothing_recorded(plan, run).replace("s are run", f"s were run{until}").replace("n is run", f"n was run{until}")
    )
    if run == 0:
        message = f"No iteration was completed{until}, so nothing was recorded."
        hint = unstepped_hint
    evidence: dict[str, Scalar] = {"iterations_run": run, "first_recorded": plan.first_recorded()}
    yield Finding(code="nothing-recorded", severity="fatal", message=message, evidence=evidence, hint=hint)


def _missing_steps(plan: Plan, run: int, files: Sequence[CaptureFile], ended_by: str) -> Iterable[Finding]:
    recorded = sum(len(file.iterations) for file in files)
    needed = plan.needed()
    if not files or needed is None or run >= needed:
        return
    planned = len(plan.recorded(needed))
    if recorded >= planned:
        return
    because = ended_by or "the run ended"
    yield Finding(
        code="step-missing",
        severity="warning",
        message=f"{recorded} of {planned} planned iterations were recorded, because {because} after "
        f"{_iterations(run)}.",
        evidence={"recorded": recorded, "planned": planned, "iterations_run": run, "needed": needed},
        hint=f"Run at least {needed} iterations.",
    )


def _unreadable(file: CaptureFile) -> Finding:
    return Finding(
        code="not-checked",
        severity="warning",
        message=f"{file.path} is not valid JSON as the profiler wrote it, so its rows were not counted.",
        evidence={"path": file.path},
        hint="referee trace repairs what it can and says what it repaired.",
    )


def _marked_steps(file: CaptureFile, integrity: Integrity) -> Iterable[Finding]:
    missing = sorted(set(file.iterations) - set(integrity.steps_found))
    if missing:
        yield Finding(
            code="step-missing",
            severity="warning",
            message=f"{file.path} holds no row for {len(missing)} of the iterations that were recorded.",
            evidence={"first_missing": missing[0], "missing": len(missing), "recorded": len(file.iterations)},
            hint="The profiler dropped them: record fewer iterations at once.",
        )


def _lost_rows(file: CaptureFile, integrity: Integrity) -> Iterable[Finding]:
    if integrity.lost:
        yield Finding(
            code="events-lost",
            severity="warning",
            message=f"The profiler reports {integrity.lost} lost events in {file.path}.",
            evidence={"lost": integrity.lost, "events": integrity.events},
            hint="Record fewer iterations at once.",
        )
    if integrity.launches and 2 * integrity.launches_unmatched >= integrity.launches and integrity.device_rows:
        yield Finding(
            code="lost-device-rows",
            severity="warning",
            message=f"{file.path}: {integrity.launches_unmatched} of {integrity.launches} launches have no device row.",
            evidence={"launches": integrity.launches, "unmatched": integrity.launches_unmatched},
            hint="Device records were lost: record fewer iterations, or stop other users of the tracing library.",
        )


def _doubled(file: CaptureFile, integrity: Integrity) -> Iterable[Finding]:
    if integrity.repeated_ops <= _REPEATED_FRAC * integrity.ops:
        return
    if integrity.repeated_by_mode:
        message = f"A dispatch mode was active: {integrity.repeated_ops} operators are in {file.path} twice."
        hint = "Take the mode (a flop counter, a logger) out while profiling; counts and host times are too high."
    else:
        message = (
            f"{integrity.repeated_ops} operators in {file.path} stand in rows of their own name: a transform of "
            "torch.func (vmap, grad) dispatches each operator once a level, and so does a dispatch mode."
        )
        hint = "Counts of operators are too high. A transform's dispatches are its cost; a mode can be taken out."
    yield Finding(
        code="counts-doubled",
        severity="warning",
        message=message,
        evidence={"repeated_ops": integrity.repeated_ops, "ops": integrity.ops},
        hint=hint,
    )


def _no_operators(file: CaptureFile, integrity: Integrity) -> Iterable[Finding]:
    """Iterations were recorded, and nothing in them."""
    if integrity.ops or integrity.device_rows or not file.iterations:
        return
    yield Finding(
        code="no-operators",
        severity="warning",
        message=f"{file.path} holds {_iterations(len(file.iterations))} and not one operator.",
        evidence={"iterations": len(file.iterations), "events": integrity.events},
        hint="The profiler records the thread that switches it on and its backward pass: work that a step hands to "
        "other threads or processes is not recorded. Let it run in the thread of the loop, or record where it runs.",
    )


def _no_device_rows(files: Sequence[CaptureFile], activity: str) -> Iterable[Finding]:
    checked = [file.integrity for file in files if file.integrity is not None]
    if not checked or any(integrity.device_rows for integrity in checked):
        return
    launches = sum(integrity.launches for integrity in checked)
    lost = f"{launches} launches were recorded: their device records were lost" if launches else "nor any launch"
    yield Finding(
        code="no-device-activity",
        severity="warning",
        message=f"{activity} activity was asked for, but the capture holds no device row ({lost}).",
        evidence={"activity": activity, "device_rows": 0, "launches": launches},
        hint="The tracing library did not start: check the driver, its permission to trace (not in a container or WSL "
        "without them), and that no other profiler holds it; this is not an idle device.",
    )


def _memory_invalid(files: Sequence[CaptureFile], options: CaptureOptions, second: str) -> Iterable[Finding]:
    if not (files and options.spoils_memory):
        return
    held = max(file.memory_growth_bytes or 0 for file in files)
    why = "shapes were" if options.shapes else "FLOPs, and with them shapes, were"
    kept = (
        f"because {why} recorded, which keeps every operand alive until the file is written (the process grew by "
        f"{format_bytes(held)})"
    )
    first = f"Memory figures of this capture are too high, {kept}. A second pass without them was taken: {second}."
    alone = f"No memory timeline was written, {kept}: the memory rows in the trace are too high."
    yield Finding(
        code="memory-invalid",
        severity="info" if second else "warning",
        message=first if second else alone,
        evidence={"memory_growth_bytes": held, "options": options.words(), "second_pass": second or None},
        hint="Read memory from the second pass alone."
        if second
        else "Record memory in a capture of its own, without shapes and FLOPs.",
    )
