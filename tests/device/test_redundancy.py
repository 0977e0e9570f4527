"""What a recorded step need not run: equal operators on equal inputs, and results that nobody asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from referee.device.observe import observe
from referee.device.redundancy import Redundancy
from referee.device.registry import open_device

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def put(tensor: Any) -> Any:
    moved = tensor.to("lazy")
    open_device("lazy").settle(moved)
    return moved


@pytest.fixture
def x() -> Any:
    open_device("lazy")
    return put(torch.randn(8, 8))


def found(step: Callable[[], object], device: str = "lazy") -> Redundancy | None:
    opened = open_device(device)
    observe(step, opened)
    return observe(step, opened).redundancy


def test_equal_products_are_repeats(x: Any) -> None:
    seen = found(lambda: [x @ x for _ in range(10)])
    assert seen is not None
    assert seen.repeated is not None
    assert (seen.repeated.operator, seen.repeated.times, seen.repeated.operators) == ("mm", 10, {"mm": 9})
    assert seen.repeated.work_frac == pytest.approx(0.9)
    assert (seen.dropped, seen.flop) == ({}, 9 * 2 * 8**3)


def test_equality_goes_through_what_was_computed_before(x: Any) -> None:
    """Two equal chains: their views are one, so their products are."""
    seen = found(lambda: [torch.tanh(x.t() @ x) for _ in range(2)])
    assert seen is not None
    assert seen.repeated is not None
    assert seen.repeated.operators == {"mm": 1, "tanh": 1}


def test_a_loop_that_keeps_its_last_result_alone_drops_the_others(x: Any) -> None:
    def step() -> Any:
        for number in range(10):
            y = x @ (x + number)
        return y

    seen = found(step)
    assert seen is not None
    assert (seen.dropped["mm"], seen.repeated) == (9, None)
    assert seen.dropped_frac == pytest.approx(0.9)


@pytest.mark.parametrize("name", ["chain", "other inputs", "other numbers", "random", "in place"])
def test_what_differs_is_no_repeat(name: str, x: Any) -> None:
    others = [put(torch.randn(8, 8)) for _ in range(3)]

    def chain() -> Any:
        y = x
        for _ in range(3):
            y = y @ x
        return y

    def in_place() -> Any:
        y = x.clone()
        products = [y @ y]
        y.add_(1)
        return [*products, y @ y]

    steps: dict[str, Callable[[], Any]] = {
        "chain": chain,
        "other inputs": lambda: [x @ other for other in others],
        "other numbers": lambda: [x + 1, x + 1.0, x + 2],
        "random": lambda: [torch.rand(3, device="lazy") for _ in range(2)],
        "in place": in_place,
    }
    assert found(steps[name]) is None


def test_a_training_step_has_nothing_to_spare() -> None:
    open_device("lazy")
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8)).to("lazy")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = put(torch.randn(4, 8))

    def step() -> Any:
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    seen = found(step)
    assert seen is None or (not seen.dropped and (seen.repeated is None or "addmm" not in seen.repeated.operators))


def test_gradients_that_are_in_no_output_run_with_the_call_and_are_nothing_to_spare() -> None:
    """Each call's graph is handed over with the gradients that are still held (:mod:`referee.device.lazy`)."""
    open_device("lazy")
    model, batch = torch.nn.Linear(8, 8).to("lazy"), put(torch.randn(4, 8))

    def loss_alone() -> Any:
        model.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        return loss.detach()

    def with_gradients() -> Any:
        return loss_alone(), [parameter.grad for parameter in model.parameters()]

    for step in (loss_alone, with_gradients):
        seen = found(step)
        assert seen is None or seen.dropped == {}


def test_the_costliest_can_be_built_on_inputs_of_its_kind(x: Any) -> None:
    seen = found(lambda: [x @ x for _ in range(2)])
    assert seen is not None
    assert seen.repeated is not None
    assert seen.repeated.again is not None
    first, second = (seen.repeated.again()() for _ in range(2))
    assert first.shape == (8, 8)
    assert not torch.equal(first.cpu(), second.cpu())


def test_indices_are_not_made_up() -> None:
    open_device("lazy")
    table, index = put(torch.randn(100, 8)), put(torch.arange(4))
    seen = found(lambda: [torch.index_select(table, 0, index) for _ in range(2)])
    assert seen is not None
    assert seen.repeated is not None
    assert seen.repeated.again is None


def test_a_device_that_runs_everything_has_none() -> None:
    y = torch.randn(8, 8)
    assert found(lambda: [y @ y for _ in range(3)], "cpu") is None
