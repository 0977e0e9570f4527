"""Edits that change different times may be asked for in either order."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.testing import Workload, simulate
from referee.whatif import edits as make
from referee.whatif.replay import ask

US = 1_000


@settings(max_examples=15, deadline=None)
@given(
    one=st.sampled_from(["overlap", "hide", "amp", "fuse", "sync"]),
    other=st.sampled_from(["overlap", "hide", "amp", "fuse", "sync"]),
)
def test_edits_of_different_kinds_commute_exactly(one: str, other: str) -> None:
    makers = {
        "overlap": make.overlap_copies(),
        "hide": make.hide_communication(),
        "amp": make.low_precision(),
        "fuse": make.fuse(),
        "sync": make.no_sync(),
    }
    workload = Workload(
        kernel_ns=20 * US, op_ns=10 * US, sync_every=7, steps=2, ops=14, copy_ns=80 * US, collective_ns=60 * US
    )
    trace = simulate(workload, seed=2).trace
    there = ask(trace, [makers[one], makers[other]]).together
    back = ask(trace, [makers[other], makers[one]]).together
    assert there is not None
    assert back is not None
    assert np.array_equal([there.low_ns, there.high_ns], [back.low_ns, back.high_ns])
