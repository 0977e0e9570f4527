"""What is to be measured? Turns ``FILE.py:NAME``, ``package.module:NAME`` or a statement into a zero-argument step.

NAME is called with those of ``batch_size``, ``device`` and ``dtype`` that it declares, and with what the user gave
under any other declared name. If the call returns a callable, NAME was a factory and that callable is the step;
otherwise NAME itself is the step. What is not declared cannot be varied. Loading runs the user's code, so whatever it
raises comes back as one sentence with its file and line. No torch is loaded here unless the target's code does.
"""

from __future__ import annotations

import functools
import inspect
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from referee.device.pending import pending
from referee.device.state import State, read_state
from referee.errors import RefereeError, StepError, TargetError
from referee.target.code import Code, compile_statement, load_code
from referee.target.errors import as_step_error
from referee.target.params import as_text, convert

Step = Callable[[], object]

STANDARD = ("batch_size", "device", "dtype")
"""The parameters that a target gets without being asked, where it declares them."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A step to be measured, and how it was built.

    ``declared`` are the parameters that may be given and swept; ``values`` are those in force, defaults included.
    ``first_call_ns`` is the time of the one call that loading needed where NAME itself is the step (its first-time
    costs were paid there); ``None`` for a factory. ``statement`` marks ``--stmt``, which may return nothing.
    """

    name: str
    step: Step
    declared: tuple[str, ...] = ()
    values: Mapping[str, object] = field(default_factory=dict)
    factory: bool = False
    source_file: str | None = None
    first_call_ns: int | None = None
    before: State | None = field(default=None, repr=False)
    """The switches in force before that call, which may have set some."""
    loaded: State | None = field(default=None, repr=False)
    """The switches in force when NAME was called first: the session's, and what importing its file set."""
    statement: bool = False
    setup: str = ""
    """What ran once before a statement."""
    _make: Callable[..., object] | None = field(default=None, repr=False)
    _given: Mapping[str, object] = field(default_factory=dict, repr=False)

    @property
    def batch_size(self) -> int | None:
        """The batch size in force; ``None`` where the target declares none."""
        value = self.values.get("batch_size")
        return value if isinstance(value, int) else None

    @property
    def texts(self) -> Mapping[str, str]:
        """The values in force as text, from which they can be had again; those that no text stands for are left out.

        Only a default can be such a value, and a default is had again by leaving it out.
        """
        texts = {name: as_text(value) for name, value in self.values.items()}
        return {name: text for name, text in texts.items() if text is not None}

    @property
    def model(self) -> Any:
        """``step.model``, or ``None`` where the step does not carry one."""
        return _carried(self.step, "model")

    @property
    def optimizer(self) -> Any:
        """``step.optimizer``, or ``None`` where the step does not carry one."""
        return _carried(self.step, "optimizer")

    def rebuild(self, **overrides: object) -> Target:
        """The same target with other values for some declared parameters.

        Raises :class:`~referee.errors.TargetError` for a parameter that the target does not declare: varying what the
        code does not read would measure the same thing again under another label.
        """
        if self._make is None:
            raise TargetError("A statement has no parameters.", hint="Put the varied part into a function instead.")
        return _build(self.name, self._make, given={**self._given, **overrides}, source_file=self.source_file)


def load_target(
    spec: str,
    *,
    batch_size: int | None = None,
    device: str | None = None,
    dtype: str | None = None,
    params: Mapping[str, str] | None = None,
    restored: Mapping[str, str] | None = None,
) -> Target:
    """Load ``spec`` and build its step.

    ``batch_size``, ``dtype`` and ``params`` that the target does not declare are refused; ``device`` is handed over
    where it is declared (the step may well place its tensors itself). ``restored`` are :attr:`Target.texts` of an
    earlier build: what is the default still is left to it. Raises :class:`~referee.errors.TargetError`,
    :class:`~referee.errors.StepError` or :class:`~referee.errors.OptionError`, each with one sentence.
    """
    code = load_code(spec)
    given: dict[str, object] = dict(params or {})
    for name, value in (("batch_size", batch_size), ("dtype", dtype)):
        if value is not None:
            given[name] = value
    parameters = _parameters(code)
    for name, text in (restored or {}).items():
        declared = None if parameters is None else parameters.get(name)
        if declared is None or declared.default is declared.empty or as_text(declared.default) != text:
            given.setdefault(name, text)
    if device is not None and parameters is not None and "device" in parameters:
        given.setdefault("device", device)
    return _build(spec, code.named, given=given, source_file=code.source_file)


