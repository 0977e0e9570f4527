"""The profiler's cost: its arithmetic exactly, and that the chain is what it claims to be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from referee.analysis.diagnose import diagnose
from referee.capture import Plan, capture, cost, session
from referee.capture.cost import Timed, calibrate_cost, corrected_step_ns, correction_ratio, cost_from
from referee.device.registry import open_device
from referee.errors import CannotTell
from referee.records.capture import CaptureOptions, Integrity
from referee.trace.reader import read_trace

torch = pytest.importorskip("torch")


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A calibration whose figures are known: what the machine would give is not looked at, only what becomes of it."""
    links = {"operators": timed(1000 * 300, ops=1000), "backward": timed(0), "step": timed(20_000)}
    given = {"frames": timed(100 * 50, frames=100), "annotations": timed(10 * 3000, annotations=10)}
    monkeypatch.setattr(session, "calibrate_cost", lambda *, options: cost_from(links, options=options))
    monkeypatch.setattr(cost, "calibrate_cost", lambda *, options: cost_from(links | given, options=options))


@pytest.fixture
def disturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A calibration during which the machine slowed down what ran without the profiler."""
    noisy = Timed(
        plain_ns=[5_000_000, 1_000_000, 5_000_000, 1_000_000],
        profiled_ns=[3_500_000, 3_300_000, 3_500_000, 3_300_000],
        rows=rows(ops=1000),
    )
    links = {"operators": noisy, "backward": timed(0), "step": timed(0)}
    monkeypatch.setattr(session, "calibrate_cost", lambda *, options: cost_from(links, options=options))


def rows(**given: int) -> Integrity:
    none = {"events": 0, "ops": 0, "device_rows": 0, "launches": 0, "launches_unmatched": 0, "device_rows_unlinked": 0}
    return Integrity(steps_found=(), lost=None, **{**none, **given})


def timed(added_ns: int, **given: int) -> Timed:
    """A link that takes 1 ms, and ``added_ns`` more under the profiler; now and then something else runs too."""
    plain = [1_000_000, 5_000_000, 1_000_000, 1_000_000]
    return Timed(plain_ns=plain, profiled_ns=[ns + added_ns for ns in plain], rows=rows(**given))


def test_each_cost_is_what_the_known_ones_leave() -> None:
    links = {
        "frames": timed(100 * 50, frames=100),
        "annotations": timed(10 * 3000 + 20 * 50, annotations=10, frames=20),
        "operators": timed(1000 * 300 + 1000 * 50, ops=1000, frames=1000),
        "backward": timed(500 * 300 + 200 * 700, ops=500, backward_ops=200),
        "step": timed(20_000 + 40 * 300, ops=40),
    }
    found = cost_from(links, options=CaptureOptions(stacks=True, modules=True))
    assert (found.per_frame_ns, found.per_annotation_ns, found.per_row_ns) == (50.0, 3000.0, 300.0)
    assert (found.per_backward_ns, found.per_step_ns) == (700.0, 20_000.0)
    assert (found.low_ns, found.high_ns, found.rounds) == (300.0, 300.0, 4)


def test_the_quartiles_of_the_rounds_stand_beside_the_cost() -> None:
    chain = Timed(
        plain_ns=[1_000_000, 5_000_000, 1_000_000, 1_100_000],
        profiled_ns=[1_200_000, 5_200_000, 1_400_000, 1_200_000],
        rows=rows(ops=1000),
    )
    nothing = timed(0)
    found = cost_from({"operators": chain, "backward": nothing, "step": nothing}, options=CaptureOptions())
    assert found.per_row_ns == 200.0
    assert found.low_ns < 200.0 < found.high_ns


def test_the_chain_has_the_rows_it_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "ROUNDS", 2)
    seen: dict[str, Timed] = {}
    monkeypatch.setattr(cost, "cost_from", lambda found, **_: seen.update(found))
    options = CaptureOptions(stacks=True, modules=True)
    calibrate_cost(options=options)
    assert cost.CHAIN == 1000
    forward, backward = seen["operators"].rows, seen["backward"].rows
    assert 1000 < forward.ops < 2000
    assert forward.backward_ops == 0
    # A node for each add and for each of the others, with a row of its own each.
    assert 1000 < backward.backward_ops < backward.ops / 2
    assert seen["frames"].rows.frames >= 1000
    assert seen["annotations"].rows.annotations == 1001


@pytest.mark.parametrize("kind", ["ops", "frames", "annotations"])
@pytest.mark.parametrize("added_ns", [0, -1_500_000])
def test_a_cost_that_cannot_be_told_from_nothing_is_none(kind: str, added_ns: int) -> None:
    links = {
        "operators": timed(1000 * 300, ops=1000),
        "frames": timed(100 * 50, frames=100),
        "annotations": timed(10 * 3000, annotations=10),
        "backward": timed(0),
        "step": timed(0),
    }
    doubtful = {"ops": "operators"}.get(kind, kind)
    links[doubtful] = timed(added_ns, **{kind: 1000})
    with pytest.raises(CannotTell, match="cannot be told, because its calibration gave"):
        cost_from(links, options=CaptureOptions())


@pytest.mark.usefixtures("disturbed")
def test_a_capture_stores_no_cost_that_cannot_be_told_and_says_so(tmp_path: Path) -> None:
    record = capture(
        lambda: torch.ones(2), device=open_device("cpu"), dtype="float32", shapes=(), out_dir=tmp_path, name="t",
        timing_budget_ns=0,
    )  # fmt: skip
    assert record.cost is None
    assert (
        "profiler_cost_ns" not in record.provenance.method
        or record.provenance.value("method.profiler_cost_ns") == "not read"
    )
    (said,) = record.findings
    assert said.code == "cost-unknown"
    assert said.message == (
        "What recording an operator row costs here cannot be told, because its calibration gave -1.50 to 2.30 µs, "
        "which is not above zero; so none is stored, and nothing is corrected for it."
    )
    assert said in diagnose(read_trace(record.files[0].path)).findings


@pytest.mark.usefixtures("known")
def test_each_option_has_its_own_cost() -> None:
    found = cost.option_costs()
    assert all(not isinstance(given, CannotTell) for _, given in found)
    words = [options.words() for options, _ in found]
    assert words == ["none", "shapes", "stacks", "memory", "flops", "modules"]


@pytest.mark.usefixtures("known")
def test_a_capture_of_a_training_step_is_corrected_by_its_own_rows(tmp_path: Path) -> None:
    weight = torch.ones(4, requires_grad=True)

    def step() -> Any:
        loss = (weight * 2).sum()
        loss.backward()
        return loss.detach()

    record = capture(
        step, device=open_device("cpu"), dtype="float32", shapes=(), out_dir=tmp_path, name="t", plan=Plan.of(active=2),
        timing_budget_ns=0,
    )  # fmt: skip
    (file,) = record.files
    assert record.cost is not None
    assert file.integrity is not None
    assert file.integrity.backward_ops == 2 * 3, "sum, mul and the accumulation, twice"
    assert record.provenance.value("method.profiler_cost_ns") == record.cost.per_row_ns

    counted = replace(file.integrity, ops=40, backward_ops=4, frames=6, annotations=2)
    costs = replace(
        record.cost, per_row_ns=500.0, per_backward_ns=100.0, per_frame_ns=10.0, per_annotation_ns=30.0, per_step_ns=7.0
    )
    known = replace(
        record, step_ns=(90_000, 110_000), files=(replace(file, integrity=counted),), cost=costs,
        unprofiled_ns=(80_000.0, 84_000.0),
    )  # fmt: skip
    # The lower quartile of the two steps is 95,000; the rows are those of two.
    corrected = 95_000 - (40 * 500 + 4 * 100 + 6 * 10 + 2 * 30) / 2 - 7
    assert corrected_step_ns(known) == corrected
    assert correction_ratio(known) == corrected / 81_000
    assert correction_ratio(replace(known, unprofiled_ns=())) is None
    assert corrected_step_ns(replace(known, cost=None)) is None
    assert corrected_step_ns(replace(known, cost=replace(costs, per_row_ns=5000.0))) is None, "more than the step"
    assert corrected_step_ns(replace(known, files=(replace(file, integrity=None),))) is None
