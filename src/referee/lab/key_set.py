"""What does the key set alone take for each further tensor? Calls that compute nothing, made anew several times.

The figure is of the order of one cycle of the core, so that where code and tensors lie in memory moves it from one
making to the next, which no interval of a single one shows. Two equal calls tell what the clock shows for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from referee.anatomy.probe import Probe, load_probe
from referee.anatomy.stages import FURTHER_TENSORS
from referee.anatomy.timing import Pair, Timed, time_pairs
from referee.device.host import load_torch
from referee.device.protocol import Device
from referee.records.estimate import Estimate

MAKINGS = 5
"""How often everything is made anew."""


@dataclass(frozen=True, kw_only=True)
class KeySet:
    """One making: a call with one tensor, one with eight, their difference, and that of two equal calls; in ns."""

    one: Estimate
    eight: Estimate
    further: Estimate
    equal: Estimate


def time_key_sets(device: Device, budget_ns: int) -> tuple[KeySet, ...]:
    """One figure for each making, within about ``budget_ns`` in all; none without the compiled probe.

    Raises :class:`~referee.errors.CannotTell` where hardly a block is clean.
    """
    probe = load_probe()
    if not isinstance(probe, Probe):
        return ()
    return tuple(_one(probe.module, device, budget_ns // MAKINGS) for _ in range(MAKINGS))


def _one(module: Any, device: Device, budget_ns: int) -> KeySet:
    torch = load_torch()

    def call(name: str, count: int) -> Timed:
        held = module.Call(f"referee_probe::{name}", "", (torch.rand(8),) * count, {})
        return Timed("rung()", {"rung": module.rung(held, "call", 0, False)})

    one, again, eight = call("take_one", 1), call("take_one", 1), call("take_eight", 1 + FURTHER_TENSORS)
    pairs = [Pair("one", one), Pair("eight", eight), Pair("further", eight, one), Pair("equal", again, one)]
    found = {cost.name: cost.hot for cost in time_pairs(pairs, device=device, budget_ns=budget_ns)}
    return KeySet(one=found["one"], eight=found["eight"], further=found["further"], equal=found["equal"])
