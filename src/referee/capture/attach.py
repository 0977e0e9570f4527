"""What does the profiler see of a script that knows nothing of Referee? Runs it, finds its loop, records it."""

from __future__ import annotations

import ast
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from referee.capture.boundary import Boundary, StepFinder
from referee.capture.export import Place
from referee.capture.profiler import DEFAULT_PLAN, check_name
from referee.capture.schedule import Plan
from referee.capture.session import Session, collect_provenance
from referee.capture.torch_window import quiet_kineto
from referee.errors import OptionError, RefereeError, StepError, TargetError
from referee.records.capture import Capture, CaptureOptions
from referee.records.finding import Finding

_MARK = "__referee_step__"
_NAME_IT = "Name what ends an iteration (--boundary): optimizer:CLASS, module:CLASS or function:NAME."


class _PlanComplete(BaseException):
    """Ends the script once everything planned is recorded. No Exception, so that the script does not swallow it."""


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
    calibrate: bool = True,
) -> Capture:
    """Run ``script`` with ``args`` as ``python`` would, and record its iterations along ``plan``.

    What an iteration is is found (see :mod:`referee.capture.boundary`) or named with ``boundary``; the finding
    ``step-guessed`` says what was taken. Whatever the script does before its first iteration ends counts as iteration
    0. The script is stopped when the plan is complete, unless ``run_to_end``. ``device`` is whose activity is recorded
    beside the CPU's; ``auto`` takes the GPU where there is one.

    Raises :class:`~referee.errors.StepError` if the script raises; what was recorded until then is saved.
    """
    from referee.device.registry import open_device

    path = Path(script)
    step = Boundary.parse(boundary)
    code = _compile(path, step)
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
    run = _Attached(session=session, boundary=step, last=None if run_to_end else plan.needed())
    ended_by = run.execute(code, path, args)
    return run.close(path, ended_by=ended_by)


def _device_name(device: str) -> str:
    if device != "auto":
        return device
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


class _Attached:
    """A script under way with a session on it."""

    def __init__(self, *, session: Session, boundary: Boundary, last: int | None) -> None:
        self.session, self._boundary, self._last = session, boundary, last
        self._took = ""
        self._finder = StepFinder(boundary, on_step=self._step, on_found=self._note, on_inputs=self._observe)

    def execute(self, code: CodeType, path: Path, args: Sequence[str]) -> str:
        """Run the script; says in a few words what ended it early, if anything did."""
        self._finder.install()
        self.session.recorder.begin()
        try:
            with _as_main(path, args) as main:
                setattr(main, _MARK, self._mark_function)
                exec(code, main.__dict__)
        except _PlanComplete:
            return ""
        except SystemExit as stopped:
            return "" if stopped.code in (None, 0) else f"the script exited with status {stopped.code}"
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
            where = _line_of(error, path)
            raise StepError(
                f"{path} raised {type(error).__name__}{where}: {error}.", hint=self.session.saved_words()
            ) from error
        finally:
            self._finder.remove()
        return ""

    def close(self, path: Path, *, ended_by: str) -> Capture:
        """The record, with a finding that says what was taken as a step."""
        findings: tuple[Finding, ...] = ()
        if not self._took:
            findings = (_never_stepped(path, self._boundary, ended_by),)
        elif not self._boundary.name:
            findings = (_guessed(path, self._took, self.session.recorder.iteration),)
        return self.session.close(ended_by=ended_by, findings=findings)

    def _step(self) -> None:
        self.session.recorder.step()
        if self._last is not None and self.session.recorder.iteration >= self._last:
            raise _PlanComplete

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


def _never_stepped(path: Path, boundary: Boundary, ended_by: str) -> Finding:
    looked_for = {
        "optimizer": f"{boundary.name or 'an optimizer'} never stepped",
        "module": f"no module {boundary.name} was called" if boundary.name else "no module was called",
        "function": f"{boundary.name}() never returned",
    }.get(boundary.kind, "no optimizer stepped, and no module was called twice")
    return Finding(
        code="step-missing",
        severity="warning",
        message=f"No iteration was found in {path.name}: {looked_for}{f' until {ended_by}' if ended_by else ''}.",
        evidence={"boundary": boundary.kind},
        hint=_NAME_IT,
    )


def _compile(path: Path, boundary: Boundary) -> CodeType:
    """The script's code, with the function that the user named marked; one sentence if that is not possible."""
    try:
        tree = ast.parse(path.read_bytes(), filename=os.fspath(path))
    except OSError as error:
        raise TargetError(f"The script {path} cannot be read: {error.strerror}.") from error
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise TargetError(f"{path}{line} is not Python: {getattr(error, 'msg', error)}.") from error
    if boundary.kind == "function":
        found = _find_function(tree.body, boundary.name.split("."))
        if found is None:
            raise OptionError(f"{path} defines no function {boundary.name}.", hint="Write NAME or CLASS.NAME.")
        mark = ast.Name(id=_MARK, ctx=ast.Load())
        # Innermost, so that it counts calls of the function itself and not of what a decorator makes of it.
        found.decorator_list.append(ast.copy_location(mark, found))
    return compile(tree, os.fspath(path), "exec")


def _find_function(body: Sequence[ast.stmt], names: list[str]) -> ast.FunctionDef | None:
    for statement in body:
        if isinstance(statement, ast.FunctionDef) and len(names) == 1 and statement.name == names[0]:
            return statement
        if isinstance(statement, ast.ClassDef) and len(names) > 1 and statement.name == names[0]:
            return _find_function(statement.body, names[1:])
    return None


@contextmanager
def _as_main(path: Path, args: Sequence[str]) -> Iterator[ModuleType]:
    """A fresh ``__main__`` with the arguments and the import path that ``python path args`` would give it."""
    main = ModuleType("__main__")
    main.__file__ = os.fspath(path)
    before = sys.modules["__main__"], sys.argv, list(sys.path)
    sys.modules["__main__"], sys.argv = main, [os.fspath(path), *args]
    sys.path.insert(0, os.fspath(path.resolve().parent))
    try:
        yield main
    finally:
        sys.modules["__main__"], sys.argv = before[0], before[1]
        sys.path[:] = before[2]


def _line_of(error: BaseException, path: Path) -> str:
    """Where in the script it was raised, as ``in line N``."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == os.fspath(path)]
    return f" in line {lines[-1]}" if lines else ""
