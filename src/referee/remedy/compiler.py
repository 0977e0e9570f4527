"""What did the compiler say? Graph breaks with lines, recompilations with guards, CUDA graphs skipped and why."""

from __future__ import annotations

import inspect
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from referee.device.host import load_torch

_ARTIFACTS = {
    "graph_breaks": ("torch._dynamo.symbolic_convert.__graph_breaks",),
    "recompiles": ("torch._dynamo.guards.__recompiles",),
    "perf_hints": (
        "torch._inductor.cudagraph_utils.__perf_hints",
        "torch._inductor.compile_fx.__perf_hints",
        "torch._inductor.cudagraph_trees.__perf_hints",
        "torch._inductor.utils.__perf_hints",
    ),
}
"""Names of torch's own logs (its public ``torch._logging.set_logs`` switches them on)."""

_BREAK = re.compile(r"user code at (?P<place>\S+:\d+)\s*\nGraph Break Reason: (?P<reason>.*)", re.S)
_RECOMPILE = re.compile(r"Recompiling function (?P<name>\S+) in (?P<place>\S+:\d+)")
_GUARD = re.compile(r"^\s*-\s*\d+/\d+: (?P<guard>.*)$", re.M)
_SKIPPED = re.compile(r"skipping cudagraphs due to (?P<reason>.*)", re.S | re.I)
_WRAPPER = re.compile(r"torch/_dynamo/external_utils\.py:\d+$")
"""Where torch compiles a function that one of its own decorators wraps."""
_MOST = 5


@dataclass
class CompilerLog:
    """What the compiler reported while this was listening, each thing once, in order."""

    breaks: list[str] = field(default_factory=list)
    recompiles: list[str] = field(default_factory=list)
    skipped_graphs: list[str] = field(default_factory=list)
    step: object = None
    """What is compiled, from which guards on what it closes over take their names."""

    def words(self) -> tuple[str, ...]:
        """The most telling lines."""
        return (
            *(f"graph break at {text}" for text in self.breaks[:_MOST]),
            *(f"recompiled: {text}" for text in self.recompiles[:_MOST]),
            *(f"CUDA graphs not used: {text}" for text in self.skipped_graphs[:_MOST]),
        )

    def note(self, message: str) -> None:
        """Sort one message of torch's logs."""
        found = _BREAK.search(message)
        if found:
            lines = [line.strip() for line in found["reason"].splitlines() if line.strip()]
            # The first line says in which instruction, the second what could not be traced.
            led_to = len(lines) > 1 and lines[0].startswith(("Encountered graph break", "Failed to handle graph break"))
            reason = lines[1] if led_to else lines[0]
            left = ", and the whole function is left uncompiled" if "falling back to eager" in lines[0] else ""
            _once(self.breaks, f"{found['place']}: {reason.rstrip('.')}{_explained(lines, reason)}{left}")
        found = _RECOMPILE.search(message)
        if found:
            guards = [_guard(text) for text in _GUARD.findall(message)]
            guard = _by_names(guards[0], self.step) if guards else "no guard named"
            _once(self.recompiles, f"{self._frame(found['name'], found['place'])}: {guard}")
        found = _SKIPPED.search(message)
        if found:
            _once(self.skipped_graphs, " ".join(found["reason"].split())[:300])

    def _frame(self, name: str, place: str) -> str:
        """The frame that is compiled again: the user's function where torch names its own wrapper of it."""
        code = getattr(inspect.unwrap(self.step), "__code__", None) if callable(self.step) else None
        if code is None or not _WRAPPER.search(place):
            return f"{name} at {place}"
        return f"{code.co_name} at {code.co_filename}:{code.co_firstlineno}"


def _explained(lines: list[str], reason: str) -> str:
    """The operator or function that torch's explanation names, where the reason does not."""
    explanation = next((line for line in lines if line.startswith("Explanation:")), "")
    named = re.search(r"`([\w.:]+)`", explanation)
    return f" ({named[1]})" if named and named[1] not in reason else ""


def _by_names(guard: str, step: object) -> str:
    """The guard with the names of variables in place of closures of closures, where ``step`` is what torch calls fn."""

    def name(found: re.Match[str]) -> str:
        inner: Any = step
        word = found[0]
        try:
            for place in re.findall(r"\[(\d+)\]", found[0]):
                word = inner.__code__.co_freevars[int(place)]
                inner = inner.__closure__[int(place)].cell_contents
        except (AttributeError, IndexError, TypeError, ValueError):
            return found[0]
        return word

    return re.sub(r"\bfn(?:\.__closure__\[\d+\]\.cell_contents)+", name, guard)


def _guard(text: str) -> str:
    """``s.k == 0 failed`` without the compiler's advice behind it."""
    return re.split(r"\s+#|\s{3,}|\(HINT", text)[0].strip()


def _once(found: list[str], text: str) -> None:
    if text not in found:
        found.append(text)


class _Listener(logging.Handler):
    def __init__(self, log: CompilerLog) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log.note(record.getMessage())


@contextmanager
def listening(step: object = None) -> Iterator[CompilerLog]:
    """Listen to torch's compiler, which compiles ``step``; nothing of it reaches standard error meanwhile."""
    torch = load_torch()
    log = CompilerLog(step=step)
    torch._logging.set_logs(graph_breaks=True, recompiles=True, perf_hints=True)
    root = logging.getLogger("torch")
    quiet = [(handler, handler.level) for handler in root.handlers]
    for handler, _ in quiet:
        handler.setLevel(logging.CRITICAL)
    listener = _Listener(log)
    loggers = [logging.getLogger(name) for names in _ARTIFACTS.values() for name in names]
    propagating = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.addHandler(listener)
        logger.propagate = False
    own = [(logger, list(logger.handlers)) for logger in loggers]
    for logger, handlers in own:
        for handler in handlers:
            if handler is not listener:
                logger.removeHandler(handler)
    try:
        yield log
    finally:
        for logger, before in zip(loggers, propagating, strict=True):
            logger.removeHandler(listener)
            logger.propagate = before
        for handler, level in quiet:
            handler.setLevel(level)
        torch._logging.set_logs()


def kernels_made() -> int:
    """How many fused kernels the default compiler has generated in this process."""
    metrics: Any = sys.modules.get("torch._inductor.metrics")
    return int(getattr(metrics, "generated_kernel_count", 0)) if metrics else 0
