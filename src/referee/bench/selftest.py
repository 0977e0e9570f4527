"""Can this clock be believed here? Times an empty callable and spins of known length through the full path.

Each spin reads the host's clock itself and reports how long it really took, so a slow machine is no excuse: what is
tested is the difference between what the spin says and what the measurement says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from referee.bench.loop import Cut, cutting
from referee.bench.measure import measure
from referee.bench.plan import Plan, Progress, ProgressCallback, no_progress
from referee.device.protocol import Device, Settling
from referee.units import NS_PER_MS, NS_PER_US

SPINS_NS = (10 * NS_PER_US, 100 * NS_PER_US, NS_PER_MS, 10 * NS_PER_MS)

_SETTLES = 101

EMPTY_LIMIT_NS = 50.0
"""An empty function costs some 20-40 ns to call; what is read above that is our own."""

_PLAN = Plan(
    budget_ns=300 * NS_PER_MS,
    min_ns=200 * NS_PER_MS,
    clocks=("settled_amortised",),
    subtract_stolen=False,  # a spin's own clock runs on while it is preempted
)

SPIN_FRAC = 0.01
SPIN_NS = 60.0
"""A spin may differ from its own clock by a hundredth and two readings of the clock."""


@dataclass(frozen=True, kw_only=True)
class SelfTestRow:
    """One thing timed: what it says itself, what was measured, how far that may be apart, and whether it is."""

    name: str
    own_ns: float
    measured_ns: float
    error_ns: float
    limit_ns: float
    passed: bool


@dataclass(frozen=True, kw_only=True)
class SelfTest:
    """All rows; passed if each of them did."""

    rows: tuple[SelfTestRow, ...]
    overhead_ns: float
    """What is subtracted from each call of an empty callable: clock readings and the loop."""
    shell_ns: float
    """What a spin costs outside of its own two readings of the clock."""

    @property
    def passed(self) -> bool:
        """Whether every row is within its limit."""
        return all(row.passed for row in self.rows)


@dataclass(frozen=True)
class Spin:
    """A callable that spins for about ``length_ns``, and the list of how long each call really took."""

    call: Callable[[], int]
    took_ns: list[int]


def make_spin(length_ns: int, *, clock: Callable[[], int] = time.perf_counter_ns) -> Spin:
    """A spin that reads the clock itself; as little as possible lies outside of its first and last reading."""
    took_ns: list[int] = []
    note = took_ns.append

    def spin() -> int:
        start_ns = clock()
        until_ns = start_ns + length_ns
        while (now_ns := clock()) < until_ns:
            pass
        note(now_ns - start_ns)
        return now_ns

    return Spin(spin, took_ns)


def run_selftest(
    *, device: Device, spins_ns: Sequence[int] = SPINS_NS, progress: ProgressCallback = no_progress
) -> SelfTest:
    """Time an empty callable and one spin of each length on ``device`` (a host-clocked one).

    On a device that records, handing a call over and settling a block are parts of its time by definition, so that
    they are parts of what the empty callable says of itself.

    A spin's clock cannot see the call that leads to it nor the return. What that costs is read from a spin of no
    length, shown as ``shell_ns``, and taken off the others.
    """
    progress(Progress(stage="an empty callable", frac=0.0))
    empty = measure(_nothing, device=device, plan=_PLAN, name="empty callable")
    overhead = empty.provenance.value("method.overhead_ns")
    calls = empty.provenance.value("method.calls_per_block")
    assert isinstance(calls, int)
    own_ns = _bare_call_ns(cutting(device)) + settle_ns(device) / calls
    rows = [_row("empty callable", own_ns=own_ns, measured_ns=min(empty.samples_ns), limit_ns=EMPTY_LIMIT_NS)]
    shell_ns = time_spin(0, device=device)[1]
    for index, length_ns in enumerate(spins_ns):
        progress(Progress(stage=f"a spin of {length_ns:,} ns", frac=(index + 1) / (len(spins_ns) + 1)))
        own_ns, beyond_ns = time_spin(length_ns, device=device)
        limit_ns = SPIN_FRAC * own_ns + SPIN_NS
        measured_ns = own_ns + beyond_ns - shell_ns
        rows.append(_row(f"spin {length_ns:,} ns", own_ns=own_ns, measured_ns=measured_ns, limit_ns=limit_ns))
    return SelfTest(
        rows=tuple(rows), overhead_ns=float(overhead) if isinstance(overhead, int | float) else 0.0, shell_ns=shell_ns
    )


def time_spin(
    length_ns: int, *, device: Device, clock: Callable[[], int] = time.perf_counter_ns
) -> tuple[float, float]:
    """What spins of this length said of themselves, and how much longer they were measured to be, per call.

    The last calls were those of the timed blocks: each block is held against its own spins, preempted ones included,
    because the spin's clock runs on while it is preempted.
    """
    spin = make_spin(length_ns, clock=clock)
    found = measure(spin.call, device=device, plan=_PLAN, name=f"spin {length_ns}")
    samples = np.array(found.samples_ns)
    calls = found.provenance.value("method.calls_per_block")
    assert isinstance(calls, int)
    own = np.array(spin.took_ns[-samples.size * calls :]).reshape(samples.size, calls).mean(axis=1)
    return float(np.median(own)), float(np.median(samples - own))


def _row(name: str, *, own_ns: float, measured_ns: float, limit_ns: float) -> SelfTestRow:
    error_ns = measured_ns - own_ns
    return SelfTestRow(
        name=name,
        own_ns=own_ns,
        measured_ns=measured_ns,
        error_ns=error_ns,
        limit_ns=limit_ns,
        passed=abs(error_ns) <= limit_ns,
    )


def _nothing() -> None:
    """Return at once."""


def settle_ns(device: Device) -> float:
    """What a settle with nothing to wait for costs where it is part of the time, as whoever waits pays for it."""
    if device.settling is Settling.SYNCHRONOUS:
        return 0.0
    times = []
    for _ in range(_SETTLES):
        start_ns = device.now_ns()
        device.settle(None)
        times.append(device.now_ns() - start_ns)
    return float(min(times))


def _bare_call_ns(cut: Cut | None = None) -> float:
    """What calling an empty function costs by itself: the least time of a loop that calls it, less a bare loop's.

    With ``cut`` what it returns is handed over too, as behind each call on a device that records.
    """
    clock, count, nothing = time.perf_counter_ns, 20_000, _nothing
    bare, calling = [], []
    for _ in range(7):
        start_ns = clock()
        for _ in repeat(None, count):
            pass
        middle_ns = clock()
        if cut is not None:
            for _ in repeat(None, count):
                cut(nothing())
        else:
            for _ in repeat(None, count):
                nothing()
        calling.append(clock() - middle_ns)
        bare.append(middle_ns - start_ns)
    return max(0.0, (min(calling) - min(bare)) / count)
