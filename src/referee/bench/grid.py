"""How does the time grow with one parameter at each setting of others? One sweep for each combination."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, TypeAlias

from referee.bench.raised import describe_error
from referee.errors import OptionError
from referee.records.finding import Finding, Scalar
from referee.records.measurement import Sweep
from referee.records.sweep_grid import SweepAt, SweepGrid, words_of

One: TypeAlias = Callable[[Mapping[str, Any], str], Sweep]
"""Runs the sweep with these parameters held, under this name."""

MOST_SWEEPS = 64


def check_others(others: Mapping[str, Sequence[Any]], *, parameter: str) -> None:
    """Can these be varied beside ``parameter``? Raises :class:`~referee.errors.OptionError` where not."""
    if parameter in others:
        raise OptionError(f"{parameter} is what is swept; it cannot be varied beside itself.")
    for name, values in others.items():
        if not values or len({str(value) for value in values}) < len(values):
            raise OptionError(f"The values of {name} must be distinct, and there must be one.")
    asked = prod(len(values) for values in others.values())
    if asked > MOST_SWEEPS:
        raise OptionError(f"These are {asked} combinations, a sweep each.", hint=f"Give at most {MOST_SWEEPS}.")


def sweep_grid(one: One, *, name: str, parameter: str, others: Mapping[str, Sequence[Any]]) -> SweepGrid:
    """``one`` sweep for each combination of the ``others``, in the order given, the last varying fastest.

    What a combination raises costs that combination alone; where each one raises, the first error is raised. An
    interrupt ends with the sweep it fell into, or is raised where there is none yet.
    """
    check_others(others, parameter=parameter)
    asked = [dict(zip(others, chosen, strict=True)) for chosen in product(*others.values())]
    sweeps: list[SweepAt] = []
    failed: list[tuple[str, BaseException]] = []
    interrupted: tuple[Finding, ...] = ()
    for fixed in asked:
        held = {key: _scalar(value) for key, value in fixed.items()}
        try:
            found = one(fixed, f"{name} ({words_of(held)})")
        except KeyboardInterrupt:
            if not sweeps:
                raise
            interrupted = (_interrupted(len(sweeps), of=len(asked)),)
            break
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code: anything can come out
            failed.append((words_of(held), error))
            continue
        sweeps.append(SweepAt(fixed=held, sweep=found))
        if any(finding.code == "interrupted" for finding in found.findings):
            interrupted = (_interrupted(len(sweeps), of=len(asked)),)
            break
    if not sweeps:
        raise failed[0][1]
    return SweepGrid(
        name=name,
        parameter=parameter,
        others=tuple(others),
        asked=len(asked),
        sweeps=tuple(sweeps),
        provenance=sweeps[0].sweep.provenance,
        findings=(*(_failed(words, error) for words, error in failed), *interrupted),
    )


def _scalar(value: Any) -> Scalar:
    return value if isinstance(value, (int, float, str, bool)) else str(value).removeprefix("torch.")


def _failed(words: str, error: BaseException) -> Finding:
    return Finding(
        code="point-failed",
        severity="warning",
        message=f"With {words} no value could be measured: {describe_error(error).rstrip('.')}.",
        evidence={"combination": words},
    )


def _interrupted(done: int, *, of: int) -> Finding:
    return Finding(
        code="interrupted",
        severity="warning",
        message=f"You interrupted: {done} of {of} sweeps were begun.",
        evidence={"sweeps": done, "asked": of},
    )
