"""In which autocast regions does the loop run, and were they made with a dtype?

A context remembers that it was made without one, and says so when it is entered: it may be made once and entered in
every step, as a decorator is. Of a context that was made before the watch began, the user's source is asked.
"""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from referee.device.host import load_torch
from referee.precision.intercept import Intercepts
from referee.precision.place import user_frame, user_line
from referee.precision.seen import Seen
from referee.records.finding import Finding

_MADE = "_referee_made_without_dtype"
_ASKED = "_referee_asked_for"
_BY_DECORATOR = "decorate_autocast"
"""The function of torch's that enters a context round a decorated one."""


class RegionWatch:
    """Follows the autocast regions of a loop."""

    def __init__(self, seen: Seen) -> None:
        self.torch = load_torch()
        self.seen = seen
        self.contexts: list[Any] = []
        """Those that are entered, the innermost last."""
        self.low_dtypes: dict[str, None] = {}
        self.updates = 0
        """Steps of optimizers since the outermost region was entered, where casts of weights are kept in it."""

    def install(self, on: Intercepts) -> None:
        """Put the interceptions in place."""
        on.wrap(self.torch.autocast, "__init__", after=self.after_made)
        on.wrap(self.torch.autocast, "__enter__", before=self.on_enter)
        on.wrap(self.torch.autocast, "__exit__", after=self.on_leave)

    def after_made(self, context: Any, args: Sequence[Any], result: Any, kwargs: dict[str, Any]) -> None:
        """A context is made: with a dtype?"""
        given = kwargs.get("dtype", args[1] if len(args) > 1 else None)
        # What was asked for, not what it became: autocast for CUDA switches itself off where there is none.
        enabled = kwargs.get("enabled", args[2] if len(args) > 2 else True)
        vars(context)[_ASKED] = bool(enabled)
        without = given is None and enabled and context.fast_dtype is not None
        vars(context)[_MADE] = user_line() if without else None

    def on_enter(self, context: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """A region begins."""
        if _MADE not in vars(context):
            vars(context)[_MADE] = line_without_dtype() if context._enabled else None
        line = vars(context)[_MADE]
        if line is not None:
            self.tell(context, line)
        if vars(context).get(_ASKED, context._enabled):
            self.seen.regions.setdefault(context.device, user_line())
        if context._enabled:
            if not self.contexts:
                self.updates = 0
            self.contexts.append(context)
            self.low_dtypes[str(context.fast_dtype).removeprefix("torch.")] = None

    def on_leave(self, context: Any, args: Sequence[Any], result: Any) -> None:
        """A region ends."""
        if self.contexts and self.contexts[-1] is context:
            self.contexts.pop()

    def before_update(self) -> None:
        """An optimizer is about to change weights inside a region, which keeps the casts that it has made of them.

        The first update of a region is seen by nobody in it; what computes before the second one did not see the first.
        """
        if not self.torch.is_autocast_cache_enabled():
            return
        self.updates += 1
        if self.updates == 2:
            self.seen.tell(
                "casts-outlive-update",
                "Weights are updated a second time inside one autocast region, which keeps the casts that it has made "
                "of them until it ends: what ran since the first update still computed with the old weights",
                hint="End the region before backward: the next one casts the weights anew.",
            )

    def tell(self, context: Any, line: str) -> None:
        """A context without a dtype means different things on different devices."""
        word = str(context.fast_dtype).removeprefix("torch.")
        defaults = {kind: str(self.torch.get_autocast_dtype(kind)).removeprefix("torch.") for kind in ("cpu", "cuda")}
        self.seen.tell(
            "autocast-without-dtype",
            f"autocast is made without a dtype, which means {word} on {context.device}: {defaults['cpu']} on the CPU, "
            f"{defaults['cuda']} on CUDA",
            hint=f"Say which: torch.autocast({context.device!r}, dtype=torch.{word}).",
            severity="info",
            line=line,
            dtype=word,
            also={f"default_{kind}": name for kind, name in defaults.items()},
        )


def line_without_dtype() -> str | None:
    """``FILE:LINE`` where the context that is being entered was made, if the source shows that it has no dtype.

    ``None`` where it has one, and where the source does not tell.
    """
    decorated = _decorated()
    if decorated is not None:
        file, line = decorated.co_filename, decorated.co_firstlineno
    else:
        frame = user_frame()
        if frame is None:
            return None
        file, line = frame.f_code.co_filename, frame.f_lineno
    linecache.checkcache(file)
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return None
    for made in _contexts_at(tree, line):
        call = made if isinstance(made, ast.Call) else _assigned(tree, _word(made))
        if isinstance(call, ast.Call) and _is_without_dtype(call):
            return f"{Path(file).name}:{call.lineno}"
    return None


def _decorated() -> Any:
    """The code of the function that torch's decorator is about to call; ``None`` where none is."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == _BY_DECORATOR:
            return getattr(frame.f_locals.get("func"), "__code__", None)
        frame = frame.f_back
    return None


def _contexts_at(tree: ast.AST, line: int) -> Iterator[ast.expr]:
    """What is entered at ``line``: by a ``with`` there, or as a decorator of the function that begins there."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.With, ast.AsyncWith)):
            if any(item.context_expr.lineno <= line <= (item.context_expr.end_lineno or 0) for item in node.items):
                yield from (item.context_expr for item in node.items)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            decorators = node.decorator_list
            if decorators and min(decorator.lineno for decorator in decorators) == line:
                yield from decorators


def _assigned(tree: ast.AST, word: str) -> ast.expr | None:
    """What the name or attribute ``word`` is made in the file; ``None`` unless it is assigned just once."""
    values = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and any(_word(target) == word for target in node.targets)
    ]
    return values[0] if word and len(values) == 1 else None


def _word(node: ast.expr) -> str:
    """The name, or the last part of a dotted one."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _is_without_dtype(call: ast.Call) -> bool:
    words = {keyword.arg for keyword in call.keywords}
    return _word(call.func) == "autocast" and len(call.args) < 2 and not words & {"dtype", "enabled", None}


def regions_elsewhere(entered: Mapping[str, str], *, device_type: str) -> Iterator[Finding]:
    """Are all regions for devices on which the step does not compute? ``entered``: the first line, by device."""
    if entered and device_type not in entered:
        device, line = next(iter(entered.items()))
        yield Finding(
            code="autocast-without-effect",
            severity="warning",
            message=f"autocast is entered for {device}{f' ({line})' if line else ''}, and the step computes on "
            f"{device_type}: it changes nothing there.",
            evidence={"line": line, "region": device, "device": device_type},
            hint="Take the device from the data: torch.autocast(x.device.type, dtype=…).",
        )
