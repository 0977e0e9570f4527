"""Does the diagnosis name what interventions name? Simulated traces of every kind, each judged both ways.

    python benchmarks/diagnosis.py [--traces 1000] [--first 0]

The truth of a trace is found without looking at its rows: the simulation runs again with the host in half the time,
with the device in half the time, and without waits (see ``referee.testing.limits``); the shares of the window so found
name the regime by the rule of ``docs/regimes``. Referee reads the trace alone.

Printed are: in how many traces the causes sum to the idle time; a table of true regimes against verdicts; each
disagreement with the seed that draws it again; and which rerun gains most under each regime. Near the threshold of
24 % either answer is right: traces whose largest loss lies within 5 points of it are counted apart. Exit status 1 if a
trace outside them is named otherwise or a sum is wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from referee.analysis.diagnose import diagnose
from referee.analysis.study import Study
from referee.records.trace_report import TraceReport
from referee.testing import Limit, draw_workload, kind_of, limit_of, simulate
from referee.testing.limits import NAMES_FRAC

OPEN_FRAC = 0.05
HELPS = {
    "launch-bound": "host",
    "input-bound": "host",
    "cold": "host",
    "sync-bound": "no syncs",
    "compute-bound": "device",
    "transfer-bound": "device",
    "communication-bound": "device",
}
"""The rerun that one expects to gain most."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One trace: its limit, the verdict on it, and whether the report adds up."""

    seed: int
    limit: Limit
    verdict: str
    found: Mapping[str, float]
    """The losses that Referee read off the trace, as shares of the window."""
    sums: bool

    @property
    def open(self) -> bool:
        """Whether the largest loss is too near the threshold to demand an answer."""
        return self.limit.regime != "cannot-tell" and abs(self.limit.leading_frac - NAMES_FRAC) <= OPEN_FRAC

    @property
    def agrees(self) -> bool:
        """Whether Referee names what interventions name."""
        return self.verdict == self.limit.regime


def judge(seed: int) -> Outcome:
    """Simulate, diagnose, intervene."""
    workload = draw_workload(seed)
    trace = simulate(workload, seed=seed).trace
    report = diagnose(trace)
    return Outcome(
        seed=seed,
        limit=limit_of(workload, seed=seed),
        verdict=report.verdict.regime,
        found={share.name: share.frac for share in Study(trace).shares.losses},
        sums=_adds_up(report),
    )


def _adds_up(report: TraceReport) -> bool:
    idle, starved = report.idle, report.idle.host_starved
    causes = (idle.host_starved_ns, idle.synchronised_ns, idle.dependency_ns, idle.other_ns)
    parts = (starved.per_op_ns, starved.loader_ns, starved.allocator_ns, starved.one_off_ns, starved.pause_ns)
    return (
        sum(causes) == report.totals.idle_ns
        and sum(parts) == idle.host_starved_ns
        and min((*causes, *parts)) >= 0
        and report.totals.busy_ns + report.totals.idle_ns == report.totals.window_ns
    )


def table(outcomes: Sequence[Outcome]) -> Iterable[str]:
    """True regimes down, verdicts across."""
    counts = Counter((outcome.limit.regime, outcome.verdict) for outcome in outcomes)
    verdicts = sorted({verdict for _, verdict in counts})
    yield f"{'true limit':<22}" + "".join(f"{name:>21}" for name in verdicts)
    for regime in sorted({regime for regime, _ in counts}):
        yield f"{regime:<22}" + "".join(f"{counts[regime, name] or '-':>21}" for name in verdicts)


def describe(outcome: Outcome) -> str:
    """One disagreement on one line."""
    limit = outcome.limit
    losses, found = (
        ", ".join(f"{name} {frac:.3f}" for name, frac in shares.items() if frac >= 0.01)
        for shares in (limit.losses, outcome.found)
    )
    gains = ", ".join(f"{name} {frac:.3f}" for name, frac in limit.gains.items())
    return (
        f"  seed {outcome.seed} ({kind_of(outcome.seed)}): {limit.regime} by intervention, {outcome.verdict} by Referee"
        f"; losses {losses}; read off the trace {found}; busy {limit.busy_frac:.3f}; reruns gain {gains}"
    )


def reruns(outcomes: Sequence[Outcome]) -> Iterable[str]:
    """Which rerun gains most, by verdict."""
    counts = Counter((outcome.verdict, outcome.limit.helps) for outcome in outcomes)
    for verdict in sorted({verdict for verdict, _ in counts}):
        found = ", ".join(f"{name} {counts[verdict, name]}" for name in ("host", "device", "no syncs"))
        yield f"  {verdict:<22}{found}{f'   (expected: {HELPS[verdict]})' if verdict in HELPS else ''}"


def main() -> int:
    """Print it all; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    outcomes = [judge(seed) for seed in range(options.first, options.first + options.traces)]
    wrong = [outcome for outcome in outcomes if not outcome.agrees]
    clear = [outcome for outcome in outcomes if not outcome.open]
    missed = [outcome for outcome in wrong if not outcome.open]
    unsummed = [outcome.seed for outcome in outcomes if not outcome.sums]
    print(f"causes sum to idle in {len(outcomes) - len(unsummed)} of {len(outcomes)} traces {unsummed or ''}")
    print(f"regime agrees in {len(outcomes) - len(wrong)} of {len(outcomes)} traces")
    print(f"  largest loss outside {NAMES_FRAC} ± {OPEN_FRAC}: {len(clear) - len(missed)} of {len(clear)} agree")
    print("\n".join(table(outcomes)))
    print("disagreements outside:", *(describe(outcome) for outcome in missed), sep="\n")
    print("disagreements within:", *(describe(outcome) for outcome in wrong if outcome.open), sep="\n")
    print("the rerun that gains most, by verdict:", *reruns(outcomes), sep="\n")
    return 1 if missed or unsummed else 0


if __name__ == "__main__":
    sys.exit(main())
