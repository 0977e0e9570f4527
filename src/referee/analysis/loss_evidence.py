"""What stands behind the largest loss? What waits hide, where pauses are spent, whether first-time costs come again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from referee.analysis.host_work import who_computes
from referee.analysis.owners import pause_owners
from referee.analysis.study import Study
from referee.records.verdict import PAUSES_IN, Evidence
from referee.trace.columns import NONE, Kind
from referee.trace.steps import MIN_STEPS_TO_JUDGE, step_of
from referee.units import format_bytes, format_frac, format_ns, format_rate

BEHIND_FRAC = 0.05
"""A second cause behind the waits is worth a step of the evidence from this share of the window on."""
MOSTLY_FRAC = 0.5
"""An owner of this share of the pauses speaks for them; first-time costs in more than this share of the steps recur."""
COLD_STEP_FRAC = 0.05
"""A step has first-time costs if they take this share of it."""
LARGE_BYTES = 1 << 20
"""A copy of at least this size shows the rate of its link; a smaller one its latency as well."""
_BEHIND = {
    "loader": "the data loader",
    "allocator": "the driver's allocator",
    "one_off": "first-time work",
    "pause": "pauses",
}


def behind_the_loss(study: Study) -> Iterator[Evidence]:
    """What is to be said of the largest loss beside its size."""
    leads = study.shares.losses[0].name
    if leads == "synchronised":
        yield from _behind_waits(study)
    elif leads == "pauses":
        yield from _during_pauses(study)
    elif leads == "computation on the host":
        yield from _who_computes(study)
    elif leads == "exposed copies":
        yield from _rate_of_copies(study)
    elif leads == "first-time costs":
        yield from _again(study)


def _behind_waits(study: Study) -> Iterator[Evidence]:
    """What else the host did in the idle time that is given to waits."""
    cause, ns = max(study.behind_waits.items(), key=lambda item: item[1])
    if ns >= BEHIND_FRAC * study.totals.window_ns:
        yield Evidence(
            name=f"timeline: behind these waits, {_BEHIND[cause]}",
            value=ns / study.totals.window_ns,
            unit="frac",
            threshold=format_frac(BEHIND_FRAC),
            so=f"the waits and {_BEHIND[cause]} make {format_ns(ns)} together: take away either, and that is gone",
        )


def _during_pauses(study: Study) -> Iterator[Evidence]:
    """In what the host stood still, if the file holds a row around most of it."""
    owned = pause_owners(study.trace, study.gaps)
    total_ns = study.idle.host_starved.pause_ns
    if not owned or owned[0][1] < MOSTLY_FRAC * total_ns:
        return
    name, ns = owned[0]
    yield Evidence(
        name=f"timeline: {PAUSES_IN}{name}",
        value=ns / total_ns,
        unit="frac",
        threshold=format_frac(MOSTLY_FRAC),
        so=f"{format_ns(ns)} of {format_ns(total_ns)}, by the innermost row around the middle of each",
    )


def _who_computes(study: Study) -> Iterator[Evidence]:
    """The operator that computes longest while the device has nothing to do."""
    (name, ns), *others = who_computes(study.trace, study.gaps)
    yield Evidence(
        name=f"timeline: idle while the host computes {name}",
        value=ns / study.totals.window_ns,
        unit="frac",
        so=f"it launches nothing, so no graph holds it; {len(others)} more such operators"
        if others
        else "it launches nothing, so no graph holds it",
    )


def _rate_of_copies(study: Study) -> Iterator[Evidence]:
    """How fast the large copies went that take most of the time, if the file says how large they are."""
    if study.details is None:
        return
    launches, rows = study.details.launches, study.trace.rows
    large = (rows.kind[launches.rows] == Kind.MEMCPY) & (launches.size_bytes >= LARGE_BYTES)
    copies, size_bytes = launches.rows[large], launches.size_bytes[large]
    if not copies.size:
        return
    took_ns = rows.end_ns[copies] - rows.start_ns[copies]
    names, code = np.unique(rows.name[copies], return_inverse=True)
    most = int(np.bincount(code, weights=took_ns).argmax())
    moved, ns = int(size_bytes[code == most].sum()), int(took_ns[code == most].sum())
    if ns:
        yield Evidence(
            name=f"copies: rate of {study.trace.names[int(names[most])]}",
            value=format_rate(moved / ns * 1e9, "B"),
            threshold="PCIe x16: about 12 GB/s for generation 3, twice that for each later one",
            so=f"{format_bytes(moved)} in {format_ns(ns)}; far below it the memory is pageable, the link narrower or "
            "shared, or the memory on another socket",
        )


def _again(study: Study) -> Iterator[Evidence]:
    """First-time costs that come again are no warm-up."""
    if recurs(study):
        yield Evidence(
            name="timeline: steps with first-time costs",
            value=cold_steps(study),
            threshold=f"half of {len(study.steps)} steps",
            so="no warm-up ends this: something is compiled or loaded anew in most steps",
        )


def cold_steps(study: Study) -> int:
    """How many steps have first-time costs."""
    steps = study.trace.steps
    one_off_ns = np.zeros(len(steps), dtype=np.int64)
    for g in study.gaps:
        late = np.flatnonzero(g.one_off_ns)
        # Idle time belongs to the step that launched what ended it: the device's own time runs behind the host's.
        launched = np.where(g.launch[late] == NONE, g.end_ns[late], study.trace.rows.start_ns[g.launch[late]])
        step = step_of(steps, launched)
        np.add.at(one_off_ns, step[step != NONE], g.one_off_ns[late][step != NONE])
    walls = np.array([step.end_ns - step.start_ns for step in steps], dtype=np.int64)
    return int((one_off_ns > COLD_STEP_FRAC * walls).sum())


def recurs(study: Study) -> bool:
    """Whether first-time costs come again in most of the steps."""
    return len(study.trace.steps) >= MIN_STEPS_TO_JUDGE and cold_steps(study) > MOSTLY_FRAC * len(study.trace.steps)
