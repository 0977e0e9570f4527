"""Why does a step not run in a low precision, where in the user's code, and what mends it?

Two reasons are common and look alike in a traceback of torch: a constant that the lower precision cannot hold, and an
operator that meets two dtypes where autocast does not reach, most of all in the backward of an ``autograd.Function``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Literal

from referee.device.host import load_torch
from referee.precision.errors import first_sentence
from referee.precision.place import users_line_of
from referee.records.finding import Finding

CODE = "does-not-run"

Reason = Literal["constant", "custom-function", "dtypes", "other"]

_CONSTANT = re.compile(r"cannot be converted to type \S+ without overflow")
_DTYPES = re.compile(
    r"same dtype|dtypes? (?:to )?match|should be the same|expected scalar type|autocast::prioritize", re.IGNORECASE
)


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why a step raised in a precision: its words in a line, the user's line, and the reason where it is known."""

    why: str
    line: str
    reason: Reason
    function: str = ""
    """The name of the ``autograd.Function`` it was raised in."""


def refusal_of(error: BaseException) -> Refusal:
    """What ``error``, raised by a step in a low precision, says about the step."""
    said = str(error)
    function = _custom_function(error)
    reason: Reason = "other"
    if _CONSTANT.search(said):
        reason = "constant"
    elif _DTYPES.search(said):
        reason = "custom-function" if function else "dtypes"
    return Refusal(
        why=f"{type(error).__name__}: {first_sentence(error)}",
        line=users_line_of(error),
        reason=reason,
        function=function,
    )


def _custom_function(error: BaseException) -> str:
    """The innermost ``autograd.Function`` on the way to where ``error`` was raised; empty where there is none."""
    kind = load_torch().autograd.function.FunctionCtx
    name, trace = "", error.__traceback__
    while trace is not None:
        first = _first_argument(trace.tb_frame)
        if isinstance(first, kind):
            # The object handed over is of a class made for the Function, named after it.
            name = type(first).__name__.removesuffix("Backward")
        trace = trace.tb_next
    return name


def _first_argument(frame: FrameType) -> object:
    names = frame.f_code.co_varnames[:1]
    return frame.f_locals.get(names[0]) if names else None


def refusal_findings(refusals: Mapping[str, Refusal], *, device_type: str) -> Iterator[Finding]:
    """One finding for each known reason, with the precisions that it concerns."""
    by_place: dict[tuple[Reason, str, str], list[str]] = {}
    for name, refusal in refusals.items():
        by_place.setdefault((refusal.reason, refusal.line, refusal.function), []).append(name)
    for (reason, line, function), names in by_place.items():
        if reason != "other":
            words, hint = _words(reason, function, device_type=device_type)
            yield Finding(
                code=CODE,
                severity="warning",
                message=f"The step does not run in {' and '.join(names)}: {f'at {line} ' if line else ''}{words}.",
                evidence={"precisions": ", ".join(names), "line": line or "not known", "reason": reason},
                hint=hint,
            )


def function_words(error: BaseException, *, device_type: str) -> tuple[str, str]:
    """What and which mend to say of ``error``, where an ``autograd.Function`` met two dtypes; else empty words."""
    found = refusal_of(error)
    if found.reason != "custom-function":
        return "", ""
    return _words(found.reason, found.function, device_type=device_type)


def _words(reason: Reason, function: str, *, device_type: str) -> tuple[str, str]:
    if reason == "constant":
        return (
            "a number is written that it cannot hold (fp16 ends at 65,504)",
            "Fill with torch.finfo(x.dtype).min, or with -inf where no row is masked whole, instead of a fixed number.",
        )
    if reason == "custom-function":
        return (
            f"{function} meets tensors of two dtypes: autocast is not in force in the backward of an autograd.Function",
            f"Decorate its forward with torch.amp.custom_fwd(device_type={device_type!r}) and its backward with "
            f"torch.amp.custom_bwd(device_type={device_type!r}): backward then runs as forward did.",
        )
    return (
        "an operator meets tensors of two dtypes, and autocast has no policy for it",
        "Convert them alike there (a.to(b.dtype)), or let autocast meet both: of what is converted by hand it makes "
        "nothing.",
    )
