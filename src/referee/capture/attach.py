"""What does the profiler see of a script that knows nothing of Referee? Runs it, finds its loop, records it."""

from __future__ import annotations

import os
import resource
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

from referee.capture.boundary import Boundary, StepFinder
from referee.capture.export import Place
from referee.capture.profiler import DEFAULT_PLAN, check_name
from referee.capture.schedule import Plan
from referee.capture.script import PlanComplete, ProcessExit, compile_script, exit_words, line_of, running_as_main
from referee.capture.session import Session, collect_provenance
from referee.capture.torch_window import quiet_kineto
from referee.errors import RefereeError, StepError
from referee.records.capture import Capture, CaptureOptions
from referee.records.finding import Finding

_NAME_IT = "Name what ends an iteration (--boundary): optimizer:CLASS, module:CLASS or function:NAME."
_OTHERS = (
    f"It ran other processes, and what runs in them is not seen: profile their script by itself. Otherwise: {_NAME_IT}"
)


@dataclass(frozen=True, kw_only=True)
class _Script:
    """A script as a target: what provenance wants to know of it."""

    name: str
    source_file: str | None


def attach(
    script: str | os.PathLike[str],
    args: Sequence[str] = (),
    *,
    out_dir: str | os.PathLike[str],
    name: str,
    plan: Plan = DEFAULT_PLAN,
    device: str = "auto",
    boundary: str = "auto",
    options: CaptureOptions = CaptureOptions(),  # noqa: B008  # frozen
    run_to_end: bool = False,
    iterations: int | None = None,
    calibrate: bool = True,
    finish: Callable[[Capture], int] | None = None,
) -> Capture:
    """Run ``script`` with ``args`` as ``python`` would, and record its iterations along ``plan``.

    What an iteration is is found (see :mod:`referee.capture.boundary`) or named with ``boundary``; the finding
    ``step-guessed`` says what was taken. Whatever the script does before its first iteration ends counts as iteration
    0. The script is stopped when the plan is complete, or after ``iterations``, unless ``run_to_end``. ``device`` is
    whose activity is recorded beside the CPU's; ``auto`` takes the GPU where there is one.

    ``finish(capture)`` gives the answer and the exit status where the process must end inside the script: it called
    ``os._exit``, or swallowed what was to stop it, or its loop runs in a thread. Without it ``os._exit`` ends the
    script alone, and a script that cannot be stopped runs on.

    Raises :class:`~referee.errors.StepError` if the script raises; what was recorded until then is saved.
    """
    from referee.device.registry import open_device

    path = Path(script)
    step = Boundary.parse(boundary)
    code = compile_script(path, step)
    opened = open_device(_device_name(device))
    target = _Script(name=path.name, source_file=os.fspath(path))
    session = Session(
        plan,
        device=opened,
        place=Place(folder=Path(out_dir), name=check_name(name)),
        options=options,
        provenance=collect_provenance(opened, plan=plan, options=options, dtype="none seen", shapes=(), target=target),
        calibrate=calibrate,
        unstepped_hint=_NAME_IT,
    )
    # The script may open a profiler before the first window does.
    quiet_kineto()
    last = None if run_to_end else iterations or plan.needed()
    run = _Attached(path, session=session, boundary=step, last=last, finish=finish)
    return run.close(ended_by=run.execute(code, args))


_end_at_once = os._exit
"""The real one: a script's own calls are answered first."""


def _device_name(device: str) -> str:
    if device != "auto":
        return device
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


