"""Random workloads of every kind that the simulation knows, for checking an analysis against their limits.

Sizes are drawn evenly on a logarithmic scale over what real steps show: operators of 2 to 63 µs on the host, kernels of
1.6 to 200 µs, launch latencies of 1 to 14 µs. The same seed gives the same workload. The queue holds 1,024
launches, as CUDA's does, or 20. Where the host waits for the device it is the longer one: how a shorter one would hold
the host back without the waits depends on its length, which a record in which it is never full does not show.

>>> from referee.testing import draw_workload
>>> draw_workload(3).collective_ns > 0
True
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from referee.testing.simulation import Workload

_Choice = tuple[float, float] | list[int] | int | float | bool
KINDS: Mapping[str, Mapping[str, _Choice]] = {
    "plain": {},
    "loader": {"loader_ns": (5.5, 7.3)},
    "copy": {"copy_ns": (5.0, 7.0), "queue_length": 1024},
    "collective": {"collective_ns": (5.0, 7.0)},
    "first": {"first_step_ns": (6.7, 8.0)},
    "graph": {"graph": True},
    "sync": {"sync_every": [1, 2, 5, 10, 30], "after_sync_ns": (3.5, 5.5), "queue_length": 1024},
    "sync after long kernels": {
        "sync_every": [1, 2, 3],
        "after_sync_ns": (4.0, 5.3),
        "kernel_ns": (4.3, 5.3),
        "op_ns": (3.3, 4.0),
        "queue_length": 1024,
    },
    "lost": {"lost_frac": 0.65, "ops": 100},
    "loader and copy": {"loader_ns": (5.5, 7.3), "copy_ns": (5.0, 7.0), "queue_length": 1024},
    "sync and collective": {
        "sync_every": [5, 10, 30],
        "after_sync_ns": (3.5, 5.5),
        "collective_ns": (5.0, 7.0),
        "queue_length": 1024,
    },
}
"""What is drawn besides the plain sizes: powers of ten between two exponents, one of a list, or the value itself."""


def kind_of(seed: int) -> str:
    """The kind of workload that this seed draws: each in turn."""
    return list(KINDS)[seed % len(KINDS)]


def draw_workload(seed: int) -> Workload:
    """A random workload of the seed's kind."""
    kind = kind_of(seed)
    draw = random.Random(f"{kind}-{seed}")

    def one(choice: _Choice) -> int | float | bool:
        if isinstance(choice, tuple):
            return int(10 ** draw.uniform(*choice))
        return draw.choice(choice) if isinstance(choice, list) else choice

    special: dict[str, Any] = {name: one(choice) for name, choice in KINDS[kind].items()}
    plain: dict[str, Any] = {
        "steps": draw.randint(2, 4),
        "ops": draw.choice((5, 30, 100)),
        "op_ns": one((3.3, 4.8)),
        "kernel_ns": one((3.2, 5.3)),
        "streams": draw.choice((1, 1, 2)),
        "latency_ns": draw.choice((1_000, 2_000, 6_000, 14_000)),
        "jitter": draw.choice((0.0, 0.2)),
        "queue_length": draw.choice((1024, 20)),
    }
    return Workload(**(plain | special))
