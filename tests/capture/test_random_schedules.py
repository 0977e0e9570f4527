"""Two hundred schedules with the real profiler: exactly the iterations that the plan names are in the files.

The steps are counted from the traces in two ways: by the profiler's step rows, and by an operator of which iteration k
runs exactly one, on k + 1 elements.
"""

from __future__ import annotations

import gzip
import json
import tempfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from referee.capture import Plan, capture
from referee.device.registry import open_device
from referee.records.capture import CaptureOptions

torch = pytest.importorskip("torch")

small = st.integers(0, 3)
plans = st.one_of(
    st.builds(
        Plan.of, skip=small, wait=small, warmup=small, active=st.integers(1, 3), repeat=st.integers(0, 3),
        skip_first_wait=st.booleans(),
    ),
    st.builds(
        Plan.at, st.lists(st.integers(0, 15), min_size=1, max_size=4).map(tuple), warmup=small,
        active=st.integers(1, 3),
    ),
)  # fmt: skip


def iterations_in(path: str) -> tuple[list[int], list[int]]:
    """The iterations in a trace, by step rows and by the sizes of the operator that marks them."""
    with gzip.open(path) as stream:
        rows = [e for e in json.load(stream)["traceEvents"] if e.get("ph") == "X"]
    marks = [int(e["name"].partition("#")[2]) for e in rows if e["name"].startswith("ProfilerStep#")]
    sizes = [e["args"]["Input Dims"][0][0] - 1 for e in rows if e["name"] == "aten::neg"]
    return sorted(marks), sorted(sizes)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plan=plans, further=st.integers(0, 14))
def test_exactly_the_planned_iterations_are_recorded(plan: Plan, further: int) -> None:
    iterations = plan.first_recorded() + 1 + further
    tensors = iter([torch.ones(number + 1) for number in range(iterations)])
    with tempfile.TemporaryDirectory() as folder:
        record = run(plan, iterations, tensors, folder)
        files = [iterations_in(file.path) for file in record.files]
    expected = [list(recorded) for recorded in plan.dry_run(iterations).recorded]
    assert [marks for marks, _ in files] == expected
    assert [sizes for _, sizes in files] == expected
    assert [list(file.iterations) for file in record.files] == expected


def run(plan: Plan, iterations: int, tensors, folder: str):  # type: ignore[no-untyped-def]
    return capture(
        lambda: torch.neg(next(tensors)), device=open_device("cpu"), dtype="float32", shapes=(), out_dir=folder,
        name="t", plan=plan, iterations=iterations, options=CaptureOptions(shapes=True), timing_budget_ns=0,
        calibrate=False,
    )  # fmt: skip
