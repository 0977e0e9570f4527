"""From which call on is a compiled step steady, and what did it take to get there?

Compiled code with CUDA graphs takes three calls: the first compiles, the second records the graph. Later calls are the
step; a comparison that has made fewer times something else.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median

from referee.device.protocol import Device
from referee.remedy.fix import Step
from referee.units import format_ns

SLOW, LAST_CALLS = 3.0, 5
"""A call before the step is steady takes this many times as long as the median of the last five."""


def timed(step: Step, device: Device, calls_ns: list[int]) -> Step:
    """The step, each call of it settled and its time kept."""

    def call() -> object:
        begun_ns = time.perf_counter_ns()
        output = step()
        device.settle(output)
        calls_ns.append(time.perf_counter_ns() - begun_ns)
        return output

    return call


def settled_at(calls_ns: Sequence[int]) -> int | None:
    """The number, from 1, of the first call that takes what later ones take; ``None`` without calls."""
    if not calls_ns:
        return None
    return next(number for number, ns in enumerate(calls_ns, start=1) if ns <= SLOW * _usual_ns(calls_ns))


def spent_ns(calls_ns: Sequence[int]) -> int | None:
    """What the calls before that took beyond what later ones take."""
    settled = settled_at(calls_ns)
    return None if settled is None else round(sum(calls_ns[: settled - 1]) - (settled - 1) * _usual_ns(calls_ns))


def settling_words(calls_ns: Sequence[int]) -> tuple[str, ...]:
    """What is worth saying: nothing where the first call alone was slow."""
    settled, spent = settled_at(calls_ns), spent_ns(calls_ns)
    if settled is None or spent is None or settled <= 2:
        return ()
    return (f"settled at call {settled}: the calls before took {format_ns(spent)} more than later ones in all",)


def _usual_ns(calls_ns: Sequence[int]) -> float:
    return median(calls_ns[-LAST_CALLS:])
