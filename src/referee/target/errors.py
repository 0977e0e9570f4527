"""Where in the user's code did it go wrong? Turns what a target raises into one sentence with file and line."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import TracebackType

from referee.errors import RefereeError, StepError
from referee.target.mends import mend_of

_OWN = str(Path(__file__).resolve().parents[1])
_STANDARD_LIBRARY = str(Path(traceback.__file__).resolve().parent)
_INSTALLED = ("site-packages", "dist-packages")
_MESSAGE_LENGTH = 200
"""Longer messages (a compiler's whole log) are cut: the sentence should stay one."""


def as_step_error(error: BaseException, name: str) -> StepError:
    """The StepError for ``error``, which calling ``name`` raised: its place in the user's code, its kind, its text."""
    place = user_place(error.__traceback__)
    where = f" at {place}" if place else ""
    return StepError(f"{name} raised {describe(error)}{where}.", hint=_mend(error))


def explain_error(error: BaseException, name: str) -> str:
    """What went wrong in the step called ``name``, in one sentence: Referee's own words, or place, kind and text."""
    return error.message if isinstance(error, RefereeError) else as_step_error(error, name).message


class step_errors:  # noqa: N801 - used as a function is
    """While inside, whatever the step called ``name`` raises becomes a :class:`~referee.errors.StepError`.

    Referee's own errors pass. So does an exception that met no code of the user's on its way: that is our bug. No
    generator makes this context: a ``StopIteration`` of the step, made a RuntimeError, would come out as it went in.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, RefereeError | KeyboardInterrupt | GeneratorExit):
            return
        if _passed_user_code(error.__traceback__):
            raise as_step_error(error, self._name) from error


def describe(error: BaseException) -> str:
    """``ValueError: shapes differ``: the kind and the first line of the text, shortened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0].rstrip(".") if lines else ""
    if len(text) > _MESSAGE_LENGTH:
        text = text[: _MESSAGE_LENGTH - 1] + "…"
    kind = type(error).__name__
    return f"{kind}: {text}" if text else kind


def user_place(trace: TracebackType | None, *, users_alone: bool = False) -> str:
    """``train.py:17``: the innermost frame in the user's own code, else the innermost one in an installed library.

    ``users_alone``: nothing in place of a frame of the user's.
    """
    frames = [frame for frame in traceback.extract_tb(trace) if not frame.filename.startswith((_OWN, "<frozen"))]
    users = [frame for frame in frames if not _is_installed(frame.filename)]
    chosen = users or ([] if users_alone else frames)
    return f"{chosen[-1].filename}:{chosen[-1].lineno}" if chosen else ""


def _is_installed(filename: str) -> bool:
    return filename.startswith(_STANDARD_LIBRARY) or any(part in _INSTALLED for part in Path(filename).parts)


def _passed_user_code(trace: TracebackType | None) -> bool:
    frames = traceback.extract_tb(trace)
    if frames and "step()" in (frames[-1].line or ""):
        return True  # a step without Python frames of its own (compiled by TorchScript, a builtin) raised at our call
    return any(not f.filename.startswith((_OWN, "<frozen")) and not _is_installed(f.filename) for f in frames)


def _mend(error: BaseException) -> str:
    if isinstance(error, NameError) and getattr(error, "name", None) == "torch":
        return "Add import torch (for a statement: --setup 'import torch')."
    if isinstance(error, StopIteration):
        return "A step is called thousands of times: let it begin again when its data end."
    if isinstance(error, ModuleNotFoundError):
        return f"Install what provides the module {error.name}, in this Python's environment."
    return mend_of(str(error)) if isinstance(error, (RuntimeError, AssertionError, ValueError)) else ""
