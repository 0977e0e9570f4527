"""Helpers for tests: traces whose truth is known, and what limits them as interventions show it."""

from referee.testing.limits import Limit, limit_of, named_by_rule
from referee.testing.simulation import (
    Simulation,
    Truth,
    Workload,
    intervene,
    simulate,
    simulate_ranks,
    truth_of,
)
from referee.testing.workloads import draw_workload, kind_of

__all__ = [
    "Limit",
    "Simulation",
    "Truth",
    "Workload",
    "draw_workload",
    "intervene",
    "kind_of",
    "limit_of",
    "named_by_rule",
    "simulate",
    "simulate_ranks",
    "truth_of",
]