class _Attached:
    """A script under way with a session on it."""

    def __init__(
        self,
        path: Path,
        *,
        session: Session,
        boundary: Boundary,
        last: int | None,
        finish: Callable[[Capture], int] | None,
    ) -> None:
        self.session, self._path, self._boundary = session, path, boundary
        self._last, self._finish = last, finish
        self._process = os.getpid()
        self._seconds_in_others = _seconds_in_others()
        self._took = ""
        self._stopped_after: int | None = None
        self._went_on = False
        self._exited: tuple[int, str] = (0, "")
        self._error: RefereeError | None = None
        self._finder = StepFinder(boundary, on_step=self._step, on_found=self._note, on_inputs=self._observe)

    def execute(self, code: CodeType, args: Sequence[str]) -> str:
        """Run the script; says in a few words what ended it early, if anything did."""
        self._finder.install()
        self.session.recorder.begin()
        try:
            with running_as_main(self._path, args, mark=self._mark_function, on_exit=self._exits) as main:
                exec(code, main.__dict__)
        except PlanComplete:
            pass
        except (SystemExit, ProcessExit) as stopped:
            return self._note_exit(stopped.status if isinstance(stopped, ProcessExit) else stopped.code)
        except KeyboardInterrupt as stopped:
            self._finder.remove()
            self.session.close(ended_by="it was interrupted")
            stopped.add_note(self.session.saved_words())
            raise
        except RefereeError:
            self.session.recorder.abandon()
            raise
        except Exception as error:
            self._finder.remove()
            self.session.close(ended_by="the script raised")
            raise StepError(
                f"{self._path} raised {type(error).__name__}{line_of(error, self._path)}: {error}.",
                hint=self.session.saved_words(),
            ) from error
        finally:
            self._finder.remove()
        return ""

    def close(self, *, ended_by: str) -> Capture:
        """The record, with findings that say what was taken as a step and how the script ended.

        Raises what Referee had to say inside the script, where the script has swallowed it.
        """
        if self._error is not None:
            self.session.recorder.abandon()
            raise self._error
        findings: list[Finding] = []
        if not self._took:
            others = _seconds_in_others() > self._seconds_in_others
            findings.append(_never_stepped(self._path, self._boundary, ended_by, others=others))
        elif not self._boundary.name:
            took = f"{self._took}, of the first optimizer of several" if self._finder.several else self._took
            findings.append(_guessed(self._path, took, self.session.recorder.iteration))
        if self._stopped_after is not None:
            findings.append(self._stopped(self._stopped_after))
        if self._exited[0]:
            findings.append(_exited(self._path, *self._exited, ran=self.session.recorder.iteration))
        return self.session.close(ended_by=ended_by, findings=tuple(findings))

    def _stopped(self, after: int) -> Finding:
        needed = self.session.plan.needed()
        why = (
            "everything planned was recorded" if needed is not None and after + 1 >= needed else "as it was told to be"
        )
        stopped = f"was stopped after iteration {after} (the first is iteration 0): {why}."
        if self._went_on:
            stopped = f"was to be stopped after iteration {after}, but caught what should have stopped it and ran on."
        return Finding(
            code="script-stopped",
            severity="info",
            message=f"{self._path.name} {stopped}",
            evidence={"after_iteration": after},
            hint="To have it run to its end: --run-to-end.",
        )

    def _step(self) -> None:
        recorder = self.session.recorder
        if os.getpid() != self._process:
            # A worker of a data loader has inherited the hooks, and may call modules of its own.
            return
        try:
            recorder.step()
        except RefereeError as error:
            self._error = error
            raise
        if self._last is None or recorder.iteration < self._last:
            return
        swallowed = self._stopped_after is not None
        if not swallowed:
            self._stopped_after = recorder.iteration - 1
        # What is raised in a thread ends that thread alone.
        if self._finish is not None and (swallowed or threading.current_thread() is not threading.main_thread()):
            self._end_process(self._finish, ended_by="")
        if not swallowed:
            raise PlanComplete
        self._went_on = True

    def _exits(self, status: int) -> None:
        """The script is about to end the process without a word."""
        if self._finish is None:
            raise ProcessExit(status)
        self._end_process(self._finish, ended_by=self._note_exit(status))

    def _note_exit(self, code: object) -> str:
        self._exited = exit_words(code)
        return f"the script exited with status {self._exited[0]}" if self._exited[0] else ""

    def _end_process(self, finish: Callable[[Capture], int], *, ended_by: str) -> None:
        """Give the answer from inside the script, and end."""
        self._finder.remove()
        try:
            status = finish(self.close(ended_by=ended_by))
        except RefereeError as error:
            sys.stderr.write(f"referee: {error}\n")
            status = error.exit_status
        sys.stdout.flush()
        sys.stderr.flush()
        _end_at_once(status)

    def _note(self, words: str) -> None:
        self._took = words

    def _observe(self, module: Any, inputs: tuple[Any, ...]) -> None:
        import torch

        from referee.device.observe import describe
        from referee.device.settle import find_leaves

        parameters = [(parameter, "parameter") for parameter in module.parameters()]
        entered = [(tensor, "input") for tensor in find_leaves(inputs, torch.Tensor)]
        dtypes = [t.dtype for t, _ in parameters + entered if t.is_floating_point()]
        if dtypes:
            self.session.describe(dtype=str(dtypes[0]).removeprefix("torch."), shapes=describe(entered + parameters))

    def _mark_function(self, function: Any) -> Any:
        """The decorator that is put on the function named by the user."""
        from functools import wraps

        @wraps(function)
        def marked(*args: Any, **kwargs: Any) -> Any:
            outputs = function(*args, **kwargs)
            self._finder.function_called()
            return outputs

        return marked


def _guessed(path: Path, took: str, iterations: int) -> Finding:
    return Finding(
        code="step-guessed",
        severity="info",
        message=f"An iteration of {path.name} is taken to run {took}.",
        evidence={"boundary": took, "iterations": iterations},
        hint="Name another (--boundary) with optimizer:CLASS, module:CLASS or function:NAME.",
    )


def _seconds_in_others() -> float:
    """The CPU time of all processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _never_stepped(path: Path, boundary: Boundary, ended_by: str, *, others: bool) -> Finding:
    looked_for = {
        "optimizer": f"{boundary.name or 'an optimizer'} never stepped",
        "module": f"no module {boundary.name} was called" if boundary.name else "no module was called",
        "function": f"{boundary.name}() never returned",
    }.get(boundary.kind, "no optimizer stepped, and no module was called twice")
    return Finding(
        code="step-missing",
        severity="warning",
        message=f"No iteration was found in {path.name}: {looked_for}{f' until {ended_by}' if ended_by else ''}.",
        evidence={"boundary": boundary.kind, "other_processes": others},
        hint=_OTHERS if others else _NAME_IT,
    )


def _exited(path: Path, status: int, words: str, *, ran: int) -> Finding:
    said = f" ({words})" if words else ""
    return Finding(
        code="script-exited",
        severity="warning",
        message=f"{path.name} exited with status {status}{said} after {ran} iteration{'s' * (ran != 1)}.",
        evidence={"status": status, "iterations_run": ran},
        hint="A complete iteration is recorded all the same; the script itself says why it failed.",
    )
