"""What limits a simulated workload? Found by changing one thing and running it again, never by looking at rows.

Three reruns: the host in half the time, the device in half the time, and no waits (no synchronising calls, and copies
for which the host does not wait). The last of them tells how much of the idle time the waits cost: what is idle no
more. What the device still waits for in it is the share of each other cause. So the shares, what is busy among them,
sum to the window. (A window may shrink by more than its idle time, where streams run side by side once nobody waits. No
record shows that, so it is in the gains alone.)

>>> from referee.testing import Workload, limit_of
>>> limit = limit_of(Workload(kernel_ns=80_000, op_ns=4_000, sync_every=1, after_sync_ns=60_000))
>>> limit.regime, limit.helps
('sync-bound', 'no syncs')
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from referee.testing.simulation import Truth, Workload, intervene, truth_of

NAMES_FRAC, RIVAL_FRAC, CLEAR_PER_OP_FRAC, BUSY_FRAC = 0.24, 0.7, 0.40, 0.60
"""The rule that names a regime from the shares of the window, written down a second time: see docs/regimes."""
LOST_FRAC = 0.5
"""From this share of device rows lost on, no verdict can be right."""


@dataclass(frozen=True, kw_only=True)
class Limit:
    """The limit of a workload. Gains and shares are fractions of the window of the unchanged workload."""

    gains: Mapping[str, float]
    """What each of the three reruns takes off the window: ``host``, ``device``, ``no syncs``."""
    losses: Mapping[str, float]
    """By regime: the share of the window that goes to what names it."""
    busy_frac: float
    regime: str

    @property
    def helps(self) -> str:
        """The rerun that gains most."""
        return max(self.gains, key=lambda name: self.gains[name])

    @property
    def leading_frac(self) -> float:
        """The largest loss."""
        return max(self.losses.values())

    def is_open(self, margin_frac: float) -> bool:
        """Whether a share that decides lies so near its threshold that the neighbouring answer is as right.

        These are the largest loss at the threshold for naming anything, operators at the one for being clear, and the
        second loss at the one for being a rival.
        """
        if self.regime == "cannot-tell":
            return False
        (name, first), (_, second) = sorted(self.losses.items(), key=lambda item: -item[1])[:2]
        distances = [abs(first - NAMES_FRAC), abs(second - max(NAMES_FRAC, RIVAL_FRAC * first))]
        if name == "launch-bound":
            distances.append(abs(first - CLEAR_PER_OP_FRAC))
        return min(distances) <= margin_frac


def limit_of(workload: Workload, *, seed: int = 0) -> Limit:
    """The limit by interventions. The recording is perfect in all of them: lost rows and clocks change no truth."""
    truth = truth_of(workload, seed=seed)
    window_ns = truth.window_ns
    unsynced = truth_of(intervene(workload, synchronises=False), seed=seed)
    reruns = {
        "host": truth_of(intervene(workload, host=0.5), seed=seed),
        "device": truth_of(intervene(workload, device=0.5), seed=seed),
        "no syncs": unsynced,
    }
    gains = {name: (window_ns - rerun.window_ns) / window_ns for name, rerun in reruns.items()}
    losses = _losses(truth, unsynced=unsynced)
    busy_frac = truth.busy_ns / window_ns
    lost = truth.lost_rows >= LOST_FRAC * truth.device_rows
    regime = "cannot-tell" if lost else named_by_rule(losses, busy_frac=busy_frac)
    return Limit(gains=gains, losses=losses, busy_frac=busy_frac, regime=regime)


def _losses(truth: Truth, *, unsynced: Truth) -> dict[str, float]:
    waited = unsynced.waited_ns
    times = {
        "launch-bound": waited["op"] + waited["latency"] + waited["sync"],
        "input-bound": waited["loader"],
        "sync-bound": sum(truth.waited_ns.values()) - sum(waited.values()),
        "transfer-bound": truth.copies_ns,
        "communication-bound": truth.collectives_ns,
        "cold": waited["one-off"],
    }
    return {regime: ns / truth.window_ns for regime, ns in times.items()}


def named_by_rule(losses: Mapping[str, float], *, busy_frac: float) -> str:
    """The regime that these shares of the window name."""
    ranked = sorted(losses, key=lambda name: -losses[name])
    first, second = losses[ranked[0]], losses[ranked[1]]
    if first < NAMES_FRAC:
        return "compute-bound" if busy_frac >= BUSY_FRAC else "mixed"
    if second >= NAMES_FRAC and second >= RIVAL_FRAC * first:
        return "mixed"
    if ranked[0] == "launch-bound" and first < CLEAR_PER_OP_FRAC:
        return "mixed"
    return ranked[0]
