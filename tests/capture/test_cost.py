"""The profiler's cost: its arithmetic exactly, and that the chain is what it claims to be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from referee.capture import Plan, capture, cost
from referee.capture.cost import calibrate_cost, corrected_step_ns, cost_from
from referee.device.registry import open_device
from referee.records.capture import CaptureOptions

torch = pytest.importorskip("torch")


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short chain, a few times: what it gives is not looked at, only that it is carried on."""
    monkeypatch.setattr(cost, "ROUNDS", 2)
    monkeypatch.setattr(cost, "CHAIN", 20)
    monkeypatch.setattr(cost, "_GROUPS", 2)


def test_the_cost_is_the_difference_of_the_lower_quartiles() -> None:
    plain = [1_000_000, 5_000_000, 1_000_000, 1_100_000]
    profiled = [1_200_000, 5_200_000, 1_400_000, 1_200_000]
    found = cost_from(plain, profiled, rows=1000, options=CaptureOptions())
    assert found.per_row_ns == 200.0
    assert found.low_ns <= found.per_row_ns <= found.high_ns
    assert found.rounds == 4


def test_the_chain_has_the_rows_it_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "ROUNDS", 2)
    seen: list[int] = []
    real = cost.cost_from

    def spy(*given: Any, **named: Any) -> Any:
        seen.append(named["rows"])
        return real(*given, **named)

    monkeypatch.setattr(cost, "cost_from", spy)
    found = calibrate_cost(options=CaptureOptions())
    assert found.chain == 1000
    # An add and two rows of its backward each, and as many again of the others.
    assert 2 * 3000 < seen[0] < 3 * 3000


@pytest.mark.usefixtures("short")
def test_each_option_has_its_own_cost() -> None:
    words = [found.options.words() for found in cost.option_costs()]
    assert words == ["none", "shapes", "stacks", "memory", "flops", "modules"]


@pytest.mark.usefixtures("short")
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

    known = replace(
        record,
        step_ns=(90_000, 110_000),
        files=(replace(file, integrity=replace(file.integrity, host_rows=40)),),
        cost=replace(record.cost, per_row_ns=500.0),
    )
    assert corrected_step_ns(known) == 100_000 - 20 * 500
    assert corrected_step_ns(replace(known, cost=None)) is None
    assert corrected_step_ns(replace(known, files=(replace(file, integrity=None),))) is None