def load_statement(stmt: str, setup: str = "") -> Target:
    """A step that executes ``stmt`` after ``setup`` has run once, both with the same names, as in ``timeit``.

    If the last line of ``stmt`` is an expression its value is what the step returns.
    """
    return Target(name=stmt.strip(), step=compile_statement(stmt, setup), factory=True, statement=True, setup=setup)


def call_step(target: Target) -> object:
    """Call the step once; whatever it raises becomes a :class:`~referee.errors.StepError` with file and line."""
    try:
        return target.step()
    except RefereeError:
        raise
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # the user's code: anything can come out
        raise as_step_error(error, target.name) from error


def check_step(target: Target) -> object:
    """Call the step once and refuse what cannot be measured; returns what the step returned."""
    output = call_step(target)
    require_output(target, output)
    return output


def require_output(target: Target, output: object) -> None:
    """Refuse ``output``, which the step returned, if nothing can be awaited through it.

    Raises :class:`~referee.errors.StepError` for ``None`` (a statement may return it) and for a coroutine or generator,
    whose work has not begun.
    """
    _refuse_unstarted(target.name, output)
    if output is None and not target.statement:
        raise StepError(
            f"{target.name} returns nothing, so there is nothing to wait for.",
            hint="Let the step return the output (or the loss).",
        )


def _build(name: str, make: Callable[..., object], *, given: Mapping[str, object], source_file: str | None) -> Target:
    """Call ``make`` with the declared ones of ``given`` and find out whether it is the factory or the step."""
    _refuse_module(name, make)
    parameters = _parameters(Code(spec=name, named=make, source_file=source_file))
    arguments = _arguments(name, parameters, given)
    before = read_state()
    start_ns = time.perf_counter_ns()
    try:
        made = make(**arguments)
    except RefereeError:
        raise
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # the user's code: anything can come out
        raise as_step_error(error, name) from error
    elapsed_ns = time.perf_counter_ns() - start_ns
    _refuse_unstarted(name, made)
    factory = callable(made)
    if factory:
        step: Step = made  # type: ignore[assignment]  # what takes no argument shows when it is called
        _require_no_arguments(name, step)
    else:
        step = functools.partial(make, **arguments) if arguments else make
    defaults = {} if parameters is None else {k: p.default for k, p in parameters.items() if p.default is not p.empty}
    return Target(
        name=name,
        step=step,
        declared=tuple(parameters) if parameters is not None else tuple(arguments),
        values={**defaults, **arguments},
        factory=factory,
        source_file=source_file,
        first_call_ns=None if factory else elapsed_ns,
        before=None if factory else before,
        loaded=before,
        _make=make,
        _given=dict(given),
    )


def _parameters(code: Code) -> dict[str, inspect.Parameter] | None:
    """The parameters that can be given by name; ``None`` where any name is taken (``**kwargs``)."""
    try:
        signature = inspect.signature(code.named, eval_str=True)
    except (NameError, SyntaxError, TypeError, AttributeError):
        # Annotations that name things which exist for a type checker alone: take the parameters without them.
        signature = _plain_signature(code.named)
    except ValueError:  # a builtin without a signature
        return {}
    if any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()):
        return None
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.POSITIONAL_ONLY and parameter.default is parameter.empty:
            raise TargetError(
                f"{code.spec} needs the argument {parameter.name!r}, which cannot be given by name.",
                hint="Declare it without the slash, or give it a default.",
            )
    return {name: p for name, p in signature.parameters.items() if p.kind in by_name}


