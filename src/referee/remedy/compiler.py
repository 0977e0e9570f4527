"""What did the compiler say? Graph breaks with lines, recompilations with guards, CUDA graphs skipped and why."""

from __future__ import annotations

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
_MOST = 5


@dataclass
class CompilerLog:
    """What the compiler reported while this was listening, each thing once, in order."""

    breaks: list[str] = field(default_factory=list)
    recompiles: list[str] = field(default_factory=list)
    skipped_graphs: list[str] = field(default_factory=list)

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
            reason = lines[1] if len(lines) > 1 and lines[0].startswith("Encountered graph break") else lines[0]
            _once(self.breaks, f"{found['place']}: {reason.rstrip('.')}")
        found = _RECOMPILE.search(message)
        if found:
            guards = [_guard(text) for text in _GUARD.findall(message)]
            _once(self.recompiles, f"{found['name']} at {found['place']}: {guards[0] if guards else 'no guard named'}")
        found = _SKIPPED.search(message)
        if found:
            _once(self.skipped_graphs, " ".join(found["reason"].split())[:300])


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
def listening() -> Iterator[CompilerLog]:
    """Listen to torch's compiler; nothing of it reaches standard error meanwhile."""
    torch = load_torch()
    log = CompilerLog()
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