def _plain_signature(named: Callable[..., object]) -> inspect.Signature:
    """The signature without resolving annotations; an empty one where a builtin has none (its first call will tell)."""
    try:
        return inspect.signature(named)
    except (ValueError, TypeError):
        return inspect.Signature()


def _arguments(
    name: str, parameters: Mapping[str, inspect.Parameter] | None, given: Mapping[str, object]
) -> dict[str, object]:
    """What ``make`` is called with: the given values, converted, every required parameter present."""
    if parameters is None:
        return {key: convert(key, value, annotation=Any, default=None) for key, value in given.items()}
    for key in given:
        if key not in parameters:
            raise TargetError(f"{name} declares no parameter {key!r}.", hint=_declared_hint(key, parameters))
    arguments: dict[str, object] = {}
    for key, parameter in parameters.items():
        default = None if parameter.default is parameter.empty else parameter.default
        annotation = Any if parameter.annotation is parameter.empty else parameter.annotation
        if key in given:
            arguments[key] = convert(key, given[key], annotation=annotation, default=default)
        elif parameter.default is parameter.empty:
            arguments[key] = _standard_value(name, key, annotation)
    return arguments


def _standard_value(name: str, key: str, annotation: object) -> object:
    """The value of a required parameter that nobody gave."""
    if key == "dtype":
        return convert(key, "float32", annotation=annotation, default=None)
    if key == "device":
        return convert(key, "cpu", annotation=annotation, default=None)
    flag = "--batch-size 8" if key == "batch_size" else f"--param {key}=VALUE"
    raise TargetError(f"{name} needs a value for {key!r}.", hint=f"Give it with {flag}.")


def _declared_hint(key: str, parameters: Mapping[str, object]) -> str:
    close = get_close_matches(key, list(parameters), n=1)
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"It declares {', '.join(parameters)}." if parameters else "It declares none: add it to its signature."


def _require_no_arguments(name: str, step: Step) -> None:
    """Refuse a callable that needs arguments before the clock is set up for it."""
    required = _required(_forward(step) or step)
    if required:
        raise StepError(
            f"{name} returned a {type(step).__name__} that needs the argument {required[0]!r}, "
            "but a step is called with none.",
            hint="Return a function that holds its inputs: lambda: model(x).",
        )


def _refuse_module(name: str, make: Callable[..., object]) -> None:
    """Refuse a model in the place of a step: called without an input it would raise deep inside of torch."""
    forward = _forward(make)
    required = [] if forward is None else _required(forward)
    if required:
        raise TargetError(
            f"{name} is a {type(make).__name__}, whose forward needs the argument {required[0]!r}.",
            hint="Name a function that holds the model and its input: def step(): return model(x).",
        )


def _forward(named: object) -> Callable[..., object] | None:
    """``forward`` of a module, whose own signature takes anything; ``None`` for what is no module."""
    torch: Any = sys.modules.get("torch")
    return named.forward if torch is not None and isinstance(named, torch.nn.Module) else None


def _required(named: Callable[..., object]) -> list[str]:
    rest = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = _plain_signature(named).parameters.values()
    return [p.name for p in parameters if p.default is p.empty and p.kind not in rest]


def _refuse_unstarted(name: str, output: object) -> None:
    found = pending(output)
    if found is not None:
        words, mend = found
        raise StepError(f"{name} returns {words}.", hint=mend)


def _carried(step: object, attribute: str) -> Any:
    """``attribute`` of the step, of the object whose method it is, or of what a partial holds."""
    for holder in (step, getattr(step, "__self__", None), getattr(step, "func", None)):
        found = getattr(holder, attribute, None)
        if found is not None:
            return found
    return None
